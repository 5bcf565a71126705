"""Whether keys repeat, told by hashes of them that come back from the tasks which write the rows: 8 bytes a key."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pyarrow as pa

MOST = 2**23
"""Rows whose hashes are compared on the driver, 64 MiB of them. Of more, Spark compares the keys themselves."""


def packed(hashes: pa.Array) -> bytes:
    """64-bit numbers, none of them NULL, as their bytes."""
    size = hashes.type.byte_width
    found: bytes = hashes.buffers()[1].slice(hashes.offset * size, len(hashes) * size).to_pybytes()
    return found


def repeat(lots: Iterable[bytes]) -> bool:
    """Whether a hash is in these more than once: if not, no key is. Sorted, for a table of those that were met takes
    some 100 bytes for each."""
    hashes = np.frombuffer(bytearray().join(lots), np.int64)
    hashes.sort()
    return bool((hashes[1:] == hashes[:-1]).any())
