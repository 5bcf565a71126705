"""Publish many tables in one run. A table that fails does not stop the others."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property, partial
from threading import Event

from pyspark.sql import SparkSession

from mirrorfeed.config import Config, Table
from mirrorfeed.config.landing_zone import zone_of
from mirrorfeed.display.humanize import counted
from mirrorfeed.display.progress import progress as shown
from mirrorfeed.errors import MirrorfeedError, coded, named
from mirrorfeed.orchestration import ledger
from mirrorfeed.orchestration.ledger_writer import BatchedWriter, LedgerWriter, PendingRows
from mirrorfeed.orchestration.orphans import find_pattern_orphans
from mirrorfeed.orchestration.retry import ATTEMPTS, RetryPolicy, RetryState, after, needs_reload
from mirrorfeed.orchestration.scheduler import QueuedTable, Scheduler
from mirrorfeed.publish.columns import with_keys
from mirrorfeed.publish.errors import FilesRewritten, LeftoversNotDeleted, TableTimeout
from mirrorfeed.publish.files.staging_area import clear_staging
from mirrorfeed.publish.log.metadata_files import partner_events_problem
from mirrorfeed.publish.republish import clear
from mirrorfeed.publish.result import Progress, TableResult
from mirrorfeed.publish.sources.base import ChangeSource
from mirrorfeed.publish.sources.factory import can_bridge_gap, gap_note, source_for
from mirrorfeed.publish.table_publisher import publish
from mirrorfeed.publish.up_to_date_check import UpToDateCheck, waits_since
from mirrorfeed.runtime.databricks import default_workspace
from mirrorfeed.runtime.parallel import bearable, each_of
from mirrorfeed.source.catalog import Workspace
from mirrorfeed.source.identifier import Source
from mirrorfeed.storage import Store
from mirrorfeed.storage.process_cache import retry_counter

_STOP_CHECK_INTERVAL = 0.5
"""Seconds."""
_DROP_TIMEOUT = 600.0
Stop = Callable[[], bool]
Work = Callable[[ChangeSource, Store, Table, Progress, Callable[[Progress], None], Stop], object]
"""What a run does for a table. It reports its progress, and may be asked to stop."""
Dropping = Callable[[Table], AbstractContextManager[None]]
"""A context in which a table's folder is deleted. It ends when Fabric has dropped the table."""


def _publish(
    source: ChangeSource,
    store: Store,
    table: Table,
    progress: Progress,
    on_step: Callable[[Progress], None],
    stop: Stop,
) -> object:
    return publish(source, store, table, progress, on_step, stop=stop)


def _warn(error: MirrorfeedError) -> None:
    warnings.warn(str(error), stacklevel=3)


@dataclass(frozen=True, slots=True)
class RunMode:
    work: Work = _publish
    reloads: bool = True
    """Whether to follow `reseed` in the configuration."""
    attempts: int = ATTEMPTS
    skips_paused: bool = True


@dataclass(frozen=True)
class RunContext:
    """What the tables of a run share.

    Problems of the ledger and of `_partnerEvents.json` are reported to `on_problem` and stop nothing. If asked to stop,
    a run starts no table, and ends the running ones between two records.
    """

    spark: SparkSession
    config: Config
    on_step: Callable[[str, Progress], None] = lambda _table, _progress: None
    on_problem: Callable[[MirrorfeedError], None] = _warn
    dropped_by: Dropping | None = None
    """How to wait until Fabric has dropped a table. None: as configured."""
    workspace: Callable[[], Workspace] = default_workspace
    sleep: Callable[[float], None] = time.sleep
    clock: Callable[[], float] = time.monotonic
    stop: Stop = lambda: False
    mode: RunMode = RunMode()
    store: Store | None = None
    """The landing zone, if runs share one. None: the configured one."""
    on_done: Callable[[TableResult], None] = lambda _: None

    @cached_property
    def zone(self) -> Store:
        return self.store or zone_of(self.config)

    @cached_property
    def client(self) -> Workspace:
        """One workspace client for all tables. ValueError if none is configured."""
        return self.workspace()

    @property
    def dropping(self) -> Dropping:
        return self.dropped_by or dropping_by(self.config)


OnStep = Callable[[str, str], None] | None
"""Receives a table and its newest step, from several threads."""
OnDone = Callable[[TableResult], None] | None
Published = tuple[tuple[TableResult, ...], tuple[str, ...], str]
"""Results, notes and a summary."""


def publish_new(
    spark: Callable[..., SparkSession],
    config: Config,
    names: Sequence[str] = (),
    has_session: bool = False,
    on_step: OnStep = None,
    on_done: OnDone = None,
    stop: Stop | None = None,
) -> Published:
    """Publish what is new. A table that a stop prevented has a result too.

    `spark` returns the session for these sources. Unless there is one already, it is called only if something is new.
    """
    now, before = datetime.now(UTC), retry_counter().value
    chosen = config.select(names)
    if not chosen:
        return (), (), f"No table is in {' or '.join(names)}."
    pauses = {str(table.target): pause for table in chosen if (pause := table.pause_at(now))}
    shown.info("Reading what is published")
    problems: list[MirrorfeedError] = []
    done = None if has_session else all_up_to_date(config, names)
    if done is None:
        session = spark(*([] if config.ledger else delta_sources(chosen)))
        done = publish_tables(run_context(session, config, problems, on_step, on_done, stop), names)
    elif not names and (orphans := find_pattern_orphans(zone_of(config), config)):
        problems.append(orphans)
    rows = {row.table: row for row in done}
    for name in (str(table.target) for table in chosen):
        if name not in rows and name not in pauses:
            rows[name] = TableResult(name, Progress(), 0.0, stopped=True)
    stopped = sum(row.stopped for row in rows.values())
    summary = f"Stopped on request. {stopped} of {counted(len(chosen), 'table')} left for the next run."
    notes = [*map(coded, problems), *(f"{name}: {pause}" for name, pause in pauses.items())]
    if repeated := retry_counter().value - before:
        notes.append(f"{counted(repeated, 'call')} to the landing zone had to be repeated.")
    return tuple(rows.values()), tuple(notes), summary if stopped else ""


def delta_sources(tables: Sequence[Table]) -> list[Source]:
    """The sources, if all are Delta tables."""
    return [] if any(table.changes == "compare" for table in tables) else [table.source for table in tables]


def run_context(
    spark: SparkSession,
    config: Config,
    problems: list[MirrorfeedError],
    on_step: OnStep = None,
    on_done: OnDone = None,
    stop: Stop | None = None,
) -> RunContext:
    """A context that adds problems to a list, and whose waits end when `stop` returns True."""
    ends = stop or (lambda: False)
    return RunContext(
        spark,
        config,
        on_step=(lambda table, made: on_step(table, made.step)) if on_step else lambda *_: None,
        on_problem=problems.append,
        sleep=partial(sleep_unless, ends),
        stop=ends,
        on_done=on_done or (lambda _: None),
    )


def sleep_unless(stop: Stop, seconds: float) -> None:
    """Sleep, until `stop` returns True at the latest."""
    end = time.monotonic() + seconds
    while not stop() and (left := end - time.monotonic()) > 0:
        time.sleep(min(_STOP_CHECK_INTERVAL, left))


def publish_tables(context: RunContext, names: Sequence[str] = ()) -> list[TableResult]:
    """Publish all configured tables, or only `names`, and write the ledger and `_partnerEvents.json`.

    Returns the results of the tables that were started, in the order of the configuration.
    """
    spark, config, begun = context.spark, context.config, datetime.now(UTC)
    if problem := partner_events_problem(context.zone, config):
        context.on_problem(problem)
    if not names and (orphans := find_pattern_orphans(context.zone, config)):
        context.on_problem(orphans)
    pending = PendingRows(config.select(names), context.zone, begun)
    writer = BatchedWriter(LedgerWriter(spark, config.ledger, pending).write)
    ledger.begin(spark, config.ledger)
    results = publish_each(context, names, writer.add)
    if lost := writer.flush():
        context.on_problem(lost)
    return [replace(each, published_before=each.table in pending.loaded_again) for each in results]


def all_up_to_date(config: Config, names: Sequence[str] = ()) -> list[TableResult] | None:
    """Return the results of publishing if nothing is new in any table and nothing is missing in the ledger.

    Returns None if Spark is needed to find out or to publish. `_partnerEvents.json` is written in any case.
    """
    zone, now = zone_of(config), datetime.now(UTC)
    tables = [table for table in config.select(names) if not table.pause_at(now)]
    check, some_new = UpToDateCheck(config, zone), Event()

    def result(table: Table) -> TableResult | None:
        found = None if some_new.is_set() else check.outcome(table)
        if found is None:
            some_new.set()  # no other table needs to be checked
        return found

    results = [each for each in each_of(result, tables) if each]
    if some_new.is_set():
        return None
    if tables and config.ledger is not None:
        pending = PendingRows(tables, zone, now)
        known = ledger.known_without_spark(config.ledger, pending.most)
        if known is None or pending.rows(results, known, now):
            return None
    return None if partner_events_problem(zone, config) else results


def publish_each(
    context: RunContext, names: Sequence[str] = (), report: Callable[[Sequence[TableResult]], None] = lambda _: None
) -> list[TableResult]:
    """As `publish_tables`, without the ledger and `_partnerEvents.json`, for callers that write these themselves.

    `report` receives results from time to time, those of up-to-date tables first.
    """
    _ = context.zone  # once, and not in each of the threads
    now = datetime.now(UTC)
    chosen = [each for each in context.config.select(names) if not (context.mode.skips_paused and each.pause_at(now))]
    tasks = {str(table.target): TableTask(context, table) for table in chosen}
    found: dict[str, TableResult] = {}

    def add(results: Iterable[TableResult | None]) -> None:
        new = [each for each in results if each]
        found.update((each.table, each) for each in new)
        for each in new:
            context.on_done(each)
        report(new)

    publishes = context.mode.work is _publish
    if publishes:
        each_of(TableTask.up_to_date, list(tasks.values()), add)
    left = {name: task for name, task in tasks.items() if name not in found}
    max_parallel_tables = context.config.max_parallel_tables or bearable()
    # The order does not matter if all tables start at once.
    ordered = publishes and len(left) > max_parallel_tables
    dues = each_of(TableTask.due, list(left.values())) if ordered else [math.inf] * len(left)
    queue = [task.queued(due) for task, due in zip(left.values(), dues, strict=True)]
    _run_tasks(context, left, Scheduler(max_parallel_tables, queue), add)
    results = [found[name] for name in tasks if name in found]
    for result in results:
        progress = result.progress
        for warning in (progress.short, progress.last_gone):
            if warning:
                context.on_problem(warning)
        if progress.untidy:
            context.on_problem(LeftoversNotDeleted(table=result.table, cause=progress.untidy))
    if rewritten := [result for result in results if result.progress.differed]:
        names_ = [result.table for result in rewritten]
        context.on_problem(FilesRewritten(tables=names_, differed=rewritten[0].progress.differed))
    return results


def _run_tasks(
    context: RunContext,
    tasks: dict[str, TableTask],
    scheduler: Scheduler,
    add: Callable[[Sequence[TableResult]], None],
) -> None:
    """Make attempts until every table is done. A table that waits for another attempt releases its place."""
    queued = {table.name: table for table in scheduler.waiting}
    running: dict[Future[RetryState], str] = {}
    floor = -math.inf
    with ThreadPoolExecutor(max(1, len(tasks))) as pool:  # as many as there are places and tables over their limits
        while running or (scheduler.waiting and not context.stop()):
            now = max(floor, context.clock())
            for table in [] if context.stop() else scheduler.begin(now):
                running[pool.submit(tasks[table.name].attempt)] = table.name
            pause = scheduler.until(now)
            if not running:
                context.sleep(pause)
                floor = now + pause
                continue
            ended, _ = wait(running, min(_STOP_CHECK_INTERVAL, pause), FIRST_COMPLETED)
            done = []
            for name, state in [(running.pop(each), each.result()) for each in ended]:
                then = replace(queued[name], again=context.clock() + state.pause, limit=tasks[name].limit)
                scheduler.ended(name, then if state.left else None)
                done += [] if state.left else [tasks[name].result()]
            add(done)
    add([tasks[table.name].result() for table in scheduler.waiting if tasks[table.name].state.tries])


@dataclass
class TableTask:
    """The attempts for one table in a run."""

    context: RunContext
    table: Table
    progress: Progress = field(default_factory=Progress)
    seconds: float = 0.0
    """Its own time, without waiting for its place."""

    def __post_init__(self) -> None:
        context, table = self.context, self.table
        self._policy = RetryPolicy(
            bridges=lambda gap: can_bridge_gap(context.spark, table, gap, context.on_problem),
            reloads=lambda error: context.mode.reloads and needs_reload(table, error),
            attempts=context.mode.attempts,
        )
        self.state = RetryState(left=self._policy.attempts)

    @property
    def limit(self) -> float:
        """Seconds that are left."""
        return (
            math.inf
            if self.table.table_timeout_minutes is None
            else self.table.table_timeout_minutes * 60 - self.seconds
        )

    def up_to_date(self) -> TableResult | None:
        return (
            None if self.context.stop() else UpToDateCheck(self.context.config, self.context.zone).outcome(self.table)
        )

    def due(self) -> float:
        """When the waiting versions are to be published, as far as that is known without Spark."""
        within = self.table.freshness_target_minutes or self.context.config.alerts.max_lag_minutes.published or math.inf
        since = None if self.context.stop() else waits_since(self.context.zone, self.table)
        return math.inf if since is None else since.timestamp() + within * 60

    def queued(self, due: float) -> QueuedTable:
        return QueuedTable(str(self.table.target), self.table.priority, due, limit=self.limit)

    def attempt(self) -> RetryState:
        context, table, progress = self.context, self.table, self.progress
        begun, limit, error = context.clock(), self.limit, None
        try:
            self._publish(lambda: context.stop() or context.clock() - begun >= limit)
        except Exception as caught:
            error = named(f"Publishing {table.target}", caught)
        self.state = after(self.state, error, self._policy)
        self.seconds += context.clock() - begun
        lags = self.state.error or progress.published is None or progress.published != progress.latest
        if self.limit <= 0 and lags:
            timeout = TableTimeout(
                table=str(table.target),
                minutes=table.table_timeout_minutes or 0.0,
                published=progress.published,
                latest=progress.latest,
                cause=self.state.error,
            )
            self.state = replace(self.state, left=0, error=timeout)
        return self.state

    def _publish(self, stop: Stop) -> None:
        context, table, progress = self.context, self.table, self.progress
        source = source_for(context.spark, context.config, table, self.state.gap, progress.took_another_way)
        table = with_keys(table, lambda: context.client)
        if self.state.gap:
            progress.across = gap_note(source, self.state.gap)
        if self.state.clears:
            _clear(context, table, source)
            self.state = replace(self.state, cleared=True)
        context.mode.work(source, context.zone, table, progress, partial(context.on_step, str(table.target)), stop)

    def result(self) -> TableResult:
        state, table, progress, context = self.state, self.table, self.progress, self.context
        if progress.across and progress.made:
            context.on_problem(progress.across)
        result = TableResult(
            str(table.target),
            progress,
            self.seconds,
            table.validate_keys != "none",
            state.tries,
            state.error,
            state.reloaded,
            freshness_target_minutes=table.freshness_target_minutes,
        )
        return replace(result, stopped=state.error is None and context.stop() and result.lag_versions != 0)


def rebuild(
    spark: Callable[[], SparkSession],
    config: Config,
    name: str,
    drop_timeout: float,
    confirm: Callable[..., None] | None = None,
    on_step: OnStep = None,
    on_done: OnDone = None,
    stop: Stop | None = None,
) -> tuple[tuple[TableResult, ...], tuple[str, ...]]:
    """Rebuild a table, after `confirm` was called with the consequences. Returns results and notes."""
    chosen, problems = config.select([name]), list[MirrorfeedError]()
    if confirm:
        for each in chosen:
            folder = zone_of(config).address(each.target.folder)
            confirm(f"{folder} is deleted with all its contents, and Fabric lacks the table until it is published.")
    context = run_context(spark(), config, problems, on_step, on_done, stop)
    context = replace(context, dropped_by=dropping_by(config, on_step or (lambda *_: None), drop_timeout))
    rows = tuple(replace(rebuild_table(context, each), published_before=False) for each in chosen)
    return rows, tuple(map(coded, problems))


def rebuild_table(context: RunContext, table: Table) -> TableResult:
    """Delete the table's folder, wait for Fabric, and publish, also if the table is paused.

    Raises what fails before the publication.
    """
    source = source_for(context.spark, context.config, table)
    _clear(context, with_keys(table, lambda: context.client), source)
    mode = replace(context.mode, skips_paused=False)
    (result,) = publish_tables(replace(context, mode=mode, store=context.zone), [str(table.target)])
    return result


def _clear(context: RunContext, table: Table, source: ChangeSource) -> None:
    with context.dropping(table):
        clear(source, context.zone, table)
        clear_staging(context.config.staging_path, context.zone, context.zone.address(table.target.folder))


def dropping_by(
    config: Config, on_step: Callable[[str, str], None] = lambda *_: None, seconds: float = _DROP_TIMEOUT
) -> Dropping:
    """Wait until Fabric has dropped a table, if the landing zone is in OneLake."""

    @contextmanager
    def dropping(table: Table) -> Iterator[None]:
        if config.onelake is None:
            yield
            return
        from mirrorfeed.mirror.fabric.database import database_of  # slow to import, and not needed for folders

        def on_wait(state: str) -> None:
            on_step(str(table.target), f"waiting until Fabric has dropped it; now {state}")

        database = database_of(config)
        database.status()  # report a failure before anything is deleted
        yield
        database.wait_until_dropped(table.target, on_wait, seconds)

    return dropping
