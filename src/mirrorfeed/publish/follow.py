"""Tables followed as they change: noticed cheaply, gathered by their policies, published by the cycle that every other
way of running takes. What this process remembers only says when to look; the log in the landing zone says the rest."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Protocol

from pyspark.sql import SparkSession

from mirrorfeed.config import Config, Table
from mirrorfeed.errors import MirrorfeedError, named
from mirrorfeed.feed.gather import State, Waiting, after, due
from mirrorfeed.feed.notice import waiting
from mirrorfeed.feed.source import Source
from mirrorfeed.publish.compared import NeedsFeed
from mirrorfeed.publish.fleet import Fleet, Way, publish_each
from mirrorfeed.publish.outcome import Outcome, Progress
from mirrorfeed.publish.teller import ByMinute, News, Teller
from mirrorfeed.publish.zone import zone_of
from mirrorfeed.session import renewed
from mirrorfeed.stores import Store

_AT_ONCE = 8


class Runs(Protocol):
    """What following asks of the world."""

    def waiting(self, table: Table, published: int) -> Waiting | None:
        """What is committed after a version; None if that cannot be told."""
        ...

    def publish(self, names: Sequence[str]) -> list[Outcome]:
        """One try for each of these tables."""
        ...

    def tell(self, outcomes: Sequence[Outcome]) -> None:
        """Of what was published, and of what failed anew."""
        ...


def follow(
    tables: Sequence[Table],
    runs: Runs,
    *,
    stop: Callable[[], bool],
    clock: Callable[[], float] = time.monotonic,
    wait: Callable[[float], None] = time.sleep,
) -> dict[str, State]:
    """Publishes the tables as they change until it is to stop; then nothing is half done, and how each table stands is
    told."""
    for table in tables:
        if table.changes == "compare":
            raise NeedsFeed(str(table.source), "to follow it")
    states = {str(table.target): State() for table in tables}
    errors: dict[str, str | None] = {}
    book = ByMinute(runs.tell, clock)
    pause = min((table.at_most.policy.poll for table in tables), default=1.0)

    def is_due(table: Table) -> bool:
        state = states[str(table.target)]
        policy, now = table.at_most.policy, clock()
        if now < state.again or table.pause_at(datetime.now(UTC)):
            return False
        found = None if state.published is None or state.failures else runs.waiting(table, state.published)
        return due(policy, state, found, now)

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        while not stop():
            new: list[Outcome] = []
            chosen = [str(table.target) for table, now in zip(tables, pool.map(is_due, tables), strict=True) if now]
            if chosen:
                begun = clock()
                for outcome in runs.publish(chosen):
                    name, error, made = outcome.table, outcome.error, bool(outcome.progress.made)
                    published = outcome.progress.published
                    states[name] = after(states[name], published, made, error, begun, clock())
                    text = str(error) if error else None
                    if made or text != errors.get(name):
                        new.append(outcome)
                    errors[name] = text
            book.hear(new)
            if not stop():
                wait(pause)
    book.flush()
    return states


@dataclass
class SparkRuns:
    """Through Spark. After any failure the session is asked whether it still answers, and landing zone and
    credential are taken up anew."""

    spark: SparkSession
    config: Config
    stop: Callable[[], bool]
    on_outcome: Callable[[Outcome], None] = lambda _: None
    on_trouble: Callable[[MirrorfeedError], None] = lambda _: None
    renew: Callable[[SparkSession], SparkSession] = renewed
    _store: Store | None = field(default=None, init=False)
    _begun: datetime = field(default_factory=lambda: datetime.now(UTC), init=False)

    def waiting(self, table: Table, published: int) -> Waiting | None:
        source: Source = table.source
        try:
            return waiting(self.spark, source, published, measured=table.at_most.policy.measures)
        except Exception as error:  # the run says what it is
            named(f"Asking what is new in {source}", error)
            return None

    def publish(self, names: Sequence[str]) -> list[Outcome]:
        try:
            self._store = self._store or zone_of(self.config)
            once = Way(most_tries=1)
            outcomes = publish_each(
                Fleet(self.spark, self.config, on_trouble=self.on_trouble, stop=self.stop, way=once, store=self._store),
                names,
            )
        except Exception as error:  # of the landing zone or of the session, before any table was begun
            trouble = named("Publishing", error)
            outcomes = [Outcome(name, Progress(), 0.0, error=trouble) for name in names]
        for outcome in outcomes:
            self.on_outcome(outcome)
        if any(outcome.error for outcome in outcomes):
            self._store = None
            self.spark = self.renew(self.spark)
        return outcomes

    def tell(self, outcomes: Sequence[Outcome]) -> None:
        teller = Teller(self.spark, self.config.ledger, News(self.config.tables, self._store, self._begun))
        if lost := teller.tell(outcomes):
            self.on_trouble(lost)
