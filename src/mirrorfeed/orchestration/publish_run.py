"""Many tables at once: each on its own, so that the failure of one never stops the others."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property, partial
from threading import Event

from pyspark.sql import SparkSession

from mirrorfeed.config import Config, Table
from mirrorfeed.config.landing_zone import zone_of
from mirrorfeed.errors import MirrorfeedError, named
from mirrorfeed.orchestration import ledger
from mirrorfeed.orchestration.ledger_writer import BatchedWriter, LedgerWriter, PendingRows
from mirrorfeed.orchestration.orphans import find_pattern_orphans
from mirrorfeed.orchestration.retry import TRIES, RetryPolicy, RetryState, after, needs_reload
from mirrorfeed.orchestration.scheduler import QueuedTable, Scheduler
from mirrorfeed.publish.errors import FilesRewritten, LeftoversNotDeleted, TableTimeout
from mirrorfeed.publish.files.staging_area import clear_staging
from mirrorfeed.publish.log.partner_events import partner_events_problem
from mirrorfeed.publish.plan import Plan, plan_of
from mirrorfeed.publish.reload import Dropping, clear, dropping_by
from mirrorfeed.publish.result import Progress, TableResult
from mirrorfeed.publish.sources.base import ChangeSource
from mirrorfeed.publish.sources.history_source import across, can_bridge_gap, source_for
from mirrorfeed.publish.sources.snapshot_diff import spanning
from mirrorfeed.publish.table_publisher import publish
from mirrorfeed.publish.up_to_date_check import UpToDateCheck, known_here, waits_since
from mirrorfeed.runtime.databricks import default_workspace
from mirrorfeed.runtime.parallel import bearable, each_of
from mirrorfeed.source.catalog import Workspace
from mirrorfeed.storage import Store

_NOW_AND_THEN = 0.5
"""Seconds between two looks at whether the run is to end."""
Stop = Callable[[], bool]
Work = Callable[[ChangeSource, Store, Plan, Progress, Callable[[Progress], None], Stop], object]
"""What is done for a table, which is told of as it goes on, and may be asked to stop."""


def _publish(
    feed: ChangeSource, store: Store, plan: Plan, progress: Progress, on_step: Callable[[Progress], None], stop: Stop
) -> object:
    return publish(feed, store, plan, progress, on_step, stop=stop)


def _warn(error: MirrorfeedError) -> None:
    warnings.warn(str(error), stacklevel=3)


@dataclass(frozen=True, slots=True)
class RunMode:
    """How a run goes about each of its tables."""

    work: Work = _publish
    starts_again: bool = True
    """Whether `reseed` in the configuration is heeded."""
    most_tries: int = TRIES
    heeds_pauses: bool = True
    """Whether tables that the configuration has paused are left alone."""


@dataclass(frozen=True)
class RunContext:
    """What the tables of a run share. What goes wrong beside them, in saying who publishes or in the ledger, is told to
    `on_trouble` and stops nothing. Asked to stop, a run begins no table, and ends those in hand between two records."""

    spark: SparkSession
    config: Config
    on_step: Callable[[str, Progress], None] = lambda _table, _progress: None
    on_trouble: Callable[[MirrorfeedError], None] = _warn
    dropped_by: Dropping | None = None
    """Who is asked whether the service has dropped a table; None: as the configuration says."""
    workspace: Callable[[], Workspace] = default_workspace
    sleep: Callable[[float], None] = time.sleep
    clock: Callable[[], float] = time.monotonic
    stop: Stop = lambda: False
    way: RunMode = RunMode()
    store: Store | None = None
    """The landing zone, where runs share one; None: the configuration's."""
    on_done: Callable[[TableResult], None] = lambda _: None

    @cached_property
    def zone(self) -> Store:
        return self.store or zone_of(self.config)

    @cached_property
    def client(self) -> Workspace:
        """One for all tables: to open it takes calls of its own. ValueError where none is configured."""
        return self.workspace()

    @property
    def dropping(self) -> Dropping:
        return self.dropped_by or dropping_by(self.config)


def publish_tables(fleet: RunContext, names: Sequence[str] = ()) -> list[TableResult]:
    """Publishes all tables of the configuration, or those named, in its order, says who publishes, and tells the
    ledger. The outcomes are those of the tables that were begun."""
    spark, config, begun = fleet.spark, fleet.config, datetime.now(UTC)
    if trouble := partner_events_problem(fleet.zone, config):
        fleet.on_trouble(trouble)
    if not names and (left := find_pattern_orphans(fleet.zone, config)):
        fleet.on_trouble(left)
    news = PendingRows(config.select(names), fleet.zone, begun)
    book = BatchedWriter(LedgerWriter(spark, config.ledger, news).tell)
    ledger.begin(spark, config.ledger)
    outcomes = publish_each(fleet, names, book.hear)
    lost = book.flush()
    if lost:
        fleet.on_trouble(lost)
    return [replace(each, published_before=each.table in news.loaded_again) for each in outcomes]


def all_up_to_date(config: Config, names: Sequence[str] = ()) -> list[TableResult] | None:
    """What publishing comes to where there is nothing to publish in any table, nor anything that the ledger lacks, and
    Spark need not be started; None where it has to be. Who publishes is said as ever."""
    zone, now = zone_of(config), datetime.now(UTC)
    tables = [table for table in config.select(names) if not table.pause_at(now)]
    idle, some_new = UpToDateCheck(config, zone), Event()

    def outcome(table: Table) -> TableResult | None:
        found = None if some_new.is_set() else idle.outcome(table)
        if found is None:
            some_new.set()  # the others need not be asked
        return found

    outcomes = [each for each in each_of(outcome, tables) if each]
    if some_new.is_set():
        return None
    if tables and config.ledger is not None:
        news = PendingRows(tables, zone, now)
        known = known_here(config.ledger, news.most)
        if known is None or news.rows(outcomes, known, now):
            return None
    return None if partner_events_problem(zone, config) else outcomes


def publish_each(
    fleet: RunContext, names: Sequence[str] = (), hear: Callable[[Sequence[TableResult]], None] = lambda _: None
) -> list[TableResult]:
    """The same for runs of one process, who say themselves what is to be said of them. What has come of the tables is
    heard now and then. Those that nothing is new in are told first, and none waits for another that takes long or is to
    be tried again."""
    _ = fleet.zone  # once, and not in each of the threads
    now = datetime.now(UTC)
    chosen = [each for each in fleet.config.select(names) if not (fleet.way.heeds_pauses and each.pause_at(now))]
    tasks = {str(table.target): TableTask(fleet, table) for table in chosen}
    found: dict[str, TableResult] = {}

    def come(outcomes: Iterable[TableResult | None]) -> None:
        new = [each for each in outcomes if each]
        found.update((each.table, each) for each in new)
        for each in new:
            fleet.on_done(each)
        hear(new)

    looks = fleet.way.work is _publish
    if looks:
        each_of(TableTask.at_rest, list(tasks.values()), come)
    left = {name: task for name, task in tasks.items() if name not in found}
    max_parallel_tables = fleet.config.max_parallel_tables or bearable()
    # The order is nothing to those that all begin at once.
    dues = (
        each_of(TableTask.due, list(left.values()))
        if looks and len(left) > max_parallel_tables
        else [math.inf] * len(left)
    )
    _in_turns(
        fleet,
        left,
        Scheduler(max_parallel_tables, [task.turn(due) for task, due in zip(left.values(), dues, strict=True)]),
        come,
    )
    outcomes = [found[name] for name in tasks if name in found]
    for outcome in outcomes:
        if outcome.progress.short:
            fleet.on_trouble(outcome.progress.short)
        if outcome.progress.last_gone:
            fleet.on_trouble(outcome.progress.last_gone)
        if outcome.progress.untidy:
            fleet.on_trouble(LeftoversNotDeleted(table=outcome.table, cause=outcome.progress.untidy))
    if differed := [outcome for outcome in outcomes if outcome.progress.differed]:
        fleet.on_trouble(
            FilesRewritten(tables=[outcome.table for outcome in differed], differed=differed[0].progress.differed)
        )
    return outcomes


def _in_turns(
    fleet: RunContext, tasks: Mapping[str, TableTask], turns: Scheduler, come: Callable[[Sequence[TableResult]], None]
) -> None:
    """Has each try made when its turn comes, and hears of tables that are done. A table that is to be tried again gives
    its place back until then."""
    waits = {turn.name: turn for turn in turns.waiting}
    trying: dict[Future[RetryState], str] = {}
    floor = -math.inf
    with ThreadPoolExecutor(max(1, len(tasks))) as pool:  # as many threads as there are places, and tables over time
        while trying or (turns.waiting and not fleet.stop()):
            now = max(floor, fleet.clock())
            for turn in [] if fleet.stop() else turns.begin(now):
                trying[pool.submit(tasks[turn.name].tried)] = turn.name
            pause = turns.until(now)
            if not trying:
                fleet.sleep(pause)
                floor = now + pause
                continue
            ended, _ = wait(trying, min(_NOW_AND_THEN, pause), FIRST_COMPLETED)
            done = []
            for name, course in [(trying.pop(each), each.result()) for each in ended]:
                then = replace(waits[name], again=fleet.clock() + course.pause, limit=tasks[name].limit)
                again = then if course.left else None
                turns.ended(name, again)
                done += [] if again else [tasks[name].outcome()]
            come(done)
    come([tasks[turn.name].outcome() for turn in turns.waiting if tasks[turn.name].course.tries])


@dataclass
class TableTask:
    """What is made of one table in a run: as many tries as its course has, each in a turn of its own."""

    fleet: RunContext
    table: Table
    progress: Progress = field(default_factory=Progress)
    seconds: float = 0.0
    """Its own, without those in which it waited for its turn."""

    def __post_init__(self) -> None:
        fleet, table = self.fleet, self.table
        self._rules = RetryPolicy(
            is_kept=lambda gap: can_bridge_gap(fleet.spark, table, gap, fleet.on_trouble),
            starts_again=lambda error: fleet.way.starts_again and needs_reload(table, error),
            most_tries=fleet.way.most_tries,
        )
        self.course = RetryState(left=self._rules.most_tries)

    @property
    def limit(self) -> float:
        """Seconds that are left to it."""
        return (
            math.inf
            if self.table.table_timeout_minutes is None
            else self.table.table_timeout_minutes * 60 - self.seconds
        )

    def at_rest(self) -> TableResult | None:
        return None if self.fleet.stop() else UpToDateCheck(self.fleet.config, self.fleet.zone).outcome(self.table)

    def due(self) -> float:
        """By when what waits is to be published, as far as that is told without Spark."""
        within = self.table.freshness_target_minutes or self.fleet.config.alerts.max_lag_minutes.published or math.inf
        since = None if self.fleet.stop() else waits_since(self.fleet.zone, self.table)
        return math.inf if since is None else since.timestamp() + within * 60

    def turn(self, due: float) -> QueuedTable:
        return QueuedTable(str(self.table.target), self.table.priority, due, limit=self.limit)

    def tried(self) -> RetryState:
        begun, limit = self.fleet.clock(), self.limit

        def stop() -> bool:
            return self.fleet.stop() or self.fleet.clock() - begun >= limit

        self.course = _tried(self.fleet, self.table, self.progress, self.course, self._rules, stop)
        self.seconds += self.fleet.clock() - begun
        if self.limit <= 0 and self.lags:
            error = TableTimeout(
                table=str(self.table.target),
                minutes=self.table.table_timeout_minutes or 0.0,
                published=self.progress.published,
                latest=self.progress.latest,
                cause=self.course.error,
            )
            self.course = replace(self.course, left=0, error=error)
        return self.course

    @property
    def lags(self) -> bool:
        return (
            self.course.error is not None
            or self.progress.published is None
            or self.progress.published != self.progress.latest
        )

    def outcome(self) -> TableResult:
        course, table, progress, fleet = self.course, self.table, self.progress, self.fleet
        if progress.across and progress.made:
            fleet.on_trouble(progress.across)
        name, error = str(table.target), course.error
        checked = table.validate_keys != "none"
        found = TableResult(name, progress, self.seconds, checked, course.tries, error, course.reseeded)
        stopped = error is None and fleet.stop() and found.lag_versions != 0
        return replace(found, stopped=stopped, freshness_target_minutes=table.freshness_target_minutes)


def _tried(
    fleet: RunContext, table: Table, progress: Progress, course: RetryState, rules: RetryPolicy, stop: Stop
) -> RetryState:
    """The course after one try."""
    name, error = str(table.target), None
    try:
        feed = source_for(fleet.spark, fleet.config, table, course.gap, progress.took_another_way)
        plan = plan_of(table, lambda: fleet.client)
        if course.gap:
            plan, progress.across = spanning(plan, feed), across(feed, course.gap)
        if course.clears:
            with fleet.dropping(table):
                clear(feed, fleet.zone, plan)
                clear_staging(fleet.config.staging_path, fleet.zone, fleet.zone.address(plan.folder))
            course = replace(course, cleared=True)
        fleet.way.work(feed, fleet.zone, plan, progress, partial(fleet.on_step, name), stop)
    except Exception as caught:
        error = named(f"Publishing {name}", caught)
    return after(course, error, rules)


def rebuild_table(fleet: RunContext, table: Table) -> TableResult:
    """Deletes the table's folder, waits for the service, and publishes, also where the table is paused: a person asks
    for it. What goes wrong before that is raised."""
    with fleet.dropping(table):
        clear(source_for(fleet.spark, fleet.config, table), fleet.zone, plan_of(table, lambda: fleet.client))
        clear_staging(fleet.config.staging_path, fleet.zone, fleet.zone.address(table.target.folder))
    way = replace(fleet.way, heeds_pauses=False)
    (outcome,) = publish_tables(replace(fleet, way=way, store=fleet.zone), [str(table.target)])
    return outcome
