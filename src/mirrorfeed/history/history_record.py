"""Records of a permanent history, and the mapping of source columns to columns of the history. Pure functions.

Each append commits its rows and one record. The first record is for a snapshot. Later records are for ranges of
versions. After a gap, the history continues with another snapshot. The records from one snapshot to the next gap are a
segment.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from itertools import groupby, pairwise
from typing import Annotated, Any, ClassVar, Final

from pydantic import AfterValidator, Field, PlainValidator, Strict, TypeAdapter

from mirrorfeed.display.rows import counted
from mirrorfeed.history.errors import HistoryColumnsError
from mirrorfeed.landing.errors import DamagedFileError
from mirrorfeed.landing.names import fold
from mirrorfeed.landing.schema import DECIMAL, check_type, is_text
from mirrorfeed.landing.strict_json import CONFIG, Count, UtcTime, format_of, is_distinct, parse_json, validate
from mirrorfeed.source.snapshot_or_range import Commit

FORMAT = 1
_WHOLE = ("byte", "short", "integer", "long")
_WIDER = {
    "byte": ("short", "integer", "long", "double"),
    "short": ("integer", "long", "double"),
    "integer": ("long", "double"),
    "float": ("double",),
    "date": ("timestamp_ntz",),
}
_NUMBERS = frozenset({*_WIDER, *(name for names in _WIDER.values() for name in names)})
_COMMIT: Final = TypeAdapter(tuple[Annotated[Count, Strict()], UtcTime, Annotated[str, Strict()]])


def _commit(value: Any) -> Commit:
    return Commit(*_COMMIT.validate_python(value))


def _type(text: str) -> str:
    check_type(parse_json(text))
    return text


@dataclass(frozen=True, slots=True)
class HistoryColumn:
    """Column of the source. The fields are valid for all versions that a history record covers."""

    name: str
    """Name of the column in the source."""
    type: Annotated[str, AfterValidator(_type)]
    """Data type of the column as Spark's JSON."""
    nullable: bool
    stored_as: str
    """Name of the column in the history that contains the values."""
    origin: str
    """Id of the column. The id stays the same when the column is renamed."""


@dataclass(frozen=True, slots=True)
class HistoryRecord:
    __pydantic_config__: ClassVar = CONFIG
    number: Annotated[int, Field(ge=1)]
    batch: str
    """Random id of the append. With this id, a run recognizes its own record."""
    time: UtcTime
    source: str
    source_id: str
    from_version_exclusive: Count | None
    """Last version before the appended range. None for a snapshot. Equal to `to_version_inclusive` if the record
    repeats the previous record without rows.
    """
    to_version_inclusive: Count
    commits: tuple[Annotated[Commit, PlainValidator(_commit)], ...]
    """Commits of the source in the range. For a snapshot, the commit of its version."""
    columns: tuple[HistoryColumn, ...]
    """Columns of the source. All versions that the record covers have these columns."""
    partitions: Annotated[tuple[str, ...], AfterValidator(is_distinct)]
    rows: Count
    total: Count
    """Number of rows in the history after this append, including one row for each record."""
    base: Count
    """Version of the history table that was read before the append."""
    build: str
    hidden: Mapping[str, str] = field(default_factory=dict)
    """Transformation of each column whose values are stored as they are published."""
    key_digest: str | None = None
    """Digest of the secret for hashes. None if no column is hashed."""

    @property
    def schema(self) -> dict[str, Any]:
        """Schema of the source as Spark's JSON."""
        return {
            "fields": [
                {"name": each.name, "type": json.loads(each.type), "nullable": each.nullable, "metadata": {}}
                for each in self.columns
            ]
        }

    def to_json(self) -> str:
        values = asdict(self) | {"format": FORMAT, "time": self.time.isoformat()}
        for name in ("hidden", "key_digest"):
            if not values[name]:
                del values[name]
        values["commits"] = [[each.version, each.timestamp.isoformat(), each.operation] for each in self.commits]
        return json.dumps(values, ensure_ascii=False)


_RECORD: Final = TypeAdapter(HistoryRecord)


def parse_record(text: str, history: str) -> HistoryRecord:
    """Return the record in a JSON text.
    Raises `DamagedFileError`, which names the `history`, if the JSON is invalid."""
    try:
        value = parse_json(text)
        if (version := format_of(value)) != FORMAT:
            raise ValueError(f"it has format {version}, and this release supports format {FORMAT}")
        return validate(_RECORD, {name: each for name, each in value.items() if name != "format"})
    except ValueError as error:
        raise DamagedFileError(address=f"A record in {history}", reason=str(error), kind="history") from error


Segment = Sequence[HistoryRecord]
"""Record of a snapshot, and the records of the ranges that follow without a gap, oldest first."""


def split_segments(records: Sequence[HistoryRecord]) -> list[Segment]:
    """Split all records of a history into segments. Both the records and the segments are ordered oldest first.

    The record of a snapshot starts a new segment. All other records continue the segment.
    """
    starts = [at for at, record in enumerate(records) if record.from_version_exclusive is None]
    return [records[start:end] for start, end in zip(starts, [*starts[1:], len(records)], strict=True)]


def first_and_last_commit(segment: Segment) -> tuple[Commit, Commit]:
    return segment[0].commits[0], next(each.commits[-1] for each in reversed(segment) if each.commits)


def find_segment(records: Sequence[HistoryRecord], version: int) -> Segment | None:
    """Return the newest segment (records without a gap) that contains the source version `version`.

    Returns None if no segment contains `version`.
    """
    for segment in reversed(split_segments(records)):
        if segment[0].to_version_inclusive <= version <= segment[-1].to_version_inclusive:
            return segment
    return None


def find_version(records: Sequence[HistoryRecord], time: datetime) -> int | None:
    """Return the version of the source that was the newest at `time`, or None if the history does not cover `time`."""
    for segment in reversed(split_segments(records)):
        first, last = first_and_last_commit(segment)
        if first.timestamp <= time <= last.timestamp:
            commits = (commit for record in segment for commit in record.commits)
            return max(commit.version for commit in commits if commit.timestamp <= time)
    return None


def find_record(segment: Segment, version: int) -> HistoryRecord:
    """Return the record whose snapshot or range contains `version`. The caller ensures that `segment` has one."""
    return next(record for record in segment if version <= record.to_version_inclusive)


def find_disorder(records: Sequence[HistoryRecord]) -> str | None:
    """Return a message about missing or inconsistent records, or None if all records of the history are consistent."""
    if [record.number for record in records] != list(range(1, len(records) + 1)):
        return f"its records have the numbers {', '.join(str(record.number) for record in records)}"
    if records and records[0].from_version_exclusive is not None:
        return "its first record is not a snapshot"
    for before, record in pairwise(records):
        if record.from_version_exclusive not in (None, before.to_version_inclusive):
            return f"record {record.number} does not continue version {before.to_version_inclusive}"
    total = 0
    for record in records:
        total += record.rows + 1
        if record.total != total:
            return f"record {record.number} counts {counted(record.total, 'row')} in total instead of {total:,}"
    return None


def next_columns(
    table: str,
    version: int,
    before: Sequence[HistoryColumn],
    schema: Mapping[str, Any],
    existing: Mapping[str, str],
    renamed: Mapping[str, str | None] = {},
) -> tuple[HistoryColumn, ...]:
    """Return the columns of the source for a new record of the history. The first version of the record is `version`.

    - `before`: columns at the previous version. Empty for a snapshot.
    - `schema`: schema of the source at `version`, as Spark's JSON.
    - `existing`: type of each column of the history, as Spark's JSON.
    - `renamed`: new name of each column that `version` renamed, and None for each column that `version` dropped.

    Raises `HistoryColumnsError` if `schema` lacks a column that was neither renamed nor dropped. Also raises
    `HistoryColumnsError` if a column has a new type that is not wider than the old type.
    """
    known = {fold(name): each for each in before if (name := renamed.get(each.name, each.name)) is not None}
    fields = _fields(schema)
    names = {fold(field["name"]) for field in fields}
    changes = [f"{column.name!r} is gone" for name, column in known.items() if name not in names]
    columns = []
    for each in fields:
        name, type_ = each["name"], _type_json(each["type"])
        old = known.get(fold(name))
        if old is not None and not can_widen(type_, old.type):
            changes.append(f"{old.name!r} was {_short(old.type)} and is {_short(type_)}")
        if old is not None and (old.name, old.type) == (name, type_):
            stored_as = old.stored_as
        else:
            stored_as = _stored_as(name, type_, version, existing)
        origin = f"{name}@{version}" if old is None else old.origin
        columns.append(HistoryColumn(name, type_, each["nullable"], stored_as, origin))
    if changes:
        raise HistoryColumnsError(table=table, version=version, changes=changes)
    return tuple(columns)


def unreadable_columns(columns: Sequence[HistoryColumn], schema: Mapping[str, Any]) -> list[str]:
    """Return a message for each column in `columns` that is missing in `schema` or has an incompatible type there.

    A type in `schema` is compatible if it is equal to the type in `columns`, or wider.
    """
    types = {field["name"]: _type_json(field["type"]) for field in schema["fields"]}
    missing = [f"{each.name!r} is gone" for each in columns if each.name not in types]
    other = [each for each in columns if not can_widen(types.get(each.name, each.type), each.type)]
    return missing + [f"{each.name!r} was {_short(each.type)} and is {_short(types[each.name])}" for each in other]


def can_widen(wide: str, narrow: str) -> bool:
    """Return whether two types (as JSON) are equal, or Delta can widen `narrow` to `wide`."""
    if wide == narrow:
        return True
    wide, narrow = json.loads(wide), json.loads(narrow)
    if not (isinstance(wide, str) and isinstance(narrow, str)):
        return False
    if match_ := DECIMAL.fullmatch(wide):
        digits, scale = int(match_[1]), int(match_[2])
        if narrower := DECIMAL.fullmatch(narrow):
            more = scale - int(narrower[2])
            return more >= 0 and digits - int(narrower[1]) >= more
        return narrow in _WHOLE and digits - scale >= (20 if narrow == "long" else 10)
    return wide in _WIDER.get(narrow, ())


def may_widen(type_: str) -> bool:
    """Return whether Delta supports type widening from or to a type, given as JSON."""
    parsed = json.loads(type_)
    return isinstance(parsed, str) and (parsed in _NUMBERS or DECIMAL.fullmatch(parsed) is not None)


Spans = Sequence[tuple[int, str | None]]
"""Columns of a history that contain the values of one source column, in ascending order of versions.

Each entry has the last version to which it applies, and the name of the history's column. The name is None for versions
in which the source did not have the column.
"""


def stored_columns(segment: Segment, version: int) -> list[tuple[HistoryColumn, Spans]]:
    """Return each column of the source at `version`, and for each the columns of the history that store its values."""
    last = find_record(segment, version)
    columns = []
    for column in last.columns:
        spans = []
        for record in segment[: segment.index(last) + 1]:
            stored_as = next((each.stored_as for each in record.columns if each.origin == column.origin), None)
            spans.append((record.to_version_inclusive, stored_as))
        merged: Spans = [(list(group)[-1][0], name) for name, group in groupby(spans, key=lambda span: span[1])]
        columns.append((column, merged))
    return columns


def have_same_columns(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Return whether two schemas have the same columns in the same order. Ignores columns of the type `void`.

    Compares names and nullability. Types count as the same if a history stores their values with the same type.
    """
    columns = [[(f["name"], _type_json(f["type"]), f["nullable"]) for f in _fields(each)] for each in (one, other)]
    return columns[0] == columns[1]


def _fields(schema: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the fields of a schema, except those of type `void`, which contain only NULL."""
    return [field for field in schema["fields"] if field["type"] != "void"]


def _stored_as(name: str, type_: str, version: int, existing: Mapping[str, str]) -> str:
    """Return the history's column for a source column: `name`, or a new name if `name` exists with another type."""
    by_name = {fold(other): (other, other_type) for other, other_type in existing.items()}
    stored, stored_type = by_name.get(fold(name), (name, type_))
    return stored if stored_type == type_ else f"{name}__v{version}"


def _type_json(type_: Any) -> str:
    return json.dumps(_plain_type(type_), sort_keys=True)


def _plain_type(type_: Any) -> Any:
    """Return the type that a history stores for a source type. Both types are in Spark's JSON format.

    The types char and varchar, and text with a collation, become `string`. In nested types, all parts become nullable,
    and fields lose their metadata.
    """
    if isinstance(type_, str):
        return "string" if is_text(type_) else type_
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
    parsed = json.loads(type_)
    return parsed if isinstance(parsed, str) else str(parsed["type"])
