"""Followed tables, with a clock and a source that the test controls."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from fixtures.memory import MemoryStore
from fixtures.onelake import OneLake
from fixtures.onelake.authority import SECRET
from mirrorfeed.config.loader import load
from mirrorfeed.config.model import Config
from mirrorfeed.config.model import Table as Configured
from mirrorfeed.config.pattern_expansion import expand_patterns
from mirrorfeed.errors import MirrorfeedError, SparkSessionLostError
from mirrorfeed.orchestration import ledger, pattern_changes, run_context, table_task
from mirrorfeed.orchestration.errors import LedgerNotWrittenError
from mirrorfeed.orchestration.ledger_writer import LedgerWriter
from mirrorfeed.orchestration.pattern_changes import expand_again
from mirrorfeed.orchestration.publish_run import publish_tables
from mirrorfeed.orchestration.run_context import Callbacks, RunContext, Stop
from mirrorfeed.publish.errors import nothing_published
from mirrorfeed.publish.table_publisher import publish
from mirrorfeed.publish.table_result import TableResult
from mirrorfeed.runtime.errors import CredentialRefusedError
from mirrorfeed.source.identifier import Source
from mirrorfeed.source.pending_commits import PendingCommits
from mirrorfeed.storage.errors import PathMissingError, StorageUnavailableError
from mirrorfeed.storage.local_folder import FolderStore
from tests.publish.scenarios import plan
from tests.support.clock import FakeClock
from tests.support.delta import DeltaTable
from tests.support.entries import changed
from tests.support.ledgers import read_ledger
from tests.support.tables import Table, TableFeed

NO_SPARK: Any = None


@dataclass
class Following(RunContext):
    """A run without Spark whose tables and commits come from a test world."""

    world: Any = None

    @cached_property
    def zone(self) -> MemoryStore:
        return MemoryStore()

    def pending(self, table: Configured, published: int) -> PendingCommits | None:
        return self.world.pending(table, published)  # type: ignore[no-any-return]


def follow(world: Any, tables: Sequence[Configured], **options: Any) -> list[TableResult]:
    """Follow tables with the clock of a world, which records the ledger rows."""
    context = Following(
        NO_SPARK,
        Config(landing_zone="/nowhere", tables=tuple(tables), ledger=Source(path="/nowhere/ledger"), **options),
        callbacks=Callbacks(stop=world.stop, on_problem=lambda _: None),
        clock=FakeClock(world.wait, world.clock),
        follows=True,
        world=world,
    )
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(run_context, "renew_session", lambda spark: spark)
        patched.setattr(table_task, "publish", world.work)
        patched.setattr(pattern_changes, "expand_again", lambda *_: world.tables())
        patched.setattr(LedgerWriter, "write", lambda _, results: world.write(results))
        return publish_tables(context)


@dataclass
class World:
    """A table, a landing zone, and a clock that advances only during waits."""

    events: dict[float, Callable[[World], None]] = field(default_factory=dict)
    """Events by their time. Each happens once."""
    ends: float = 300.0
    now: float = 0.0
    requests: int = 0
    stopped: bool = False
    failures: list[MirrorfeedError] = field(default_factory=list)
    """Errors of the next runs."""
    table: Table = field(default_factory=lambda: Table({"id": "long", "v": "string"}, ("id",)))
    zone: MemoryStore = field(default_factory=MemoryStore)
    runs: list[tuple[float, int | None]] = field(default_factory=list)
    """Time of each run, and the version published by then."""
    written: list[tuple[float, int]] = field(default_factory=list)

    def clock(self) -> float:
        return self.now

    def wait(self, seconds: float) -> None:
        self.now += seconds
        for moment in sorted(each for each in self.events if each <= self.now):
            self.events.pop(moment)(self)

    def stop(self) -> bool:
        return self.stopped or self.now >= self.ends

    def tables(self) -> Sequence[Configured]:
        return ()

    def pending(self, table: Configured, published: int) -> PendingCommits | None:
        self.requests += 1
        new = self.table.versions[published + 1 :]
        return PendingCommits(len(new), sum(len(version.changes) for version in new), 0)

    def work(self, _: object, __: object, ___: object, progress: TableResult, ____: object, stop: Stop) -> None:
        if self.failures:
            self.runs.append((self.now, None))
            raise self.failures.pop(0)
        publish(TableFeed(self.table), self.zone, changed(plan(), max_versions_per_publication=2), progress, stop=stop)
        self.runs.append((self.now, progress.published_version))

    def write(self, outcomes: Sequence[TableResult]) -> None:
        self.written.append((self.now, len(outcomes)))

    def follow(self, **limits: object) -> TableResult:
        given = {"source": "main.sales.orders", "target": "sales.orders", "keys": ["id"], "follow": limits or {}}
        (newest,) = follow(self, [Configured.model_validate(given)])
        return newest


def insert(*ids: int) -> Callable[[World], None]:
    return lambda world: world.table.insert(*({"id": id_, "v": "x"} for id_ in ids))


def steady(first: float, last: float, step: float) -> dict[float, Callable[[World], None]]:
    count = int((last - first) / step) + 1
    return {first + n * step: insert(n) for n in range(count)}


def test_commit_after_a_quiet_period_is_published_at_the_next_poll() -> None:
    world = World({100.0: insert(1)}, ends=140.0)
    world.follow()
    assert world.runs == [(0.0, 0), (102.0, 1)]


def test_consecutive_commits_are_batched() -> None:
    world = World(steady(31.0, 90.5, 1.0), ends=130.0)
    world.follow()
    assert [when for when, _ in world.runs] == [0.0, 33.0, 48.0, 63.0, 78.0, 93.0]
    assert world.runs[-1] == (93.0, 60)


def test_max_rows_triggers_publication_before_max_delay() -> None:
    world = World({10.0: insert(1), 20.0: insert(2), 40.0: insert(3, 4, 5)}, ends=90.0)
    world.follow(max_delay_seconds=3600, max_rows=3)
    assert world.runs == [(0.0, 0), (42.0, 3)]


def test_table_without_commits_is_polled_and_rarely_published() -> None:
    world = World(ends=1500.0)
    world.follow()
    assert world.requests == 500 - 1
    assert [when for when, _ in world.runs] == [0.0, 600.0, 1200.0]
    assert [count for _, count in world.written] == [1]  # only the snapshot


def test_failure_is_retried_later_and_reported_once() -> None:
    world = World({50.0: insert(1)}, ends=200.0)
    world.failures = [SparkSessionLostError(), SparkSessionLostError(), SparkSessionLostError()]
    newest = world.follow()
    assert [when for when, _ in world.runs] == [0.0, 2.0, 6.0, 14.0, 50.0]
    assert (newest.published_version, newest.error, newest.tries) == (1, None, 1)
    assert sum(count for _, count in world.written) == 3  # one failure, a snapshot, a range


def test_ledger_is_created_before_tables_are_published(monkeypatch: pytest.MonkeyPatch) -> None:
    """An error is ignored then, because the next write reports it."""
    world, runs_before = World(ends=10.0), list[int]()

    def prepare(*_: object) -> None:
        runs_before.append(len(world.runs))
        raise LedgerNotWrittenError(ledger="ledger", reason="away")

    monkeypatch.setattr(ledger, "prepare", prepare)
    assert world.follow().error is None
    assert (runs_before, len(world.runs)) == ([0], 1)


def test_terminal_failure_is_retried_after_minutes() -> None:
    world = World(ends=700.0, failures=[nothing_published(table="t")] * 9)
    assert world.follow().tries == 3
    assert [when for when, _ in world.runs] == [0.0, 300.0, 600.0]


def test_stop_request_ends_between_two_records_without_unfinished_renames() -> None:
    """The stop request arrives during five ranges of two versions each."""
    world = World({10.0: lambda world: [insert(n)(world) for n in range(10)]}, ends=60.0)  # type: ignore[func-returns-value,misc]
    world.zone.watcher = lambda verb, path, new: setattr(
        world, "stopped", world.stopped or path.endswith("00000000000000000003.json")
    )
    assert world.follow().published_version == 4
    folder = "sales.schema/orders"
    (log_id,) = (entry.name for entry in world.zone.list(f"{folder}/_mirrorfeed") if entry.is_folder)
    names = [entry.name for entry in world.zone.list(f"{folder}/_mirrorfeed/{log_id}")]
    assert names == [f"{number:020d}.json" for number in (1, 2, 3)]
    assert world.written[-1][1] == 2


# Many tables


def a_table(name: str, **options: object) -> Configured:
    given = {"source": f"main.sales.{name}", "target": name, "keys": ["id"], "follow": {"max_delay_seconds": 1}}
    return Configured.model_validate({**given, **options})


@dataclass
class Fleet:
    """Tables that always have changes until they were run three times. Patterns can select more tables over time."""

    configured: dict[float, list[Configured]]
    """The configured tables, by the time from which they exist."""
    ends: float
    slow: str = ""
    new_commits: int = 1
    now: float = 0.0
    runs: list[tuple[float, str]] = field(default_factory=list)
    requests: list[tuple[float, str]] = field(default_factory=list)
    others: threading.Event = field(default_factory=threading.Event)
    """Set when another table has overtaken the slow one."""

    def clock(self) -> float:
        self.now += 0.01 if self.slow else 0
        return self.now

    def wait(self, seconds: float) -> None:
        self.now += seconds

    def stop(self) -> bool:
        return self.now >= self.ends

    def tables(self) -> list[Configured]:
        return self.configured[max(when for when in self.configured if when <= self.now)]

    def pending(self, table: Configured, published: int) -> PendingCommits:
        self.requests.append((self.now, str(table.target)))
        return PendingCommits(self.new_commits)

    def work(self, _: object, __: object, table: Configured, progress: TableResult, ____: object, stop: Stop) -> None:
        if str(table.target) == self.slow:
            assert self.others.wait(30)
        self.runs.append((self.now, str(table.target)))
        if len(self.runs) == 3:
            self.others.set()
            self.now = self.ends
        progress.published_version = 1

    def write(self, outcomes: Sequence[TableResult]) -> None: ...

    def follow(self, max_parallel_tables: int = 2) -> list[TableResult]:
        return follow(self, self.tables(), max_parallel_tables=max_parallel_tables)


def test_slow_table_does_not_delay_others() -> None:
    fleet = Fleet({0.0: [a_table("slow"), a_table("fast")]}, ends=1e6, slow="slow")
    results = {each.table: each for each in fleet.follow()}
    assert [name for _, name in fleet.runs] == ["fast", "fast", "fast", "slow"]
    assert results["slow"].published_version == 1  # the run waited for it


def test_table_with_higher_priority_starts_first_if_slots_are_full() -> None:
    tables = [a_table("a"), a_table("soon", freshness_target_minutes=1), a_table("first", priority=1)]
    fleet = Fleet({0.0: tables}, ends=1e6)
    fleet.follow(max_parallel_tables=1)
    assert [name for _, name in fleet.runs] == ["first", "soon", "a"]


def test_longest_waiting_table_starts_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """All tables are always due, and only one can run at a time."""
    fleet = Fleet({0.0: [a_table(name) for name in "abcd"]}, ends=1e6)
    work, ended = fleet.work, list[str]()

    def takes_long(*arguments: Any) -> None:
        work(*arguments)
        fleet.now = 100.0 * len(fleet.runs)
        ended.append(fleet.runs[-1][1])
        fleet.ends = 0.0 if len(ended) == 8 else 1e6

    fleet.work = takes_long  # type: ignore[method-assign]
    fleet.follow(max_parallel_tables=1)
    assert "".join(ended) == "abcdabcd"


def test_added_tables_are_published_and_removed_ones_no_longer_polled() -> None:
    fleet = Fleet({0.0: [a_table("old")], 200.0: [a_table("new")]}, ends=320.0, new_commits=0)
    results = fleet.follow()
    (_, (when, _)) = fleet.runs
    assert (fleet.runs, 300 <= when < 301) == ([(0.0, "old"), (when, "new")], True)
    assert [each.table for each in results] == ["new"]
    assert max(moment for moment, name in fleet.requests if name == "old") < when < max(fleet.requests)[0]


def test_patterns_are_expanded_again_and_missing_tables_reported_once(tmp_path: Path) -> None:
    def create(name: str) -> None:
        deltalake.write_deltalake(tmp_path / "tables" / name, pa.table({"id": [1]}))

    create("orders")
    create("lines")
    (tmp_path / "mirrorfeed.yml").write_text(
        "landing_zone: ./landing\ntables: [{sources: ./tables/*, target: 's.{table}', keys: [id]}]\n", encoding="utf-8"
    )
    written, codes = load(str(tmp_path / "mirrorfeed.yml")), list[str]()
    config = expand_patterns(written, lambda: pytest.fail("Spark was started")).config
    run = RunContext(
        NO_SPARK, config, callbacks=Callbacks(on_problem=lambda error: codes.append(error.code)), written=written
    )

    def found() -> list[str]:
        return [str(table.target) for table in expand_again(run, [])]

    assert found() == ["s.lines", "s.orders"]
    publish(
        TableFeed(Table({"id": "long"}, ("id",))),
        FolderStore(str(tmp_path / "landing")),
        plan(target="s.lines"),
    )
    create("customers")
    shutil.rmtree(tmp_path / "tables/lines")
    assert (found(), found(), codes) == (["s.customers", "s.orders"], ["s.customers", "s.orders"], ["MF3408"])
    shutil.rmtree(tmp_path / "tables")
    assert (found(), found(), codes) == ([], [], ["MF3408", "MF2202"])
    create("lines")
    assert found() == ["s.lines"]
    assert expand_again(RunContext(NO_SPARK, config), []) == ()


def test_expansion_is_repeated_if_the_landing_zone_cannot_be_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("orders", "lines"):
        deltalake.write_deltalake(tmp_path / "tables" / name, pa.table({"id": [1]}))
    (tmp_path / "mirrorfeed.yml").write_text(
        "landing_zone: ./landing\ntables: [{sources: ./tables/*, target: 's.{table}', keys: [id]}]\n", encoding="utf-8"
    )
    written, codes = load(str(tmp_path / "mirrorfeed.yml")), list[str]()
    config = expand_patterns(written, lambda: pytest.fail("Spark was started")).config
    run = RunContext(
        NO_SPARK, config, callbacks=Callbacks(on_problem=lambda error: codes.append(error.code)), written=written
    )
    zone = FolderStore(str(tmp_path / "landing"))
    publish(TableFeed(Table({"id": "long"}, ("id",))), zone, plan(target="s.lines"))
    shutil.rmtree(tmp_path / "tables/lines")

    def fail(*_: Any) -> Any:
        raise StorageUnavailableError(action="list", address="landing", reason="timeout")

    for place, name in ((run_context, "zone_of"), (FolderStore, "list")):
        with monkeypatch.context() as patched:
            patched.setattr(place, name, fail)
            assert (expand_again(run, []), expand_again(run, []), codes) == ((), (), ["MF4003"])
    assert ([str(table.target) for table in expand_again(run, [])], codes) == (["s.orders"], ["MF4003", "MF3408"])


# With Spark


def configured(folder: Path, *lines: str) -> Config:
    text = "\n".join(["landing_zone: ./landing", *lines, "tables:", "  - {source: ./t, target: s.t, keys: [id]}"])
    (folder / "mirrorfeed.yml").write_text(text, encoding="utf-8")
    return load(str(folder / "mirrorfeed.yml"))


def test_new_commits_are_published_through_spark_with_one_ledger_row_each(spark: SparkSession, tmp_path: Path) -> None:
    table, config = DeltaTable(spark, tmp_path / "t"), configured(tmp_path, "ledger: ./ledger")
    clock, seen, troubles = World(), list[TableResult](), list[MirrorfeedError]()
    begin: list[Callable[[World], None]] = [lambda _: table.insert(1, 2), lambda _: table.sql("DELETE FROM {}")]
    clock.events = {20.0: begin[0], 40.0: begin[1]}
    run = RunContext(
        spark,
        config,
        callbacks=Callbacks(on_problem=troubles.append, on_done=seen.append, stop=lambda: clock.now > 60),
        clock=FakeClock(clock.wait, clock.clock),
        follows=True,
    )
    (newest,) = publish_tables(run)
    assert (newest.published_version, troubles) == (table.latest, [])
    assert [outcome.rows for outcome in seen] == [{}, {"upsert": 2}, {"delete": 2}]
    codes = spark.sql(f"DESCRIBE HISTORY delta.`{tmp_path}/ledger`").where("operation = 'WRITE'")
    assert codes.count() <= 2
    assert len(read_ledger(spark, Source(path=str(tmp_path / "ledger")))) == 3


def test_failure_renews_the_session_and_reopens_the_landing_zone(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    DeltaTable(spark, tmp_path / "t").insert(1)
    config = configured(tmp_path)
    (tmp_path / "landing").write_text("in the way", encoding="utf-8")
    clock, sessions, seen = World(), list[SparkSession](), list[TableResult]()

    def renew(session: SparkSession) -> SparkSession:
        sessions.append(session)
        (tmp_path / "landing").unlink()
        return session

    run = RunContext(
        spark,
        config,
        callbacks=Callbacks(on_done=seen.append, stop=lambda: clock.now > 400),
        clock=FakeClock(clock.wait, clock.clock),
        follows=True,
    )
    monkeypatch.setattr(run_context, "renew_session", renew)
    (newest,) = publish_tables(run)
    assert sessions == [spark]
    assert [bool(outcome.error) for outcome in seen] == [True, False]
    assert (newest.published_version, newest.error) == (1, None)


def test_new_client_secret_is_read_after_a_refused_login(onelake: OneLake, monkeypatch: pytest.MonkeyPatch) -> None:
    zone = onelake.store()
    onelake.authority.expired = True
    with pytest.raises(CredentialRefusedError) as refused:
        zone.list("")
    onelake.authority.expired, onelake.authority.secret = False, "new"
    monkeypatch.setenv(SECRET, "new")
    monkeypatch.setattr(run_context, "renew_session", lambda session: session)
    monkeypatch.setattr(run_context, "zone_of", lambda _: zone)
    run = RunContext(NO_SPARK, Config(landing_zone="/nowhere", tables=()))
    run.reconnect(PathMissingError(address="a"))
    with pytest.raises(CredentialRefusedError):
        zone.list("")
    monkeypatch.setattr(run_context, "zone_of", lambda _: onelake.store())
    run.reconnect(refused.value)
    assert zone.list("") == []


def test_unreadable_source_is_left_to_the_run(tmp_path: Path) -> None:
    config = configured(tmp_path)
    assert RunContext(NO_SPARK, config).pending(config.tables[0], 0) is None
