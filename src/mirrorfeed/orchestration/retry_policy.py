"""Decide after each attempt to publish a table: try again, reload the table, or make no more attempts."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from mirrorfeed.config.model import Table
from mirrorfeed.errors import MirrorfeedError, SparkSessionLostError, TransientError
from mirrorfeed.landing.errors import ColumnsDroppedError, IncompatibleSchemaError
from mirrorfeed.orchestration.errors import TableTimeoutError
from mirrorfeed.publish.errors import RecordsMissingError
from mirrorfeed.source.errors import (
    FeedGapError,
    FeedUnreadableError,
    PartitionsChangedError,
    Recreation,
    SourceRecreatedError,
    load_version_lost,
)

ATTEMPTS = 4
_FIRST_PAUSE, _LONGEST_PAUSE, TERMINAL_PAUSE = 2.0, 60.0, 300.0
"""Seconds to wait before another attempt. After a transient error: `_FIRST_PAUSE`, doubled each time up to
`_LONGEST_PAUSE`. After a terminal error in continuous publishing: `TERMINAL_PAUSE`."""


@dataclass(frozen=True, slots=True)
class RetryState:
    """State of a table between two attempts to publish it."""

    remaining: float
    """Remaining attempts. At 0, no attempt follows."""
    tries: int = 0
    pause: float = 0.0
    """Seconds until the next attempt."""
    reload: MirrorfeedError | None = None
    """Error because of which the table is reloaded from a snapshot. None without a reload."""
    cleared: bool = False
    """True if the folder of the table was deleted for the reload."""
    error: MirrorfeedError | None = None
    """Error of the last attempt. None if it succeeded or a reload follows."""

    @property
    def clears(self) -> bool:
        """True if the next attempt must first delete the folder of the table."""
        return self.reload is not None and not self.cleared

    @property
    def reloaded(self) -> MirrorfeedError | None:
        return self.reload if self.cleared else None


def next_state(
    state: RetryState, error: MirrorfeedError | None, *, reloads: bool = False, attempts: float = ATTEMPTS
) -> RetryState:
    """Return the state after one more attempt, which failed with `error`, or succeeded if `error` is None.

    If `reloads` is True and `state.reload` is None, a terminal error leads to a reload from a snapshot, with `attempts`
    new attempts. Otherwise, if `attempts` is infinite (continuous publishing), every error is retried. If `attempts` is
    finite, only transient errors are retried, but not `SparkSessionLostError` and `TableTimeoutError`.
    """
    endless = attempts == math.inf
    tried = replace(state, tries=state.tries + 1, remaining=state.remaining - 1, pause=0.0, error=error)
    is_last = isinstance(error, SparkSessionLostError | TableTimeoutError) and not endless  # there is no other session
    if error is None or is_last:
        return replace(tried, remaining=0)
    if isinstance(error, TransientError):
        pause = min(_LONGEST_PAUSE, _FIRST_PAUSE * 2.0 ** min(state.tries, 10))
        return replace(tried, pause=pause) if tried.remaining else tried
    if reloads and state.reload is None:
        return replace(tried, remaining=attempts, reload=error, error=None)
    if endless:
        return RetryState(attempts, tried.tries, TERMINAL_PAUSE, error=error)
    return replace(tried, remaining=0)


def needs_reload(table: Table, error: MirrorfeedError) -> bool:
    """Return whether the table must be reloaded after `error`.

    True if the option for this kind of error has the value `reseed`. The options are `on_gap`, `on_replace`,
    `on_dropped_column` and `on_schema_change`.
    """
    if isinstance(error, FeedGapError | RecordsMissingError) or load_version_lost.matches(error):
        return table.on_gap == "reseed"
    if isinstance(error, SourceRecreatedError):
        return table.on_replace == "reseed" and error.case is not Recreation.RESTORED
    if isinstance(error, ColumnsDroppedError):
        return table.on_dropped_column == "reseed"
    is_schema_change = isinstance(error, IncompatibleSchemaError | PartitionsChangedError | FeedUnreadableError)
    return is_schema_change and table.on_schema_change == "reseed"
