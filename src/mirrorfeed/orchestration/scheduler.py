"""Whose turn it is, where more tables wait than are published at a time. Pure: the clock is the caller's."""

from __future__ import annotations

import math
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class QueuedTable:
    """What waits to be worked on."""

    name: str
    priority: int = 0
    """The higher come first."""
    due: float = math.inf
    """By when it is wanted, by any clock; the earlier come first, and what is wanted by no time comes last."""
    again: float = -math.inf
    """Not before this, as after a failure that may pass."""
    limit: float = math.inf
    """Seconds for which it keeps its place."""


@dataclass
class Scheduler:
    """Of those that are equal the first to wait comes first. Who is over its limit has its place no more: it ends when
    it can, and keeps nobody waiting."""

    max_parallel_tables: int
    waiting: list[QueuedTable]
    _ends: dict[str, float] = field(default_factory=dict, init=False)
    """When those that are being worked on lose their places."""

    def begin(self, now: float) -> list[QueuedTable]:
        """Those that begin now."""
        free = self.max_parallel_tables - sum(end > now for end in self._ends.values())
        ready = sorted(
            (turn for turn in self.waiting if turn.again <= now), key=lambda turn: (-turn.priority, turn.due)
        )
        chosen = ready[: max(0, free)]
        for turn in chosen:
            self.waiting.remove(turn)
            self._ends[turn.name] = now + turn.limit
        return chosen

    def ended(self, name: str, then: QueuedTable | None = None) -> None:
        """One gives back its place, and may wait for another turn."""
        del self._ends[name]
        if then is not None:
            self.waiting.append(then)

    def until(self, now: float) -> float:
        """Seconds in which nothing changes by itself: until a pause or a limit is over."""
        moments = [*(turn.again for turn in self.waiting), *self._ends.values()]
        return min((moment - now for moment in moments if moment > now), default=math.inf)
