"""Divide the row groups of Spark's files among data files of about the target size.

Spark writes one file per task, so its files are as small as its tasks. A data file can consist of the row groups of
several of Spark's files, or of some row groups of a large one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from operator import itemgetter
from typing import NamedTuple

LEAST, MOST = 0.7, 1.3
"""Least and greatest size of a data file, as a share of the target size. A file of Spark within them stays as it is."""
SMALLEST = 0.25
"""Size below which a data file is not created, as a share of the target size, unless it is the only one."""


class SparkFile(NamedTuple):
    """A file that Spark wrote, with the size of each row group in bytes."""

    path: str
    row_groups: tuple[int, ...]


class Piece(NamedTuple):
    """Consecutive row groups of one of Spark's files, from `first` up to `end`, exclusive."""

    path: str
    first: int = 0
    end: int | None = None
    """None for a whole file."""

    @property
    def numbers(self) -> range | None:
        """Numbers of the row groups, or None for a whole file."""
        return None if self.end is None else range(self.first, self.end)


def plan_files(files: Sequence[SparkFile], target: int) -> list[list[Piece]]:
    """Return the pieces of each data file. All pieces together are all row groups, in the order of `files`."""
    groups = [group for run in _runs(files, target) for group in _divide(run, target)]
    while (at := _find(groups, lambda size: size < SMALLEST * target)) is not None and len(groups) > 1:
        _join_with_neighbour(groups, at)  # its row groups are too large to divide the run well
    return [_pieces(group) for group in groups]


_RowGroup = tuple[SparkFile, int]


def _runs(files: Sequence[SparkFile], target: int) -> list[list[_RowGroup]]:
    """Divide the files into runs, each of which can be divided into data files of the right size.
    A run grows by a neighbour while it cannot, so that most files of the right size stay as they are."""
    runs: list[list[_RowGroup]] = []
    for file in (file for file in files if file.row_groups):
        row_groups = [(file, number) for number in range(len(file.row_groups))]
        if not runs or _is_right(_bytes(row_groups), target) or _is_right(_bytes(runs[-1]), target):
            runs.append([])
        runs[-1] += row_groups
    while (at := _find(runs, lambda size: not _is_divisible(size, target))) is not None and len(runs) > 1:
        _join_with_neighbour(runs, at)
    return runs


def _find(groups: Sequence[list[_RowGroup]], condition: Callable[[int], bool]) -> int | None:
    return next((at for at, group in enumerate(groups) if condition(_bytes(group))), None)


def _join_with_neighbour(groups: list[list[_RowGroup]], at: int) -> None:
    """Join a group with the smaller one of its neighbours."""
    is_first = at == 0 or (at + 1 < len(groups) and _bytes(groups[at + 1]) < _bytes(groups[at - 1]))
    first = at if is_first else at - 1
    groups[first : first + 2] = [groups[first] + groups[first + 1]]


def _is_right(size: int, target: int) -> bool:
    return LEAST * target <= size <= MOST * target


def _is_divisible(size: int, target: int) -> bool:
    return _is_right(size // _count(size, target), target)


def _count(size: int, target: int) -> int:
    """Return the number of data files of a size whose ratio to the target is nearest to 1."""
    fewer = max(1, size // target)
    return fewer if size * size <= fewer * (fewer + 1) * target * target else fewer + 1


def _bytes(group: Sequence[_RowGroup]) -> int:
    return sum(file.row_groups[number] for file, number in group)


def _divide(run: Sequence[_RowGroup], target: int) -> Iterator[list[_RowGroup]]:
    sizes = [file.row_groups[number] for file, number in run]
    left = sum(sizes)
    count, begin, taken = _count(left, target), 0, 0
    for end, size in enumerate(sizes, 1):
        taken += size
        # Cut where the file is nearest to an equal share of the remaining bytes.
        if end == len(sizes) or (count > 1 and (2 * taken + sizes[end]) * count > 2 * left):
            yield list(run[begin:end])
            begin, left, taken, count = end, left - taken, 0, count - 1


def _pieces(group: Sequence[_RowGroup]) -> list[Piece]:
    pieces = []
    for file, row_groups in groupby(group, itemgetter(0)):
        numbers = [number for _, number in row_groups]
        is_whole = len(numbers) == len(file.row_groups)
        pieces.append(Piece(file.path) if is_whole else Piece(file.path, numbers[0], numbers[-1] + 1))
    return pieces
