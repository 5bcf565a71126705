"""How a table's columns go on in its history, and where the values of a column are at each version. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from itertools import groupby
from typing import Any

from mirrorfeed.history.errors import ColumnsBroken
from mirrorfeed.history.record import Chapter, KeptColumn, record_of
from mirrorfeed.landing.names import fold, split_name

RENAME, DROP = "RENAME COLUMN", "DROP COLUMNS"
_TEXT = re.compile(r"(?:var)?char\(\d+\)|string collate \S+")


def first_columns(schema: Mapping[str, Any], version: int, there: Mapping[str, str]) -> tuple[KeptColumn, ...]:
    """Those of a snapshot; `there` are the history's own columns and their types, in JSON."""
    return tuple(_new(field, version, there) for field in _fields(schema))


def follow(
    table: str,
    version: int,
    before: Sequence[KeptColumn],
    schema: Mapping[str, Any],
    there: Mapping[str, str],
    *,
    renamed: Mapping[str, str] | None = None,
    dropped: Collection[str] = (),
) -> tuple[KeptColumn, ...]:
    """Those at a version, after those of before; or `ColumnsBroken`. Renamed is said from the old name to the new."""
    names = renamed or {}
    known = {fold(names.get(column.name, column.name)): column for column in before if column.name not in dropped}
    fields = _fields(schema)
    now = {fold(field["name"]) for field in fields}
    changes = [f"{column.name!r} is gone" for name, column in known.items() if name not in now]
    found = []
    for field in fields:
        spelled, old = _spell(field["type"]), known.get(fold(field["name"]))
        if old is None:
            found.append(_new(field, version, there))
        elif old.type != spelled:
            changes.append(f"{old.name!r} was {_plain(old.type)} and is {_plain(spelled)}")
        else:
            kept_as = old.kept_as if old.name == field["name"] else _place(field["name"], spelled, version, there)
            found.append(KeptColumn(field["name"], spelled, field["nullable"], kept_as, old.origin))
    if changes:
        raise ColumnsBroken(table=table, version=version, changes=changes)
    return tuple(found)


def lost(columns: Sequence[KeptColumn], schema: Mapping[str, Any]) -> list[str]:
    """What a read with this schema cannot give of these columns, in words."""
    found = {field["name"]: _spell(field["type"]) for field in schema["fields"]}
    gone = [f"{each.name!r} is gone" for each in columns if each.name not in found]
    other = [each for each in columns if found.get(each.name, each.type) != each.type]
    return gone + [f"{each.name!r} was {_plain(each.type)} and is {_plain(found[each.name])}" for each in other]


def renames(operation: str, parameters: Mapping[str, str]) -> Mapping[str, str]:
    """From the old name to the new one, if a commit renamed a whole column."""
    if operation != RENAME:
        return {}
    old, new = (split_name(parameters[name]) for name in ("oldColumnPath", "newColumnPath"))
    return {old[0]: new[0]} if len(old) == len(new) == 1 else {}


def drops(operation: str, parameters: Mapping[str, str]) -> tuple[str, ...]:
    """The whole columns that a commit dropped."""
    listed = json.loads(parameters["columns"]) if operation == DROP else []
    return tuple(path[0] for path in map(split_name, listed) if len(path) == 1)


Places = Sequence[tuple[int, str | None]]
"""For each span of versions the last of them, and the history's column; None where the source's had no values yet."""


def places(chapter: Chapter, version: int) -> list[tuple[KeptColumn, Places]]:
    """For each column that the table has at a version of the chapter, where its values are in the rows up to there."""
    at = record_of(chapter, version)
    found = []
    for column in at.columns:
        spans = []
        for record in chapter[: chapter.index(at) + 1]:
            kept = next((each.kept_as for each in record.columns if each.origin == column.origin), None)
            spans.append((record.to_version_inclusive, kept))
        merged: Places = [(list(group)[-1][0], kept) for kept, group in groupby(spans, key=lambda span: span[1])]
        found.append((column, merged))
    return found


def same_columns(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether two schemas have the same columns, in the same order."""
    spelled = [[(f["name"], _spell(f["type"]), f["nullable"]) for f in _fields(each)] for each in (one, other)]
    return spelled[0] == spelled[1]


def _fields(schema: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Without those of which nothing is known but that they are NULL."""
    return [field for field in schema["fields"] if field["type"] != "void"]


def _new(field: Mapping[str, Any], version: int, there: Mapping[str, str]) -> KeptColumn:
    name, spelled = field["name"], _spell(field["type"])
    return KeptColumn(name, spelled, field["nullable"], _place(name, spelled, version, there), f"{name}@{version}")


def _place(name: str, spelled: str, version: int, there: Mapping[str, str]) -> str:
    """Its own name, unless the history has a column of another type under it."""
    taken = {fold(other): (other, type_) for other, type_ in there.items()}
    found, type_ = taken.get(fold(name), (name, spelled))
    return found if type_ == spelled else f"{name}__v{version}"


def _spell(type_: Any) -> str:
    return json.dumps(_bare(type_), sort_keys=True)


def _bare(type_: Any) -> Any:
    """A type without what is only noted beside it, and nullable throughout, as a history's columns are."""
    if isinstance(type_, str):
        return "string" if _TEXT.fullmatch(type_) else type_
    match type_["type"]:
        case "struct":
            fields = [
                {"name": field["name"], "type": _bare(field["type"]), "nullable": True, "metadata": {}}
                for field in type_["fields"]
            ]
            return {"type": "struct", "fields": fields}
        case "array":
            return {"type": "array", "elementType": _bare(type_["elementType"]), "containsNull": True}
        case "map":
            types = {name: _bare(type_[name]) for name in ("keyType", "valueType")}
            return {"type": "map", **types, "valueContainsNull": True}
    return type_


def _plain(spelled: str) -> str:
    found = json.loads(spelled)
    return found if isinstance(found, str) else str(found["type"])
