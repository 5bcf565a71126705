"""Arrow types of the columns of data files, and single rows as text for messages."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from mirrorfeed.landing.schema import DECIMAL, MARKER, Column

_PLAIN: dict[str, pa.DataType] = {
    "boolean": pa.bool_(),
    "byte": pa.int8(),
    "short": pa.int16(),
    "integer": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}
_AROUND = 20
"""Bytes of an invalid text that are shown on each side of the first invalid one."""


def arrow_type(column: Column) -> pa.DataType:
    if decimal := DECIMAL.fullmatch(column.form):
        return pa.decimal128(int(decimal[1]), int(decimal[2]))
    return _PLAIN[column.form]


def row_text(rows: pa.RecordBatch | pa.Table, at: int) -> str:
    """Return a row as text. Arrow formats dates and times, because Python's have only years of four digits."""

    def one(value: pa.Scalar) -> str:
        if not value.is_valid:
            return "NULL"
        if pa.types.is_string(value.type):
            return shown_text(value.as_buffer().to_pybytes())
        return str(value.cast(pa.string())) if pa.types.is_temporal(value.type) else repr(value.as_py())

    return ", ".join(f"{name} = {one(rows.column(place)[at])}" for place, name in enumerate(rows.schema.names))


def shown_text(data: bytes) -> str:
    """Return a text in quotes. Of invalid UTF-8, only the part around the first invalid byte, as `\\xff`."""
    try:
        return repr(data.decode())
    except UnicodeDecodeError as error:
        begin, end = max(0, error.start - _AROUND), error.start + _AROUND
        part = data[begin:end].decode(errors="backslashreplace")
        return f"'{'…' if begin else ''}{part}{'…' if end < len(data) else ''}'"


def invalid_text(rows: pa.RecordBatch | pa.Table, at: int) -> str:
    """Return the first column of a row whose text is not valid UTF-8, with the text."""
    for place, field in enumerate(rows.schema):
        value = rows.column(place)[at]
        if pa.types.is_string(field.type) and value.is_valid:
            data = value.as_buffer().to_pybytes()
            try:
                data.decode()
            except UnicodeDecodeError:
                return f"column {field.name!r}: {shown_text(data)}"
    return ""


def arrow_schema(columns: Sequence[Column], *, with_marker: bool) -> pa.Schema:
    """Return the schema of a data file. All columns are nullable, because a delete has only the keys."""
    fields = [pa.field(column.name, arrow_type(column)) for column in columns]
    return pa.schema([*fields, pa.field(MARKER, pa.int32())] if with_marker else fields)
