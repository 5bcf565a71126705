"""Columns of a table through the versions of its history, and where their values are stored. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from itertools import groupby
from typing import Any

from mirrorfeed.history.errors import ColumnsIncompatible
from mirrorfeed.history.record import HistoryColumn, Segment, find_record
from mirrorfeed.landing.names import fold, split_name

RENAME, DROP = "RENAME COLUMN", "DROP COLUMNS"
_TEXT = re.compile(r"(?:var)?char\(\d+\)|string collate \S+")


def snapshot_columns(schema: Mapping[str, Any], version: int, existing: Mapping[str, str]) -> tuple[HistoryColumn, ...]:
    """The columns of a snapshot. `existing` are the history's columns with their types in JSON form."""
    return tuple(_new_column(field, version, existing) for field in _fields(schema))


def next_columns(
    table: str,
    version: int,
    before: Sequence[HistoryColumn],
    schema: Mapping[str, Any],
    existing: Mapping[str, str],
    *,
    renamed: Mapping[str, str] | None = None,
    dropped: Collection[str] = (),
) -> tuple[HistoryColumn, ...]:
    """The columns at a version, given those before it. `renamed` maps old names to new ones.

    Raises `ColumnsIncompatible`.
    """
    names = renamed or {}
    known = {fold(names.get(column.name, column.name)): column for column in before if column.name not in dropped}
    fields = _fields(schema)
    now = {fold(field["name"]) for field in fields}
    changes = [f"{column.name!r} is gone" for name, column in known.items() if name not in now]
    found = []
    for field in fields:
        type_, old = _type_json(field["type"]), known.get(fold(field["name"]))
        if old is None:
            found.append(_new_column(field, version, existing))
        elif old.type != type_:
            changes.append(f"{old.name!r} was {_short(old.type)} and is {_short(type_)}")
        else:
            is_renamed = old.name != field["name"]
            stored_as = _stored_as(field["name"], type_, version, existing) if is_renamed else old.stored_as
            found.append(HistoryColumn(field["name"], type_, field["nullable"], stored_as, old.origin))
    if changes:
        raise ColumnsIncompatible(table=table, version=version, changes=changes)
    return tuple(found)


def unreadable_columns(columns: Sequence[HistoryColumn], schema: Mapping[str, Any]) -> list[str]:
    """In words, which of the columns a read with this schema cannot return."""
    found = {field["name"]: _type_json(field["type"]) for field in schema["fields"]}
    gone = [f"{each.name!r} is gone" for each in columns if each.name not in found]
    other = [each for each in columns if found.get(each.name, each.type) != each.type]
    return gone + [f"{each.name!r} was {_short(each.type)} and is {_short(found[each.name])}" for each in other]


def renamed_columns(operation: str, parameters: Mapping[str, str]) -> Mapping[str, str]:
    """The old and new name of the whole column that a commit renamed, if any."""
    if operation != RENAME:
        return {}
    old, new = (split_name(parameters[name]) for name in ("oldColumnPath", "newColumnPath"))
    return {old[0]: new[0]} if len(old) == len(new) == 1 else {}


def dropped_columns(operation: str, parameters: Mapping[str, str]) -> tuple[str, ...]:
    """The whole columns that a commit dropped."""
    paths = json.loads(parameters["columns"]) if operation == DROP else []
    return tuple(path[0] for path in map(split_name, paths) if len(path) == 1)


Spans = Sequence[tuple[int, str | None]]
"""The last version of each span of versions, and the history's column; None if the source had no values then."""


def stored_columns(segment: Segment, version: int) -> list[tuple[HistoryColumn, Spans]]:
    """The table's columns at a version of the segment, and where their values in the rows up to it are stored."""
    last = find_record(segment, version)
    found = []
    for column in last.columns:
        spans = []
        for record in segment[: segment.index(last) + 1]:
            stored_as = next((each.stored_as for each in record.columns if each.origin == column.origin), None)
            spans.append((record.to_version_inclusive, stored_as))
        merged: Spans = [(list(group)[-1][0], name) for name, group in groupby(spans, key=lambda span: span[1])]
        found.append((column, merged))
    return found


def have_same_columns(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether two schemas have the same columns in the same order."""
    columns = [[(f["name"], _type_json(f["type"]), f["nullable"]) for f in _fields(each)] for each in (one, other)]
    return columns[0] == columns[1]


def _fields(schema: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Fields without those of type `void`, which contain only NULL."""
    return [field for field in schema["fields"] if field["type"] != "void"]


def _new_column(field: Mapping[str, Any], version: int, existing: Mapping[str, str]) -> HistoryColumn:
    name, type_ = field["name"], _type_json(field["type"])
    return HistoryColumn(
        name, type_, field["nullable"], _stored_as(name, type_, version, existing), f"{name}@{version}"
    )


def _stored_as(name: str, type_: str, version: int, existing: Mapping[str, str]) -> str:
    """The column's own name, unless the history has a column of that name with another type."""
    by_name = {fold(other): (other, other_type) for other, other_type in existing.items()}
    found, found_type = by_name.get(fold(name), (name, type_))
    return found if found_type == type_ else f"{name}__v{version}"


def _type_json(type_: Any) -> str:
    return json.dumps(_plain_type(type_), sort_keys=True)


def _plain_type(type_: Any) -> Any:
    """A type without metadata, and nullable throughout, as the columns of a history are."""
    if isinstance(type_, str):
        return "string" if _TEXT.fullmatch(type_) else type_
    match type_["type"]:
        case "struct":
            fields = [
                {"name": field["name"], "type": _plain_type(field["type"]), "nullable": True, "metadata": {}}
                for field in type_["fields"]
            ]
            return {"type": "struct", "fields": fields}
        case "array":
            return {"type": "array", "elementType": _plain_type(type_["elementType"]), "containsNull": True}
        case "map":
            types = {name: _plain_type(type_[name]) for name in ("keyType", "valueType")}
            return {"type": "map", **types, "valueContainsNull": True}
    return type_


def _short(type_: str) -> str:
    found = json.loads(type_)
    return found if isinstance(found, str) else str(found["type"])
