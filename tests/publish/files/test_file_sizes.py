"""Sizes of data files: which row groups of Spark's files become one data file."""

from __future__ import annotations

import random

import pytest

from mirrorfeed.publish.files.file_sizes import Piece, SparkFile, plan_files

TARGET = 100


def files(*row_groups: list[int]) -> list[SparkFile]:
    return [SparkFile(f"f{number}", tuple(sizes)) for number, sizes in enumerate(row_groups)]


@pytest.mark.parametrize(
    ("row_groups", "expected"),
    [
        ([], []),
        ([[]], []),
        ([[3]], [["f0"]]),
        ([[100], [70], [130]], [["f0"], ["f1"], ["f2"]]),  # these stay as they are
        ([[5]] * 3, [["f0", "f1", "f2"]]),
        ([[40], [40], [40], [40]], [["f0", "f1"], ["f2", "f3"]]),
        ([[100], [5], [90]], [["f0"], ["f1", "f2"]]),  # a small file joins its smaller neighbour
        ([[5], [130], [20], [100]], [["f0", "f1"], ["f2", "f3"]]),  # and never stays small
        ([[50, 50, 50, 50]], [[("f0", 0, 2)], [("f0", 2, 4)]]),
        ([[60, 60], [60, 20]], [["f0"], ["f1"]]),
        ([[30, 30, 30], [40, 40, 40], [90]], [["f0"], ["f1"], ["f2"]]),
        ([[50, 40, 60], [30, 20]], [[("f0", 0, 2)], [("f0", 2, 3), "f1"]]),
        ([[400], [100]], [["f0"], ["f1"]]),  # a row group is never divided
        ([[50], [], [50]], [["f0", "f2"]]),
    ],
)
def test_data_files_have_about_the_target_size(row_groups: list[list[int]], expected: list[list[object]]) -> None:
    def piece(each: object) -> Piece:
        return Piece(each) if isinstance(each, str) else Piece(*each)  # type: ignore[misc]

    assert plan_files(files(*row_groups), TARGET) == [[piece(each) for each in pieces] for pieces in expected]


def test_random_files_become_data_files_of_about_the_target_size() -> None:
    """Each row group is in one data file, in order. Row groups have at most an eighth of the target size."""
    choose, out_of_bounds, total = random.Random(74), 0, 0
    for _ in range(3_000):
        most = choose.choice([1, 3, 12, 30])
        found = files(
            *(
                [choose.randint(1, TARGET // 8) for _ in range(choose.randint(0, most))]
                for _ in range(choose.randint(1, 30))
            )
        )
        sizes = {(file.path, at): size for file in found for at, size in enumerate(file.row_groups)}
        whole = {file.path: range(len(file.row_groups)) for file in found}
        plan = plan_files(found, TARGET)
        groups = [[(each.path, at) for each in pieces for at in each.numbers or whole[each.path]] for pieces in plan]
        assert [group for each in groups for group in each] == list(sizes)
        of_files = [sum(sizes[group] for group in each) for each in groups]
        if len(of_files) > 1:
            assert min(of_files) >= TARGET // 4
            total += len(of_files)
            out_of_bounds += sum(not 0.7 * TARGET <= size <= 1.3 * TARGET for size in of_files)
    assert total > 10_000
    assert out_of_bounds <= total // 100
