"""Which files of a table Fabric has consumed, from the files that remain. Pure.

Fabric consumes files in order. It moves consumed files to a subfolder for seven days, except the last one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from mirrorfeed.landing.record import Record


def possible_positions(
    newest_first: Iterable[Record], in_place: Collection[int], *, by_time: bool
) -> tuple[Record, ...]:
    """The publications at which the mirror may be, newest first. Empty if it is at an earlier one.

    Of the files in place, the oldest may be consumed or not, and later files are not. By time, any file of a
    publication may be its last.
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
class MissingFiles:
    """Published files that are not in the table's folder and not known to be consumed."""

    numbers: tuple[int, ...] = ()
    lost: bool = False
    """Whether Fabric certainly did not consume them. Otherwise this is unknown."""


def missing_files(
    published: int,
    in_place: Collection[int],
    set_aside: Collection[int] = (),
    *,
    newest_first: Iterable[Record] = (),
    by_time: bool = False,
) -> MissingFiles:
    """Find published files that are missing, and decide whether they are lost.

    `published` is the highest published number, `set_aside` are the numbers that Fabric moved to its subfolder. The
    oldest file in place is the last consumed one, or not consumed yet. So Fabric did not consume missing files with
    higher numbers, unless it moved the same file or a later one. If no file is in place, somebody else deleted at least
    the last one. By time, files of one publication have no order, so only files of later publications count as later.
    """
    last_aside = max(set_aside, default=0)
    # A file is moved when the next one has been consumed.
    consumed = last_aside + 1 if last_aside and last_aside not in in_place else last_aside
    reached = max(min(in_place, default=0), consumed)
    present = set(in_place)
    numbers = tuple(number for number in range(reached + 1, published + 1) if number not in present)
    if by_time and in_place and numbers:
        first_of = {file.number: record.files[0].number for record in newest_first for file in record.files}
        numbers = tuple(number for number in numbers if first_of.get(number, 0) > reached)
    return MissingFiles(numbers, lost=bool(numbers and in_place))


def last_renamed(newest: Record, staged: Collection[str]) -> int:
    """The highest number whose file has its final name, from the newest record and the names still staged."""
    waiting = (file.number for file in newest.files if file.staged in staged)
    return min(waiting, default=newest.next_file_number) - 1
