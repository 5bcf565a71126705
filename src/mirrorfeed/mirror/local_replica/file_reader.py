"""Read the data files of a landing zone, Parquet and delimited text, as Arrow tables with types that Delta supports."""

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
from mirrorfeed.lint.file_rules import FORM
from mirrorfeed.lint.specification import INSERT, MARKER, MARKER_TEXTS, UPSERT, FileColumn, LintFinding, Settings
from mirrorfeed.lint.text_reader import ARROW_TYPES, TextReader
from mirrorfeed.mirror.errors import TypeChangedError, file_breaks_rule, file_not_readable


@dataclass(frozen=True, slots=True)
class FileRows:
    rows: pa.Table
    markers: pa.ChunkedArray | None
    """One marker per row, as int32 and never NULL. None if every row is an insert."""

    def counts(self) -> Mapping[int, int]:
        if self.markers is None:
            return {INSERT: self.rows.num_rows} if self.rows.num_rows else {}
        return {count["values"]: count["counts"] for count in pc.value_counts(self.markers).to_pylist()}


def read_rows(data: bytes, name: str, address: str, settings: Settings) -> FileRows:
    """Return the rows and row markers in `data`, the content of a file. The extension of `name` selects its format.

    Errors show the file's `address`. Raises `file_not_readable` if the content cannot be read, and `file_breaks_rule`
    if the file breaks a rule of `mirrorfeed lint`.
    """
    is_text = not name.endswith(".parquet")
    try:
        rows = _parse(data, name, address, settings)
        names = rows.column_names
        if repeated := sorted({each for each in names if names.count(each) > 1}):
            raise file_breaks_rule(finding=NAME_TWICE.finding(address, column=repeated[0], how="twice"))
        rows, markers = _split_markers(rows, address, is_text)
        if settings.declared is not None and is_text:
            rows = _as_declared(rows, settings.declared, address)
    except (ValueError, OSError, pa.ArrowException) as error:  # Arrow's errors for invalid content
        raise file_not_readable(address=address, reason=" ".join(str(error).replace("\r", "\\r").split())) from error
    rows = _with_delta_types(rows, address)
    if markers is None and settings.upserts:
        markers = pa.chunked_array([pa.repeat(pa.scalar(UPSERT, pa.int32()), rows.num_rows)])
    if markers is not None and not pc.any(pc.not_equal(markers, INSERT), min_count=0).as_py():
        markers = None
    return FileRows(rows, markers)


def _parse(data: bytes, name: str, address: str, settings: Settings) -> pa.Table:
    if name.endswith(".parquet"):
        return pq.ParquetFile(pa.BufferReader(data), coerce_int96_timestamp_unit="us").read()
    if not name.lower().endswith(f".{settings.extension}"):
        problem = f"The extension is neither parquet nor {settings.extension}"
        raise file_breaks_rule(finding=FORM.finding(address, problem=problem))

    def refuse(finding: LintFinding) -> None:
        raise file_breaks_rule(finding=finding)

    batches = list(TextReader(BytesIO(data), address, settings, refuse, allow_line_breaks=True).batches())
    if not batches:
        raise ValueError("the file is empty")
    return pa.Table.from_batches(batches)


def _as_declared(rows: pa.Table, declared: tuple[FileColumn, ...], address: str) -> pa.Table:
    """Return `rows` with all `declared` columns. A nullable column that is missing becomes NULL. Raises
    `file_breaks_rule` if a column is missing that is not nullable, or if `rows` has a column that is not declared.
    """
    columns = [column for column in declared if column.name != MARKER]
    if unknown := sorted(set(rows.column_names) - {column.name for column in columns}):
        raise file_breaks_rule(finding=UNDECLARED.finding(address, columns=unknown))
    for column in columns:
        if not column.nullable and column.name not in rows.column_names:
            raise file_breaks_rule(finding=REQUIRED_GONE.finding(address, column=column.name))
    schema = pa.schema([pa.field(column.name, ARROW_TYPES[column.type], column.nullable) for column in columns])
    return pa.table(align_columns(schema, rows).columns, schema=schema)


def _split_markers(rows: pa.Table, address: str, is_text: bool) -> tuple[pa.Table, pa.ChunkedArray | None]:
    """Return the rows without the row marker column, and the markers. The markers are None if the column is missing.

    Raises `file_breaks_rule` if the row marker is neither the first nor the last column, or has an invalid type or
    value.
    """
    if MARKER not in rows.column_names:
        return rows, None
    index = rows.column_names.index(MARKER)
    if index not in (0, rows.num_columns - 1):
        problem = f"is column {index + 1} of {rows.num_columns}, not the last"
        raise file_breaks_rule(finding=NOT_LAST.finding(address, problem=problem))
    markers = rows.column(index)
    if not is_text and not pa.types.is_integer(markers.type) and not pa.types.is_null(markers.type):
        raise file_breaks_rule(finding=TYPE.finding(address, type=markers.type))
    if markers.null_count:
        raise file_breaks_rule(finding=NULL.finding(address, count=markers.null_count, rows=len(markers)))
    texts = markers.cast(pa.string())
    is_unknown = pc.invert(pc.is_in(texts, pa.array(MARKER_TEXTS)))
    if unknown := texts.filter(is_unknown).to_pylist():
        first = is_unknown.index(True).as_py() + 1
        raise file_breaks_rule(
            finding=VALUE.finding(address, values=sorted(set(unknown)), count=len(unknown), first=first)
        )
    return rows.remove_column(index), markers.cast(pa.int32())


def _with_delta_types(rows: pa.Table, address: str) -> pa.Table:
    """Convert columns to types that Delta supports. Keeps Arrow's null type.
    Raises `file_breaks_rule` if no type fits."""
    schema = pa.schema([pa.field(field.name, _delta_type(field, address), field.nullable) for field in rows.schema])
    # Only fractions of a microsecond can be lost, which Delta does not support.
    return rows if rows.schema == schema else rows.cast(schema, safe=False)


_OTHER_TYPES = {
    # Delta has no unsigned types. The next wider type can store every value.
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.uint64(): pa.decimal128(20),
    pa.float16(): pa.float32(),
    pa.date64(): pa.date32(),
    pa.null(): pa.null(),
}
_SAME = (pa.types.is_boolean, pa.types.is_signed_integer, pa.types.is_float32, pa.types.is_float64, pa.types.is_date32)
_TEXT = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
_BYTES = (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_fixed_size_binary, pa.types.is_binary_view)


def _delta_type(field: pa.Field, address: str) -> pa.DataType:
    type_ = field.type
    if isinstance(type_, pa.BaseExtensionType):
        type_ = type_.storage_type
    if pa.types.is_dictionary(type_):
        type_ = type_.value_type
    if type_ in _OTHER_TYPES:
        return _OTHER_TYPES[type_]
    if any(is_kind(type_) for is_kind in _SAME):
        return type_
    if any(is_kind(type_) for is_kind in _TEXT):
        return pa.string()
    if any(is_kind(type_) for is_kind in _BYTES):
        return pa.binary()
    if pa.types.is_timestamp(type_):
        return pa.timestamp("us", "UTC" if type_.tz else None)
    if pa.types.is_decimal(type_) and type_.precision <= 38 and 0 <= type_.scale <= type_.precision:
        return pa.decimal128(type_.precision, type_.scale)
    raise file_breaks_rule(finding=UNSUPPORTED.finding(address, column=field.name, type=type_))


def without_untyped(schema: pa.Schema) -> pa.Schema:
    """Return the schema without columns of Arrow's null type. A column can have this type if it contains only NULL."""
    return pa.schema([field for field in schema if not pa.types.is_null(field.type)])


def new_columns(table: pa.Schema, file: pa.Schema, name: str, address: str) -> list[pa.Field]:
    """Return the columns of the schema `file` that the schema `table` does not have, as nullable columns.

    Raises `TypeChangedError` if the types of a column differ. Raises `file_breaks_rule` if the file lacks a
    non-nullable column, or if two column names differ only in case. Errors show the table's `name` and the file's
    `address`.
    """
    changed: Mapping[str, tuple[str, str]] = {
        field.name: (str(table.field(field.name).type), str(field.type))
        for field in file
        if field.name in table.names and not pa.types.is_null(field.type) and table.field(field.name).type != field.type
    }
    if changed:
        raise TypeChangedError(table=name, address=address, changed=changed)
    for field in table:
        if field.name not in file.names and not field.nullable:
            raise file_breaks_rule(finding=REQUIRED_GONE.finding(address, column=field.name))
    known = {column.lower(): column for column in table.names}
    new = [field for field in without_untyped(file) if field.name not in table.names]
    for field in new:
        other = known.setdefault(field.name.lower(), field.name)
        if other != field.name:
            raise file_breaks_rule(finding=OTHER_CASE.finding(address, column=field.name, before=other))
    return [field.with_nullable(True) for field in new]  # earlier rows have no value in this column


def align_columns(schema: pa.Schema, rows: pa.Table) -> pa.Table:
    """Return the rows with the columns of `schema`, in its order. Columns that `rows` does not have are NULL."""
    names = without_untyped(rows.schema).names
    columns = [rows[field.name] if field.name in names else pa.nulls(rows.num_rows, field.type) for field in schema]
    # NULLs in columns that are not nullable are checked before rows are written.
    return pa.table(columns, schema=pa.schema([pa.field(field.name, field.type) for field in schema]))
