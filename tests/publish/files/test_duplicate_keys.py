"""Duplicate keys are found by sorting 64-bit numbers: integer keys from Spark's files, or hashes of other keys."""

from __future__ import annotations

import os
import tracemalloc
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mirrorfeed.landing.schema import Column
from mirrorfeed.publish.files import duplicate_keys
from mirrorfeed.publish.files.duplicate_keys import (
    KeyRange,
    copy_numbers,
    has_duplicates,
    may_have_duplicates,
    overlapping,
)
from mirrorfeed.publish.files.spark_files import SparkFiles
from mirrorfeed.publish.files.staging_area import StagingArea
from mirrorfeed.publish.files.staging_job import StagingJob
from mirrorfeed.storage.local_folder import FolderStore


@pytest.mark.parametrize(
    ("lots", "expected"),
    [
        ([], False),
        ([[]], False),
        ([[1, 2], [3, -1], []], False),
        ([[1, 2, 1]], True),
        ([[1, 2], [], [3, 1]], True),
        ([[2**63 - 1, -(2**63)], [0]], False),
        ([[-(2**63)], [-(2**63)]], True),
    ],
)
def test_duplicate_hash_is_found_within_and_across_chunks(lots: list[list[int]], expected: bool) -> None:
    assert has_duplicates(copy_numbers(pa.chunked_array(lots, pa.int64()))) is expected


def test_sliced_chunk_compares_only_its_own_hashes() -> None:
    part = pa.array([7, 1, 2, 7], pa.int64()).slice(1, 2)
    assert not has_duplicates(copy_numbers(pa.chunked_array([part])))
    assert has_duplicates(copy_numbers(pa.chunked_array([part, part.slice(1)])))


def test_duplicate_check_needs_little_more_memory_than_the_hashes() -> None:
    lots = [pa.array(np.frombuffer(os.urandom(8 * 10_000), np.int64)) for _ in range(50)]
    tracemalloc.start()
    try:
        assert not has_duplicates(copy_numbers(pa.chunked_array(lots)))
        assert has_duplicates(copy_numbers(pa.chunked_array([*lots, lots[30].slice(0, 1)])))
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 8 * 10_000 * 50 * 1.3


@pytest.mark.parametrize(
    ("ranges", "expected"),
    [
        ([(1, 3)], [[(1, 3)]]),
        ([(4, 6), (1, 3)], [[(1, 3)], [(4, 6)]]),
        ([(1, 3), (3, 6)], [[(1, 3), (3, 6)]]),
        ([(1, 9), (2, 3), (5, 6), (10, 11)], [[(1, 9), (2, 3), (5, 6)], [(10, 11)]]),
        ([(5, 5), (-(2**63), 2**63 - 1)], [[(-(2**63), 2**63 - 1), (5, 5)]]),
        ([(2, 2), (2, 2)], [[(2, 2), (2, 2)]]),
    ],
)
def test_only_ranges_with_common_keys_are_in_one_group(
    ranges: list[tuple[int, int]], expected: list[list[tuple[int, int]]]
) -> None:
    groups = overlapping([KeyRange(*each, 1, "", 0) for each in ranges])
    assert [[each[:2] for each in group] for group in groups] == expected


class NoSpark:
    def __getattr__(self, name: str) -> Any:
        raise AssertionError("Spark was used")


def duplicates_in(folder: Path, *parts: Sequence[int | None], rows: int = 0) -> bool:
    """Write a file with row groups of two keys for each of `parts`, and check the keys without Spark."""
    paths = [str(folder / f"{at}.parquet") for at in range(len(parts))]
    for path, part in zip(paths, parts, strict=True):
        pq.write_table(pa.table({"v": ["x"] * len(part), "id": pa.array(part, pa.int32())}), path, row_group_size=2)
    columns = (Column("v", "string"), Column("id", "integer"))
    job = StagingJob(FolderStore(str(folder)), "t/_mirrorfeed/log", 1, "ab", columns, ("id",), False)
    written: Any = NoSpark()
    files = SparkFiles(StagingArea(str(folder)), str(folder), written, paths, {"insert": sum(map(len, parts))})
    return may_have_duplicates(files, job, ["id"])


def test_files_with_separate_keys_are_checked_one_after_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(duplicate_keys, "MAX_DRIVER_KEYS", 2)
    monkeypatch.setattr(duplicate_keys, "MAX_COLLECTED_HASHES", 0)
    assert not duplicates_in(tmp_path, [7, 8, 5, 6], [], [3, 1, -1])
    assert duplicates_in(tmp_path, [7, 8, 5, 5], [3, 1])
    assert duplicates_in(tmp_path, [1, 3, 5, 6], [2, 4])  # too many keys overlap, so Spark must check them


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        ([[1, 4, 2, 3], [6, 0]], False),
        ([[1, 4, 2, 3], [6, 3]], True),
        ([[1, 2], [2, 3]], True),
        ([[-(2**31), 2**31 - 1], [0]], False),
    ],
)
def test_duplicate_integer_is_found_within_and_across_files(
    tmp_path: Path, parts: list[list[int]], expected: bool
) -> None:
    assert duplicates_in(tmp_path, *parts) is expected


def test_keys_outside_their_statistics_are_checked_by_spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(duplicate_keys, "_key_ranges", lambda files, _: [KeyRange(1, 2, 2, files.paths[0], 0)])
    assert not duplicates_in(tmp_path, [1, 2])
    assert duplicates_in(tmp_path, [1, 3])


def test_rows_without_keys_are_checked_by_spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(duplicate_keys, "MAX_COLLECTED_HASHES", 0)
    assert duplicates_in(tmp_path, [1, None])
