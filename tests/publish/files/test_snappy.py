from __future__ import annotations

import io
import time
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from mirrorfeed.lint.delimited_text import decompress
from mirrorfeed.publish.files.delimited_text import SnappyFrames, checksum


def test_checksum_is_a_masked_crc_32c() -> None:
    unmasked = (checksum(b"123456789") - 0xA282EAD8) & 0xFFFFFFFF
    assert ((unmasked << 15) | (unmasked >> 17)) & 0xFFFFFFFF == 0xE3069283  # the check value of the polynomial


@pytest.mark.parametrize("data", [b"", b"a", b"ab" * 100_000, bytes(range(256)) * 300], ids=len)
def test_frames_decompress_to_the_original_data(data: bytes) -> None:
    sink = io.BytesIO()
    frames = SnappyFrames(sink)
    frames.write(data[:70_000])
    frames.write(data[70_000:])
    sink.seek(0)
    assert b"".join(decompress(sink, "1.csv")) == data


def test_snappy_framing_is_faster_than_gzip() -> None:
    data = b"".join(b"%d,some text that repeats,%d\r\n" % (n, n * n) for n in range(200_000))
    assert _seconds(SnappyFrames, data) < _seconds(lambda sink: pa.CompressedOutputStream(sink, "gzip"), data)


def _seconds(stream: Callable[[Any], Any], data: bytes) -> float:
    started = time.process_time()
    stream(io.BytesIO()).write(data)
    return time.process_time() - started
