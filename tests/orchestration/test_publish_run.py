"""Many tables published in parallel and independently."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from databricks.sdk.errors import NotFound
from pyspark.sql import SparkSession

from fixtures.fakes import RecordingWorkspace
from fixtures.mirror import Mirror, canonical
from mirrorfeed.config.loader import load
from mirrorfeed.config.model import Config, Table
from mirrorfeed.errors import TerminalError, TransientError
from mirrorfeed.landing.errors import ColumnsDroppedError, IncompatibleSchemaError
from mirrorfeed.orchestration import run_context, table_reload
from mirrorfeed.orchestration.dry_run import plan_next_steps
from mirrorfeed.orchestration.publish_run import publish_tables, run_time
from mirrorfeed.orchestration.run_context import Callbacks, RunContext
from mirrorfeed.publish.table_result import TableResult
from mirrorfeed.source.errors import (
    CatalogRefusedError,
    FeedGapError,
    FeedUnreadableError,
    PartitionsChangedError,
    feed_off,
)
from mirrorfeed.storage.errors import StorageUnavailableError
from mirrorfeed.storage.local_folder import FolderStore
from tests.publish.conftest import everything, never
from tests.support.clock import FakeClock
from tests.support.delta import FEED, DeltaTable

OFF, ON = (f"ALTER TABLE {{}} SET TBLPROPERTIES ({FEED} = {on})" for on in ("false", "true"))


@pytest.mark.slow
def test_failure_of_one_table_does_not_stop_the_others(
    spark: SparkSession, tmp_path: Path, configured: Callable[..., Config]
) -> None:
    for name in ("a", "c"):
        DeltaTable(spark, tmp_path / name).insert(1, 2)
    DeltaTable(spark, tmp_path / "b", feed=False)
    DeltaTable(spark, tmp_path / "d").sql("INSERT INTO {} VALUES (NULL, 'x')")
    seen: list[str] = []

    def on_step(table: str, _: str) -> None:
        seen.append(table)

    outcomes = publish_tables(
        RunContext(spark, configured("a", "b", "c", "d"), callbacks=Callbacks(on_step=on_step), clock=FakeClock(never))
    )
    assert [outcome.table for outcome in outcomes] == ["a", "b", "c", "d"]
    errors = [outcome.error for outcome in outcomes]
    assert errors[0] is None
    assert errors[2] is None
    assert feed_off.matches(errors[1])
    assert "a key is NULL (id = NULL)" in str(errors[3])
    assert [outcome.rows for outcome in outcomes] == [{"insert": 2}, {}, {"insert": 2}, {}]
    assert [outcome.lag_versions for outcome in outcomes] == [0, None, 0, None]
    assert {"a", "c"} <= set(seen)
    assert "b" not in seen  # no work was started for it


def test_workspace_is_opened_once_for_all_tables(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ("main.sales.a", "main.sales.b", "main.sales.c")
    tables = "".join(f"  - {{source: {name}, target: {name[-1]}}}\n" for name in names)
    (tmp_path / "mirrorfeed.yml").write_text(f"landing_zone: ./zone\nmax_parallel_tables: 1\ntables:\n{tables}")
    config, opened = load(tmp_path / "mirrorfeed.yml"), list[RecordingWorkspace]()

    def workspace() -> RecordingWorkspace:
        opened.append(RecordingWorkspace(dict.fromkeys(names, NotFound("It is not there."))))
        return opened[-1]

    monkeypatch.setattr(run_context, "default_workspace", workspace)
    outcomes = publish_tables(RunContext(spark, config, clock=FakeClock(never)))
    assert [type(outcome.error) for outcome in outcomes] == [CatalogRefusedError] * 3
    assert len(opened) == 1


@pytest.mark.slow
def test_only_named_tables_are_published(
    spark: SparkSession, tmp_path: Path, configured: Callable[..., Config]
) -> None:
    for name in ("a", "b"):
        DeltaTable(spark, tmp_path / name)
    outcomes = publish_tables(RunContext(spark, configured("a", "b"), clock=FakeClock(never)), ["b"])
    assert [(outcome.table, outcome.error) for outcome in outcomes] == [("b", None)]
    assert [path.name for path in (tmp_path / "zone").iterdir()] == ["b"]


def test_transient_failures_are_retried_with_growing_pauses(
    spark: SparkSession, tmp_path: Path, configured: Callable[..., Config], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(store: FolderStore, path: str, _: bytes) -> None:
        raise StorageUnavailableError(action="create", address=store.address(path), reason="an unknown fault")

    DeltaTable(spark, tmp_path / "a")
    monkeypatch.setattr(FolderStore, "create", fail)
    pauses: list[float] = []
    (outcome,) = publish_tables(RunContext(spark, configured("a"), clock=FakeClock(pauses.append)))
    assert pauses == sorted(pauses)
    assert len(pauses) == outcome.tries - 1 == 3
    assert str(tmp_path / "zone") in str(outcome.error)

    def mend(_seconds: float) -> None:
        monkeypatch.undo()

    (outcome,) = publish_tables(RunContext(spark, configured("a"), clock=FakeClock(mend)))
    assert (outcome.error, outcome.tries, len(outcome.records)) == (None, 2, 1)


def test_duration_of_a_run_includes_the_start_of_spark() -> None:
    assert run_time(21.4, 6.2) == "The run took 21 s, of which Spark took 6 s to start."
    assert run_time(90, 0.1) == "The run took 1.5 min."


def test_result_counts_unpublished_versions() -> None:
    assert TableResult("t", published_version=4, latest=7).lag_versions == 3
    assert TableResult("t", latest=7).lag_versions is None


def repartition(table: DeltaTable) -> None:
    rows = table.spark.read.table(table.source.sql).write.format("delta").mode("overwrite")
    rows.option("overwriteSchema", "true").partitionBy("v").save(str(table.path))


def statements(*texts: str) -> Callable[[DeltaTable], None]:
    def run(table: DeltaTable) -> None:
        for text in texts:
            table.sql(text)

    return run


GAP = statements(OFF, "INSERT INTO {} VALUES (3, 'c')", ON)
RENAME, DROP = statements("ALTER TABLE {} RENAME COLUMN v TO w"), statements("ALTER TABLE {} DROP COLUMN w")
COME_AND_GO = statements("ALTER TABLE {} ADD COLUMN w int", "UPDATE {} SET w = 1", "RESTORE {} TO VERSION AS OF 1")


class Reloading:
    """A published table of two rows, and its reload."""

    def __init__(self, table: DeltaTable, configured: Callable[..., Config]) -> None:
        self.table, self.configured, self.zone = table, configured, table.path.parent / "zone"
        table.insert(1, 2)
        publish_tables(RunContext(table.spark, configured("a"), clock=FakeClock(never)))

    def publish(self, option: str) -> tuple[TableResult, list[str]]:
        """Publish with an option, and return the names of dropped tables."""
        dropped: list[str] = []

        @contextmanager
        def dropping(_: RunContext, table: Table) -> Iterator[None]:
            yield
            assert not (self.zone / table.target.folder).exists()
            dropped.append(str(table.target))

        config = self.configured("a", more=f"{option}\n")
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(table_reload, "dropping", dropping)
            (outcome,) = publish_tables(RunContext(self.table.spark, config, clock=FakeClock(never)))
        return outcome, dropped

    def check(self, option: str, finding: type[Exception], change: Callable[[DeltaTable], None]) -> None:
        change(self.table)
        if finding in (IncompatibleSchemaError, FeedGapError):
            (blocked,) = plan_next_steps(self.table.spark, self.configured("a", more=f"{option}: stop\n"))
            assert (blocked.next, type(blocked.error)) == ("blocked", finding)
        (reload,) = plan_next_steps(self.table.spark, self.configured("a", more=f"{option}: reseed\n"))
        assert reload.error is None
        assert reload.next.startswith(f"reload from a snapshot at version {self.table.latest}. ")
        if finding in (IncompatibleSchemaError, FeedGapError):
            outcome, dropped = self.publish(f"{option}: stop")
            assert (type(outcome.error), outcome.reseeded, dropped) == (finding, None, [])
        outcome, dropped = self.publish(f"{option}: reseed")
        assert (outcome.error, type(outcome.reseeded), dropped) == (None, finding, ["a"])
        assert outcome.to_version_inclusive == self.table.latest
        mirror = Mirror(FolderStore(str(self.zone)), "a")
        mirror.take()
        assert canonical(mirror.rows) == canonical(self.table.rows())


def test_stopped_table_is_reloaded_only_if_configured(
    spark: SparkSession, tmp_path: Path, configured: Callable[..., Config]
) -> None:
    table = DeltaTable(spark, tmp_path / "a", properties={"delta.columnMapping.mode": "name"})
    reloading = Reloading(table, configured)
    reloading.check("on_gap", FeedGapError, GAP)
    reloading.check("on_schema_change", IncompatibleSchemaError, RENAME)
    reloading.check("on_dropped_column", ColumnsDroppedError, DROP)


@pytest.mark.slow
def test_stopped_reload_continues_with_the_next_part(
    spark: SparkSession, tmp_path: Path, configured: Callable[..., Config]
) -> None:
    table, steps = DeltaTable(spark, tmp_path / "a"), list[str]()
    table.insert(11, 12)
    reloading = Reloading(table, configured)
    GAP(table)
    loads = Callbacks(on_step=lambda _, step: steps.append(step), stop=lambda: any("loaded" in step for step in steps))
    config = configured("a", more="on_gap: reseed\nload_part_size: 1 KiB\n")
    (stopped,) = publish_tables(RunContext(spark, config, callbacks=loads, clock=FakeClock(never)))
    config = configured("a", more="load_part_size: 1 GiB\n")
    (rest,) = publish_tables(RunContext(spark, config, clock=FakeClock(never)))

    assert stopped.load is not None
    assert (type(stopped.reseeded), stopped.load.parts_published, stopped.stopped) == (FeedGapError, 1, True)
    assert len(rest.records) == stopped.load.parts - 1 > 0
    mirror = Mirror(FolderStore(str(reloading.zone)), "a")
    mirror.take()
    assert canonical(mirror.rows) == canonical(table.rows())


@pytest.mark.parametrize(
    ("finding", "change"),
    [
        pytest.param(PartitionsChangedError, repartition, marks=pytest.mark.slow),
        pytest.param(FeedUnreadableError, COME_AND_GO, marks=pytest.mark.soak),
    ],
)
def test_rarer_changes_are_reloaded_only_if_configured(
    spark: SparkSession,
    tmp_path: Path,
    configured: Callable[..., Config],
    finding: type[Exception],
    change: Callable[[DeltaTable], None],
) -> None:
    Reloading(DeltaTable(spark, tmp_path / "a"), configured).check("on_schema_change", finding, change)


class NoRoom(TerminalError):
    code = "MF0001"
    what = "No."
    fix = ""


class Waiting(TransientError):
    code = "MF0002"
    what = "The service is busy."
    fix = "Wait."


@pytest.mark.slow
def test_failed_reload_is_not_reported_and_has_as_many_attempts_as_a_publication(
    spark: SparkSession, tmp_path: Path, configured: Callable[..., Config], monkeypatch: pytest.MonkeyPatch
) -> None:
    table = DeltaTable(spark, tmp_path / "a")
    config = configured("a", more="on_gap: reseed\n")
    publish_tables(RunContext(spark, config, clock=FakeClock(never)))
    for statement in (OFF, ON):
        table.sql(statement)
    before, requests = everything(tmp_path / "zone"), list[str]()

    @contextmanager
    def refusing(*_: object) -> Iterator[None]:
        raise NoRoom
        yield

    @contextmanager
    def busy(_: RunContext, table: Table) -> Iterator[None]:
        requests.append(str(table.target))
        if len(requests) < 4:
            raise Waiting
        yield

    monkeypatch.setattr(table_reload, "dropping", refusing)
    (outcome,) = publish_tables(RunContext(spark, config, clock=FakeClock(never)))
    assert (str(outcome.error), outcome.reseeded) == ("No.", None)
    after = everything(tmp_path / "zone")
    assert {path: after[path] for path in after if "/_mirrorfeed/failures/" not in path} == before
    monkeypatch.setattr(table_reload, "dropping", busy)
    (outcome,) = publish_tables(RunContext(spark, config, clock=FakeClock()))
    assert (outcome.error, type(outcome.reseeded), outcome.tries, len(requests)) == (None, FeedGapError, 5, 4)
