"""Schedule tables: which one is published next, and when a followed table is due. Pure: the caller has the clock."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from mirrorfeed.errors import Terminal
from mirrorfeed.source.next_step import PendingCommits

if TYPE_CHECKING:
    from mirrorfeed.config.options import FollowLimits

FULL_READ_INTERVAL = 600.0
"""Seconds after which a table is read, although no change was noticed: its folder may have been deleted."""
EXPAND_INTERVAL = 300.0
"""Seconds after which patterns are expanded again."""
FIRST_PAUSE, LONGEST_PAUSE, TERMINAL_PAUSE = 2.0, 60.0, 300.0
"""Seconds after a failure: a transient one, with doubled pauses, and a terminal one."""


@dataclass(frozen=True, slots=True)
class QueuedTable:
    name: str
    priority: int = 0
    """Higher priorities come first."""
    due: float = math.inf
    """When the publication is wanted, by any clock. Earlier ones come first."""
    again: float = -math.inf
    """Not before this time, for example after a transient failure."""
    limit: float = math.inf
    """Seconds until it loses its place."""


@dataclass
class Scheduler:
    """Equal tables come in the order of the queue. A table over its limit ends when it can, and blocks no other."""

    max_parallel_tables: int
    waiting: list[QueuedTable]
    _ends: dict[str, float] = field(default_factory=dict, init=False)
    """When running tables lose their places."""

    def begin(self, now: float) -> list[QueuedTable]:
        """Return the tables that start now."""
        free = self.max_parallel_tables - sum(end > now for end in self._ends.values())
        ready = sorted(
            (each for each in self.waiting if each.again <= now), key=lambda each: (-each.priority, each.due)
        )
        chosen = ready[: max(0, free)]
        for table in chosen:
            self.waiting.remove(table)
            self._ends[table.name] = now + table.limit
        return chosen

    def ended(self, name: str, then: QueuedTable | None = None) -> None:
        """Release the place of a table, and add it to the queue again as `then`."""
        del self._ends[name]
        if then is not None:
            self.waiting.append(then)

    def until(self, now: float) -> float:
        """Seconds until a pause or a limit ends."""
        moments = [*(table.again for table in self.waiting), *self._ends.values()]
        return min((moment - now for moment in moments if moment > now), default=math.inf)


@dataclass(frozen=True, slots=True)
class FollowState:
    """The state of a followed table. Times are by the clock of the caller."""

    published: int | None = None
    """The published version. None before it is known."""
    at: float | None = None
    """Start of the last publication."""
    read_at: float = 0.0
    """When the table was read last."""
    failures: int = 0
    again: float = 0.0
    """Not before this time, after a failure."""


def is_due(limits: FollowLimits, state: FollowState, waiting: PendingCommits | None, now: float) -> bool:
    """Whether to publish the table now. `waiting` is None if it could not be read: then the run reports why."""
    if now < state.again:
        return False
    if state.published is None or state.failures or waiting is None or now - state.read_at >= FULL_READ_INTERVAL:
        return True
    if waiting.versions == 0:
        return False
    if state.at is None or (limits.max_delay_seconds is not None and now - state.at >= limits.max_delay_seconds):
        return True
    reached = ((limits.max_rows, waiting.rows), (limits.max_bytes, waiting.bytes))
    return any(limit is not None and (found is None or found >= limit) for limit, found in reached)


def state_after(
    state: FollowState, published: int | None, made: bool, error: Exception | None, begun: float, now: float
) -> FollowState:
    """Return the state after a run that began at `begun` and ended now."""
    at = begun if made else state.at
    if error is None:
        return FollowState(published, at, begun)
    failures = state.failures + 1
    transient = min(LONGEST_PAUSE, FIRST_PAUSE * 2 ** min(failures - 1, 10))
    pause = TERMINAL_PAUSE if isinstance(error, Terminal) else transient
    return FollowState(published if published is not None else state.published, at, begun, failures, now + pause)
