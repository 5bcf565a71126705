"""What becomes of a source column in a data file, and how a table's columns may go on from one file to the next."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from mirrorfeed.errors import Terminal

MARKER = "__rowMarker__"
FEED_COLUMNS = ("_change_type", "_commit_version", "_commit_timestamp")
RESERVED = frozenset(name.lower() for name in (*FEED_COLUMNS, MARKER))

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
_DECIMAL = re.compile(r"decimal\((\d+),\s*(\d+)\)")
_CHARS = re.compile(r"(?:var)?char\(\d+\)|string collate \S+")
_NOT_FOR_KEYS = frozenset({"float", "double", "json"})


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a data file. `type` is Spark's name of it, or `json` for nested values that become JSON text."""

    name: str
    type: str

    @property
    def arrow(self) -> pa.DataType:
        if decimal := _DECIMAL.fullmatch(self.type):
            return pa.decimal128(int(decimal[1]), int(decimal[2]))
        return pa.string() if self.type == "json" else _PLAIN[self.type]


class UnsupportedType(Terminal):
    def __init__(self, table: str, column: str, type_: str) -> None:
        self.table, self.column, self.type = table, column, type_

    def what(self) -> str:
        return f"Column {self.column!r} of {self.table} has the type {self.type}, which has no form in a landing zone."

    def next(self) -> str:
        return "Publish a table without this column, or with the column cast to a type that has one."


class ReservedColumn(Terminal):
    def __init__(self, table: str, columns: Sequence[str]) -> None:
        self.table, self.columns = table, tuple(columns)

    def what(self) -> str:
        return f"{self.table} has columns with names that the feed and the landing zone need: {_list(self.columns)}."

    def next(self) -> str:
        return "Rename them in the source."


class BadKey(Terminal):
    def __init__(self, table: str, column: str, reason: str) -> None:
        self.table, self.column, self.reason = table, column, reason

    def what(self) -> str:
        return f"Column {self.column!r} cannot be a key of {self.table}: {self.reason}."

    def next(self) -> str:
        return "Correct `keys` in the configuration."


class IncompatibleSchema(Terminal):
    """A change of columns that the service cannot follow."""

    def __init__(self, table: str, version: int, changes: Sequence[str]) -> None:
        self.table, self.version, self.changes = table, version, tuple(changes)

    def what(self) -> str:
        changes = "; ".join(self.changes)
        return f"The columns of {self.table} at version {self.version} do not go on from what is published: {changes}."

    def next(self) -> str:
        return (
            "Change the source back, or start again: delete the table's folder in the landing zone, wait until the"
            " table is gone from the mirrored database, then publish."
        )


def columns_of(table: str, schema: dict[str, Any]) -> tuple[Column, ...]:
    """The columns of the data files for a source's schema (as Spark spells it in JSON), in the source's order."""
    fields = schema["fields"]
    if reserved := reserved_names([field["name"] for field in fields]):
        raise ReservedColumn(table, reserved)
    return tuple(Column(field["name"], _landing_type(table, field)) for field in fields)


def reserved_names(names: Sequence[str]) -> list[str]:
    """Those that no published table may have; Delta compares names without case."""
    return [name for name in names if name.lower() in RESERVED]


def _landing_type(table: str, field: dict[str, Any]) -> str:
    spelled = field["type"]
    if isinstance(spelled, dict) and spelled.get("type") in ("array", "map", "struct"):
        return "json"
    if isinstance(spelled, str):
        if spelled in _PLAIN or _DECIMAL.fullmatch(spelled):
            return spelled
        if _CHARS.fullmatch(spelled):
            return "string"
    raise UnsupportedType(table, field["name"], spelled if isinstance(spelled, str) else spelled.get("type", "?"))


def check_keys(table: str, keys: Sequence[str], columns: Sequence[Column]) -> None:
    types = {column.name: column.type for column in columns}
    for key in keys:
        if key not in types:
            near = [name for name in types if name.lower() == key.lower()]
            hint = f"the table spells it {near[0]!r}" if near else f"the table has {_list(list(types))}"
            raise BadKey(table, key, f"there is no such column, {hint}")
        if types[key] in _NOT_FOR_KEYS:
            raise BadKey(table, key, f"values of the type {types[key]} have no reliable equality")


def evolve(table: str, version: int, published: Sequence[Column], now: Sequence[Column]) -> tuple[Column, ...]:
    """The columns to write after `published`: those in their order, then what was added since."""
    found = {column.name: column for column in now}
    changes = []
    for column in published:
        if column.name not in found:
            changes.append(f"{column.name!r} is gone")
        elif found[column.name].type != column.type:
            changes.append(f"{column.name!r} was {column.type} and is {found[column.name].type}")
    if changes:
        raise IncompatibleSchema(table, version, changes)
    known = {column.name for column in published}
    return (*published, *(column for column in now if column.name not in known))


def arrow_schema(columns: Sequence[Column], *, with_marker: bool) -> pa.Schema:
    """The schema of a data file: every column optional, for deletes leave all but the keys empty; the marker last."""
    fields = [pa.field(column.name, column.arrow) for column in columns]
    return pa.schema([*fields, pa.field(MARKER, pa.int32())] if with_marker else fields)


def _list(names: Sequence[str]) -> str:
    return ", ".join(repr(name) for name in names)
