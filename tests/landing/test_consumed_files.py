"""Which files Fabric has consumed, derived from the remaining files: the possible mirror position and lost files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import combinations

import pytest

from mirrorfeed.landing.log_record import File, Record, last_renamed, missing_files, possible_positions


def record(version: int, *files: int, next_file: int) -> Record:
    published = tuple(File(f"staged {number}", number, {}, 1, "") for number in files)
    return Record(version, "b", "2026-11-21", "t", "id", None, version, (), (), next_file, published)


SNAPSHOT = record(3, 1, 2, next_file=3)
ONE_FILE = record(4, 3, next_file=4)
NO_FILE = record(5, next_file=4)
THREE_FILES = record(6, 4, 5, 6, next_file=7)
ALL = [THREE_FILES, NO_FILE, ONE_FILE, SNAPSHOT]


@pytest.mark.parametrize(
    ("records", "oldest_file", "versions"),
    [
        (ALL, 1, []),  # files of the snapshot wait
        (ALL, 2, [3]),  # its last file is in place: consumed, or about to be
        (ALL, 3, [5, 3]),  # the one file may be consumed; version 5 after it had no files
        (ALL, 4, [5]),  # in the middle of three files the mirror is at no version, or still at 5
        (ALL, 5, [5]),
        (ALL, 6, [6, 5]),
        (ALL, 7, [6]),
        (ALL, None, [6]),  # no file is in place
        ([SNAPSHOT], 2, [3]),
        ([NO_FILE, ONE_FILE], 2, []),  # older records are pruned
        ([], None, []),
    ],
)
def test_oldest_remaining_file_limits_the_mirror_position(
    records: list[Record], oldest_file: int | None, versions: list[int]
) -> None:
    in_place = [] if oldest_file is None else [each for each in range(1, 7) if each >= oldest_file] or [oldest_file]
    found = possible_positions(records, in_place, by_time=False)
    assert [record.to_version_inclusive for record in found] == versions


@pytest.mark.parametrize(
    ("in_place", "versions"),
    [
        ([4], [6, 5]),  # the last of three by their times
        ([6], [6, 5]),
        ([4, 5], [5]),  # one of them was not consumed
        ([3], [5, 3]),
        ([9], [6]),  # none of these
        ([], [6]),
    ],
)
def test_any_file_of_a_publication_may_remain_in_time_order(in_place: list[int], versions: list[int]) -> None:
    assert [found.to_version_inclusive for found in possible_positions(ALL, in_place, by_time=True)] == versions


@pytest.mark.parametrize("by_time", [False, True])
@pytest.mark.parametrize(
    ("records", "in_place", "staged", "versions"),
    [
        ([SNAPSHOT], [], [1, 2], []),  # killed after the record
        ([SNAPSHOT], [1], [2], []),
        (ALL, [3], [4, 5, 6], [5, 3]),
        (ALL, [4], [5, 6], [5]),
        (ALL, [5], [6], [5]),
    ],
)
def test_publication_with_a_staged_file_is_not_in_the_mirror(
    records: list[Record], in_place: list[int], staged: list[int], versions: list[int], by_time: bool
) -> None:
    found = possible_positions(records, in_place, staged, by_time=by_time)
    assert [record.to_version_inclusive for record in found] == versions


@pytest.mark.parametrize("file", [4, 5, 6])
def test_range_without_rows_after_the_remaining_file_is_the_newest_position(file: int) -> None:
    records = [record(7, next_file=7), *ALL]
    assert [found.to_version_inclusive for found in possible_positions(records, [file], by_time=True)] == [7, 5]


@pytest.mark.parametrize(("in_place", "versions"), [([4, 7], [6, 5]), ([4, 5, 7], [5]), ([7], [7, 6])])
def test_any_file_of_a_publication_may_remain_while_a_later_file_waits(
    in_place: list[int], versions: list[int]
) -> None:
    records = [record(7, 7, next_file=8), *ALL]
    assert [found.to_version_inclusive for found in possible_positions(records, in_place, by_time=True)] == versions


@pytest.mark.parametrize(
    ("in_place", "set_aside", "missing"),
    [
        # Fabric consumes files 1 to 4.
        ([1, 2, 3, 4], [], ()),
        ([2, 3, 4], [1], ()),
        ([3, 4], [1, 2], ()),
        ([4], [1, 2, 3], ()),
        ([4], [], ()),  # seven days later
        ([3, 4], [], ()),  # seven days later; file 4 waits or was just consumed
        ([4], [1, 2, 3, 4], ()),  # the last file set aside and left in place
        ([], [1, 2, 3, 4], ()),  # the last file set aside and not left in place
        ([1, 2, 4], [3], ()),  # files 1 to 4 consumed, and set aside in another order
        ([2, 4], [3], ()),
        ([1, 2], [3], ()),  # then somebody removed file 4, the last one consumed
        ([2, 4, 5], [], (3,)),  # another publisher just added file 5
        # A file is missing above one that waits or that is the last one consumed.
        ([1, 2, 4], [], (3,)),
        ([1, 2], [], (3, 4)),  # at most file 1 was consumed
        ([1, 4], [], (2, 3)),
        ([1], [], (2, 3, 4)),
        ([2], [1], (3, 4)),  # the last one consumed, or it waits
        ([2], [], (3, 4)),
        ([3], [1, 2], (4,)),
        ([3], [1, 2, 3], (4,)),
        ([2, 4], [1], (3,)),
        # Missing files below all files in place: consumed, or removed by a person who cleaned up consumed files.
        ([3, 4], [1], ()),
        # No file in place: somebody removed the last file.
        ([], [1, 2, 3], ()),  # file 3 was set aside, so file 4 was consumed
        ([], [1, 2], (4,)),
        ([], [1], (3, 4)),
        ([], [], (1, 2, 3, 4)),
    ],
)
def test_file_missing_above_a_remaining_one_is_lost(
    in_place: list[int], set_aside: list[int], missing: tuple[int, ...]
) -> None:
    assert missing_files(4, in_place, set_aside) == missing


def _subsets(numbers: Iterable[int]) -> Iterator[set[int]]:
    chosen = list(numbers)
    return (set(found) for size in range(len(chosen) + 1) for found in combinations(chosen, size))


def test_nothing_is_missing_after_any_consumption_of_five_files() -> None:
    """Fabric sets consumed files aside in any order, and deletes them there later."""
    for consumed in range(6):
        for moved in _subsets(range(1, consumed)):
            for aside in _subsets(moved):
                if moved == set(range(1, consumed)) or aside == moved:  # it deletes them days later
                    in_place = {1, 2, 3, 4, 5} - moved
                    assert missing_files(5, in_place, aside) == (), (consumed, in_place, aside)


def test_files_reported_as_lost_were_never_consumed() -> None:
    for consumed in range(6):
        moved = set(range(1, consumed))
        for removed in _subsets({1, 2, 3, 4, 5} - moved):
            in_place, not_consumed = {1, 2, 3, 4, 5} - moved - removed, {each for each in removed if each > consumed}
            for aside in [moved, set()]:
                found = missing_files(5, in_place, aside)
                if in_place:
                    assert set(found) <= not_consumed
                above = {each for each in not_consumed if not in_place or each > min(in_place)}
                assert above <= set(found), (consumed, in_place, aside)


def test_nothing_is_missing_without_publications() -> None:
    assert missing_files(0, []) == ()


@pytest.mark.parametrize(
    ("in_place", "set_aside", "missing"),
    [
        ([4], [], ()),  # the last of three by their times
        ([6], [4, 5], ()),
        ([4, 6], [], ()),  # file 5 may have been consumed before them
        ([5], [4], ()),
        ([3, 5, 6], [], (4,)),
        ([3], [], (4, 5, 6)),
        ([3], [5], ()),  # their publication is being consumed, and file 3 is about to be set aside
        ([1], [], (3, 4, 5, 6)),  # from its own publication, file 2 may have been consumed
        ([2, 3, 4, 5, 6], [], ()),
        ([], [3], (5, 6)),
    ],
)
def test_file_in_time_order_is_lost_if_an_earlier_publication_remains(
    in_place: list[int], set_aside: list[int], missing: tuple[int, ...]
) -> None:
    assert missing_files(6, in_place, set_aside, newest_first=ALL, by_time=True) == missing


def test_files_with_pruned_records_are_not_reported_in_time_order() -> None:
    assert missing_files(6, [1], newest_first=[THREE_FILES], by_time=True) == (4, 5, 6)


@pytest.mark.parametrize(
    ("staged", "last"), [([], 6), (["staged 6"], 5), (["staged 4", "staged 5", "staged 6"], 3), (["staged 5"], 4)]
)
def test_files_count_as_published_up_to_the_first_staged_one(staged: list[str], last: int) -> None:
    assert last_renamed(THREE_FILES, staged) == last
