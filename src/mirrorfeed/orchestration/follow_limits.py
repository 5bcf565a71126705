"""Decide when continuous publishing starts an attempt to publish a table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirrorfeed.source.pending_commits import PendingCommits

if TYPE_CHECKING:
    from mirrorfeed.config.options import FollowLimits

FULL_READ_INTERVAL = 600.0
"""Seconds until continuous publishing tries a table again even without new commits, in case its folder was deleted."""


def is_due(
    limits: FollowLimits, pending: PendingCommits | None, since_publication: float | None, since_attempt: float
) -> bool:
    """Return whether continuous publishing starts an attempt to publish a table now, according to the option `follow`.

    `pending` is the size of the unpublished commits, or None if they cannot be read. With None, returns True, and the
    attempt reports the error. `since_attempt` is the seconds since the last attempt, even if it published nothing.
    `since_publication` is the seconds since the last attempt that published something, or None if no attempt did.
    """
    if pending is None or since_attempt >= FULL_READ_INTERVAL:
        return True
    if pending.versions == 0:
        return False
    delay = limits.max_delay_seconds
    if since_publication is None or (delay is not None and since_publication >= delay):
        return True
    counts = ((limits.max_rows, pending.rows), (limits.max_bytes, pending.bytes))
    return any(limit is not None and (count is None or count >= limit) for limit, count in counts)
