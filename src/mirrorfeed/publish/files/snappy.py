"""Snappy's framing format, in which a stream of text is compressed: Arrow has the blocks, and not the frames."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

_MAGIC = b"\xff\x06\x00\x00sNaPpY"
_LARGEST = 1 << 16


def checksum(data: bytes) -> int:
    """CRC-32C, rotated and shifted as the format wants it, lest a checksum of checksums be weak."""
    import google_crc32c  # a notebook without the wheel has what its runtime has, and needs this for such text alone

    crc = int(google_crc32c.value(data))
    return (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF


class SnappyFrames:
    """Writes each piece as frames at once, so that nothing is held back."""

    def __init__(self, sink: Any) -> None:
        self._sink, self._codec = sink, pa.Codec("snappy")
        sink.write(_MAGIC)

    def write(self, data: bytes) -> None:
        for start in range(0, len(data), _LARGEST):
            piece = data[start : start + _LARGEST]
            packed = self._codec.compress(piece, asbytes=True)
            kind, body = (0, packed) if len(packed) < len(piece) else (1, piece)
            head = bytes([kind]) + (len(body) + 4).to_bytes(3, "little")
            self._sink.write(head + checksum(piece).to_bytes(4, "little") + body)

    def flush(self) -> None:
        self._sink.flush()

    def close(self) -> None:
        pass
