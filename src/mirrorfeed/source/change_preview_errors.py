"""Errors of the preview of changes. A publication does not load them."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from mirrorfeed.errors import Terminal

if TYPE_CHECKING:
    from mirrorfeed.source.errors import BlockingFinding
    from mirrorfeed.source.snapshot_or_range import Commit


class BadBound(Terminal):
    code = "MF2301"
    what = "{text!r} is neither a version nor a time."
    fix = "Write a version number, or a time such as 2026-03-01, 2026-03-01 08:30:00.250 or 2026-03-01T08:30:00Z."


class OutsideHistory(Terminal):
    code = "MF2302"
    what = "{bound} is {reason} of {table}. The history contains {oldest} to {newest}."
    fix = (
        "Choose versions or times in the history. With `--past-end empty`, an end after the newest version is allowed."
    )
    meaning = "The requested changes start or end outside the history of the table."
    first: Commit
    last: Commit

    @property
    def oldest(self) -> str:
        return _commit(self.first)

    @property
    def newest(self) -> str:
        return _commit(self.last)


class BoundsCrossed(Terminal):
    code = "MF2303"
    what = "The start {start} is after the end {end}."
    fix = "Swap start and end. Both are inclusive."


class RangeUnreadable(Terminal):
    code = "MF2304"
    what = "{cause.problem}"
    fix = (
        "Start at a later version, or end before the version that changed the columns. `DESCRIBE HISTORY` shows which"
        " versions changed the columns or turned the feed on."
    )
    meaning = "The changes between the requested versions cannot be read, or the columns changed between them."
    cause: BlockingFinding


def _commit(commit: Commit) -> str:
    return f"version {commit.version} ({format_time(commit.timestamp)} UTC)"


def format_time(at: datetime) -> str:
    """Return a time as text without time zone. Milliseconds are shown only if the time has a fraction of a second."""
    return at.replace(tzinfo=None).isoformat(" ", "milliseconds" if at.microsecond else "seconds")
