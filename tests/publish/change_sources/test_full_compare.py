"""Sources without a change data feed, which are compared with the last publication."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import SparkSession

from fixtures.mirror import Mirror, canonical
from mirrorfeed.config.loader import load
from mirrorfeed.landing.errors import ColumnsDroppedError, IncompatibleSchemaError, keys_changed
from mirrorfeed.orchestration.publish_run import publish_tables
from mirrorfeed.orchestration.run_context import Callbacks, RunContext
from mirrorfeed.orchestration.table_reload import clear
from mirrorfeed.publish.change_sources.errors import (
    columns_changed_during_comparison,
    foreign_row_hashes,
    row_hashes_changed,
    row_hashes_lost,
    row_hashes_of_other_zone,
)
from mirrorfeed.publish.change_sources.full_compare import FullCompare, RowHashTable
from mirrorfeed.publish.errors import RowsRefusedError, feed_required
from mirrorfeed.publish.table_publisher import publish
from mirrorfeed.publish.table_result import TableResult
from mirrorfeed.source.errors import SourceMissingError, no_table_or_files
from mirrorfeed.source.identifier import Source
from mirrorfeed.source.versions import newest_version
from mirrorfeed.storage import Store
from mirrorfeed.storage.local_folder import FolderStore
from tests.raised import raises
from tests.support.entries import FOLDER, changed, entry

UNNEEDED = "part-unneeded.parquet"


class Unswept(RowHashTable):
    """Removes nothing, because VACUUM takes longer than everything else. Only `second` removes files."""

    def vacuum(self) -> None:
        pass


class Compared:
    """A view in the catalog, the table of row hashes, and a landing zone with a mirror."""

    kind: type[RowHashTable] = Unswept
    zone = "onelake://of/fabric"
    """Name of the landing zone in the configuration."""
    columns: Sequence[str] = ("id", "v")
    always: Sequence[dict[str, Any]] = ()
    """Rows that are always in the source."""

    def __init__(self, spark: SparkSession, root: Path, **options: Any) -> None:
        self.spark, self.root = spark, root
        self.source = Source(("compared",))
        self.states = Source(path=str(root / "hashes"))
        self.store = FolderStore(str(root / "landing"))
        self.plan = entry(self.source, changes="compare", **options)
        self.mirror = Mirror(self.store, FOLDER)

    @classmethod
    def copied(cls, original: Compared, root: Path) -> Compared:
        """Copy another one, with an empty mirror."""
        copy = cls(original.spark, shutil.copytree(original.root, root / "copied"))
        copy.columns, copy.always = original.columns, original.always
        return copy

    def holds(self, *rows: tuple[Any, ...], columns: Sequence[str] = ()) -> None:
        """Replace the source. Each row has values for the first columns; the others are NULL."""
        names = columns or self.columns
        listed = [dict(zip(names, row, strict=False)) for row in rows] + [*self.always]
        self.rows = [{name: row.get(name) for name in names} for row in listed]
        values = ", ".join(f"({', '.join(map(_literal, row.values()))})" for row in self.rows)
        among = f"VALUES {values}" if values else "VALUES (0, '')"
        where = "" if values else " WHERE false"
        self.spark.sql(
            f"CREATE OR REPLACE TEMP VIEW {self.source.sql} AS SELECT * FROM {among} AS t({', '.join(names)}){where}"
        )

    def feed(self) -> FullCompare:
        hashes = self.kind(self.spark, self.states, str(self.source), self.zone)
        return FullCompare(self.spark, self.source, hashes)

    def publish(self, store: Store | None = None) -> TableResult:
        return publish(self.feed(), store or self.store, self.plan)

    @property
    def newest_state(self) -> int:
        return newest_version(self.spark, self.states)

    @property
    def hashes(self) -> set[str]:
        """Files of the row hashes table."""
        return {file.name for file in (self.root / "hashes").glob("*.parquet")}

    def is_mirrored(self) -> bool:
        self.mirror.take()
        return canonical(self.mirror.rows) == canonical(self.rows)


def _literal(value: object) -> str:
    if value is None:
        return "NULL"
    return f"double('{value}')" if isinstance(value, float) else repr(value)


@pytest.fixture
def view(spark: SparkSession, tmp_path: Path) -> Compared:
    return Compared(spark, tmp_path)


def always(*first: tuple[Any, ...]) -> list[dict[str, Any]]:
    """Three rows, plus enough others that a few changes are a small part of them."""
    rows = *first, *((i, f"v{i}", "w", 1.0) for i in range(23, 30))
    return [dict(zip(("id", "v", "w", "d"), row, strict=True)) for row in rows]


@pytest.fixture(scope="module")
def first(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Compared:
    """Rows 1 to 3 and the constant rows, published."""
    view = Compared(spark, tmp_path_factory.mktemp("first"))
    view.columns = ("id", "v", "w", "d")
    view.always = always((20, None, "x", 0.0), (21, "x", None, float("nan")), (22, "x", None, 0.0))
    view.holds((1, "a"), (2, "b"), (3, None))
    progress = view.publish()
    assert (progress.rows, progress.published_version) == ({"insert": 13}, 0)
    return view


@pytest.fixture(scope="module")
def second(first: Compared, tmp_path_factory: pytest.TempPathFactory) -> tuple[Compared, TableResult]:
    """Two of the constant rows changed.

    The hashes were complete, so they were rewritten, and files that were no longer needed were removed. This is slow as
    the first work of a JVM: two publications by comparison and a VACUUM."""
    view = Compared.copied(first, tmp_path_factory.mktemp("second"))
    view.kind = RowHashTable
    _keep_files(view, "interval 1 days")
    unneeded = view.root / "hashes" / UNNEEDED
    unneeded.write_bytes(b"of a killed run")
    os.utime(unneeded, (0, 0))
    view.always = always((20, "x", None, 0.0), (21, "x", None, float("nan")), (22, "x", None, -0.0))
    view.holds((1, "a"), (2, "b"), (3, None))
    progress = view.publish()
    _keep_files(view, "interval 30 days")
    return view, progress


@pytest.mark.slow
def test_files_are_not_removed_without_retention(first: Compared, tmp_path: Path) -> None:
    view = Compared.copied(first, tmp_path)
    view.kind = RowHashTable
    _keep_files(view, "interval 0 hours")
    view.always = always((20, "x", None, 0.0), (21, "x", None, float("nan")), (22, "x", None, -0.0))
    view.holds((1, "a"), (2, "b"), (3, None))
    view.publish()
    assert first.hashes < view.hashes


def _keep_files(view: Compared, interval: str) -> None:
    DeltaTable(view.states.path).alter.set_table_properties({"delta.deletedFileRetentionDuration": interval})


@pytest.fixture
def published(second: tuple[Compared, TableResult], tmp_path: Path) -> Compared:
    """The same, for further changes. The hashes get a few different rows added."""
    return Compared.copied(second[0], tmp_path)


def test_compare_publishes_changed_rows_and_deletes_missing_ones(published: Compared) -> None:
    view = published
    view.holds((1, "a"), (2, "new"), (4, "d"))
    progress = view.publish()
    assert (progress.rows, view.is_mirrored()) == ({"upsert": 2, "delete": 1}, True)
    assert progress.records[0].read.rows == 13

    DeltaTable(view.states.path).optimize.compact()  # which is not a new state, and VACUUM is not either
    seen, last = view.newest_state, progress.published_version
    second = view.publish()
    assert (second.records, second.published_version, second.latest, view.newest_state) == ([], last, last, seen)
    assert second.decision == f"nothing new, version {last} is published"

    view.holds((1, "newer"), (3, "back"))
    second_result = view.publish()
    assert (second_result.rows, view.is_mirrored()) == ({"upsert": 2, "delete": 2}, True)
    assert second_result.records[0].read.rows == 12


def test_values_that_spark_considers_equal_are_compared_exactly(
    second: tuple[Compared, TableResult], published: Compared
) -> None:
    published.holds((1, "a"), (2, "b"), (3, None))
    assert (second[1].rows, published.is_mirrored()) == ({"upsert": 2}, True)


def test_full_rows_are_stored_only_as_long_as_needed(first: Compared, published: Compared) -> None:
    def whole(view: Compared) -> set[int]:
        rows = DeltaTable(view.states.path).to_pyarrow_table().to_pylist()
        assert sum(row["_hash"] is not None for row in rows) == 13
        return {row["_0"] for row in rows if (row["_1"], row["_2"], row["_3"]) != (None, None, None)}

    assert (len(whole(first)), whole(published)) == (12, {20, 22})  # only the key of row 3


def test_only_hash_files_that_the_newest_record_does_not_need_are_removed(first: Compared, published: Compared) -> None:
    """The next run reads the replaced files again if this one is killed before its record."""
    assert first.hashes < published.hashes
    assert UNNEEDED not in published.hashes


@pytest.mark.slow  # the first test publishes without differences as well
def test_hashes_are_not_rewritten_without_differences(first: Compared, tmp_path: Path) -> None:
    view = Compared.copied(first, tmp_path)
    view.holds((1, "a"), (2, "b"), (3, None))
    assert (view.publish().records, view.newest_state) == ([], 0)


@pytest.mark.soak
def test_hashes_of_a_run_that_published_nothing_are_ignored(view: Compared) -> None:
    view.states = Source(("hashes_of_a_first_run",))  # in the catalog, which only Spark can read
    view.holds((1, "a"), (1, "b"))
    with pytest.raises(RowsRefusedError, match=r"a key is not unique \(id = 1\)"):
        view.publish()
    assert not list((view.root / "landing").rglob("*.parquet"))
    view.holds()
    assert (view.publish().files, view.is_mirrored()) == (1, True)
    view.holds((1, "a"))
    assert (view.publish().rows, view.is_mirrored()) == ({"upsert": 1}, True)
    view.holds()
    assert (view.publish().rows, view.is_mirrored()) == ({"delete": 1}, True)


@pytest.mark.slow
def test_null_keys_are_refused_until_they_are_corrected(published: Compared) -> None:
    view = published
    view.holds((1, "a"), (None, "b"))
    with pytest.raises(RowsRefusedError, match=r"a key is NULL \(id = NULL\)"):
        view.publish()
    with pytest.raises(RowsRefusedError, match=r"a key is NULL \(id = NULL\)"):
        clear(view.feed(), view.store, view.plan)
    view.holds((1, "b"), (2, "a"), (3, None))
    assert (view.publish().rows, view.is_mirrored()) == ({"upsert": 2}, True)


class Killed(BaseException):
    """Ends the process at this point."""


def dying(feed: FullCompare, where: str) -> FullCompare:
    """A feed whose process is killed at a moment."""

    class Dying(FullCompare):
        def _compare(self, *arguments: Any, **options: Any) -> Any:
            if where == "before the hashes":
                raise Killed
            found = super()._compare(*arguments, **options)
            if where == "after the hashes":
                raise Killed
            return found

        def stage(self, *arguments: Any) -> Any:
            found = super().stage(*arguments)
            if where == "after the files":
                raise Killed
            return found

    return Dying(feed.spark, feed.source, feed.hashes)


@pytest.mark.soak  # `test_compare_protocol` kills at all moments
def test_killed_first_run_neither_loses_nor_duplicates_rows(view: Compared) -> None:
    view.holds((1, "a"), (2, "b"), (3, "c"))
    with pytest.raises(Killed):
        publish(dying(view.feed(), "after the hashes"), view.store, view.plan)
    view.holds((1, "a"), (2, "other"))
    assert (view.publish().rows, view.is_mirrored()) == ({"insert": 2}, True)


@pytest.mark.soak  # as above
@pytest.mark.parametrize("where", ["before the hashes", "after the hashes", "after the files"])
def test_killed_run_neither_loses_nor_duplicates_rows_if_source_changes(published: Compared, where: str) -> None:
    view = published
    view.holds((1, "new"), (3, "c"))
    with pytest.raises(Killed):
        publish(dying(view.feed(), where), view.store, view.plan)
    view.holds((1, "a"), (2, "b"), (3, None), (4, "d"))  # the same again, except one row
    assert (view.publish().rows, view.is_mirrored()) == ({"upsert": 1}, True)


@dataclass(frozen=True)
class DyingStore(FolderStore):
    """The process is killed when it creates a record, before or after the call took effect."""

    after: bool = False

    def create(self, path: str, data: bytes) -> str | None:
        if self.after:
            super().create(path, data)
        raise Killed


@pytest.mark.soak
def test_hash_version_without_a_record_is_recovered_without_differences(published: Compared) -> None:
    view = published
    view.holds((1, "new"))
    with pytest.raises(Killed):
        view.publish(DyingStore(view.store.root))
    view.holds((1, "a"), (2, "b"), (3, None))  # the same again
    mended = view.publish()
    assert (mended.rows, mended.files, len(mended.records)) == ({}, 0, 1)
    assert (mended.published_version, view.is_mirrored()) == (view.newest_state, True)


def holds_decimals(view: Compared, scale: int, *values: str) -> None:
    rows = ", ".join(f"({number}, CAST({value} AS decimal(10, {scale})))" for number, value in enumerate(values))
    view.spark.sql(f"CREATE OR REPLACE TEMP VIEW {view.source.sql} AS SELECT * FROM VALUES {rows} AS t(id, v)")
    view.rows = [{"id": number, "v": Decimal(value)} for number, value in enumerate(values)]


@pytest.mark.slow
def test_reload_publishes_the_values_of_a_column_with_another_type(view: Compared) -> None:
    holds_decimals(view, 2, "1.25", "9.99")
    view.publish()
    shutil.rmtree(view.store.root)
    holds_decimals(view, 4, "1.2578", "9.9999")
    assert (view.publish().rows, view.is_mirrored()) == ({"insert": 2}, True)


@pytest.mark.slow
def test_two_landing_zones_with_the_same_table_of_row_hashes_get_their_values(
    spark: SparkSession, tmp_path: Path
) -> None:
    one, other = (Compared(spark, tmp_path / name) for name in ("one", "other"))
    other.states = one.states
    holds_decimals(one, 4, "1.2578", "9.9999")
    one.publish()
    holds_decimals(other, 2, "1.25", "9.99")
    assert (other.publish().rows, other.is_mirrored()) == ({"insert": 2}, True)
    holds_decimals(one, 4, "1.2578", "9.9998")
    assert (one.publish().rows, one.is_mirrored()) == ({"upsert": 1}, True)


def let_days_pass(view: Compared, days: int) -> None:
    """Make the hashes older. Spark reads their log again."""
    for file in (view.root / "hashes").rglob("*.*"):
        modified = file.stat().st_mtime - days * 86_400
        os.utime(file, (modified, modified))
    view.spark._jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()  # type: ignore[union-attr]


@pytest.mark.slow
def test_run_killed_after_a_long_time_without_changes_loses_no_hashes(first: Compared, tmp_path: Path) -> None:
    view = Compared.copied(first, tmp_path)
    view.holds((1, "a"), (2, "b"), (3, None))
    let_days_pass(view, 20)
    assert view.publish().records == []
    let_days_pass(view, 20)
    view.holds((1, "new"), (2, "b"), (3, None))
    with pytest.raises(Killed):
        view.publish(DyingStore(view.store.root))  # rewrites all hashes
    assert (view.publish().rows, view.is_mirrored()) == ({"upsert": 1}, True)


def test_kill_after_the_record_publishes_every_row_once(published: Compared) -> None:
    view = published
    view.holds((1, "a"), (2, "b"), (3, "new"))
    with pytest.raises(Killed):
        view.publish(DyingStore(view.store.root, after=True))
    view.holds((1, "a"), (2, "b"), (4, "after"))
    assert view.publish().rows == {"upsert": 2, "delete": 1}  # with the record of the killed run
    assert view.is_mirrored()


@pytest.mark.soak  # `test_compare_protocol` tries all orders without Spark
def test_two_concurrent_compare_runs_publish_every_row_once(published: Compared) -> None:
    view = published
    view.holds((1, "b"))
    rows = view.rows
    slow = view.feed()

    class Overtaken(FullCompare):
        def _compare(self, *arguments: Any, **options: Any) -> Any:
            found = super()._compare(*arguments, **options)
            if not overtaken:
                overtaken.append(view.publish())
                view.holds((1, "d"), (2, "e"))
            return found

    overtaken: list[TableResult] = []
    publish(Overtaken(slow.spark, slow.source, slow.hashes), view.store, view.plan)
    assert len(overtaken) == 1
    view.mirror.take()
    assert canonical(view.mirror.rows) == canonical(rows)
    assert (view.publish().rows, view.is_mirrored()) == ({"upsert": 2}, True)


def test_deleted_folder_is_reloaded_with_all_rows(published: Compared) -> None:
    view = published
    view.store.remove_folder(FOLDER)
    view.holds((1, "a"), (3, "c"))
    assert (view.publish().rows, view.is_mirrored()) == ({"insert": 12}, True)


@pytest.mark.soak  # as in `test_compare_protocol`
def test_foreign_commit_to_the_hashes_is_detected_and_next_run_succeeds(published: Compared) -> None:
    view = published
    view.holds((1, "a"), (2, "c"), (3, None))
    feed = view.feed()

    class Disturbed(FullCompare):
        def _compare(self, *arguments: Any, **options: Any) -> Any:
            DeltaTable(view.states.path).delete("_0 = 1")
            return super()._compare(*arguments, **options)

    with raises(row_hashes_changed) as moved:
        publish(Disturbed(feed.spark, feed.source, feed.hashes), view.store, view.plan)
    assert (moved.value.states, moved.value.table) == (str(view.states), str(view.source))
    assert (view.publish().rows, view.is_mirrored()) == ({"upsert": 1}, True)


def test_missing_hashes_are_reported(published: Compared) -> None:
    view = published
    view.holds((1, "a"))
    for file in (view.root / "hashes").glob("*.parquet"):  # as VACUUM would if another run had rewritten them
        file.unlink()
    with raises(row_hashes_lost):
        view.publish()
    shutil.rmtree(view.root / "hashes")
    with raises(row_hashes_lost) as lost:
        view.publish()
    assert (lost.value.published, lost.value.states) == (2, str(view.states))


def test_hash_table_of_another_owner_is_not_changed(view: Compared) -> None:
    view.holds((1, "a"))
    write_deltalake(view.states.path, pa.table({"id": [0]}))
    with raises(foreign_row_hashes) as caught:
        view.publish()
    assert caught.value.states == str(view.states)


def test_hash_table_of_another_landing_zone_is_not_used(published: Compared) -> None:
    published.zone = "onelake://of/others"
    with raises(row_hashes_of_other_zone) as caught:
        published.publish()
    assert (caught.value.states, caught.value.other) == (str(published.states), "onelake://of/fabric")


@pytest.mark.soak  # as in `test_schema_changes`
def test_added_and_dropped_columns_of_a_view_are_handled_like_a_table(published: Compared) -> None:
    view = published
    view.always = [row for row in view.always if row["id"] > 22]
    view.holds((1, "w", None, None), (2, "w", None, 7), (3, None, None, None), columns=("id", "w", "d", "x"))
    assert view.publish().rows == {"upsert": 9, "delete": 3}  # all rows with a `v`; `x` is NULL and changes nothing
    assert view.is_mirrored()
    view.always = []
    view.holds((1, 7), columns=("id", "w"))
    with pytest.raises(IncompatibleSchemaError, match="'w' was string and is integer"):
        view.publish()
    view.holds((1,), columns=("id",))
    view.plan = changed(view.plan, on_dropped_column="reseed")
    with pytest.raises(ColumnsDroppedError, match="lost columns"):
        view.publish()


def test_changed_keys_are_refused(published: Compared) -> None:
    view = published
    view.holds((1, "a"))
    view.plan = changed(view.plan, keys=("v",))
    with raises(keys_changed):
        view.publish()


@pytest.mark.slow
def test_folder_of_parquet_files_can_be_a_source(view: Compared) -> None:
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


def test_path_without_files_is_refused(view: Compared) -> None:
    view.source = Source(path=str(view.root / "nothing"))
    with raises(no_table_or_files) as caught:
        view.publish()
    assert caught.value.path == str(view.source)
    view.source = Source(("no_such_view",))
    with pytest.raises(SourceMissingError):
        view.publish()


def test_column_change_during_comparison_is_reported(view: Compared) -> None:
    view.holds((1, "a"))
    feed = view.feed()

    class Changed(FullCompare):
        def check(self, *arguments: Any) -> None:
            view.holds((1, 2))

    with raises(columns_changed_during_comparison) as moved:
        publish(Changed(feed.spark, feed.source, feed.hashes), view.store, view.plan)
    assert str(moved.value) == (
        f"The columns of {view.source} changed during the comparison. Nothing was published. Publish again."
    )


def test_follow_is_refused_for_a_compared_table(spark: SparkSession, tmp_path: Path) -> None:
    file = tmp_path / "mirrorfeed.yml"
    tables = "[{source: ./files, target: a, keys: [id], changes: compare}]"
    file.write_text(f"landing_zone: ./zone\nledger: ./ledger\ntables: {tables}\n")
    config = load(str(file))
    with raises(feed_required) as caught:
        publish_tables(RunContext(spark, config, Callbacks(stop=lambda: True), follows=True))
    assert caught.value.table == f"{tmp_path}/files"
