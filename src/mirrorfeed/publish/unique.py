"""Whether keys repeat, told by hashes of them that come back from the tasks which write the rows: 8 bytes a key."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa
import pyarrow.compute as pc

MOST = 2**23
"""Rows whose hashes are compared on the driver, 64 MiB of them. Of more, Spark compares the keys themselves."""
_SHARES = 32
"""Those with the same lowest bits are compared at a time: a key takes some 100 bytes of the table that does it."""


def packed(hashes: pa.Array) -> bytes:
    """64-bit numbers, none of them NULL, as their bytes."""
    size = hashes.type.byte_width
    found: bytes = hashes.buffers()[1].slice(hashes.offset * size, len(hashes) * size).to_pybytes()
    return found


def repeat(lots: Iterable[bytes]) -> bool:
    """Whether a hash is in these more than once: if not, no key is."""
    hashes = [pa.Array.from_buffers(pa.int64(), len(lot) // 8, [None, pa.py_buffer(lot)]) for lot in lots]
    return any(_repeats([_share(each, number) for each in hashes]) for number in range(_SHARES) if hashes)


def _share(hashes: pa.Array, number: int) -> pa.Array:
    return hashes.filter(pc.equal(pc.bit_wise_and(hashes, _SHARES - 1), number))


def _repeats(hashes: list[pa.Array]) -> bool:
    found = pa.concat_arrays(hashes)
    return len(pc.unique(found)) < len(found)
