"""The records of a history: one for each append, in the same commit, complete in itself. The newest is the state."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from itertools import pairwise
from typing import Annotated, Any, ClassVar, Final

from pydantic import AfterValidator, Field, PlainValidator, Strict, TypeAdapter

from mirrorfeed.landing.errors import DamagedFile
from mirrorfeed.landing.schema import check_type
from mirrorfeed.landing.strict_json import CONFIG, Count, UtcTime, format_of, is_distinct, parse_json, validate
from mirrorfeed.source.ranges import Commit

FORMAT = 1
_COMMIT: Final = TypeAdapter(tuple[Annotated[Count, Strict()], UtcTime, Annotated[str, Strict()]])


def _commit(value: Any) -> Commit:
    return Commit(*_COMMIT.validate_python(value))


def _type(text: str) -> str:
    check_type(parse_json(text))
    return text


_Names = Annotated[tuple[str, ...], AfterValidator(is_distinct)]


@dataclass(frozen=True, slots=True)
class KeptColumn:
    name: str
    """In the source."""
    type: Annotated[str, AfterValidator(_type)]
    """In JSON, as Spark spells it."""
    nullable: bool
    kept_as: str
    """The history's column that holds it."""
    origin: str
    """The same for one column under all the names that it has had, and for no other column."""


@dataclass(frozen=True, slots=True)
class Record:
    __pydantic_config__: ClassVar = CONFIG
    number: Annotated[int, Field(ge=1)]
    batch: str
    """Made up anew for every try, so that a run knows its own record from another's."""
    time: UtcTime
    source: str
    source_id: str
    from_version_exclusive: Count | None
    """None: a snapshot. The same as the last: the record before said again, without rows."""
    to_version_inclusive: Count
    commits: tuple[Annotated[Commit, PlainValidator(_commit)], ...]
    """Those of its versions; of a snapshot, the one that made it."""
    columns: tuple[KeptColumn, ...]
    """The same at each of its versions."""
    partitions: _Names
    rows: Count
    total: Count
    """Rows of the history with these, and with all records."""
    base: Count
    """The version of the history that was looked at before."""
    build: str

    @property
    def schema(self) -> dict[str, Any]:
        """As Spark spells schemas in JSON."""
        return {
            "fields": [
                {"name": each.name, "type": json.loads(each.type), "nullable": each.nullable, "metadata": {}}
                for each in self.columns
            ]
        }

    def to_json(self) -> str:
        told = asdict(self) | {"format": FORMAT, "time": self.time.isoformat()}
        told["commits"] = [[each.version, each.timestamp.isoformat(), each.operation] for each in self.commits]
        return json.dumps(told, ensure_ascii=False)


_RECORD: Final = TypeAdapter(Record)


def parse(text: str, history: str) -> Record:
    """The record in this text of a history, or `DamagedFile`."""
    try:
        value = parse_json(text)
        if (found := format_of(value)) != FORMAT:
            raise ValueError(f"it has format {found}, and this release knows format {FORMAT}")
        return validate(_RECORD, {name: each for name, each in value.items() if name != "format"})
    except ValueError as error:
        raise DamagedFile(address=f"A record in {history}", reason=str(error), kind="history") from error


Chapter = Sequence[Record]
"""A snapshot, and the ranges that follow it without a hole."""


def chapters(records: Sequence[Record]) -> list[Chapter]:
    """All records of a history, in their order, cut before each snapshot."""
    begins = [at for at, record in enumerate(records) if record.from_version_exclusive is None]
    return [records[begin:end] for begin, end in zip(begins, [*begins[1:], len(records)], strict=True)]


def first_and_last(chapter: Chapter) -> tuple[Commit, Commit]:
    return chapter[0].commits[0], next(each.commits[-1] for each in reversed(chapter) if each.commits)


def chapter_of(records: Sequence[Record], version: int) -> Chapter | None:
    """The one that holds a version; the newest, where two do."""
    for chapter in reversed(chapters(records)):
        if chapter[0].to_version_inclusive <= version <= chapter[-1].to_version_inclusive:
            return chapter
    return None


def version_at(records: Sequence[Record], moment: datetime) -> int | None:
    """The version that the table had then; None before a chapter, after it, and between two, where nothing tells."""
    for chapter in reversed(chapters(records)):
        first, last = first_and_last(chapter)
        if first.timestamp <= moment <= last.timestamp:
            commits = (commit for record in chapter for commit in record.commits)
            return max(commit.version for commit in commits if commit.timestamp <= moment)
    return None


def record_of(chapter: Chapter, version: int) -> Record:
    """The record with which a version of the chapter was kept."""
    return next(record for record in chapter if version <= record.to_version_inclusive)


def disorder(records: Sequence[Record]) -> str | None:
    """Why these are not all records of a history from the first on; None where they are."""
    if [record.number for record in records] != list(range(1, len(records) + 1)):
        return f"its records have the numbers {', '.join(str(record.number) for record in records)}"
    if records and records[0].from_version_exclusive is not None:
        return "its first record is no snapshot"
    for before, record in pairwise(records):
        if record.from_version_exclusive not in (None, before.to_version_inclusive):
            return f"record {record.number} does not follow on version {before.to_version_inclusive}"
    total = 0
    for record in records:
        total += record.rows + 1
        if record.total != total:
            return f"record {record.number} counts {record.total:,} rows in all, and those before it {total:,}"
    return None


_CHANGES_ROWS = (
    *("WRITE", "STREAMING UPDATE", "MERGE", "UPDATE", "DELETE", "TRUNCATE", "COPY INTO", "CLONE", "CONVERT"),
    *("CREATE TABLE AS SELECT", "REPLACE TABLE", "CREATE OR REPLACE TABLE", "RESTORE", "Manual Update"),
    *("RENAME COLUMN", "DROP COLUMNS", "REPLACE COLUMNS"),
)


@dataclass(frozen=True, slots=True)
class Change:
    """A commit of a history."""

    version: int
    operation: str
    note: str | None = None
    """What its writer noted beside it; of a run of ours, the batch."""
    parameters: Mapping[str, str] = field(default_factory=dict)


def by_hand(changes: Sequence[Change], batch: str) -> Change | None:
    """The first of these commits, ascending, that changed rows and is not the one of this batch; what a RESTORE took
    back counts as never done. A log that was cleaned up tells of less: rows are counted as well."""
    standing: list[Change] = []
    for change in changes:
        if change.operation == "RESTORE" and change.parameters.get("version", "").isdigit():
            back_to = int(change.parameters["version"])
            if back_to >= changes[0].version - 1:
                standing = [each for each in standing if each.version <= back_to]
                continue
        if change.operation.startswith(_CHANGES_ROWS) and change.note != batch:
            standing.append(change)
    return standing[0] if standing else None
