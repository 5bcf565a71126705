"""Schedule tables: their order, and how many run in parallel."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from typing import TypeVar

STOP_CHECK_INTERVAL, _LONGEST_SLEEP = 0.5, 3.0
"""Maximum seconds: between two calls of `stop` while tables run, and for one sleep in continuous publishing."""
_THREADS = 1024
"""Maximum number of running tables, including tables that exceeded their time limits."""
_READ_THREADS = 4
_MIN_TABLES, _MAX_TABLES = 2, 32
Item = TypeVar("Item")
Result = TypeVar("Result")


class Clock:
    """Clock of a run. Tests replace it, so that they do not wait."""

    def now(self) -> float:
        """Return the seconds of a clock that is never set back."""
        return time.monotonic()

    def sleep(self, seconds: float, stop: Callable[[], bool] = lambda: False) -> None:
        """Sleep for `seconds`, or until `stop` returns True."""
        end = time.monotonic() + seconds
        while not stop() and (remaining := end - time.monotonic()) > 0:
            time.sleep(min(STOP_CHECK_INTERVAL, remaining))


@dataclass(frozen=True, slots=True)
class QueuedTable:
    """A table that waits for its next attempt."""

    name: str
    priority: int = 0
    due: float = math.inf
    """Time in seconds by which the table should be published. Of tables with equal priority, the earliest `due` starts
    first."""
    not_before: float = -math.inf
    """Earliest time of the next attempt, in seconds of the run's clock, for example after a transient error."""
    limit: float = math.inf
    """Maximum seconds of the attempt. After that, the table no longer counts towards `max_parallel_tables`."""
    since: float = math.inf
    """Time since which changes are known to wait. Of tables with equal `due`, the earliest `since` starts first."""
    is_check: bool = False
    """True if the attempt only checks whether something is to be published, which takes a moment."""


@dataclass
class Scheduler:
    """Waiting and running tables. Higher priority starts first. At equal priority, the earliest `due` starts first.

    Checks do not wait for publications: they have their own slots, and the check that waits longest starts first.
    """

    max_parallel_tables: int
    waiting: list[QueuedTable]
    _ends: dict[str, float] = field(default_factory=dict, init=False)
    _checks: set[str] = field(default_factory=set, init=False)
    """Names of the tables whose check is running."""

    def begin(self, now: float) -> list[QueuedTable]:
        """Return the tables that can start at the time `now`, and remove these tables from the queue."""
        running = sum(end > now for name, end in self._ends.items() if name not in self._checks)
        ready = [each for each in self.waiting if each.not_before <= now]
        checks = sorted((each for each in ready if each.is_check), key=lambda each: each.not_before)
        others = sorted(
            (each for each in ready if not each.is_check), key=lambda each: (-each.priority, each.due, each.since)
        )
        chosen = [
            *checks[: max(0, _READ_THREADS - len(self._checks))],
            *others[: max(0, self.max_parallel_tables - running)],
        ]
        if chosen:
            names = {each.name for each in chosen}
            self.waiting = [each for each in self.waiting if each.name not in names]
            self._ends |= {each.name: now + each.limit for each in chosen}
            self._checks |= {each.name for each in chosen if each.is_check}
        return chosen

    def ended(self, name: str, next_attempt: QueuedTable | None = None) -> None:
        """Record the end of an attempt, and add `next_attempt`, unless it is None, to the queue."""
        del self._ends[name]
        self._checks.discard(name)
        if next_attempt is not None:
            self.waiting.append(next_attempt)

    def seconds_to_wait(self, now: float) -> float:
        """Return the seconds until a waiting table can start or a running table times out. Infinity if neither can."""
        times = [*(table.not_before for table in self.waiting), *self._ends.values()]
        return min((time - now for time in times if time > now), default=math.inf)


def run_queue(
    scheduler: Scheduler,
    attempt: Callable[[str], Result],
    ended: Callable[[str, Result], QueuedTable | None],
    clock: Clock,
    *,
    stop: Callable[[], bool] = lambda: False,
    on_pass: Callable[[], None] = lambda: None,
    endless: bool = False,
) -> None:
    """Run attempts until the queue is empty (unless `endless`) or `stop` returns True. Then wait for running attempts.

    `attempt` receives the name of a table and runs in a separate thread. `ended` receives the name and the result, and
    returns the table's next entry for the queue, or None if the table is done. `on_pass` is called each time before
    tables are started. `ended` and `on_pass` run in the caller's thread.
    """
    running: dict[Future[Result], str] = {}
    floor = -math.inf
    with ThreadPoolExecutor(_THREADS) as pool:
        while running or ((scheduler.waiting or endless) and not stop()):
            on_pass()
            now = max(floor, clock.now())
            for table in [] if stop() else scheduler.begin(now):
                running[pool.submit(attempt, table.name)] = table.name
            pause = min(scheduler.seconds_to_wait(now), _LONGEST_SLEEP if endless else math.inf)
            if not running:
                clock.sleep(pause, stop)
                floor = now + pause
                continue
            done, _ = wait(running, min(STOP_CHECK_INTERVAL, pause), FIRST_COMPLETED)
            for future in done:
                name = running.pop(future)
                scheduler.ended(name, ended(name, future.result()))


def default_max_tables() -> int:
    """Return the default of `max_parallel_tables`, a number from 2 to 32.

    Within these limits, the number is twice the CPU cores or twice the GiB of memory, whichever is smaller.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 2
    try:
        gib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    except (AttributeError, ValueError, OSError):  # unknown on this operating system
        gib = _MIN_TABLES
    # Tables mostly wait for Spark and storage.
    return max(_MIN_TABLES, min(2 * cores, int(2 * gib), _MAX_TABLES))


def map_parallel(
    function: Callable[[Item], Result],
    items: Sequence[Item],
    report: Callable[[Sequence[Result]], None] = lambda _: None,
    stop: Callable[[], bool] = lambda: False,
) -> list[Result]:
    """Call `function` for all items in parallel. Return the results in the same order, or raise the error of a call.

    Calls `report` at least every 0.5 seconds with the results since its last call, possibly none. When `stop` returns
    True, returns only the results that exist, without waiting for running calls.
    """
    pool = ThreadPoolExecutor(_READ_THREADS)
    try:
        futures = [pool.submit(function, item) for item in items]
        left = set(futures)
        while left and not stop():
            done, left = wait(left, STOP_CHECK_INTERVAL, FIRST_COMPLETED)
            report([future.result() for future in done])
        return [future.result() for future in futures if future not in left]
    finally:
        pool.shutdown(wait=not stop(), cancel_futures=True)
