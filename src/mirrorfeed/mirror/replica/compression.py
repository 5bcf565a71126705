"""Compressed text: what it is, is seen from its first bytes, for names do not tell."""

from __future__ import annotations

import pyarrow as pa

_STREAMS = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd"}
_SNAPPY = b"\xff\x06\x00\x00sNaPpY"


def decompressed(data: bytes) -> bytes:
    """The content of a GZIP, ZSTD or framed Snappy file, or the data itself; `OSError` if it is cut short."""
    for magic, codec in _STREAMS.items():
        if data.startswith(magic):
            return bytes(pa.CompressedInputStream(pa.BufferReader(data), codec).read())
    return _unframed(memoryview(data)) if data.startswith(_SNAPPY) else data


def _unframed(data: memoryview) -> bytes:
    """Snappy's framing format: chunks of a type, a length of three bytes, a checksum of four, and the content."""
    codec, parts, at = pa.Codec("snappy"), [], len(_SNAPPY)
    while at < len(data):
        kind, length = data[at], int.from_bytes(data[at + 1 : at + 4], "little")
        body = data[at + 4 : at + 4 + length]
        if len(body) < length:
            raise OSError("Truncated Snappy frame")
        if kind == 0x00:
            parts.append(codec.decompress(body[4:], _decoded_size(body[4:]), asbytes=True))
        elif kind == 0x01:
            parts.append(bytes(body[4:]))
        elif kind < 0x80:
            raise OSError(f"Unknown Snappy frame {kind:#x}")
        at += 4 + length
    return b"".join(parts)


def _decoded_size(block: memoryview) -> int:
    size = shift = 0
    for byte in block:
        size |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return size
    raise OSError("Truncated Snappy block")
