"""What comes next for one table of a run, by what its tries came to. Whoever runs it carries that out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from mirrorfeed.config import Table
from mirrorfeed.errors import MirrorfeedError, SessionLost, Transient
from mirrorfeed.landing.schema import ColumnsDropped, IncompatibleSchema
from mirrorfeed.publish.errors import RecordsMissing
from mirrorfeed.source.errors import FeedUnreadable, Gap, PartitionsChanged

TRIES = 4
_FIRST_PAUSE, _LONGEST_PAUSE = 2.0, 60.0


@dataclass(frozen=True, slots=True)
class RetryState:
    """How a run stands with a table. It goes on while tries are left."""

    left: int
    tries: int = 0
    """Those that were made."""
    pause: float = 0.0
    """Seconds before the next one."""
    gap: Gap | None = None
    """For which changes are read from the table's history, where it has them."""
    trouble: MirrorfeedError | None = None
    """For which the table is to be started again from a snapshot."""
    cleared: bool = False
    """Whether its folder was deleted for that."""
    error: MirrorfeedError | None = None
    """Why the last try failed, unless another way is left."""

    @property
    def clears(self) -> bool:
        """Whether the next try begins with deleting the table's folder."""
        return self.trouble is not None and not self.cleared

    @property
    def reseeded(self) -> MirrorfeedError | None:
        return self.trouble if self.cleared else None


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """What decides about another try."""

    is_kept: Callable[[Gap], bool]
    """Whether the table's history holds what goes on across a gap."""
    starts_again: Callable[[MirrorfeedError], bool]
    """Whether a table with this trouble is started again from a snapshot."""
    most_tries: int = TRIES
    """In one way; the next has as many."""


def after(course: RetryState, error: MirrorfeedError | None, rules: RetryPolicy) -> RetryState:
    """The course after one more try: what may pass is tried again, after longer and longer pauses; across a gap the
    history leads on, once; and a table may be started again, once."""
    tried = replace(course, tries=course.tries + 1, left=course.left - 1, pause=0.0, error=error)
    if error is None:
        return replace(tried, left=0)
    if isinstance(error, SessionLost):  # this process has no other session
        return replace(tried, left=0)
    if isinstance(error, Transient):
        pause = min(_LONGEST_PAUSE, _FIRST_PAUSE * 2.0**course.tries)
        return replace(tried, pause=pause) if tried.left else tried
    if course.gap is None and isinstance(error, Gap) and rules.is_kept(error):
        return replace(tried, left=rules.most_tries, gap=error, error=None)
    if course.trouble is None and rules.starts_again(error):
        return replace(tried, left=rules.most_tries, trouble=error, error=None)
    return replace(tried, left=0)


def needs_reload(table: Table, error: MirrorfeedError) -> bool:
    """Whether the configuration has a table with this trouble started again from a snapshot."""
    if isinstance(error, Gap | RecordsMissing):
        return table.on_gap == "reseed"
    if isinstance(error, ColumnsDropped):
        return table.on_dropped_column == "reseed"
    return (
        isinstance(error, IncompatibleSchema | PartitionsChanged | FeedUnreadable)
        and table.on_schema_change == "reseed"
    )
