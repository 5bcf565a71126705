"""Which files of a table Fabric has consumed, judged by the files that are left. Pure.

Fabric consumes files in order. It sets consumed files aside, in a folder of the table where they stay for seven days,
and leaves the last one in place.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from mirrorfeed.landing.record import Record


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


@dataclass(frozen=True, slots=True)
class Missing:
    """Published files that are neither in the table's folder nor known to be consumed."""

    numbers: tuple[int, ...] = ()
    lost: bool = False
    """Whether Fabric certainly did not consume them. Otherwise the folder does not show whether it did."""


def missing_files(
    published: int,
    in_place: Collection[int],
    set_aside: Collection[int] = (),
    *,
    newest_first: Iterable[Record] = (),
    by_time: bool = False,
) -> Missing:
    """Find published files that are gone, and decide whether they are lost.

    `published` is the highest number that a file was given, `set_aside` are the numbers that Fabric has put aside. The
    oldest file in place is the last one consumed, or still waits. So Fabric consumed none of the files after it that
    are missing, unless it has set aside the same file or a later one. If no file is in place, at least the last one
    was removed by somebody else, before or after Fabric consumed it. By time, the files of one publication have no
    order among them, so only files of later publications count as later.
    """
    last_aside = max(set_aside, default=0)
    # A file is set aside once the next one has been consumed.
    consumed = last_aside + 1 if last_aside and last_aside not in in_place else last_aside
    reached = max(min(in_place, default=0), consumed)
    there = set(in_place)
    numbers = tuple(number for number in range(reached + 1, published + 1) if number not in there)
    if by_time and in_place and numbers:
        first_of = {file.number: record.files[0].number for record in newest_first for file in record.files}
        numbers = tuple(number for number in numbers if first_of.get(number, 0) > reached)
    return Missing(numbers, lost=bool(numbers and in_place))


def last_renamed(newest: Record, staged: Collection[str]) -> int:
    """The highest number whose file has its final name, given the newest record and the names still staged."""
    waiting = (file.number for file in newest.files if file.staged in staged)
    return min(waiting, default=newest.next_file_number) - 1
