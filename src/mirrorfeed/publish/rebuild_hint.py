"""Hint that a rebuild may take less time than the publication of ranges that change much of a large table."""

from __future__ import annotations

from mirrorfeed.config.model import Table
from mirrorfeed.display.redact import shell_argument
from mirrorfeed.source.snapshot_or_range import Commit, Facts, PublishRanges
from mirrorfeed.source.table_info import count_changes, whole_number

REBUILD_SHARE = 0.25
"""Share of changed rows at which the hint starts. `python -m tests.bench.range_or_rebuild` shows the share at which a
rebuild takes less time than the range."""
_MIN_BYTES = 2**30
"""Smallest table with a hint. For smaller tables, the difference is less than the wait until Fabric has dropped one."""
_COPIED, _DELETED = ("numTargetRowsCopied", "numCopiedRows"), ("numTargetRowsDeleted", "numDeletedRows")


def rebuild_hint(table: Table, facts: Facts, decision: PublishRanges) -> str:
    """Return a sentence that offers a rebuild instead of the ranges. Empty if the ranges change few rows, if their
    number is unknown, or if the mirror keeps earlier changes, which a rebuild would delete."""
    share = changed_share(facts, decision)
    if share is None or share < REBUILD_SHARE or (facts.bytes or 0) < _MIN_BYTES or table.delivery.appends:
        return ""
    percent, target = f"{100 * min(share, 1):.0f} %", str(table.target)
    return (
        f"The changes are about {percent} of the table, so `mirrorfeed rebuild {shell_argument(target)}` may take less"
        " time. Fabric then drops the table and loads it again."
    )


def changed_share(facts: Facts, decision: PublishRanges) -> float | None:
    """Return about how large the changed rows of all ranges are, as a share of the table. None if unknown.
    The result is above 1 if the commits change many rows several times."""
    first, last = decision.ranges[0].from_version_exclusive + 1, decision.ranges[-1].to_version_inclusive
    sizes = [_changed_bytes(commit) for commit in facts.commits if first <= commit.version <= last]
    known = [size for size in sizes if size is not None]
    return sum(known) / facts.bytes if facts.bytes and len(known) == len(sizes) == last - first + 1 else None


def _changed_bytes(commit: Commit) -> int | None:
    """Return the approximate size of the rows that a commit changed, in bytes of the table's files. None if unknown.

    The files that the commit wrote also have copies of unchanged rows, but no deleted rows.
    """
    rows, size = count_changes(commit.operation, commit.metrics)
    if not rows:
        return rows  # none, or unknown
    deleted, copied = (
        sum(whole_number(commit.metrics.get(name)) or 0 for name in each) for each in (_DELETED, _COPIED)
    )
    written = rows - deleted + copied
    return size * rows // written if size is not None and written > 0 else None
