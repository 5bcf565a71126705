"""Decide what follows an attempt for a table: another attempt, a reload, or the end."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from mirrorfeed.config.model import Table
from mirrorfeed.errors import MirrorfeedError, SessionLost, Transient
from mirrorfeed.landing.errors import ColumnsDropped, IncompatibleSchema
from mirrorfeed.orchestration.errors import TableTimeout
from mirrorfeed.publish.errors import RecordsMissing
from mirrorfeed.source.errors import FeedUnreadable, Gap, PartitionsChanged

ATTEMPTS = 4
_FIRST_PAUSE, _LONGEST_PAUSE, TERMINAL_PAUSE = 2.0, 60.0, 300.0
"""Seconds after a failure: a transient one, with doubled pauses, and a terminal one of a followed table."""


@dataclass(frozen=True, slots=True)
class RetryState:
    left: float
    """Attempts that are left. The run for the table ends without any."""
    tries: int = 0
    """Attempts that were made."""
    pause: float = 0.0
    """Seconds before the next attempt."""
    reload: MirrorfeedError | None = None
    """Why the table is reloaded from a snapshot."""
    cleared: bool = False
    """Whether its folder was deleted for the reload."""
    error: MirrorfeedError | None = None
    """Why the last attempt failed, unless it continues in another way."""

    @property
    def clears(self) -> bool:
        """Whether the next attempt deletes the table's folder first."""
        return self.reload is not None and not self.cleared

    @property
    def reloaded(self) -> MirrorfeedError | None:
        return self.reload if self.cleared else None


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    reloads: Callable[[MirrorfeedError], bool]
    """Whether a table with this error is reloaded from a snapshot."""
    attempts: float = ATTEMPTS
    """Attempts in one way. The next way has as many. A followed table has no limit: it is tried until it succeeds."""


def after(state: RetryState, error: MirrorfeedError | None, policy: RetryPolicy) -> RetryState:
    """Return the state after an attempt.

    Transient errors are retried, with longer and longer pauses. A table is reloaded once.
    """
    endless = policy.attempts == math.inf
    tried = replace(state, tries=state.tries + 1, left=state.left - 1, pause=0.0, error=error)
    if error is None or (isinstance(error, SessionLost | TableTimeout) and not endless):  # there is no other session
        return replace(tried, left=0)
    if isinstance(error, Transient):
        pause = min(_LONGEST_PAUSE, _FIRST_PAUSE * 2.0 ** min(state.tries, 10))
        return replace(tried, pause=pause) if tried.left else tried
    if state.reload is None and policy.reloads(error):
        return replace(tried, left=policy.attempts, reload=error, error=None)
    if endless:
        return RetryState(policy.attempts, tried.tries, TERMINAL_PAUSE, error=error)
    return replace(tried, left=0)


def needs_reload(table: Table, error: MirrorfeedError) -> bool:
    """Whether the configuration says to reload the table for this error."""
    if isinstance(error, Gap | RecordsMissing):
        return table.on_gap == "reseed"
    if isinstance(error, ColumnsDropped):
        return table.on_dropped_column == "reseed"
    of_schema = isinstance(error, IncompatibleSchema | PartitionsChanged | FeedUnreadable)
    return of_schema and table.on_schema_change == "reseed"
