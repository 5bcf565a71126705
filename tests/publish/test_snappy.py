from __future__ import annotations

import io

import pytest

from mirrorfeed.publish.snappy import SnappyFrames, checksum
from mirrorfeed.replica.compression import decompressed


def test_the_checksum_is_a_masked_crc_32c() -> None:
    unmasked = (checksum(b"123456789") - 0xA282EAD8) & 0xFFFFFFFF
    assert ((unmasked << 15) | (unmasked >> 17)) & 0xFFFFFFFF == 0xE3069283  # the polynomial's published check value


@pytest.mark.parametrize("data", [b"", b"a", b"ab" * 100_000, bytes(range(256)) * 300], ids=len)
def test_frames_give_the_data_back(data: bytes) -> None:
    sink = io.BytesIO()
    frames = SnappyFrames(sink)
    frames.write(data[:70_000])
    frames.write(data[70_000:])
    assert decompressed(sink.getvalue()) == data
