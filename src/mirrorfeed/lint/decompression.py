"""Decompress text files in pieces, by the compression that their first bytes show."""

from __future__ import annotations

from collections.abc import Iterator
from typing import BinaryIO

_PIECE = 1 << 20
_STREAMS = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd"}
_MAX_SNAPPY_RATIO = 64
"""Maximum plain bytes for a compressed byte. A copy has at least two bytes and repeats at most 64."""
_FRAMED = b"\xff\x06\x00\x00sNaPpY"
_REFUSED = {b"BZh": "bzip2", b"\xfd7zXZ\x00": "xz", b"\x04\x22\x4d\x18": "lz4", b"PK\x03\x04": "zip"}


class RefusedCodec(OSError):
    """The file has a compression that Fabric does not read."""


class CutShort(OSError):
    """The file ends too early."""


def decompress(file: BinaryIO, name: str) -> Iterator[bytes]:
    """Yield the plain content. Raises `RefusedCodec`, `CutShort`, or another `OSError` if the file is damaged."""
    head = file.read(len(_FRAMED))
    file.seek(0)
    for magic, codec in _REFUSED.items():
        if head.startswith(magic):
            raise RefusedCodec(codec)
    for magic, codec in _STREAMS.items():
        if head.startswith(magic):
            return _stream(file, codec)
    if head == _FRAMED:
        return _framed(file)
    return _blocks(file) if name.endswith(".snappy") else iter(lambda: file.read(_PIECE), b"")


def _stream(file: BinaryIO, codec: str) -> Iterator[bytes]:
    import pyarrow as pa  # slow to import, and needed for compressed text only

    stream = pa.CompressedInputStream(pa.PythonFile(file, mode="r"), codec)
    try:
        while piece := stream.read(_PIECE):
            yield piece
    except (pa.ArrowException, OSError) as error:
        if "runcated" in str(error):
            raise CutShort(f"its {codec} stream does not end ({error})") from error
        raise OSError(str(error)) from error


def _framed(file: BinaryIO) -> Iterator[bytes]:
    """Framed Snappy: frames of type, length in 3 bytes, checksum in 4 bytes (only data) and content."""
    file.seek(len(_FRAMED))
    while head := file.read(4):
        body = _exactly(file, int.from_bytes(head[1:4], "little"))
        if head[0] == 0x00:
            yield _snappy(body[4:])
        elif head[0] == 0x01:
            yield body[4:]
        elif head[0] < 0x80:
            raise OSError(f"a Snappy frame has the type {head[0]}")


def _blocks(file: BinaryIO) -> Iterator[bytes]:
    """Snappy of Hadoop: blocks of plain length and parts, each with its length. Lengths have 4 bytes."""
    while head := file.read(4):
        left = int.from_bytes(head, "big")
        while left > 0:
            part = _snappy(_exactly(file, int.from_bytes(_exactly(file, 4), "big")))
            left -= len(part)
            yield part


def _exactly(file: BinaryIO, count: int) -> bytes:
    data = file.read(count)
    if len(data) < count:
        raise CutShort("its last Snappy block does not end")
    return data


def _snappy(data: bytes) -> bytes:
    import pyarrow as pa

    size = shift = 0
    for byte in data[:5]:
        size |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    if size > _MAX_SNAPPY_RATIO * len(data):
        raise OSError("a Snappy block declares more bytes than it can hold")
    try:
        return bytes(pa.Codec("snappy").decompress(data, size, asbytes=True))
    except pa.ArrowException as error:
        raise OSError(str(error)) from error
