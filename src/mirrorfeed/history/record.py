"""Records of a history, each in the commit of its append, and how they form segments. Pure.

A record is complete in itself, and the newest one is the state of the history.
"""

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
from mirrorfeed.source.next_step import Commit

FORMAT = 1
_COMMIT: Final = TypeAdapter(tuple[Annotated[Count, Strict()], UtcTime, Annotated[str, Strict()]])
_CHANGES_ROWS = (
    *("WRITE", "STREAMING UPDATE", "MERGE", "UPDATE", "DELETE", "TRUNCATE", "COPY INTO", "CLONE", "CONVERT"),
    *("CREATE TABLE AS SELECT", "REPLACE TABLE", "CREATE OR REPLACE TABLE", "RESTORE", "Manual Update"),
    *("RENAME COLUMN", "DROP COLUMNS", "REPLACE COLUMNS"),
)


def _commit(value: Any) -> Commit:
    return Commit(*_COMMIT.validate_python(value))


def _type(text: str) -> str:
    check_type(parse_json(text))
    return text


@dataclass(frozen=True, slots=True)
class HistoryColumn:
    name: str
    """Name in the source."""
    type: Annotated[str, AfterValidator(_type)]
    """Spark's JSON form."""
    nullable: bool
    stored_as: str
    """The column of the history that contains its values."""
    origin: str
    """Identifies the column under all names that it has had."""


@dataclass(frozen=True, slots=True)
class HistoryRecord:
    __pydantic_config__: ClassVar = CONFIG
    number: Annotated[int, Field(ge=1)]
    batch: str
    """Random for each append, so that a run recognizes its own record."""
    time: UtcTime
    source: str
    source_id: str
    from_version_exclusive: Count | None
    """None for a snapshot. Equal to `to_version_inclusive` if the record only repeats the one before, without rows."""
    to_version_inclusive: Count
    commits: tuple[Annotated[Commit, PlainValidator(_commit)], ...]
    """The commits of its versions; for a snapshot, the commit of that version."""
    columns: tuple[HistoryColumn, ...]
    """The columns, which are the same in all of its versions."""
    partitions: Annotated[tuple[str, ...], AfterValidator(is_distinct)]
    rows: Count
    total: Count
    """Rows of the history after this append, records included."""
    base: Count
    """The version of the history that was read before the append."""
    build: str

    @property
    def schema(self) -> dict[str, Any]:
        """Spark's JSON form."""
        return {
            "fields": [
                {"name": each.name, "type": json.loads(each.type), "nullable": each.nullable, "metadata": {}}
                for each in self.columns
            ]
        }

    def to_json(self) -> str:
        values = asdict(self) | {"format": FORMAT, "time": self.time.isoformat()}
        values["commits"] = [[each.version, each.timestamp.isoformat(), each.operation] for each in self.commits]
        return json.dumps(values, ensure_ascii=False)


_RECORD: Final = TypeAdapter(HistoryRecord)


def parse_record(text: str, history: str) -> HistoryRecord:
    """Parse a record of a history. Raise `DamagedFile`."""
    try:
        value = parse_json(text)
        if (found := format_of(value)) != FORMAT:
            raise ValueError(f"it has format {found}, and this release supports format {FORMAT}")
        return validate(_RECORD, {name: each for name, each in value.items() if name != "format"})
    except ValueError as error:
        raise DamagedFile(address=f"A record in {history}", reason=str(error), kind="history") from error


Segment = Sequence[HistoryRecord]
"""A snapshot and the ranges that follow it without a gap."""


def split_segments(records: Sequence[HistoryRecord]) -> list[Segment]:
    """Split all records of a history, in their order, before each snapshot."""
    starts = [at for at, record in enumerate(records) if record.from_version_exclusive is None]
    return [records[start:end] for start, end in zip(starts, [*starts[1:], len(records)], strict=True)]


def first_and_last_commit(segment: Segment) -> tuple[Commit, Commit]:
    return segment[0].commits[0], next(each.commits[-1] for each in reversed(segment) if each.commits)


def find_segment(records: Sequence[HistoryRecord], version: int) -> Segment | None:
    """The newest segment with this version."""
    for segment in reversed(split_segments(records)):
        if segment[0].to_version_inclusive <= version <= segment[-1].to_version_inclusive:
            return segment
    return None


def find_version(records: Sequence[HistoryRecord], time: datetime) -> int | None:
    """The version that the table had at a time; None if the time is not within a segment."""
    for segment in reversed(split_segments(records)):
        first, last = first_and_last_commit(segment)
        if first.timestamp <= time <= last.timestamp:
            commits = (commit for record in segment for commit in record.commits)
            return max(commit.version for commit in commits if commit.timestamp <= time)
    return None


def find_record(segment: Segment, version: int) -> HistoryRecord:
    """The record that added a version of the segment."""
    return next(record for record in segment if version <= record.to_version_inclusive)


def find_disorder(records: Sequence[HistoryRecord]) -> str | None:
    """Why these are not all records of a history; None if they are."""
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
            return f"record {record.number} counts {record.total:,} rows in total instead of {total:,}"
    return None


@dataclass(frozen=True, slots=True)
class HistoryCommit:
    """A commit of the history's own Delta table."""

    version: int
    operation: str
    metadata: str | None = None
    """`userMetadata`. mirrorfeed writes the batch into it."""
    parameters: Mapping[str, str] = field(default_factory=dict)


def find_foreign_write(commits: Sequence[HistoryCommit], batch: str) -> HistoryCommit | None:
    """The first of these commits, ascending, that changed rows and is not the append of this batch.

    Commits that a RESTORE reverted do not count. After log cleanup, fewer commits are known: rows are counted as well.
    """
    foreign: list[HistoryCommit] = []
    for commit in commits:
        if commit.operation == "RESTORE" and commit.parameters.get("version", "").isdigit():
            restored = int(commit.parameters["version"])
            if restored >= commits[0].version - 1:
                foreign = [each for each in foreign if each.version <= restored]
                continue
        if commit.operation.startswith(_CHANGES_ROWS) and commit.metadata != batch:
            foreign.append(commit)
    return foreign[0] if foreign else None
