"""Errors of the preview of changes. A publication does not load them."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from mirrorfeed.errors import Computed, ConfigurationError, SourceError, problem

if TYPE_CHECKING:
    from mirrorfeed.source.errors import PublicationBlockedError
    from mirrorfeed.source.snapshot_or_range import Commit


@problem(ConfigurationError, "MF2301")
def invalid_bound(*, text: str) -> None:
    """{text!r} is neither a version nor a time.

    Write a version number, or a time such as 2026-03-01, 2026-03-01 08:30:00.250 or 2026-03-01T08:30:00Z.
    """


@problem(
    ConfigurationError,
    "MF2302",
    meaning="The requested changes start or end outside the history of the table.",
)
def bound_outside_history(*, bound: str, reason: str, table: str, first: Commit, last: Commit) -> Computed:
    """{bound} is {reason} of {table}. The history contains {oldest} to {newest}.

    Choose versions or times in the history. With `--past-end empty`, an end after the newest version is allowed.
    """
    return {"oldest": _commit(first), "newest": _commit(last)}


@problem(ConfigurationError, "MF2303")
def bounds_reversed(*, start: str, end: str) -> None:
    """The start {start} is after the end {end}.

    Swap start and end. Both are inclusive.
    """


@problem(
    SourceError,
    "MF2304",
    meaning="The changes between the requested versions cannot be read, or the columns changed between them.",
)
def range_unreadable(*, cause: PublicationBlockedError) -> None:
    """{cause.problem}

    Start at a later version, or end before the version that changed the columns. `DESCRIBE HISTORY` shows which
    versions changed the columns or turned the feed on.
    """


def _commit(commit: Commit) -> str:
    return f"version {commit.version} ({format_time(commit.timestamp)} UTC)"


def format_time(at: datetime) -> str:
    """Return a time as text without time zone. Milliseconds are shown only if the time has a fraction of a second."""
    return at.replace(tzinfo=None).isoformat(" ", "milliseconds" if at.microsecond else "seconds")
