"""Snappy's framing format, in which a stream of text is compressed: Arrow has the blocks, and not the frames."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

_MAGIC = b"\xff\x06\x00\x00sNaPpY"
_LARGEST = 1 << 16


def _crc_table() -> list[int]:
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = (byte >> 1) ^ (0x82F63B78 if byte & 1 else 0)
        table.append(byte)
    return table


_CRC = _crc_table()


def checksum(data: bytes) -> int:
    """CRC-32C, rotated and shifted as the format wants it, lest a checksum of checksums be weak."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _CRC[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    crc ^= 0xFFFFFFFF
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
