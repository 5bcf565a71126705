"""Keys are compared by their hashes: what repeats is found wherever it stands."""

from __future__ import annotations

import os
import tracemalloc

import pyarrow as pa
import pytest

from mirrorfeed.publish.unique import packed, repeat


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
    assert repeat(packed(pa.array(lot, pa.int64())) for lot in lots) is expected


def test_of_a_part_of_a_batch_only_its_own_hashes_are_packed() -> None:
    part = pa.array([7, 1, 2, 7], pa.int64()).slice(1, 2)
    assert len(packed(part)) == 16
    assert not repeat([packed(part)])
    assert repeat([packed(part), packed(part.slice(1))])


def test_comparing_takes_little_more_memory_than_one_copy_of_the_hashes() -> None:
    lots = [os.urandom(8 * 10_000) for _ in range(50)]
    tracemalloc.start()
    try:
        assert not repeat(lots)
        assert repeat([*lots, lots[30][:8]])
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < sum(map(len, lots)) * 1.2
