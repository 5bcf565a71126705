"""What becomes of a source column in a data file, and how a table's columns may go on from one file to the next."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Any

from mirrorfeed.landing.errors import BadKey, IncompatibleSchema, ReservedColumn, UnsupportedType

MARKER = "__rowMarker__"
FEED_COLUMNS = ("_change_type", "_commit_version", "_commit_timestamp")
RESERVED = frozenset(name.lower() for name in (*FEED_COLUMNS, MARKER))

_PLAIN = frozenset(
    {"boolean", "byte", "short", "integer", "long", "float", "double", "string", "binary"}
    | {"date", "timestamp", "timestamp_ntz"}
)
DECIMAL = re.compile(r"decimal\((\d+),\s*(\d+)\)")
_CHARS = re.compile(r"(?:var)?char\(\d+\)|string collate \S+")
_INTERVAL = re.compile(r"interval (?:year|month|day|hour|minute|second)(?: to \w+)?")
_PLACE = re.compile(r"geo(?:metry|graphy)\(.*\)")
_NOT_FOR_KEYS = frozenset({"float", "double", "json"})


class Marker(IntEnum):
    """What Fabric does with a row."""

    INSERT = 0
    UPDATE = 1
    DELETE = 2
    UPSERT = 4


class Problem(IntEnum):
    """Why a row cannot be published. The value of a column during translation."""

    NULL_KEY = 1
    DUPLICATE_KEY = 2
    CHANGE_WITHOUT_KEY = 3
    NOT_IN_ENCODING = 4
    LIKE_NULL = 5
    NOT_ESCAPABLE = 6
    YEAR = 7
    INVALID_TEXT = 8
    REPLACED_TEXT = 9
    """A text has the character that replaces invalid bytes. Only the source shows whether it replaced any."""

    @property
    def of_text(self) -> bool:
        """Whether another file format can store the value."""
        return Problem.NOT_IN_ENCODING <= self <= Problem.YEAR


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a data file. `type` is Spark's name of it, or `json` for nested values that become JSON text."""

    name: str
    type: str
    nested: str = ""
    """Of a nested column the source's type, in JSON as Spark spells it."""
    dropped: bool = False
    """Gone from the source. Files keep carrying it, as NULL: a column that is not nullable must not be left out."""

    @property
    def form(self) -> str:
        """The type of its values in files, by Spark's name."""
        if is_place(self.type):
            return "binary"
        return "string" if self.type == "json" or _INTERVAL.fullmatch(self.type) else self.type


def columns_of(table: str, schema: dict[str, Any]) -> tuple[Column, ...]:
    """The columns of the data files for a source's schema (as Spark spells it in JSON), in the source's order."""
    fields = schema["fields"]
    if reserved := reserved_names([field["name"] for field in fields]):
        raise ReservedColumn(table=table, columns=reserved)
    # Of a column without a type nothing is known but that it is NULL: it is left out until it has one.
    return tuple(_column(table, field) for field in fields if field["type"] != "void")


def is_place(type_: Any) -> bool:
    """Whether a type, as Spark spells it in JSON, is a geometry or a geography."""
    return isinstance(type_, str) and _PLACE.fullmatch(type_) is not None


def is_text(type_: str) -> bool:
    """Whether a type, as Spark spells it in JSON, is a string of any kind."""
    return type_ == "string" or _CHARS.fullmatch(type_) is not None


def reserved_names(names: Sequence[str]) -> list[str]:
    """Those that no published table may have; Delta compares names without case."""
    return [name for name in names if name.lower() in RESERVED]


def _column(table: str, field: dict[str, Any]) -> Column:
    type_ = _landing_type(table, field)
    return Column(field["name"], type_, json.dumps(field["type"], sort_keys=True) if type_ == "json" else "")


def _landing_type(table: str, field: dict[str, Any]) -> str:
    spelled = field["type"]
    if spelled == "variant" or (isinstance(spelled, dict) and spelled.get("type") in ("array", "map", "struct")):
        return "json"
    if isinstance(spelled, str):
        if spelled in _PLAIN or any(kind.fullmatch(spelled) for kind in (DECIMAL, _INTERVAL, _PLACE)):
            return spelled
        if is_text(spelled):
            return "string"
    raise UnsupportedType(
        table=table, column=field["name"], type=spelled if isinstance(spelled, str) else spelled.get("type", "?")
    )


def check_keys(table: str, keys: Sequence[str], columns: Sequence[Column]) -> None:
    types = {column.name: column.type for column in columns}
    for key in keys:
        if key not in types:
            near = [name for name in types if name.lower() == key.lower()]
            hint = f"the table spells it {near[0]!r}" if near else f"the table has {_list(list(types))}"
            raise BadKey(table=table, column=key, reason=f"there is no such column, {hint}")
        if types[key] in _NOT_FOR_KEYS or is_place(types[key]):
            raise BadKey(table=table, column=key, reason=f"values of the type {types[key]} have no reliable equality")


def evolve(
    table: str,
    version: int,
    published: Sequence[Column],
    now: Sequence[Column],
    *,
    may_drop: Sequence[str] = (),
    fixed: bool = False,
) -> tuple[Column, ...]:
    """The columns to write after `published`: those in their order, then what was added since, unless they are fixed.

    Columns of `may_drop` may be gone. Of any other it is not known that its values are: a renamed column keeps them
    under its new name, and no row says so.
    """
    found = {column.name: column for column in now}
    again = {column.name.lower(): column.name for column in now}
    kept, changes = [], []
    for column in published:
        current = found.get(column.name)
        if column.dropped and column.name.lower() in again:
            changes.append(f"{column.name!r} was dropped and is there again, as {again[column.name.lower()]!r}")
        elif current is None and not (column.dropped or column.name in may_drop):
            changes.append(_gone(column))
        elif current is None:
            kept.append(replace(column, dropped=True))
        elif difference := _difference(column, current):
            changes.append(difference)
        else:
            kept.append(current)
    known = {column.name for column in published}
    added = [column for column in now if column.name not in known]
    if fixed:
        changes += [f"{column.name!r} was added, and SchemaDefinition takes no new columns" for column in added]
    if changes:
        raise IncompatibleSchema(table=table, version=version, changes=tuple(changes))
    return (*kept, *added)


def lost(columns: Sequence[Column], now: Sequence[Column]) -> list[str]:
    """What a read with the columns of now cannot give of these, in words."""
    found = {column.name: column for column in now}
    differences = (
        _difference(column, found[column.name]) if column.name in found else _gone(column)
        for column in columns
        if not column.dropped
    )
    return [difference for difference in differences if difference]


def _gone(column: Column) -> str:
    return f"{column.name!r} is gone"


def _difference(column: Column, now: Column) -> str:
    if now.type != column.type:
        return f"{column.name!r} was {column.type} and is {now.type}"
    return "" if _only_adds_fields(column.nested, now.nested) else f"{column.name!r} has other fields than before"


def _only_adds_fields(before: str, now: str) -> bool:
    """Whether JSON that was written for one nested type means the same for the other."""
    return before == now or _goes_on(json.loads(before), json.loads(now))


def _goes_on(before: Any, now: Any) -> bool:
    if not isinstance(before, dict) or not isinstance(now, dict):
        return bool(before == now)
    if before["type"] != now["type"]:
        return False
    match before["type"]:
        case "struct":
            fields = {field["name"]: field["type"] for field in now["fields"]}
            return all(_goes_on(field["type"], fields.get(field["name"])) for field in before["fields"])
        case "array":
            return _goes_on(before["elementType"], now["elementType"])
        case "map":
            return bool(before["keyType"] == now["keyType"]) and _goes_on(before["valueType"], now["valueType"])
    return bool(before == now)


def check_type(type_: Any) -> None:
    """Raise `ValueError` if a value parsed from JSON is not a type as Spark writes it."""
    match type_:
        case {"type": "struct", "fields": list(fields)} if all(isinstance(field, dict) for field in fields):
            names = [field.get("name") for field in fields]
            if not all(isinstance(name, str) for name in names) or len(set(names)) < len(names):
                raise ValueError("a struct has a field without a name, or a name twice")
            inner = [field.get("type") for field in fields]
        case {"type": "array"}:
            inner = [type_.get("elementType")]
        case {"type": "map"}:
            inner = [type_.get("keyType"), type_.get("valueType")]
        case str():
            return
        case _:
            raise ValueError("it has a type that Spark does not write")
    for each in inner:
        check_type(each)


def _list(names: Sequence[str]) -> str:
    return ", ".join(repr(name) for name in names)
