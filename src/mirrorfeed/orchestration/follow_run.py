"""Tables followed as they change: noticed cheaply, gathered by their policies, published by the cycle that every other
way of running takes. What this process remembers only says when to look; the log in the landing zone says the rest."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Sequence
from concurrent import futures
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from threading import Lock
from typing import Protocol

from pyspark.sql import SparkSession

from mirrorfeed.config import Config, Table
from mirrorfeed.config.expansion import expanded
from mirrorfeed.config.landing_zone import zone_of
from mirrorfeed.errors import MirrorfeedError, named
from mirrorfeed.orchestration import ledger
from mirrorfeed.orchestration.batching import ASK_AGAIN, State, after, due
from mirrorfeed.orchestration.ledger_writer import BatchedWriter, LedgerWriter, PendingRows
from mirrorfeed.orchestration.orphans import find_orphans
from mirrorfeed.orchestration.publish_run import RunContext, RunMode, publish_each
from mirrorfeed.orchestration.scheduler import QueuedTable, Scheduler
from mirrorfeed.publish.errors import FeedRequired, OrphanedTables
from mirrorfeed.publish.result import Progress, TableResult
from mirrorfeed.runtime.parallel import bearable
from mirrorfeed.runtime.spark_session import renewed
from mirrorfeed.source.identifier import Source
from mirrorfeed.source.ranges import PendingCommits
from mirrorfeed.source.versions import pending_commits
from mirrorfeed.storage import Store

_ASKED_AT_ONCE, _THREADS = 8, 1024
"""Tables that are asked for news at a time; and runs at the most, those that are over their time included."""


class Runs(Protocol):
    """What following asks of the world."""

    def tables(self) -> Sequence[Table] | None:
        """What patterns stand for now; None where there are none, or nobody could say."""
        ...

    def waiting(self, table: Table, published: int) -> PendingCommits | None:
        """What is committed after a version; None if that cannot be told."""
        ...

    def publish(self, names: Sequence[str]) -> list[TableResult]:
        """One try for each of these tables."""
        ...

    def tell(self, outcomes: Sequence[TableResult]) -> None:
        """Of what was published, and of what failed anew."""
        ...


def follow(
    tables: Sequence[Table],
    runs: Runs,
    *,
    stop: Callable[[], bool],
    max_parallel_tables: int | None = None,
    clock: Callable[[], float] = time.monotonic,
    wait: Callable[[float], None] = time.sleep,
) -> dict[str, State]:
    """Publishes the tables as they change until it is to stop; then nothing is half done, and how each table stands is
    told. They take turns, so that one that takes long keeps no other waiting."""
    followed = FollowQueue(tables, runs, stop, max_parallel_tables or bearable(), clock)
    with ThreadPoolExecutor(_THREADS) as pool:
        while not stop():
            followed.ask_again()
            followed.look()
            followed.work(pool)
            if not (stop() or followed.is_busy):
                wait(followed.pause)
    followed.end()
    return followed.states


@dataclass
class FollowQueue:
    """The tables that are followed: what waits for its turn, and what is in hand."""

    tables: Sequence[Table]
    runs: Runs
    stop: Callable[[], bool]
    max_parallel_tables: int
    clock: Callable[[], float]
    states: dict[str, State] = field(default_factory=dict, init=False)
    _errors: dict[str, str | None] = field(default_factory=dict, init=False)
    _hand: dict[Future[list[TableResult]], tuple[str, float]] = field(default_factory=dict, init=False)
    """The runs that are under way, with their tables and when they began."""

    def __post_init__(self) -> None:
        self._turns, self._book = Scheduler(self.max_parallel_tables, []), BatchedWriter(self.runs.tell, self.clock)
        self._follow(self.tables)

    @property
    def pause(self) -> float:
        """Seconds between two questions."""
        return min((table.follow.poll for table in self.tables), default=1.0)

    @property
    def is_busy(self) -> bool:
        return bool(self._hand or self._turns.waiting)

    def _follow(self, tables: Sequence[Table]) -> None:
        """These from now on. A table that is new is published from its beginning, one that is gone is left as it is."""
        for table in tables:
            if table.changes == "compare":
                raise FeedRequired(table=str(table.source), asked="to follow it")
        self.tables, self._asked = tables, self.clock()
        self.states = {name: self.states.get(name, State()) for name in map(str, (each.target for each in tables))}
        self._turns.waiting = [turn for turn in self._turns.waiting if turn.name in self.states]

    def ask_again(self) -> None:
        """What patterns stand for, now and then."""
        if self.clock() - self._asked >= ASK_AGAIN:
            self._follow(self.runs.tables() or self.tables)

    def look(self) -> None:
        """Which of those that nothing is done for are to be published."""
        taken = {turn.name for turn in self._turns.waiting} | {name for name, _ in self._hand.values()}
        idle = [table for table in self.tables if str(table.target) not in taken]
        with ThreadPoolExecutor(_ASKED_AT_ONCE) as pool:
            dues = list(pool.map(self._is_due, idle))
        self._turns.waiting += [self._turn(table) for table, is_due in zip(idle, dues, strict=True) if is_due]

    def _is_due(self, table: Table) -> bool:
        state = self.states[str(table.target)]
        policy, now = table.follow, self.clock()
        if now < state.again or table.pause_at(datetime.now(UTC)):
            return False
        found = None if state.published is None or state.failures else self.runs.waiting(table, state.published)
        return due(policy, state, found, now)

    def _turn(self, table: Table) -> QueuedTable:
        wanted = (
            math.inf if table.freshness_target_minutes is None else self.clock() + table.freshness_target_minutes * 60
        )
        limit = math.inf if table.table_timeout_minutes is None else table.table_timeout_minutes * 60
        return QueuedTable(str(table.target), table.priority, wanted, limit=limit)

    def work(self, pool: ThreadPoolExecutor) -> None:
        """Has runs made as turns come, until none is left or it is time to look again."""
        until = self.clock() + self.pause
        while self.is_busy and self.clock() < until and not self.stop():
            for turn in self._turns.begin(self.clock()):
                self._hand[pool.submit(self.runs.publish, [turn.name])] = turn.name, self.clock()
            ended, _ = futures.wait(self._hand, self.pause, FIRST_COMPLETED)
            self._hear(ended)
            if not ended:
                break
        self._book.hear([])

    def _hear(self, ended: Collection[Future[list[TableResult]]]) -> None:
        new: list[TableResult] = []
        for run in ended:
            name, begun = self._hand.pop(run)
            self._turns.ended(name)
            for outcome in run.result():
                error, made = outcome.error, bool(outcome.progress.made)
                text = str(error) if error else None
                if name in self.states:
                    published = outcome.progress.published
                    self.states[name] = after(self.states[name], published, made, error, begun, self.clock())
                if made or text != self._errors.get(name):
                    new.append(outcome)
                self._errors[name] = text
        self._book.hear(new)

    def end(self) -> None:
        """Once no run is under way."""
        self._hear(list(self._hand))
        self._book.flush()


@dataclass
class SparkRuns:
    """Through Spark. After any failure the session is asked whether it still answers, and landing zone and
    credential are taken up anew."""

    spark: SparkSession
    config: Config
    stop: Callable[[], bool]
    on_outcome: Callable[[TableResult], None] = lambda _: None
    on_trouble: Callable[[MirrorfeedError], None] = lambda _: None
    renew: Callable[[SparkSession], SparkSession] = renewed
    written: Config | None = None
    """The configuration with its patterns, to be asked again; None: its tables stay the same."""
    names: Sequence[str] = ()
    """Of the tables that are followed; none: all."""
    _seen: dict[str, Table] = field(default_factory=dict, init=False)
    """All that were followed, for what is still to be told of them."""
    _lock: Lock = field(default_factory=Lock, init=False)
    _unasked: str = field(default="", init=False)
    """Why patterns could not be asked, which is told once."""
    _store: Store | None = field(default=None, init=False)
    _begun: datetime = field(default_factory=lambda: datetime.now(UTC), init=False)

    def __post_init__(self) -> None:
        self._keep(self.config)
        ledger.begin(self.spark, self.config.ledger)

    def _keep(self, config: Config) -> None:
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
            self._cannot_ask(named("Asking again what the patterns stand for", error))
            return None
        self._unasked = ""
        self._keep(config)
        if left:
            self.on_trouble(OrphanedTables(targets=left, path=config.path))
        return found

    def _cannot_ask(self, error: MirrorfeedError) -> None:
        if str(error) != self._unasked:
            self.on_trouble(error)
        self._unasked = str(error)

    def waiting(self, table: Table, published: int) -> PendingCommits | None:
        source: Source = table.source
        try:
            return pending_commits(self.spark, source, published, measured=table.follow.measures)
        except Exception as error:  # the run says what it is
            named(f"Asking what is new in {source}", error)
            return None

    def publish(self, names: Sequence[str]) -> list[TableResult]:
        try:
            self._store = self._store or zone_of(self.config)
            once = RunMode(most_tries=1)
            outcomes = publish_each(
                RunContext(
                    self.spark, self.config, on_trouble=self.on_trouble, stop=self.stop, way=once, store=self._store
                ),
                names,
            )
        except Exception as error:  # of the landing zone or of the session, before any table was begun
            trouble = named("Publishing", error)
            outcomes = [TableResult(name, Progress(), 0.0, error=trouble) for name in names]
        for outcome in outcomes:
            self.on_outcome(outcome)
        if any(outcome.error for outcome in outcomes):
            with self._lock:
                self._store = None
                self.spark = self.renew(self.spark)
        return outcomes

    def tell(self, outcomes: Sequence[TableResult]) -> None:
        teller = LedgerWriter(
            self.spark, self.config.ledger, PendingRows(tuple(self._seen.values()), self._store, self._begun)
        )
        if lost := teller.tell(outcomes):
            self.on_trouble(lost)
