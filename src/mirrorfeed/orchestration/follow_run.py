"""Publish tables continuously: notice changes with cheap queries, and publish them when their limits say so.

What this process remembers only decides when to read a table. The log in the landing zone decides what is published.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Sequence
from concurrent import futures
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from threading import Lock
from typing import Protocol

from pyspark.sql import SparkSession

from mirrorfeed.config import Config, Table
from mirrorfeed.config.expansion import expanded
from mirrorfeed.config.landing_zone import zone_of
from mirrorfeed.display.humanize import counted
from mirrorfeed.display.progress import progress
from mirrorfeed.errors import MirrorfeedError, coded, named
from mirrorfeed.orchestration import ledger
from mirrorfeed.orchestration.ledger_writer import BatchedWriter, LedgerWriter, PendingRows
from mirrorfeed.orchestration.orphans import find_orphans
from mirrorfeed.orchestration.publish_run import OnDone, Published, RunContext, RunMode, publish_each, sleep_unless
from mirrorfeed.orchestration.scheduler import EXPAND_INTERVAL, FollowState, QueuedTable, Scheduler, is_due, state_after
from mirrorfeed.publish.errors import FeedRequired, OrphanedTables
from mirrorfeed.publish.result import Progress, TableResult
from mirrorfeed.runtime.parallel import bearable
from mirrorfeed.runtime.spark_session import renewed
from mirrorfeed.source.identifier import Source
from mirrorfeed.source.next_step import PendingCommits
from mirrorfeed.source.versions import pending_commits
from mirrorfeed.storage import Store

_PARALLEL_PROBES, _THREADS = 8, 1024
"""Tables that are checked for changes at a time, and the maximum of runs, including those over their limits."""


class Runs(Protocol):
    """What following needs from Spark and the landing zone."""

    def tables(self) -> Sequence[Table] | None:
        """Expand the patterns again. None if there are none, or if that fails."""
        ...

    def waiting(self, table: Table, published: int) -> PendingCommits | None:
        """Return what was committed after a version. None if that is unknown."""
        ...

    def publish(self, names: Sequence[str]) -> list[TableResult]:
        """Make one attempt for each of these tables."""
        ...

    def write(self, results: Sequence[TableResult]) -> None:
        """Write publications and new failures to the ledger."""
        ...


def follow(
    tables: Sequence[Table],
    runs: Runs,
    *,
    stop: Callable[[], bool],
    max_parallel_tables: int | None = None,
    clock: Callable[[], float] = time.monotonic,
    wait: Callable[[float], None] = time.sleep,
) -> dict[str, FollowState]:
    """Publish the tables as they change until `stop`. Returns their states, with no publication half done.

    A table that takes long does not block the others.
    """
    queue = FollowQueue(tables, runs, stop, max_parallel_tables or bearable(), clock)
    with ThreadPoolExecutor(_THREADS) as pool:
        while not stop():
            queue.expand_again()
            queue.add_due()
            queue.work(pool)
            if not (stop() or queue.is_busy):
                wait(queue.pause)
    queue.end()
    return queue.states


@dataclass
class FollowQueue:
    """The followed tables: those that wait, and those that are published now."""

    tables: Sequence[Table]
    runs: Runs
    stop: Callable[[], bool]
    max_parallel_tables: int
    clock: Callable[[], float]
    states: dict[str, FollowState] = field(default_factory=dict, init=False)
    _errors: dict[str, str | None] = field(default_factory=dict, init=False)
    _running: dict[Future[list[TableResult]], tuple[str, float]] = field(default_factory=dict, init=False)
    """Running publications, with their tables and start times."""

    def __post_init__(self) -> None:
        self._scheduler = Scheduler(self.max_parallel_tables, [])
        self._writer = BatchedWriter(self.runs.write, self.clock)
        self._follow(self.tables)

    @property
    def pause(self) -> float:
        """Seconds between two checks."""
        return min((table.follow.poll for table in self.tables), default=1.0)

    @property
    def is_busy(self) -> bool:
        return bool(self._running or self._scheduler.waiting)

    def _follow(self, tables: Sequence[Table]) -> None:
        """Follow these from now on. A new table is published from the start, one that is gone is left as it is."""
        for table in tables:
            if table.changes == "compare":
                raise FeedRequired(table=str(table.source), asked="Continuous publishing")
        self.tables, self._expanded_at = tables, self.clock()
        self.states = {
            name: self.states.get(name, FollowState()) for name in map(str, (each.target for each in tables))
        }
        self._scheduler.waiting = [each for each in self._scheduler.waiting if each.name in self.states]

    def expand_again(self) -> None:
        if self.clock() - self._expanded_at >= EXPAND_INTERVAL:
            self._follow(self.runs.tables() or self.tables)

    def add_due(self) -> None:
        """Add the tables to the queue that are due and not in it."""
        busy = {each.name for each in self._scheduler.waiting} | {name for name, _ in self._running.values()}
        idle = [table for table in self.tables if str(table.target) not in busy]
        with ThreadPoolExecutor(_PARALLEL_PROBES) as pool:
            dues = list(pool.map(self._is_due, idle))
        self._scheduler.waiting += [self._queued(table) for table, is_due in zip(idle, dues, strict=True) if is_due]

    def _is_due(self, table: Table) -> bool:
        state = self.states[str(table.target)]
        policy, now = table.follow, self.clock()
        if now < state.again or table.pause_at(datetime.now(UTC)):
            return False
        found = None if state.published is None or state.failures else self.runs.waiting(table, state.published)
        return is_due(policy, state, found, now)

    def _queued(self, table: Table) -> QueuedTable:
        wanted = (
            math.inf if table.freshness_target_minutes is None else self.clock() + table.freshness_target_minutes * 60
        )
        limit = math.inf if table.table_timeout_minutes is None else table.table_timeout_minutes * 60
        return QueuedTable(str(table.target), table.priority, wanted, limit=limit)

    def work(self, pool: ThreadPoolExecutor) -> None:
        """Start publications until none is left or the next check is due."""
        until = self.clock() + self.pause
        while self.is_busy and self.clock() < until and not self.stop():
            for each in self._scheduler.begin(self.clock()):
                self._running[pool.submit(self.runs.publish, [each.name])] = each.name, self.clock()
            ended, _ = futures.wait(self._running, self.pause, FIRST_COMPLETED)
            self._add_results(ended)
            if not ended:
                break
        self._writer.add([])

    def _add_results(self, ended: Collection[Future[list[TableResult]]]) -> None:
        new: list[TableResult] = []
        for run in ended:
            name, begun = self._running.pop(run)
            self._scheduler.ended(name)
            for outcome in run.result():
                error, made = outcome.error, bool(outcome.progress.made)
                text = str(error) if error else None
                if name in self.states:
                    published = outcome.progress.published
                    self.states[name] = state_after(self.states[name], published, made, error, begun, self.clock())
                if made or text != self._errors.get(name):
                    new.append(outcome)
                self._errors[name] = text
        self._writer.add(new)

    def end(self) -> None:
        """Call it when no publication is running."""
        self._add_results(list(self._running))
        self._writer.flush()


@dataclass
class SparkRuns:
    """Runs with Spark. After a failure, checks the session, and opens the landing zone with its credential again."""

    spark: SparkSession
    config: Config
    stop: Callable[[], bool]
    on_outcome: Callable[[TableResult], None] = lambda _: None
    on_problem: Callable[[MirrorfeedError], None] = lambda _: None
    renew: Callable[[SparkSession], SparkSession] = renewed
    written: Config | None = None
    """The configuration with its patterns, to expand them again. None: the tables stay the same."""
    names: Sequence[str] = ()
    """The followed tables. Empty: all."""
    _seen: dict[str, Table] = field(default_factory=dict, init=False)
    """All tables that were followed, because the ledger may still lack rows of them."""
    _lock: Lock = field(default_factory=Lock, init=False)
    _expansion_error: str = field(default="", init=False)
    """Why patterns could not be expanded, which is reported once."""
    _store: Store | None = field(default=None, init=False)
    _begun: datetime = field(default_factory=lambda: datetime.now(UTC), init=False)

    def __post_init__(self) -> None:
        self._set_config(self.config)
        ledger.begin(self.spark, self.config.ledger)

    def _set_config(self, config: Config) -> None:
        self.config = config
        self._seen |= {str(table.target): table for table in config.tables}

    def tables(self) -> Sequence[Table] | None:
        if not (self.written and self.written.patterns):
            return None
        before = {str(table.target) for table in self.config.select(self.names)}
        try:
            config = expanded(self.written, lambda: self.spark).config
            found = config.select(self.names)
            gone = before - {str(table.target) for table in found}
            left = tuple(
                name for name in map(str, find_orphans(zone_of(config), config) if gone else ()) if name in gone
            )
        except Exception as error:
            self._report_expansion(named("Expanding the patterns again", error))
            return None
        self._expansion_error = ""
        self._set_config(config)
        if left:
            self.on_problem(OrphanedTables(targets=left, path=config.path))
        return found

    def _report_expansion(self, error: MirrorfeedError) -> None:
        if str(error) != self._expansion_error:
            self.on_problem(error)
        self._expansion_error = str(error)

    def waiting(self, table: Table, published: int) -> PendingCommits | None:
        source: Source = table.source
        try:
            return pending_commits(self.spark, source, published, measured=table.follow.measures)
        except Exception as error:  # the run reports it
            named(f"Checking {source} for changes", error)
            return None

    def publish(self, names: Sequence[str]) -> list[TableResult]:
        try:
            self._store = self._store or zone_of(self.config)
            once = RunMode(attempts=1)
            outcomes = publish_each(
                RunContext(
                    self.spark, self.config, on_problem=self.on_problem, stop=self.stop, mode=once, store=self._store
                ),
                names,
            )
        except Exception as error:  # of the landing zone or the session, before any table was started
            failure = named("Publishing", error)
            outcomes = [TableResult(name, Progress(), 0.0, error=failure) for name in names]
        for outcome in outcomes:
            self.on_outcome(outcome)
        if any(outcome.error for outcome in outcomes):
            with self._lock:
                self._store = None
                self.spark = self.renew(self.spark)
        return outcomes

    def write(self, results: Sequence[TableResult]) -> None:
        pending = PendingRows(tuple(self._seen.values()), self._store, self._begun)
        if lost := LedgerWriter(self.spark, self.config.ledger, pending).write(results):
            self.on_problem(lost)


def follow_tables(
    spark: SparkSession,
    config: Config,
    names: Sequence[str],
    written: Config,
    stop: Callable[[], bool],
    on_done: OnDone = None,
) -> Published:
    """Publish tables as they change. Returns the newest result of each, notes and a summary.

    `written` is the configuration with its patterns, which are expanded again from time to time.
    """
    newest, notes = dict[str, TableResult](), dict[str, None]()

    def keep(result: TableResult) -> None:
        newest[result.table] = result
        if on_done:
            on_done(result)

    def note(problem: MirrorfeedError) -> None:
        notes[coded(problem)] = None
        progress.warning("%s", coded(problem))

    runs, chosen = SparkRuns(spark, config, stop, keep, note, written=written, names=names), config.select(names)
    follow(chosen, runs, stop=stop, max_parallel_tables=config.max_parallel_tables, wait=partial(sleep_unless, stop))
    return tuple(newest.values()), tuple(notes), f"Followed {counted(len(chosen), 'table')}."


def stop_after(
    minutes: float | None, stop: Callable[[], bool] | None, clock: Callable[[], float] = time.monotonic
) -> Callable[[], bool]:
    """Return a function that returns True after `minutes`, or as soon as `stop` does."""
    end = math.inf if minutes is None else clock() + minutes * 60
    return lambda: clock() >= end or (stop is not None and stop())
