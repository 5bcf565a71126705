"""Keys are compared by their hashes: what repeats is found wherever it stands."""

from __future__ import annotations

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
