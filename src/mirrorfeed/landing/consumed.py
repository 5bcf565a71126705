"""How far the service has come with a table, judged by the files that it has left. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from mirrorfeed.landing.log import Record


def may_stand_at(newest_first: Iterable[Record], in_place: Collection[int], *, by_time: bool) -> tuple[Record, ...]:
    """The publications at which a mirror may stand, the newest first; none if it has not come to any of these.

    The service takes away the files that it has processed, but for the last. So of what is in place the oldest may have
    been processed or not, and those after it have not. By time, any file of a publication may be its last.
    """
    oldest_file = min(in_place, default=None)
    found: list[Record] = []
    for record in newest_first:
        last = record.next_file_number - 1
        if by_time and len(in_place) == 1 and any(file.number == oldest_file for file in record.files):
            oldest_file = last
        if oldest_file is None or last < oldest_file:
            return (*found, record)
        if last == oldest_file and not found:
            found.append(record)
    return tuple(found)
