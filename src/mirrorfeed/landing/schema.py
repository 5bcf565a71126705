"""Columns of data files: types, reserved names, keys, and compatible changes between files. Pure functions."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Any

from mirrorfeed.landing.errors import IncompatibleSchemaError, invalid_key, reserved_columns, unsupported_type

MARKER = "__rowMarker__"
FEED_COLUMNS = ("_change_type", "_commit_version", "_commit_timestamp")
ROW_PROBLEM, ROW_IS_WIDE = "__rowProblem__", "__rowIsWide__"
"""Names of columns that rows have while they are staged."""
RESERVED = frozenset(name.lower() for name in (*FEED_COLUMNS, MARKER, ROW_PROBLEM, ROW_IS_WIDE))

_PLAIN = frozenset(
    {"boolean", "byte", "short", "integer", "long", "float", "double", "string", "binary"}
    | {"date", "timestamp", "timestamp_ntz"}
)
DECIMAL = re.compile(r"decimal\((\d+),\s*(\d+)\)")
_CHARS = re.compile(r"(?:var)?char\(\d+\)|string collate \S+")
_INTERVAL = re.compile(r"interval (?:year|month|day|hour|minute|second)(?: to \w+)?")
_GEO = re.compile(r"geo(?:metry|graphy)\(.*\)")
_NOT_FOR_KEYS = frozenset({"float", "double", "json"})
EXACT_JSON = {
    "ignoreNullFields": "false",
    "timeZone": "UTC",
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}
"""Options of `to_json`. They keep the precision of values, and make the text independent of Spark's settings."""


class Marker(IntEnum):
    """Row marker: number that defines how Fabric applies a row."""

    INSERT = 0
    UPDATE = 1
    DELETE = 2
    UPSERT = 4


REPLACEMENT = "\ufffd"
"""The character with which Java and Spark replace bytes that are not valid UTF-8."""


class Problem(IntEnum):
    """Reason why a row cannot be published. A temporary column stores the number of the reason."""

    NULL_KEY = 1
    DUPLICATE_KEY = 2
    CHANGE_WITHOUT_KEY = 3
    NOT_IN_ENCODING = 4
    LIKE_NULL = 5
    NOT_ESCAPABLE = 6
    YEAR = 7
    INVALID_TEXT = 8
    REPLACED_TEXT = 9
    """Text contains the replacement character, with which the change data feed may have replaced invalid bytes."""


@dataclass(frozen=True, slots=True)
class Column:
    """Column of the data files. `type` is the type name in Spark, or `json` for nested values written as JSON."""

    name: str
    type: str
    nested: str = ""
    """Type of a nested column, as the JSON of a Spark `DataType`. Empty for other columns."""
    dropped: bool = False
    """True if the source no longer has the column. New files still contain the column, with NULL."""

    @property
    def form(self) -> str:
        """Spark type of the column's values in files, such as "string" for the type `json`."""
        if is_geo_type(self.type):
            return "binary"
        return "string" if self.type == "json" or _INTERVAL.fullmatch(self.type) else self.type


def columns_of(table: str, schema: dict[str, Any]) -> tuple[Column, ...]:
    """Return the columns of the data files for a source schema, which is the JSON of a Spark `StructType`.
    Columns of type void are omitted. Raises `reserved_columns` or `unsupported_type`."""
    fields = schema["fields"]
    if reserved := reserved_names([field["name"] for field in fields]):
        raise reserved_columns(table=table, columns=reserved)
    # A column of type void has only NULLs. The column is published when it has another type.
    return tuple(_column(table, field) for field in fields if field["type"] != "void")


def is_geo_type(type_: Any) -> bool:
    """Return whether a type is a geometry or geography. `type_` is the JSON of a Spark `DataType`."""
    return isinstance(type_, str) and _GEO.fullmatch(type_) is not None


def is_text(type_: str) -> bool:
    """Return whether a type name in the JSON of a Spark schema is string (with any collation), char or varchar."""
    return type_ == "string" or _CHARS.fullmatch(type_) is not None


def reserved_names(names: Sequence[str]) -> list[str]:
    """Return the names in `names` that are reserved, so that published columns cannot have them. Ignores case."""
    return [name for name in names if name.lower() in RESERVED]


def _column(table: str, field: dict[str, Any]) -> Column:
    name, type_ = field["name"], field["type"]
    if type_ == "variant" or (isinstance(type_, dict) and type_.get("type") in ("array", "map", "struct")):
        return Column(name, "json", json.dumps(type_, sort_keys=True))
    if isinstance(type_, str):
        if type_ in _PLAIN or any(pattern.fullmatch(type_) for pattern in (DECIMAL, _INTERVAL, _GEO)):
            return Column(name, type_)
        if is_text(type_):
            return Column(name, "string")
    raise unsupported_type(table=table, column=name, type=type_ if isinstance(type_, str) else type_.get("type", "?"))


def check_key_names(table: str, keys: Sequence[str], names: Collection[str]) -> None:
    """Check that the table has each key, with the same case. `names` are its columns. Raises `invalid_key` if not."""
    for key in keys:
        if key not in names:
            similar = [name for name in names if name.lower() == key.lower()]
            existing = repr(similar[0]) if similar else ", ".join(map(repr, names))
            raise invalid_key(table=table, column=key, reason=f"it does not exist; the table has {existing}")


def check_keys(table: str, keys: Sequence[str], columns: Sequence[Column]) -> None:
    """Check that each key is a column whose values can be compared exactly, unlike floats.
    Raises `invalid_key` if not."""
    types = {column.name: column.type for column in columns}
    check_key_names(table, keys, types)
    for key in keys:
        if types[key] in _NOT_FOR_KEYS or is_geo_type(types[key]):
            raise invalid_key(
                table=table, column=key, reason=f"values of the type {types[key]} have no reliable equality"
            )


def evolve(
    table: str,
    version: int,
    published: Sequence[Column],
    now: Sequence[Column],
    *,
    keys: Sequence[str] = (),
    may_drop: Sequence[str] = (),
    fixed: bool = False,
    renamed: Mapping[str, str | None] = {},
) -> tuple[Column, ...]:
    """Return the columns of the next data files: the published columns first, then the added columns.

    `published` are the columns of the newest record, and `now` the columns of the source at `version`. Only columns in
    `may_drop` may be missing in the source, because a missing column could be a renamed column. `renamed` has the new
    name of each column that is known to be renamed. With `fixed`, no column may be added. Raises
    `IncompatibleSchemaError` if the columns break one of these rules, or if a type changed. The error says whether one
    of `keys` is missing.
    """
    current_columns = {column.name: column for column in now}
    current_names = {column.name.lower(): column.name for column in now}
    result, changes, renames = [], [], dict[str, str]()
    for column in published:
        current = current_columns.get(column.name)
        if column.dropped and column.name.lower() in current_names:
            changes.append(f"{column.name!r} was dropped and added again as {current_names[column.name.lower()]!r}")
        elif current is None and (column.dropped or column.name in may_drop):
            result.append(replace(column, dropped=True))
        elif current is None and (new := renamed.get(column.name)):
            changes.append(f"{column.name!r} was renamed to {new!r}")
            renames[column.name] = new
        elif difference := _difference(column, current):
            changes.append(difference)
        else:
            result.append(current_columns[column.name])
    published_names = {column.name for column in published}
    added = [column for column in now if column.name not in published_names]
    if fixed:
        changes += [f"{column.name!r} was added, but SchemaDefinition does not allow new columns" for column in added]
    if changes:
        only_renamed = renames if len(renames) == len(changes) else {}
        misses_key = not set(keys) <= current_columns.keys()
        raise IncompatibleSchemaError(
            table=table, version=version, changes=tuple(changes), renamed=only_renamed, misses_key=misses_key
        )
    return (*result, *added)


def lost_columns(columns: Sequence[Column], now: Sequence[Column]) -> list[str]:
    """Return a message for each column in `columns` that is missing in `now` or has another type there.
    Ignores columns with `dropped=True`, and added fields in structs."""
    current = {column.name: column for column in now}
    differences = (_difference(column, current.get(column.name)) for column in columns if not column.dropped)
    return [difference for difference in differences if difference]


def _difference(column: Column, now: Column | None) -> str:
    """Return how a published column differs from the current one, in words, or "" if they are compatible."""
    if now is None:
        return f"{column.name!r} is missing"
    if now.type != column.type:
        return f"{column.name!r} was {column.type} and is {now.type}"
    if column.nested == now.nested or _extends(json.loads(column.nested), json.loads(now.nested)):
        return ""
    return f"{column.name!r} has different nested fields"


def _extends(before: Any, now: Any) -> bool:
    """Return whether the nested type `now` is equal to `before`, except for added fields in structs."""
    if not isinstance(before, dict) or not isinstance(now, dict):
        return bool(before == now)
    if before["type"] != now["type"]:
        return False
    match before["type"]:
        case "struct":
            fields = {field["name"]: field["type"] for field in now["fields"]}
            return all(_extends(field["type"], fields.get(field["name"])) for field in before["fields"])
        case "array":
            return _extends(before["elementType"], now["elementType"])
        case "map":
            return bool(before["keyType"] == now["keyType"]) and _extends(before["valueType"], now["valueType"])
    return bool(before == now)


def check_type(type_: Any) -> None:
    """Check that a value is the JSON of a Spark `DataType`. Raises `ValueError` if not."""
    match type_:
        case {"type": "struct", "fields": list(fields)} if all(isinstance(field, dict) for field in fields):
            names = [field.get("name") for field in fields]
            if not all(isinstance(name, str) for name in names) or len(set(names)) < len(names):
                raise ValueError("a struct has a field without a name or with a duplicate name")
            inner = [field.get("type") for field in fields]
        case {"type": "array"}:
            inner = [type_.get("elementType")]
        case {"type": "map"}:
            inner = [type_.get("keyType"), type_.get("valueType")]
        case str():
            return
        case _:
            raise ValueError("it has a type that is not valid in Spark")
    for each in inner:
        check_type(each)


def types_in(type_: Any) -> Iterator[Any]:
    """Yield a type and, if it is nested, all types in it. Types are the JSON of a Spark `DataType`."""
    yield type_
    if isinstance(type_, dict):
        parts = [type_[part] for part in ("elementType", "keyType", "valueType") if part in type_]
        for part in [*parts, *(field["type"] for field in type_.get("fields", ()))]:
            yield from types_in(part)
