"""Rows that runs write to the ledger, and the rows that killed runs did not write."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from fixtures.memory import MemoryStore
from mirrorfeed.config.loader import load
from mirrorfeed.config.model import Config
from mirrorfeed.config.model import Table as Configured
from mirrorfeed.errors import MirrorfeedError
from mirrorfeed.orchestration import ledger, ledger_maintenance, run_context
from mirrorfeed.orchestration.errors import LedgerNotWrittenError
from mirrorfeed.orchestration.ledger import FAILED, PUBLISHED, RECOVERED, UNCHANGED, Known, LedgerRow, PublicationKey
from mirrorfeed.orchestration.ledger_state import LedgerState, TableState
from mirrorfeed.orchestration.ledger_writer import LedgerWriter, is_complete, is_reported
from mirrorfeed.orchestration.publish_run import publish_tables
from mirrorfeed.orchestration.run_context import RunContext
from mirrorfeed.publish import table_publisher
from mirrorfeed.publish.table_log import TableLog
from mirrorfeed.publish.table_log.view import View
from mirrorfeed.publish.table_publisher import publish
from mirrorfeed.publish.table_result import TableResult
from mirrorfeed.source.identifier import Source
from tests.publish.scenarios import plan
from tests.support.clock import FakeClock
from tests.support.delta import DeltaTable
from tests.support.entries import changed
from tests.support.ledgers import read_ledger
from tests.support.tables import Table, TableFeed

NO_SPARK: Any = None
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


def keys(*spans: tuple[int | None, int]) -> list[PublicationKey]:
    return [PublicationKey(NOON, begin, end) for begin, end in spans]


@pytest.mark.parametrize(
    ("existing", "written", "published", "complete"),
    [
        ([], [], None, True),
        ([], [(None, 4)], 4, True),
        ([], [(None, 4), (4, 7)], 7, True),
        ([(None, 4), (4, 7)], [], 7, True),
        ([(None, 4)], [(4, 7), (7, 7), (7, 9)], 9, True),  # with a repair
        ([(None, 4), (4, 7)], [(None, 2)], 2, True),  # reloaded
        ([(4, 7)], [], 7, True),  # nothing is known about earlier versions
        ([], [], 4, False),
        ([], [(4, 7)], 7, False),
        ([(None, 4)], [], 7, False),
        ([(None, 4)], [(7, 9)], 9, False),
        ([(None, 4), (7, 9)], [(9, 12)], 12, False),
        ([(None, 4)], [(4, 7)], 9, False),
    ],
)
def test_gap_in_ledger_rows_is_detected(
    existing: list[tuple[int | None, int]], written: list[tuple[int | None, int]], published: int | None, complete: bool
) -> None:
    assert is_complete(keys(*existing), keys(*written), published) is complete


@pytest.mark.parametrize(
    ("stopped", "since", "reported", "expected"),
    [
        (True, timedelta(hours=2), timedelta(hours=2), True),
        (True, timedelta(days=9), timedelta(hours=23), True),
        (True, timedelta(days=9), timedelta(hours=24), False),  # a row a day
        (True, timedelta(hours=1), timedelta(hours=2), False),  # the newest row is of another error
        (False, timedelta(hours=2), timedelta(hours=1), False),  # the newest row is of a publication
        (True, None, timedelta(hours=1), False),  # the error is new
        (True, timedelta(hours=2), None, False),
    ],
)
def test_row_of_an_error_that_remains_is_written_once_a_day(
    stopped: bool, since: timedelta | None, reported: timedelta | None, expected: bool
) -> None:
    result = TableResult("sales.a", stopped_since=since and NOON - since)
    assert is_reported(result, Known(stopped, [], reported and NOON - reported), NOON) is expected


def test_results_are_written_every_minute_and_again_after_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    now, written_tables, fails = [0.0], list[Sequence[str]](), [True]

    def write(_: LedgerWriter, outcomes: Sequence[TableResult]) -> MirrorfeedError | None:
        written_tables.append([outcome.table for outcome in outcomes])
        return LedgerNotWrittenError(ledger="ledger", reason="away") if fails[0] else None

    monkeypatch.setattr(LedgerWriter, "write", write)
    context = RunContext(NO_SPARK, Config(landing_zone="/nowhere", tables=()), clock=FakeClock(now=lambda: now[0]))
    writer = LedgerWriter(context, Source(("ledger",)), NO_SPARK)
    for now[0], tables in ((10.0, ["a"]), (59.0, ["b"]), (61.0, []), (100.0, ["c"])):
        writer.add(TableResult(table) for table in tables)
    assert written_tables == [["a", "b"]]
    fails[0] = False
    assert writer.flush() is None
    assert writer.flush() is None
    assert written_tables[1:] == [["a", "b", "c"]]


# With a landing zone and a ledger in memory


@dataclass
class World:
    """A published table and a ledger. `reads` counts the reads of the table's log, `queries` those of the ledger."""

    monkeypatch: pytest.MonkeyPatch
    table: Table = field(default_factory=lambda: Table({"id": "long"}, ("id",)))
    zone: MemoryStore = field(default_factory=MemoryStore)
    rows: list[LedgerRow] = field(default_factory=list)
    reads: int = 0
    queries: int = 0
    moment: datetime = field(default_factory=lambda: datetime.now(UTC).replace(microsecond=0))

    def now(self) -> datetime:
        """Return a time one second after the previous one."""
        self.moment += timedelta(seconds=1)
        return self.moment

    def __post_init__(self) -> None:
        def read_states(_spark: object, _place: Source, tables: set[str], _since: datetime) -> dict[str, Known]:
            self.queries += 1
            final = [row for row in self.rows if row.outcome in ledger.STATE_OUTCOMES]
            published = sorted(row.key for row in final if row.outcome == PUBLISHED)
            return {name: Known(final[-1].outcome in ledger.STOPPED, published[-1:]) for name in tables if final}

        def find_publications(
            _spark: object, _place: Source, wanted: Sequence[LedgerRow]
        ) -> set[tuple[str, PublicationKey]]:
            self.queries += 1
            return {(row.table, row.key) for row in wanted} & {(row.table, row.key) for row in self.rows}

        def append_rows(_spark: object, _place: Source, new: Sequence[LedgerRow]) -> None:
            self.rows += new

        read_view = TableLog.read_view

        def counted(log: TableLog) -> View | None:
            self.reads += 1
            return read_view(log)

        self.monkeypatch.setattr(run_context, "zone_of", lambda _: self.zone)
        self.monkeypatch.setattr(table_publisher, "utc_now", self.now)
        self.monkeypatch.setattr(ledger, "prepare", lambda *_: None)
        self.monkeypatch.setattr(ledger, "read_states", read_states)
        self.monkeypatch.setattr(ledger, "find_publications", find_publications)
        self.monkeypatch.setattr(ledger, "append", append_rows)
        self.monkeypatch.setattr(TableLog, "read_view", counted)

    def writer(self) -> LedgerWriter:
        given = {"source": "main.sales.orders", "target": "sales.orders", "keys": ["id"], "log_retention_records": 3}
        table = Configured.model_validate(given)
        context = RunContext(NO_SPARK, Config(landing_zone="/nowhere", tables=()))
        writer = LedgerWriter(context, Source.parse("ledger"), lambda _: table)
        writer.run_started = self.now()
        return writer

    def publish(self, stop: Callable[[], bool] = lambda: False) -> TableResult:
        """Insert a row and publish it, or publish the rows of a stopped run."""
        if not stop():
            self.table.insert({"id": len(self.table.versions)})
        result = TableResult("sales.orders", stopped=stop())
        return publish(TableFeed(self.table), self.zone, changed(plan(), log_retention_records=3), result, stop=stop)

    @property
    def state(self) -> LedgerState:
        return LedgerState(lambda: self.zone, Source.parse("ledger"))

    def lose_state(self) -> None:
        """Delete what the landing zone knows about the ledger, as if the run was killed before it wrote the file."""
        self.state.remove()

    @property
    def published_ranges(self) -> list[tuple[int | None, int | None]]:
        return [(row.from_version, row.to_version) for row in self.rows if row.outcome == PUBLISHED]


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    return World(monkeypatch)


def test_ordinary_and_idle_runs_do_not_read_the_ledger(world: World) -> None:
    world.writer().write([world.publish()])
    world.queries = 0
    for _ in range(2):
        writer = world.writer()
        writer.write([world.publish()])
    newest = world.published_ranges[-1][1]
    world.writer().write([TableResult("sales.orders", published_version=newest)])
    assert (world.queries, world.reads) == (0, 0)
    assert world.published_ranges == [(None, 1), (1, 2), (2, 3)]


def test_gap_in_the_ledger_is_filled_from_the_log_once(world: World) -> None:
    world.writer().write([world.publish()])
    for _ in range(3):
        world.publish()  # by a run that is killed before it writes to the ledger
    writer = world.writer()
    writer.write([world.publish()])
    assert world.published_ranges == [(None, 1), (2, 3), (3, 4), (4, 5)]
    world.writer().write([world.publish()])
    assert world.reads == 1  # three records are stored, and none of them is missing


def test_publications_of_another_run_are_left_to_that_run(world: World) -> None:
    world.writer().write([world.publish()])
    writer = world.writer()
    others = world.publish()
    writer.write([world.publish()])
    assert world.published_ranges == [(None, 1), (2, 3)]
    world.writer().write([others])
    assert world.published_ranges == [(None, 1), (2, 3), (1, 2)]
    world.writer().write([TableResult("sales.orders", published_version=3)])
    assert len(world.rows) == 3


def test_publication_of_a_killed_run_that_another_run_added_is_written_once(world: World) -> None:
    slow = world.writer()
    others = world.publish()
    world.writer().write([TableResult("sales.orders", published_version=1)])
    slow.write([others])
    assert world.published_ranges == [(None, 1)]


@pytest.mark.parametrize("has_state", [True, False])
def test_results_written_twice_are_in_the_ledger_once(world: World, has_state: bool) -> None:
    outcomes = [world.publish(), world.publish()]
    world.writer().write(outcomes)
    assert world.reads == 0
    if not has_state:
        world.lose_state()
    world.writer().write(outcomes)  # because the response to the first write was lost
    assert world.published_ranges == [(None, 1), (1, 2)]


def test_lost_state_of_the_ledger_adds_and_repeats_no_rows(world: World) -> None:
    for _ in range(2):
        world.writer().write([world.publish()])
        world.lose_state()
    world.publish()  # by a run that is killed before it writes to the ledger
    world.lose_state()
    idle = TableResult("sales.orders", published_version=3)
    for _ in range(2):
        world.writer().write([idle])
    assert world.published_ranges == [(None, 1), (1, 2), (2, 3)]
    world.queries = 0
    world.writer().write([idle])
    assert world.queries == 0


def test_table_reloaded_after_folder_deletion_is_recognized(world: World) -> None:
    world.writer().write([world.publish()])
    assert world.zone.remove_folder("sales.schema/orders") is None
    writer = world.writer()
    writer.write([world.publish()])
    assert writer.reloaded_tables == {"sales.orders"}
    assert world.published_ranges == [(None, 1), (None, 2)]


def test_table_stopped_before_its_check_is_not_recorded_as_recovered(world: World) -> None:
    world.writer().write([world.publish()])
    world.rows.append(LedgerRow(NOON, "sales.orders", FAILED))
    world.lose_state()
    stopped = world.publish(stop=lambda: True)
    world.writer().write([stopped])
    assert [row.outcome for row in world.rows] == [PUBLISHED, FAILED]
    assert ledger.rows([stopped], NOON) == []
    world.writer().write([replace(stopped, stopped=False)] * 2)
    assert [row.outcome for row in world.rows] == [PUBLISHED, FAILED, RECOVERED]


def test_table_without_changes_for_a_month_gets_one_row(world: World) -> None:
    world.writer().write([world.publish()])
    (state,) = world.state.tables.values()
    idle = TableResult("sales.orders", published_version=1, latest=1)
    for age, rows in ((29, 1), (31, 2), (0, 2)):
        if age:
            world.state.update({state.table: replace(state, reported_at=datetime.now(UTC) - timedelta(days=age))})
        world.writer().write([idle])
        assert len(world.rows) == rows
    row = world.rows[-1]
    assert (row.outcome, row.from_version, row.published_at) == (UNCHANGED, 1, world.rows[0].time)
    assert row.delivery == "upsert"


def test_first_run_of_a_day_that_writes_rows_maintains_the_ledger(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    maintained = list[datetime]()
    monkeypatch.setattr(ledger_maintenance, "maintain", lambda *arguments: maintained.append(arguments[-1]))
    idle = TableResult("sales.orders", published_version=1)
    world.writer().write([world.publish()])
    assert maintained == []  # the ledger is new
    world.state.update({}, maintained_at=datetime.now(UTC) - timedelta(hours=25))
    world.writer().write([idle])
    assert maintained == []
    for _ in range(2):
        world.writer().write([world.publish()])
        assert len(maintained) == 1


def test_runs_at_the_same_time_keep_the_entries_of_each_other() -> None:
    zone, ledger_source = MemoryStore(), Source.parse("ledger")
    first, second = (LedgerState(lambda: zone, ledger_source) for _ in range(2))
    assert (first.tables, second.tables) == ({}, {})
    first.update({"a": TableState("a", stopped=True)})
    assert second.update({"b": TableState("b")}, maintained_at=NOON)
    assert not first.update({}, maintained_at=NOON + timedelta(hours=1))
    found = LedgerState(lambda: zone, ledger_source)
    assert found.tables == {"a": TableState("a", stopped=True), "b": TableState("b")}
    assert found.maintained_at == NOON
    assert LedgerState(lambda: zone, Source.parse("other")).tables == {}


def test_unreadable_landing_zone_does_not_block_the_ledger(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.publish()
    outcome = world.publish()
    monkeypatch.setattr(TableLog, "read_view", lambda _: 1 / 0)
    assert world.writer().write([outcome]) is None
    assert world.published_ranges == [(1, 2)]


# With Spark


@pytest.fixture
def config(tmp_path: Path) -> Config:
    lines = "".join(
        f"  - {{source: ./{name}, target: {name}, keys: [id], log_retention_records: 3}}\n" for name in "ab"
    )
    (tmp_path / "mirrorfeed.yml").write_text(f"landing_zone: ./zone\nledger: ./ledger\ntables:\n{lines}")
    return load(tmp_path / "mirrorfeed.yml")


def spans(spark: SparkSession, config: Config) -> dict[str, list[tuple[str, int | None, int | None]]]:
    assert config.ledger
    found: dict[str, list[tuple[str, int | None, int | None]]] = {}
    for row in read_ledger(spark, config.ledger):
        found.setdefault(row.table, []).append((row.outcome, row.from_version, row.to_version))
    return found


def test_next_run_records_publications_of_a_killed_run_once(
    spark: SparkSession, tmp_path: Path, config: Config
) -> None:
    """A run without a ledger leaves the same state as a run that is killed before it writes to the ledger."""
    tables = [DeltaTable(spark, tmp_path / name) for name in "ab"]
    silent = config.model_copy(update={"ledger": None})
    publish_tables(RunContext(spark, silent), ["a"])
    for table in tables:
        table.insert(1)
    publish_tables(RunContext(spark, silent), ["a"])
    publish_tables(RunContext(spark, config))
    expected = {"a": [(PUBLISHED, None, 0), (PUBLISHED, 0, 1)], "b": [(PUBLISHED, None, 1)]}
    assert spans(spark, config) == expected
    publish_tables(RunContext(spark, config))
    assert spans(spark, config) == expected
