"""When what is committed is published, while a table is followed. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mirrorfeed.errors import Terminal
from mirrorfeed.source.ranges import PendingCommits

if TYPE_CHECKING:
    from mirrorfeed.config.schedule import FollowLimits

LOOK_ANYWAY = 600.0
"""Seconds after which a table is looked at as a whole, though nothing was noticed: its folder may have been deleted."""
ASK_AGAIN = 300.0
"""Seconds after which it is asked again which tables patterns stand for."""
FIRST_PAUSE, LONGEST_PAUSE, PERSONS_PAUSE = 2.0, 60.0, 300.0
"""In seconds, after a failure: of one that may pass, by doubling; and of one that takes a person."""


@dataclass(frozen=True, slots=True)
class State:
    """How a followed table stands, by the clock of who follows."""

    published: int | None = None
    """The version; None before it is known."""
    at: float | None = None
    """When a publication of it began last."""
    looked: float = 0.0
    """When it was looked at as a whole last."""
    failures: int = 0
    again: float = 0.0
    """Not before this, after a failure."""


def due(limits: FollowLimits, state: State, waiting: PendingCommits | None, now: float) -> bool:
    """Whether the table is to be published now. None waits where nobody could say what does: then the run finds out."""
    if now < state.again:
        return False
    if state.published is None or state.failures or waiting is None or now - state.looked >= LOOK_ANYWAY:
        return True
    if waiting.versions == 0:
        return False
    if state.at is None or (limits.max_delay_seconds is not None and now - state.at >= limits.max_delay_seconds):
        return True
    return _reached(limits.max_rows, waiting.rows) or _reached(limits.max_bytes, waiting.bytes)


def after(state: State, published: int | None, made: bool, error: Exception | None, begun: float, now: float) -> State:
    """The state once a run that began then has ended now."""
    at = begun if made else state.at
    if error is None:
        return State(published, at, begun)
    failures = state.failures + 1
    passing = min(LONGEST_PAUSE, FIRST_PAUSE * 2 ** min(failures - 1, 10))
    pause = PERSONS_PAUSE if isinstance(error, Terminal) else passing
    return State(published if published is not None else state.published, at, begun, failures, now + pause)


def _reached(limit: int | None, found: int | None) -> bool:
    return limit is not None and (found is None or found >= limit)
