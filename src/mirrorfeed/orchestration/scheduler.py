"""Schedule tables: which table is next, how many run in parallel, and when a followed table is due.

`map_parallel` reads something of all tables in parallel, without a queue.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from mirrorfeed.source.snapshot_or_range import PendingCommits

if TYPE_CHECKING:
    from mirrorfeed.config.options import FollowLimits


FULL_READ_INTERVAL = 600.0
"""Seconds after which a table is read even without new commits, because its folder may have been deleted."""
STOP_CHECK_INTERVAL, _LONGEST_SLEEP = 0.5, 3.0
"""Seconds between two calls of `stop`, and maximum seconds of one sleep."""
_THREADS = 1024
"""Maximum number of running tables, including tables that exceeded their limits."""
_READ_THREADS = 4
_MIN_TABLES, _MAX_TABLES = 2, 32
Item = TypeVar("Item")
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class QueuedTable:
    name: str
    priority: int = 0
    """Tables with higher priority start first."""
    due: float = math.inf
    """Time at which the publication is wanted, by any clock. Earlier times start first."""
    not_before: float = -math.inf
    """Earliest start, for example after a transient failure."""
    limit: float = math.inf
    """Seconds until the table no longer counts as running."""


@dataclass
class Scheduler:
    """Queue of tables. Equal tables start in the order of the queue.

    A table that exceeds its limit continues until it can end, and no longer counts as running.
    """

    max_parallel_tables: int
    waiting: list[QueuedTable]
    _ends: dict[str, float] = field(default_factory=dict, init=False)
    """Times at which running tables exceed their limits."""

    def begin(self, now: float) -> list[QueuedTable]:
        """Remove the tables that start now from the queue and return them."""
        free = self.max_parallel_tables - sum(end > now for end in self._ends.values())
        ready = sorted(
            (each for each in self.waiting if each.not_before <= now), key=lambda each: (-each.priority, each.due)
        )
        chosen = ready[: max(0, free)]
        for table in chosen:
            self.waiting.remove(table)
            self._ends[table.name] = now + table.limit
        return chosen

    def ended(self, name: str, next_place: QueuedTable | None = None) -> None:
        """Release the place of a table. With `next_place`, add the table to the queue again."""
        del self._ends[name]
        if next_place is not None:
            self.waiting.append(next_place)

    def seconds_to_wait(self, now: float) -> float:
        """Return the seconds until a pause or a limit ends."""
        moments = [*(table.not_before for table in self.waiting), *self._ends.values()]
        return min((moment - now for moment in moments if moment > now), default=math.inf)


def run_queue(
    scheduler: Scheduler,
    attempt: Callable[[str], Callable[[], Result]],
    ended: Callable[[str, Result], QueuedTable | None],
    *,
    stop: Callable[[], bool] = lambda: False,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
    on_pass: Callable[[], None] = lambda: None,
    endless: bool = False,
) -> None:
    """Make attempts until the queue is empty (unless `endless`) or until `stop`. Waits for running attempts at the
    end.

    `attempt` returns the attempt for a table, which runs in a separate thread. `ended` receives the result, and returns
    the table's next place in the queue, or None. The caller's thread calls `ended` and, repeatedly, `on_pass`.
    """
    running: dict[Future[Result], str] = {}
    floor = -math.inf
    with ThreadPoolExecutor(_THREADS) as pool:
        while running or ((scheduler.waiting or endless) and not stop()):
            on_pass()
            now = max(floor, clock())
            for table in [] if stop() else scheduler.begin(now):
                running[pool.submit(attempt(table.name))] = table.name
            pause = min(scheduler.seconds_to_wait(now), _LONGEST_SLEEP if endless else math.inf)
            if not running:
                sleep(pause)
                floor = now + pause
                continue
            done, _ = wait(running, min(STOP_CHECK_INTERVAL, pause), FIRST_COMPLETED)
            for each in done:
                name = running.pop(each)
                scheduler.ended(name, ended(name, each.result()))


def is_due(
    limits: FollowLimits, waiting: PendingCommits | None, since_publication: float | None, since_read: float
) -> bool:
    """Return whether to publish a followed table now.

    The times are in seconds. `since_publication` is None if this run has published nothing yet. `waiting` is None if
    the pending commits could not be read: then the table is published, which reports the error.
    """
    if waiting is None or since_read >= FULL_READ_INTERVAL:
        return True
    if waiting.versions == 0:
        return False
    delay = limits.max_delay_seconds
    if since_publication is None or (delay is not None and since_publication >= delay):
        return True
    reached = ((limits.max_rows, waiting.rows), (limits.max_bytes, waiting.bytes))
    return any(limit is not None and (found is None or found >= limit) for limit, found in reached)


def default_max_tables() -> int:
    """Return the default number of tables that are published in parallel.

    Two per core of the driver, because tables mostly wait for Spark and storage, and at most two per GiB of memory.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 2
    try:
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    except (AttributeError, ValueError, OSError):  # unknown on this operating system
        memory = _MIN_TABLES
    return max_tables_for(cores, memory)


def max_tables_for(cores: int, gib: float) -> int:
    return max(_MIN_TABLES, min(2 * cores, int(2 * gib), _MAX_TABLES))


def map_parallel(
    one: Callable[[Item], Result],
    tables: Sequence[Item],
    report: Callable[[Sequence[Result]], None] = lambda _: None,
) -> list[Result]:
    """Return the results of `one` for all tables, in order. `report` receives new results in this thread, sometimes
    none."""
    with ThreadPoolExecutor(_READ_THREADS) as pool:
        futures = [pool.submit(one, table) for table in tables]
        try:
            left = set(futures)
            while left:
                done, left = wait(left, STOP_CHECK_INTERVAL, FIRST_COMPLETED)
                report([each.result() for each in done])
            return [each.result() for each in futures]
        finally:
            for each in futures:
                each.cancel()
