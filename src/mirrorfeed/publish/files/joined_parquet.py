"""Join row groups of Parquet files to one file. The rows are copied as they are, and only the footer is new.

Arrow can read the footer of a Parquet file, but cannot write one for existing row groups. So this module changes the
offsets in the footers, which are in Thrift's compact protocol, and lets Arrow check the result against the originals.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any, BinaryIO, NamedTuple, Protocol

import pyarrow as pa
import pyarrow.parquet as pq

Struct = dict[int, tuple[int, Any]]
"""Struct of Thrift's compact protocol: the type and the value of each field, by the number of the field."""
_MAGIC = b"PAR1"
_TAIL = 8
"""Length of the end of a file: the size of the footer, and the magic bytes."""
_CHUNK = 2**20
# Numbers of fields in the Parquet format.
_SCHEMA, _ROWS, _GROUPS, _CREATOR, _ORDERS = 2, 3, 4, 6, 7
_ENCRYPTION = 8
_COLUMNS, _GROUP_ROWS, _GROUP_OFFSET, _ORDINAL = 1, 3, 5, 7
_COLUMN_PATH, _COLUMN_OFFSET, _COLUMN = 1, 2, 3
_INDEXES = (4, 5, 6, 7)
"""Positions of the indexes of a column. The indexes contain offsets, so they are left out."""
_COMPRESSED_SIZE, _DATA, _INDEX_PAGE, _DICTIONARY = 7, 9, 10, 11
_BLOOM_FILTER = (14, 15)


class NotJoinableError(Exception):
    """Internal error: the row groups cannot be joined, for example because the files have different schemas."""


class Sink(Protocol):
    """File that is written from its start to its end."""

    def write(self, data: Any, /) -> Any: ...


class RowGroups(NamedTuple):
    """Row groups of one file."""

    path: str
    footer: bytes
    """The footer as it is in the file."""
    metadata: pq.FileMetaData
    """The footer as Arrow reads it."""
    numbers: Sequence[int]
    """Numbers of the row groups."""


class RowGroup(NamedTuple):
    """A row group to copy to another file, and the fields that describe it in the footer."""

    path: str
    begin: int
    end: int
    fields: Struct
    metadata: pq.RowGroupMetaData
    """The row group as Arrow reads it."""


class Joined(NamedTuple):
    """A file to write: row groups, and a footer that Arrow has checked."""

    row_groups: Sequence[RowGroup]
    footer: bytes

    def write(self, sink: Sink, open_file: Callable[[str], BinaryIO]) -> None:
        """Write the file. Calls `open_file` for each row group. Raises `EOFError` if a file became shorter."""
        sink.write(_MAGIC)
        for each in self.row_groups:
            with open_file(each.path) as file:
                file.seek(each.begin)
                left = each.end - each.begin
                while left:
                    data = file.read(min(left, _CHUNK))
                    if not data:
                        raise EOFError(each.path)
                    sink.write(data)
                    left -= len(data)
        sink.write(self.footer)


def join(pieces: Sequence[RowGroups]) -> Joined | None:
    """Return the file that consists of the row groups of `pieces`, or None if they do not fit in one file."""
    try:
        return _join(pieces, [decode(piece.footer) for piece in pieces])
    except NotJoinableError:
        return None


def _join(pieces: Sequence[RowGroups], footers: Sequence[Struct]) -> Joined:
    first = footers[0]
    if any(footer.get(name) != first.get(name) for footer in footers for name in (_SCHEMA, _CREATOR, _ORDERS)):
        raise NotJoinableError("the files have different schemas")
    if any(_ENCRYPTION in footer for footer in footers):
        raise NotJoinableError("a file is encrypted")
    groups = [
        _row_group(piece, footer[_GROUPS][1][1][number], number)
        for piece, footer in zip(pieces, footers, strict=True)
        for number in piece.numbers
    ]
    at, shifts = len(_MAGIC), list[int]()
    for number, each in enumerate(groups):
        shifts.append(at - each.begin)
        _move(each.fields, at - each.begin, number)
        at += each.end - each.begin
    rows = sum(each.fields[_GROUP_ROWS][1] for each in groups)
    merged = first | {_ROWS: (first[_ROWS][0], rows), _GROUPS: (_LIST, (_STRUCT, [each.fields for each in groups]))}
    footer = encode(merged)
    joined = Joined(groups, footer + struct.pack("<I", len(footer)) + _MAGIC)
    _check(joined, shifts, pieces[0].metadata)
    return joined


def read_footer(file: BinaryIO) -> bytes:
    """Return the footer of a Parquet file. The caller has checked that the file is readable."""
    end = file.seek(-_TAIL, 2)
    (size,) = struct.unpack("<I", file.read(4))
    file.seek(end - size)
    return file.read(size)


def _row_group(piece: RowGroups, fields: Struct, number: int) -> RowGroup:
    begins, ends = list[int](), list[int]()
    for column in fields[_COLUMNS][1][1]:
        if _COLUMN_PATH in column or _COLUMN not in column:
            raise NotJoinableError("a column is in another file, or encrypted")
        values = column[_COLUMN][1]
        begin = min(values[name][1] for name in (_DATA, _DICTIONARY) if name in values and values[name][1] > 0)
        begins.append(begin)
        ends.append(begin + values[_COMPRESSED_SIZE][1])
    return RowGroup(piece.path, min(begins), max(ends), fields, piece.metadata.row_group(number))


def _move(group: Struct, shift: int, number: int) -> None:
    """Add `shift` to all offsets of a row group, and remove its indexes. `number` is its number in the new file."""
    for column in group[_COLUMNS][1][1]:
        for name in _INDEXES:
            column.pop(name, None)
        values = column[_COLUMN][1]
        for name in _BLOOM_FILTER:
            values.pop(name, None)
        for holder, name in ((column, _COLUMN_OFFSET), *((values, name) for name in (_DATA, _INDEX_PAGE, _DICTIONARY))):
            if name in holder and holder[name][1] > 0:
                holder[name] = (holder[name][0], holder[name][1] + shift)
    if _GROUP_OFFSET in group:
        group[_GROUP_OFFSET] = (group[_GROUP_OFFSET][0], group[_GROUP_OFFSET][1] + shift)
    if _ORDINAL in group:
        group[_ORDINAL] = (group[_ORDINAL][0], number)


def _check(joined: Joined, shifts: Sequence[int], original: pq.FileMetaData) -> None:
    """Compare the new footer, as Arrow reads it, with the originals."""
    new = pq.read_metadata(pa.BufferReader(_MAGIC + joined.footer))
    is_same = new.schema.equals(original.schema) and new.num_row_groups == len(joined.row_groups)
    is_same = is_same and new.metadata == original.metadata
    for number, (group, shift) in enumerate(zip(joined.row_groups, shifts, strict=True)):
        was, now = group.metadata, new.row_group(number)
        is_same = is_same and _values(now, 0) == _values(was, shift)
    if not is_same:
        raise NotJoinableError("the new footer differs from the originals")


def _values(group: pq.RowGroupMetaData, shift: int) -> list[Any]:
    values: list[Any] = [group.num_rows, group.total_byte_size]
    for column in map(group.column, range(group.num_columns)):
        offsets = (column.data_page_offset, column.dictionary_page_offset)
        values += [None if offset is None else offset + shift for offset in offsets]
        values += [column.num_values, column.total_compressed_size, column.total_uncompressed_size]
        values += [column.path_in_schema, column.physical_type, column.compression, column.encodings]
        values.append(None if column.statistics is None else column.statistics.to_dict())
    return values


_TRUE, _FALSE, _BYTE, _INT16, _INT32, _INT64, _DOUBLE, _BINARY, _LIST, _SET, _MAP, _STRUCT = range(1, 13)
_DOUBLE_BYTES = 8


def decode(data: bytes) -> Struct:
    """Decode a struct. Raises `NotJoinableError` if it is damaged, or if `encode` would not return the same bytes."""
    try:
        fields = _Decoder(data).struct()
    except IndexError as error:
        raise NotJoinableError("a footer is damaged") from error
    if encode(fields) != data:
        raise NotJoinableError("a footer has an unusual form")
    return fields


class _Decoder:
    def __init__(self, data: bytes) -> None:
        self._data, self.at = data, 0

    def struct(self) -> Struct:
        fields: Struct = {}
        number = 0
        while head := self._byte():
            number = number + (head >> 4) if head >> 4 else self._signed()
            fields[number] = (head & 15, self._value(head & 15))
        return fields

    def _value(self, type_: int) -> Any:
        match type_:
            case 1 | 2:
                return None  # a field's type is its value
            case 3:
                return self._byte()
            case 4 | 5 | 6:
                return self._signed()
            case 7:
                return self._bytes(_DOUBLE_BYTES)
            case 8:
                return self._bytes(self._unsigned())
            case 9 | 10:
                head = self._byte()
                size = head >> 4 if head >> 4 < 15 else self._unsigned()
                element = head & 15
                read = self._byte if element in (_TRUE, _FALSE) else None
                return element, [read() if read else self._value(element) for _ in range(size)]
            case 12:
                return self.struct()
        raise NotJoinableError(f"a footer has the type {type_}")

    def _byte(self) -> int:
        self.at += 1
        return self._data[self.at - 1]

    def _bytes(self, size: int) -> bytes:
        self.at += size
        if self.at > len(self._data):
            raise IndexError
        return self._data[self.at - size : self.at]

    def _unsigned(self) -> int:
        value = shift = 0
        while True:
            byte = self._byte()
            value |= (byte & 127) << shift
            if byte < 128:
                return value
            shift += 7

    def _signed(self) -> int:
        value = self._unsigned()
        return value >> 1 ^ -(value & 1)


def encode(fields: Struct) -> bytes:
    """Encode a struct, the result of `decode`."""
    parts, before = list[bytes](), 0
    for number, (type_, value) in fields.items():
        step = number - before
        parts.append(bytes([step << 4 | type_]) if 0 < step <= 15 else bytes([type_]) + _signed(number))
        parts.append(_encoded(type_, value))
        before = number
    return b"".join([*parts, b"\0"])


def _encoded(type_: int, value: Any) -> bytes:
    match type_:
        case 1 | 2:
            return b""
        case 3:
            return bytes([value])
        case 4 | 5 | 6:
            return _signed(value)
        case 7:
            return bytes(value)
        case 8:
            return _unsigned(len(value)) + bytes(value)
        case 9 | 10:
            element, values = value
            size = len(values)
            head = bytes([size << 4 | element]) if size < 15 else bytes([15 << 4 | element]) + _unsigned(size)
            if element in (_TRUE, _FALSE):
                return head + bytes(values)
            return head + b"".join(_encoded(element, each) for each in values)
        case _:
            return encode(value)


def _unsigned(value: int) -> bytes:
    data = bytearray()
    while value > 127:
        data.append(value & 127 | 128)
        value >>= 7
    return bytes([*data, value])


def _signed(value: int) -> bytes:
    return _unsigned(value << 1 if value >= 0 else (-value << 1) - 1)
