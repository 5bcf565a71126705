"""How far the service has come with a table, judged by the files that it has left. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from mirrorfeed.landing.log import Record


def may_stand_at(newest_first: Iterable[Record], oldest_file: int | None) -> tuple[Record, ...]:
    """The publications at which a mirror may stand, the newest first; none if it has not come to any of these.

    The service takes away the files that it has processed, but for the last. So of what is in place the oldest may have
    been processed or not, and those after it have not.
    """
    found: list[Record] = []
    for record in newest_first:
        last = record.next_file_number - 1
        if oldest_file is None or last < oldest_file:
            return (*found, record)
        if last == oldest_file and not found:
            found.append(record)
    return tuple(found)
