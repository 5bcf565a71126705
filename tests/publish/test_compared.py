"""Sources without a feed, which are compared with what was published last."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from fixtures.mirror import Mirror, canonical
from mirrorfeed.feed.detail import SourceMissing
from mirrorfeed.feed.history import newest_version
from mirrorfeed.feed.source import Source
from mirrorfeed.feed.whole import NothingToRead
from mirrorfeed.landing.metadata import KeysChanged
from mirrorfeed.landing.schema import ColumnsDropped, IncompatibleSchema
from mirrorfeed.publish.compared import ColumnsMoved, ComparedFeed
from mirrorfeed.publish.outcome import Progress
from mirrorfeed.publish.plan import Plan
from mirrorfeed.publish.states import NotStates, States, StatesLost, StatesMoved
from mirrorfeed.publish.table import RowsRefused, publish
from mirrorfeed.stores import FolderStore, Store


class Unswept(States):
    """Removes nothing, which takes Delta longer than all the rest. One test has a table that does."""

    def vacuum(self) -> None:
        pass


class Compared:
    """A view in the catalog, the table of hashes, and a landing zone with a mirror."""

    kind: type[States] = Unswept

    def __init__(self, spark: SparkSession, root: Path, **options: Any) -> None:
        self.spark, self.root = spark, root
        self.source = Source(("compared",))
        self.states = Source(path=str(root / "hashes"))
        self.store = FolderStore(str(root / "landing"))
        self.plan = Plan(str(self.source), "sales.orders", "sales.schema/orders", ("id",), changes="compare", **options)
        self.mirror = Mirror(self.store, self.plan.folder)

    def holds(self, *rows: str, columns: str = "id, v") -> None:
        listed = ", ".join(f"({row})" for row in rows) or "(0, '')"
        where = "" if rows else " WHERE false"
        self.spark.sql(
            f"CREATE OR REPLACE TEMP VIEW {self.source.sql} AS SELECT * FROM VALUES {listed} AS t({columns}){where}"
        )

    def feed(self) -> ComparedFeed:
        return ComparedFeed(self.spark, self.source, self.kind(self.spark, self.states, str(self.source)))

    def publish(self, store: Store | None = None) -> Progress:
        return publish(self.feed(), store or self.store, self.plan)

    @property
    def newest_state(self) -> int:
        return newest_version(self.spark, self.states)

    def is_mirrored(self) -> bool:
        self.mirror.take()
        there = [row.asDict() for row in self.spark.read.table(self.source.sql).collect()]
        return canonical(self.mirror.rows) == canonical(there)


@pytest.fixture
def view(spark: SparkSession, tmp_path: Path) -> Compared:
    return Compared(spark, tmp_path)


@pytest.fixture(scope="module")
def first(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Compared:
    """Rows 1 to 3, published."""
    view = Compared(spark, tmp_path_factory.mktemp("first"))
    view.holds("1, 'a'", "2, 'b'", "3, NULL")
    progress = view.publish()
    assert (progress.rows, progress.published, view.is_mirrored()) == ({"insert": 3}, 0, True)
    return view


@pytest.fixture
def published(first: Compared, tmp_path: Path) -> Compared:
    """The same, to go on with."""
    return Compared(first.spark, shutil.copytree(first.root, tmp_path / "published"))


def test_only_what_differs_is_published_and_what_is_gone_is_deleted(published: Compared) -> None:
    view = published
    view.holds("1, 'a'", "2, 'new'", "4, 'd'")
    second = view.publish()
    assert (second.rows, view.is_mirrored()) == ({"upsert": 2, "delete": 1}, True)

    assert second.made[0].record.read.rows == 3

    view.holds()
    assert (view.publish().rows, view.is_mirrored()) == ({"delete": 3}, True)
    view.holds("4, 'd'")
    assert (view.publish().rows, view.is_mirrored()) == ({"upsert": 1}, True)


def test_where_nothing_differs_there_is_neither_a_commit_nor_a_record(published: Compared) -> None:
    view = published
    view.holds("1, 'a'", "2, 'b'", "3, NULL")
    assert (view.publish().made, view.newest_state) == ([], 0)  # where all rows are kept whole
    view.holds("1, 'a'", "2, 'new'", "3, NULL")
    last = view.publish().published
    kept = view.spark.read.table(view.states.sql).where("_1 IS NOT NULL").collect()
    assert [row["_1"] for row in kept] == ["new"]  # for no longer than it is needed
    view.spark.sql(f"OPTIMIZE {view.states.sql}")  # which is no new state, and nor is VACUUM
    seen = view.newest_state
    again = view.publish()
    assert (again.made, again.published, again.latest, view.newest_state) == ([], last, last, seen)
    assert again.decision == f"nothing new, version {last} is published"
    view.holds("1, 'a'", "2, 'newer'")
    then = view.publish()
    assert (then.rows, then.made[0].record.read.rows) == ({"upsert": 1, "delete": 1}, 2)
    assert view.is_mirrored()


def test_a_state_that_no_record_names_is_mended_also_where_nothing_differs(published: Compared) -> None:
    view = published
    view.holds("1, 'new'")
    with pytest.raises(Killed):
        publish(dying(view.feed(), "after the hashes"), view.store, view.plan)
    view.holds("1, 'a'", "2, 'b'", "3, NULL")  # back again
    mended = view.publish()
    assert (mended.rows, mended.files, mended.publications) == ({}, 0, 1)
    assert mended.published == view.newest_state


def test_files_of_hashes_that_nothing_needs_are_removed(published: Compared, monkeypatch: pytest.MonkeyPatch) -> None:
    view = published
    monkeypatch.setattr(view, "kind", States)

    def files() -> set[str]:
        return {file.name for file in (view.root / "hashes").glob("*.parquet")}

    first = files()
    DeltaTable(view.states.path).alter.set_table_properties({"delta.deletedFileRetentionDuration": "interval 0 hours"})
    view.holds("1, 'a'", "2, 'b'", "3, 'new'")
    view.publish()  # writes the hashes anew
    assert files().isdisjoint(first)
    assert view.publish().made == []
    view.holds("1, 'a'", "3, 'newer'")
    assert (view.publish().rows, view.is_mirrored()) == ({"upsert": 1, "delete": 1}, True)


def test_a_source_without_rows_has_a_first_file(view: Compared) -> None:
    view.holds()
    assert (view.publish().files, view.is_mirrored()) == (1, True)
    view.holds("1, 'a'")
    assert (view.publish().rows, view.is_mirrored()) == ({"upsert": 1}, True)


def test_keys_that_repeat_or_are_null_are_refused_at_first_and_later(view: Compared, published: Compared) -> None:
    view.holds("1, 'a'", "1, 'b'")
    with pytest.raises(RowsRefused, match=r"a key stands for more than one row \(id = 1\)"):
        view.publish()
    assert not list((view.root / "landing").rglob("*.parquet"))
    published.holds("1, 'a'", "NULL, 'b'")
    with pytest.raises(RowsRefused, match=r"a key is NULL \(id = NULL\)"):
        published.publish()
    published.holds("1, 'b'", "2, 'a'", "3, NULL")
    assert (published.publish().rows, published.is_mirrored()) == ({"upsert": 2}, True)


class Killed(BaseException):
    """The process ends here."""


def dying(feed: ComparedFeed, where: str) -> ComparedFeed:
    """A feed whose process is killed at a moment."""

    class Dying(ComparedFeed):
        def _compare(self, *arguments: Any) -> Any:
            if where == "before the hashes":
                raise Killed
            found = super()._compare(*arguments)
            if where == "after the hashes":
                raise Killed
            return found

        def stage(self, *arguments: Any) -> Any:
            found = super().stage(*arguments)
            if where == "after the files":
                raise Killed
            return found

    return Dying(feed.spark, feed.source, feed.states)


def test_a_first_run_that_is_killed_loses_and_doubles_nothing(view: Compared) -> None:
    view.states = Source(("hashes_of_a_first_run",))  # in the catalog, of which only Spark knows
    view.holds("1, 'a'", "2, 'b'", "3, 'c'")
    with pytest.raises(Killed):
        publish(dying(view.feed(), "after the hashes"), view.store, view.plan)
    view.holds("1, 'a'", "2, 'other'")
    assert (view.publish().rows, view.is_mirrored()) == ({"insert": 2}, True)


# At the other moments the table of hashes is as without this run, or as it is here; `test_comparing` kills at all.
AGAIN = pytest.mark.soak


@pytest.mark.parametrize(
    "where",
    [
        "after the hashes",
        pytest.param("before the hashes", marks=AGAIN),
        pytest.param("after the files", marks=AGAIN),
    ],
)
def test_a_run_that_is_killed_loses_and_doubles_nothing_whatever_the_source_is_then(
    published: Compared, where: str
) -> None:
    view = published
    view.holds("1, 'new'", "3, 'c'")
    with pytest.raises(Killed):
        publish(dying(view.feed(), where), view.store, view.plan)
    view.holds("1, 'a'", "2, 'b'", "3, NULL", "4, 'd'")  # back again, but for a row
    assert (view.publish().rows, view.is_mirrored()) == ({"upsert": 1}, True)


@dataclass(frozen=True)
class DyingStore(FolderStore):
    """The process is killed when it creates a record, before or after that took effect."""

    after: bool = False

    def create(self, path: str, data: bytes) -> str | None:
        if self.after:
            super().create(path, data)
        raise Killed


def test_a_kill_around_the_record_publishes_everything_once(published: Compared) -> None:
    view = published
    for n, after in enumerate((False, True)):
        view.holds("1, 'a'", "2, 'b'", f"3, 'of {n}'")
        with pytest.raises(Killed):
            view.publish(DyingStore(view.store.root, after=after))
        view.holds("1, 'a'", "2, 'b'", f"4, 'after {n}'")
        assert view.publish().rows == {"upsert": n + 1, "delete": n + 1}  # with those that the killed run recorded
        assert view.is_mirrored()


def test_two_runs_at_once_agree(published: Compared) -> None:
    view = published
    view.holds("1, 'b'")
    slow = view.feed()

    class Overtaken(ComparedFeed):
        def _compare(self, *arguments: Any) -> Any:
            found = super()._compare(*arguments)
            if not overtaken:
                overtaken.append(view.publish())
                view.holds("1, 'd'", "2, 'e'")
            return found

    overtaken: list[Progress] = []
    publish(Overtaken(slow.spark, slow.source, slow.states), view.store, view.plan)
    assert len(overtaken) == 1
    view.mirror.take()
    assert canonical(view.mirror.rows) == canonical([{"id": 1, "v": "b"}])
    assert (view.publish().rows, view.is_mirrored()) == ({"upsert": 2}, True)


def test_a_folder_that_was_deleted_begins_with_all_rows(published: Compared) -> None:
    view = published
    view.store.remove_folder(view.plan.folder)
    view.holds("1, 'a'", "3, 'c'")
    assert (view.publish().rows, view.is_mirrored()) == ({"insert": 2}, True)


def test_a_commit_of_somebody_else_is_seen_and_the_next_run_is_right(published: Compared) -> None:
    view = published
    view.holds("1, 'a'", "2, 'c'", "3, NULL")
    feed = view.feed()

    class Disturbed(ComparedFeed):
        def _compare(self, *arguments: Any) -> Any:
            DeltaTable(view.states.path).delete("_0 = 1")
            return super()._compare(*arguments)

    with pytest.raises(StatesMoved) as moved:
        publish(Disturbed(feed.spark, feed.source, feed.states), view.store, view.plan)
    assert str(moved.value) == (
        f"Another commit came to {view.states} while {view.source} was compared, so nothing of it was published."
        " Publish again. If it repeats, see to it that one run at a time publishes the table."
    )
    assert (view.publish().rows, view.is_mirrored()) == ({"upsert": 1}, True)


def test_hashes_that_are_gone_are_told(published: Compared) -> None:
    view = published
    view.holds("1, 'a'")
    for file in (view.root / "hashes").glob("*.parquet"):  # as VACUUM would, had another run written them anew
        file.unlink()
    with pytest.raises(StatesLost):
        view.publish()
    shutil.rmtree(view.root / "hashes")
    with pytest.raises(StatesLost) as lost:
        view.publish()
    assert str(lost.value) == (
        f"The hashes of {view.source} that were published as version 0 are not in {view.states}. If somebody"
        " deleted or replaced that table, restore it. Otherwise start the table again with `mirrorfeed rebuild`;"
        " `on_gap: reseed` does that by itself."
    )


def test_a_table_that_somebody_else_made_is_left_alone(view: Compared) -> None:
    view.holds("1, 'a'")
    view.spark.range(1).write.format("delta").save(view.states.path)
    with pytest.raises(NotStates) as there:
        view.publish()
    assert str(there.value) == (
        f"{view.states} is there, and mirrorfeed did not make it: the hashes of {view.source} belong there."
        " Move it away or delete it, or name a ledger in another schema or folder."
    )


def test_columns_of_a_view_come_and_go_as_those_of_a_table_do(published: Compared) -> None:
    view = published
    view.holds("1, 'a', NULL", "2, 'b', 7", columns="id, v, w")
    assert (view.publish().rows, view.is_mirrored()) == ({"upsert": 1, "delete": 1}, True)
    view.holds("1, 7", "2, 7", columns="id, w")
    assert view.publish().rows == {"upsert": 2}
    view.mirror.take()
    assert canonical(view.mirror.rows) == canonical([{"id": 1, "w": 7}, {"id": 2, "w": 7}])
    view.holds("1, 'seven'", columns="id, w")
    with pytest.raises(IncompatibleSchema, match="'w' was integer and is string"):
        view.publish()
    view.holds("1", columns="id")
    view.plan = replace(view.plan, keep_dropped=False)
    with pytest.raises(ColumnsDropped, match="has lost columns"):
        view.publish()


def test_values_that_spark_takes_for_equal_are_told_apart(view: Compared) -> None:
    columns = "id, v, w, d"
    view.holds("1, NULL, 'x', 0.0D", "2, 'x', NULL, double('NaN')", "3, 'x', NULL, 0.0D", columns=columns)
    view.publish()
    view.holds("1, 'x', NULL, 0.0D", "2, 'x', NULL, double('NaN')", "3, 'x', NULL, -0.0D", columns=columns)
    assert (view.publish().rows, view.is_mirrored()) == ({"upsert": 2}, True)


def test_a_change_of_keys_is_refused(published: Compared) -> None:
    view = published
    view.holds("1, 'a'")
    view.plan = replace(view.plan, keys=("v",))
    with pytest.raises(KeysChanged):
        view.publish()


def test_a_folder_of_parquet_files_is_a_source(view: Compared) -> None:
    folder = view.root / "files"
    view.source = Source(path=str(folder))
    folder.mkdir()
    pq.write_table(pa.table({"id": [1, 2], "v": [[1, None], None]}), folder / "first.parquet")
    assert view.publish().rows == {"insert": 2}
    (folder / "first.parquet").unlink()
    pq.write_table(pa.table({"id": [2, 5], "v": [[3], None]}), folder / "second.parquet")
    assert view.publish().rows == {"upsert": 2, "delete": 1}
    view.mirror.take()
    assert canonical(view.mirror.rows) == canonical([{"id": 2, "v": "[3]"}, {"id": 5, "v": None}])


def test_a_path_without_rows_is_refused(view: Compared) -> None:
    view.source = Source(path=str(view.root / "nothing"))
    with pytest.raises(NothingToRead) as refused:
        view.publish()
    assert str(refused.value) == (
        f"There is neither a Delta table nor Parquet files at {view.source}. Check the path, or name the view or the"
        " table in the catalog."
    )
    view.source = Source(("no_such_view",))
    with pytest.raises(SourceMissing):
        view.publish()


def test_columns_that_change_within_a_run_are_told(view: Compared) -> None:
    view.holds("1, 'a'")
    feed = view.feed()

    class Changed(ComparedFeed):
        def check(self, *arguments: Any) -> None:
            view.holds("1, 2", columns="id, v")

    with pytest.raises(ColumnsMoved) as moved:
        publish(Changed(feed.spark, feed.source, feed.states), view.store, view.plan)
    assert str(moved.value) == (
        f"The columns of {view.source} changed while it was about to be compared, so nothing of it was published."
        " Publish again."
    )
