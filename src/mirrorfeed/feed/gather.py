"""When what is committed is published, while a table is followed. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from mirrorfeed.errors import Terminal

LOOK_ANYWAY = 600.0
"""Seconds after which a table is looked at as a whole, though nothing was noticed: its folder may have been deleted."""
ASK_AGAIN = 300.0
"""Seconds after which it is asked again which tables patterns stand for."""
FIRST_PAUSE, LONGEST_PAUSE, PERSONS_PAUSE = 2.0, 60.0, 300.0
"""In seconds, after a failure: of one that may pass, by doubling; and of one that takes a person."""


@dataclass(frozen=True, slots=True)
class AtMost:
    """A publication gathers what is committed in so many seconds after the one before, or so much; whichever comes
    first. What is not said is no limit. The service merges every 15 seconds at the fastest."""

    seconds: float | None = 15.0
    rows: int | None = None
    bytes: int | None = None

    @property
    def measures(self) -> bool:
        """Whether it asks how much was committed."""
        return self.rows is not None or self.bytes is not None

    @property
    def poll(self) -> float:
        """Seconds between two questions that keep to it."""
        return 3.0 if self.seconds is None else min(3.0, max(0.2, self.seconds / 5))


@dataclass(frozen=True, slots=True)
class Waiting:
    """What is committed after the published version."""

    versions: int
    rows: int | None = 0
    """Changed ones, as the commits tell; None where one does not."""
    bytes: int | None = 0
    """Written by the commits; None likewise."""


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


def due(policy: AtMost, state: State, waiting: Waiting | None, now: float) -> bool:
    """Whether the table is to be published now. None waits where nobody could say what does: then the run finds out."""
    if now < state.again:
        return False
    if state.published is None or state.failures or waiting is None or now - state.looked >= LOOK_ANYWAY:
        return True
    if waiting.versions == 0:
        return False
    if state.at is None or (policy.seconds is not None and now - state.at >= policy.seconds):
        return True
    return _reached(policy.rows, waiting.rows) or _reached(policy.bytes, waiting.bytes)


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
