"""Whether keys repeat, told by 64-bit numbers for them, themselves or hashes: 8 bytes a key."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

MOST = 2**23
"""Rows whose numbers are compared on the driver, 64 MiB of them. Of more, Spark compares the keys themselves."""


def repeat(hashes: pa.ChunkedArray) -> bool:
    """Whether one of these numbers, none of them NULL, is there more than once: if not, no key is. Sorted, for a table
    of those that were met takes some 100 bytes for each."""
    if not len(hashes):
        return False
    together = np.concatenate([chunk.to_numpy(zero_copy_only=True) for chunk in hashes.chunks])
    together.sort()
    return bool((together[1:] == together[:-1]).any())
