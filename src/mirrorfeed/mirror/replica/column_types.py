"""Column types: from those of a file to those of Delta, and whether a file fits its table."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from mirrorfeed.mirror.replica.errors import ColumnLeftOut, NameOnlyDiffersInCase, TypeChanged, UnsupportedType


def as_delta(rows: pa.Table, address: str) -> pa.Table:
    """The same rows with types that Delta has, or `UnsupportedType`; nullability stays as the file declares it.

    A column that holds only NULL may come without a type, which it keeps until its table gives it one.
    """
    schema = pa.schema([pa.field(field.name, _delta_type(field, address), field.nullable) for field in rows.schema])
    # Only fractions of a microsecond can be lost, which Delta cannot hold.
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
    if kind in _UNSIGNED:  # Delta has none: the next wider type holds every value
        return _UNSIGNED[kind]
    if pa.types.is_float16(kind):
        return pa.float32()
    if pa.types.is_date64(kind):
        return pa.date32()
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", "UTC" if kind.tz else None)
    if pa.types.is_decimal(kind) and kind.precision <= 38 and 0 <= kind.scale <= kind.precision:
        return pa.decimal128(kind.precision, kind.scale)
    raise UnsupportedType(address=address, column=field.name, kind=str(kind))


def with_types(schema: pa.Schema) -> pa.Schema:
    """The columns that have a type."""
    return pa.schema([field for field in schema if not pa.types.is_null(field.type)])


def added_columns(table: pa.Schema, file: pa.Schema, name: str, address: str) -> list[pa.Field]:
    """The columns that a file brings and its table lacks, or the error that stops the table.

    A type that differs, or a column that is not nullable and that the file leaves out, is an error; so is a new name
    that differs from another in upper and lower case only, for Delta tables cannot hold both.
    """
    changed: Mapping[str, tuple[str, str]] = {
        field.name: (str(table.field(field.name).type), str(field.type))
        for field in file
        if field.name in table.names and not pa.types.is_null(field.type) and table.field(field.name).type != field.type
    }
    if changed:
        raise TypeChanged(table=name, address=address, changed=changed)
    left_out = [field.name for field in table if field.name not in file.names and not field.nullable]
    if left_out:
        raise ColumnLeftOut(table=name, address=address, columns=left_out)
    known = {column.lower(): column for column in table.names}
    new = [field for field in with_types(file) if field.name not in table.names]
    for field in new:
        other = known.setdefault(field.name.lower(), field.name)
        if other != field.name:
            raise NameOnlyDiffersInCase(table=name, address=address, known=other, new=field.name)
    return [field.with_nullable(True) for field in new]  # earlier rows have no value in it


def in_shape_of(schema: pa.Schema, rows: pa.Table) -> pa.Table:
    """The rows with the columns of a table in its order. Missing columns are NULL."""
    there = with_types(rows.schema).names
    columns = [rows[field.name] if field.name in there else pa.nulls(rows.num_rows, field.type) for field in schema]
    # Whether a column that is not nullable has NULLs is checked before rows are written.
    return pa.table(columns, schema=pa.schema([pa.field(field.name, field.type) for field in schema]))
