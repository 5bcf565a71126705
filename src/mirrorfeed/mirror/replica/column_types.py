"""Column types: from those of a file to those of Delta, and whether a file fits its table."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from mirrorfeed.errors import Terminal


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
    raise UnsupportedType(address, field.name, str(kind))


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
        raise TypeChanged(name, address, changed)
    left_out = [field.name for field in table if field.name not in file.names and not field.nullable]
    if left_out:
        raise ColumnLeftOut(name, address, left_out)
    known = {column.lower(): column for column in table.names}
    new = [field for field in with_types(file) if field.name not in table.names]
    for field in new:
        other = known.setdefault(field.name.lower(), field.name)
        if other != field.name:
            raise NameOnlyDiffersInCase(name, address, other, field.name)
    return [field.with_nullable(True) for field in new]  # earlier rows have no value in it


def in_shape_of(schema: pa.Schema, rows: pa.Table) -> pa.Table:
    """The rows with the columns of a table in its order. Missing columns are NULL."""
    there = with_types(rows.schema).names
    columns = [rows[field.name] if field.name in there else pa.nulls(rows.num_rows, field.type) for field in schema]
    # Whether a column that is not nullable has NULLs is checked before rows are written.
    return pa.table(columns, schema=pa.schema([pa.field(field.name, field.type) for field in schema]))


class UnsupportedType(Terminal):
    """A data file has a column of a type that a table in Fabric cannot hold."""

    code = "MF7016"

    def __init__(self, address: str, column: str, kind: str) -> None:
        self.address, self.column, self.kind = address, column, kind

    def what(self) -> str:
        return f"Column {self.column} of {self.address} has the type {self.kind}, which a mirrored table cannot hold."

    def next(self) -> str:
        return "Publish complex values as JSON strings and others as a simple type."


class TypeChanged(Terminal):
    """A data file changes the type of a column. The table is stopped until its folder is recreated."""

    code = "MF7017"

    def __init__(self, table: str, address: str, changed: Mapping[str, tuple[str, str]]) -> None:
        self.table, self.address, self.changed = table, address, dict(changed)

    def what(self) -> str:
        columns = ", ".join(f"{name} from {old} to {new}" for name, (old, new) in self.changed.items())
        return f"Table {self.table} is stopped: {self.address} changes the type of {columns}."

    def next(self) -> str:
        return "Delete the table's folder and create it again with all data."


class ColumnLeftOut(Terminal):
    """A data file lacks a column that the table needs a value of."""

    code = "MF7018"

    def __init__(self, table: str, address: str, columns: list[str]) -> None:
        self.table, self.address, self.columns = table, address, columns

    def what(self) -> str:
        columns = ", ".join(self.columns)
        return f"{self.address} leaves out {columns}, which cannot be NULL in table {self.table}."

    def next(self) -> str:
        return "Keep publishing the column, or delete the table's folder and create it again with all data."


class NameOnlyDiffersInCase(Terminal):
    """A data file spells a column otherwise than the table, in upper and lower case only."""

    code = "MF7019"

    def __init__(self, table: str, address: str, known: str, new: str) -> None:
        self.table, self.address, self.known, self.new = table, address, known, new

    def what(self) -> str:
        return (
            f"{self.address} brings the column {self.new}, but table {self.table} has {self.known}, "
            "which differs in upper and lower case only."
        )

    def next(self) -> str:
        return "Publish the column under one name; a renamed column needs the folder recreated with all data."
