"""Where a mirror may stand, by the files that the service has left."""

from __future__ import annotations

import pytest

from mirrorfeed.landing.consumed import may_stand_at
from mirrorfeed.landing.log import PublishedFile, Record


def record(version: int, *files: int, next_file: int) -> Record:
    published = tuple(PublishedFile(f"staged {number}", number, {}, 1, "") for number in files)
    return Record(version, "b", "2026-11-21", "t", "id", None, version, (), (), next_file, published)


SNAPSHOT = record(3, 1, 2, next_file=3)
ONE_FILE = record(4, 3, next_file=4)
NO_FILE = record(5, next_file=4)
THREE_FILES = record(6, 4, 5, 6, next_file=7)
ALL = [THREE_FILES, NO_FILE, ONE_FILE, SNAPSHOT]


@pytest.mark.parametrize(
    ("records", "oldest_file", "versions"),
    [
        (ALL, 1, []),  # of the snapshot, a file waits
        (ALL, 2, [3]),  # its last file is in place: taken, or about to be
        (ALL, 3, [5, 3]),  # the one file may be taken; nothing had to be taken for version 5 after it
        (ALL, 4, [5]),  # in the middle of three files the mirror stands at no version, or still at 5
        (ALL, 5, [5]),
        (ALL, 6, [6, 5]),
        (ALL, 7, [6]),
        (ALL, None, [6]),  # nothing is in place
        ([SNAPSHOT], 2, [3]),
        ([NO_FILE, ONE_FILE], 2, []),  # older records are pruned
        ([], None, []),
    ],
)
def test_the_oldest_file_in_place_tells_where_a_mirror_may_stand(
    records: list[Record], oldest_file: int | None, versions: list[int]
) -> None:
    in_place = [] if oldest_file is None else [each for each in range(1, 7) if each >= oldest_file] or [oldest_file]
    found = may_stand_at(records, in_place, by_time=False)
    assert [record.to_version_inclusive for record in found] == versions


@pytest.mark.parametrize(
    ("in_place", "versions"),
    [
        ([4], [6, 5]),  # the last of three by their times
        ([6], [6, 5]),
        ([4, 5], [5]),  # one of them was not taken
        ([3], [5, 3]),
        ([9], [6]),  # of none of these
        ([], [6]),
    ],
)
def test_by_time_the_file_that_is_left_may_be_any_of_its_publication(in_place: list[int], versions: list[int]) -> None:
    assert [found.to_version_inclusive for found in may_stand_at(ALL, in_place, by_time=True)] == versions
