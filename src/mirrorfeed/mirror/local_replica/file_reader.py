"""Read data files of a landing zone as Arrow tables: Parquet and delimited text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from io import BytesIO

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from mirrorfeed.lint.column_rules import (
    NAME_TWICE,
    NOT_LAST,
    NULL,
    OTHER_CASE,
    REQUIRED_GONE,
    TYPE,
    UNDECLARED,
    UNSUPPORTED,
    VALUE,
)
from mirrorfeed.lint.delimited_text import TextFault
from mirrorfeed.lint.file_rules import FORM
from mirrorfeed.lint.specification import INSERT, MARKER, MARKER_TEXTS, UPSERT, Column, Settings
from mirrorfeed.lint.text_reader import ARROW_TYPES, TextReader
from mirrorfeed.mirror.errors import BrokenFile, FileRefused, TypeChanged


@dataclass(frozen=True, slots=True)
class FileRows:
    rows: pa.Table
    markers: pa.ChunkedArray | None
    """One marker per row, int32 and never NULL. None if every row is an insert."""

    def counts(self) -> Mapping[int, int]:
        """Number of rows by marker."""
        if self.markers is None:
            return {INSERT: self.rows.num_rows} if self.rows.num_rows else {}
        return {count["values"]: count["counts"] for count in pc.value_counts(self.markers).to_pylist()}


def read_rows(data: bytes, name: str, address: str, settings: Settings) -> FileRows:
    """Read the rows of a file. The extension of its name selects the format."""
    is_text = not name.endswith(".parquet")
    try:
        rows = _parsed(data, name, address, settings)
        names = rows.column_names
        if repeated := sorted({each for each in names if names.count(each) > 1}):
            raise FileRefused(finding=NAME_TWICE.finding(address, column=repeated[0], how="twice"))
        rows, markers = _split(rows, address, is_text)
        if settings.declared is not None and is_text:
            rows = _as_declared(rows, settings.declared, address)
    # For broken content, Arrow reports an invalid value or an input that cannot be read.
    except (ValueError, OSError, pa.ArrowException) as error:
        raise BrokenFile(address=address, reason=" ".join(str(error).replace("\r", "\\r").split())) from error
    rows = as_delta(rows, address)
    if markers is None and settings.upserts:
        markers = pa.chunked_array([pa.repeat(pa.scalar(UPSERT, pa.int32()), rows.num_rows)])
    if markers is not None and not pc.any(pc.not_equal(markers, INSERT), min_count=0).as_py():
        markers = None
    return FileRows(rows, markers)


def _parsed(data: bytes, name: str, address: str, settings: Settings) -> pa.Table:
    if name.endswith(".parquet"):
        return pq.ParquetFile(pa.BufferReader(data), coerce_int96_timestamp_unit="us").read()
    if name.lower().endswith(f".{settings.extension}"):
        return _read_text(data, name, address, settings)
    problem = f"The extension is neither parquet nor {settings.extension}"
    raise FileRefused(finding=FORM.finding(address, problem=problem))


def _read_text(data: bytes, name: str, address: str, settings: Settings) -> pa.Table:
    def refuse(fault: TextFault) -> None:
        raise FileRefused(finding=fault.rule.finding(address, row=fault.row, detail=fault.detail))

    batches = list(TextReader(BytesIO(data), name, settings, refuse, allow_line_breaks=True).batches())
    if not batches:
        raise ValueError("the file is empty")
    return pa.Table.from_batches(batches)


def _as_declared(rows: pa.Table, declared: tuple[Column, ...], address: str) -> pa.Table:
    """Return the rows without marker, with the columns of a SchemaDefinition in its order."""
    columns = [column for column in declared if column.name != MARKER]
    if unknown := sorted(set(rows.column_names) - {column.name for column in columns}):
        raise FileRefused(finding=UNDECLARED.finding(address, columns=unknown))
    for column in columns:
        if not column.nullable and column.name not in rows.column_names:
            raise FileRefused(finding=REQUIRED_GONE.finding(address, column=column.name))
    schema = pa.schema([pa.field(column.name, ARROW_TYPES[column.type], column.nullable) for column in columns])
    return pa.table(in_shape_of(schema, rows).columns, schema=schema)


def _split(rows: pa.Table, address: str, is_text_file: bool) -> tuple[pa.Table, pa.ChunkedArray | None]:
    """Split rows into data columns and marker.

    The marker is the last column. An older edition of the specification put the marker first.
    """
    if MARKER not in rows.column_names:
        return rows, None
    place = rows.column_names.index(MARKER)
    if place not in (0, rows.num_columns - 1):
        problem = f"is column {place + 1} of {rows.num_columns}, not the last"
        raise FileRefused(finding=NOT_LAST.finding(address, problem=problem))
    markers = rows.column(place)
    if not is_text_file and not pa.types.is_integer(markers.type) and not pa.types.is_null(markers.type):
        raise FileRefused(finding=TYPE.finding(address, type=markers.type))
    if markers.null_count:
        raise FileRefused(finding=NULL.finding(address, count=markers.null_count, rows=len(markers)))
    texts = markers.cast(pa.string())
    is_unknown = pc.invert(pc.is_in(texts, pa.array(MARKER_TEXTS)))
    if unknown := texts.filter(is_unknown).to_pylist():
        first = is_unknown.index(True).as_py() + 1
        raise FileRefused(finding=VALUE.finding(address, values=sorted(set(unknown)), count=len(unknown), first=first))
    return rows.remove_column(place), markers.cast(pa.int32())


def as_delta(rows: pa.Table, address: str) -> pa.Table:
    """Convert rows to types that Delta supports. Raises `FileRefused`. Nullability stays as the file declares it.

    A column that contains only NULL may have no type. It remains without a type until its table has one.
    """
    schema = pa.schema([pa.field(field.name, _delta_type(field, address), field.nullable) for field in rows.schema])
    # Only fractions of a microsecond can be lost, which Delta does not support.
    return rows if rows.schema == schema else rows.cast(schema, safe=False)


_UNSIGNED = {pa.uint8(): pa.int16(), pa.uint16(): pa.int32(), pa.uint32(): pa.int64(), pa.uint64(): pa.decimal128(20)}
_SAME = (pa.types.is_boolean, pa.types.is_signed_integer, pa.types.is_float32, pa.types.is_float64, pa.types.is_date32)
_TEXT = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
_BYTES = (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_fixed_size_binary, pa.types.is_binary_view)


def _delta_type(field: pa.Field, address: str) -> pa.DataType:
    kind = field.type
    if isinstance(kind, pa.BaseExtensionType):
        kind = kind.storage_type
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if any(test(kind) for test in _SAME) or pa.types.is_null(kind):
        return kind
    if any(test(kind) for test in _TEXT):
        return pa.string()
    if any(test(kind) for test in _BYTES):
        return pa.binary()
    if kind in _UNSIGNED:  # Delta has no unsigned types: the next wider type can store every value
        return _UNSIGNED[kind]
    if pa.types.is_float16(kind):
        return pa.float32()
    if pa.types.is_date64(kind):
        return pa.date32()
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", "UTC" if kind.tz else None)
    if pa.types.is_decimal(kind) and kind.precision <= 38 and 0 <= kind.scale <= kind.precision:
        return pa.decimal128(kind.precision, kind.scale)
    raise FileRefused(finding=UNSUPPORTED.finding(address, column=field.name, type=kind))


def with_types(schema: pa.Schema) -> pa.Schema:
    """Return the columns that have a type."""
    return pa.schema([field for field in schema if not pa.types.is_null(field.type)])


def added_columns(table: pa.Schema, file: pa.Schema, name: str, address: str) -> list[pa.Field]:
    """Return the columns of a file that its table lacks. Raises the error that stops the table.

    Errors are a type that differs, a missing column that is not nullable, and a new name that differs from another only
    in case, because Delta tables cannot have both.
    """
    changed: Mapping[str, tuple[str, str]] = {
        field.name: (str(table.field(field.name).type), str(field.type))
        for field in file
        if field.name in table.names and not pa.types.is_null(field.type) and table.field(field.name).type != field.type
    }
    if changed:
        raise TypeChanged(table=name, address=address, changed=changed)
    for field in table:
        if field.name not in file.names and not field.nullable:
            raise FileRefused(finding=REQUIRED_GONE.finding(address, column=field.name))
    known = {column.lower(): column for column in table.names}
    new = [field for field in with_types(file) if field.name not in table.names]
    for field in new:
        other = known.setdefault(field.name.lower(), field.name)
        if other != field.name:
            raise FileRefused(finding=OTHER_CASE.finding(address, column=field.name, before=other))
    return [field.with_nullable(True) for field in new]  # earlier rows have no value in this column


def in_shape_of(schema: pa.Schema, rows: pa.Table) -> pa.Table:
    """Return the rows with the columns of a table in its order. Missing columns are NULL."""
    names = with_types(rows.schema).names
    columns = [rows[field.name] if field.name in names else pa.nulls(rows.num_rows, field.type) for field in schema]
    # NULLs in columns that are not nullable are checked before rows are written.
    return pa.table(columns, schema=pa.schema([pa.field(field.name, field.type) for field in schema]))
