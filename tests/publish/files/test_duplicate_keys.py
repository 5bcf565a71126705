"""Keys are compared by their hashes: what repeats is found wherever it stands."""

from __future__ import annotations

import os
import tracemalloc

import numpy as np
import pyarrow as pa
import pytest

from mirrorfeed.publish.files.duplicate_keys import repeat


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
def test_a_hash_that_repeats_is_found_within_a_lot_and_across_lots(lots: list[list[int]], expected: bool) -> None:
    assert repeat(pa.chunked_array(lots, pa.int64())) is expected


def test_of_a_part_of_a_batch_only_its_own_hashes_are_compared() -> None:
    part = pa.array([7, 1, 2, 7], pa.int64()).slice(1, 2)
    assert not repeat(pa.chunked_array([part]))
    assert repeat(pa.chunked_array([part, part.slice(1)]))


def test_comparing_takes_little_more_memory_than_one_copy_of_the_hashes() -> None:
    lots = [pa.array(np.frombuffer(os.urandom(8 * 10_000), np.int64)) for _ in range(50)]
    tracemalloc.start()
    try:
        assert not repeat(pa.chunked_array(lots))
        assert repeat(pa.chunked_array([*lots, lots[30].slice(0, 1)]))
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 8 * 10_000 * 50 * 1.3
