"""Delimited text -> Arrow rows, with the options that `_metadata.json` declares.

The specification leaves some things open: here a quoted value is never NULL, and without a SchemaDefinition every
column is text. A ByteArray is read as Base64, a DateTime or ITime as a time without zone (one that carries a zone is
converted to UTC).
"""

from __future__ import annotations

import binascii
from collections.abc import Iterator
from io import BytesIO
from itertools import islice

import pyarrow as pa
import pyarrow.compute as pc

from mirrorfeed.lint.delimited_text import LINE_BREAK, UNCLOSED, TextFault, Unsplittable, decode, decompress, split
from mirrorfeed.lint.metadata_file import DeclaredColumn, Settings
from mirrorfeed.lint.specification import MARKER

_BATCH = 1 << 14
_TYPES = {
    "Double": pa.float64(),
    "Single": pa.float32(),
    "Int16": pa.int16(),
    "Int32": pa.int32(),
    "Int64": pa.int64(),
    "IDate": pa.date32(),
    "Boolean": pa.bool_(),
}
"""Types of values in one step; values of other types are text first."""


def read_delimited(data: bytes, name: str, settings: Settings) -> pa.Table:
    """The rows of a file; or `ValueError` or `OSError` with the reason if it is broken.

    The marker column is a number, whether a SchemaDefinition mentions it or not.
    """
    dialect = settings.dialect
    types = {column.name: _TYPES.get(column.type, pa.string()) for column in settings.declared or ()}
    types[MARKER] = pa.int32()
    text = decode(decompress(BytesIO(data), name), dialect.encoding)
    rows = split(text, dialect, takes_breaks=True)
    try:
        header = [name or "" for name in next(rows, [])]
        if not header:
            raise ValueError("the file is empty")
        columns = _texts(rows, len(header))
    except Unsplittable as error:
        raise ValueError(_reason(error.fault)) from error
    typed = [_typed(texts, each, types.get(each, pa.string())) for each, texts in zip(header, columns, strict=True)]
    return pa.table(typed, names=header)


def _texts(rows: Iterator[list[str | None]], width: int) -> list[pa.ChunkedArray]:
    """The columns of all rows. One batch at a time is held as Python objects."""
    chunks: list[list[pa.Array]] = [[] for _ in range(width)]
    numbered = enumerate(rows, 2)
    while batch := list(islice(numbered, _BATCH)):
        if odd := next(((number, len(row)) for number, row in batch if len(row) != width), None):
            raise ValueError(f"Expected {width} columns, got {odd[1]} (row {odd[0]:,})")
        for column, values in zip(chunks, zip(*(row for _, row in batch), strict=True), strict=True):
            column.append(pa.array(values, pa.string()))
    return [pa.chunked_array(column, pa.string()) for column in chunks]


def _reason(fault: TextFault) -> str:
    where = "its header" if fault.row == 1 else f"it (row {fault.row:,})"
    if fault.rule is UNCLOSED:
        where = "it"
    hint = " (a checkout of Git or an editor may have changed the line ends)" if fault.rule is LINE_BREAK else ""
    return f"{where} {fault.detail.removeprefix('it ')}{hint}"


def _typed(texts: pa.ChunkedArray, name: str, type_: pa.DataType) -> pa.ChunkedArray:
    if pa.types.is_string(type_):
        return texts
    try:
        return pc.cast(pc.ascii_trim(texts, " \t"), type_)
    except pa.ArrowInvalid as error:
        raise ValueError(f"column {name}: {str(error).replace('Failed to parse string:', 'invalid value')}") from error


def as_declared(rows: pa.Table, declared: tuple[DeclaredColumn, ...]) -> pa.Table:
    """The rows, without their marker, with the columns and types of a SchemaDefinition; `ValueError` if they differ."""
    columns = [column for column in declared if column.name != MARKER]
    unknown = sorted(set(rows.column_names) - {column.name for column in columns})
    if unknown:
        raise ValueError(f"SchemaDefinition does not declare its columns {', '.join(unknown)}")
    left_out = [column.name for column in columns if not column.nullable and column.name not in rows.column_names]
    if left_out:
        raise ValueError(f"it leaves out {', '.join(left_out)}, which SchemaDefinition declares as not nullable")
    values = [_declared_values(rows, column) for column in columns]
    fields = [pa.field(column.name, of.type, column.nullable) for column, of in zip(columns, values, strict=True)]
    return pa.table(values, schema=pa.schema(fields))


def _declared_values(rows: pa.Table, column: DeclaredColumn) -> pa.ChunkedArray:
    present = column.name in rows.column_names
    type_ = _TYPES.get(column.type, pa.string())
    values = rows[column.name] if present else pa.chunked_array([pa.nulls(rows.num_rows, type_)])
    if column.type in ("DateTime", "ITime"):
        return _times(values)
    return _from_base64(values, column.name) if column.type == "ByteArray" else values


def _times(texts: pa.ChunkedArray) -> pa.ChunkedArray:
    zoned = pc.match_substring_regex(texts, r"\d(Z|[+-]\d\d(:?\d\d)?)$")
    zoned = pc.and_(zoned, pc.match_substring_regex(texts, r"\d:\d"))  # the end of a date looks like a zone
    plain = pc.cast(pc.if_else(zoned, None, texts), pa.timestamp("us"))
    in_utc = pc.cast(pc.if_else(zoned, texts, None), pa.timestamp("us", "UTC"))
    return pc.coalesce(plain, pc.cast(in_utc, pa.timestamp("us")))


def _from_base64(texts: pa.ChunkedArray, name: str) -> pa.Array:
    try:
        data = [text and binascii.a2b_base64(text, strict_mode=True) for text in texts.to_pylist()]
    except ValueError as error:
        raise ValueError(f"column {name} is a ByteArray, but holds values that are not Base64") from error
    return pa.array(data, pa.binary())
