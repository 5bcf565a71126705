"""The records of a history: one for each append, in the same commit, complete in itself. The newest is the state."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

from mirrorfeed.errors import Terminal
from mirrorfeed.feed.ranges import Commit

FORMAT = 1


@dataclass(frozen=True, slots=True)
class KeptColumn:
    name: str
    """In the source."""
    type: str
    """In JSON, as Spark spells it."""
    nullable: bool
    kept_as: str
    """The history's column that holds it."""
    origin: str
    """The same for one column under all the names that it has had, and for no other column."""


@dataclass(frozen=True, slots=True)
class Record:
    number: int
    batch: str
    """Made up anew for every try, so that a run knows its own record from another's."""
    time: datetime
    source: str
    source_id: str
    from_version_exclusive: int | None
    """None: a snapshot. The same as the last: the record before said again, without rows."""
    to_version_inclusive: int
    commits: tuple[Commit, ...]
    """Those of its versions; of a snapshot, the one that made it."""
    columns: tuple[KeptColumn, ...]
    """The same at each of its versions."""
    partitions: tuple[str, ...]
    rows: int
    total: int
    """Rows of the history with these, and with all records."""
    base: int
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


def parse(text: str, history: str) -> Record:
    """The record in this text of a history, or `RecordUnreadable`."""
    try:
        told = json.loads(text)
        found = told.pop("format")
        if found == FORMAT:
            columns = tuple(KeptColumn(**each) for each in told.pop("columns"))
            commits = tuple(
                Commit(version, datetime.fromisoformat(at).astimezone(UTC), operation)
                for version, at, operation in told.pop("commits")
            )
            time, partitions = datetime.fromisoformat(told.pop("time")), tuple(told.pop("partitions"))
            return Record(**told, columns=columns, commits=commits, time=time, partitions=partitions)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise RecordUnreadable(history, f"a field is missing or wrong ({error!r})") from error
    raise RecordUnreadable(history, f"it has format {found}, and this release knows format {FORMAT}")


class RecordUnreadable(Terminal):
    """A record of the history cannot be read, so it is not known for sure what is kept."""

    code = "MF6010"

    def __init__(self, history: str, reason: str) -> None:
        self.history, self.reason = history, reason

    def what(self) -> str:
        return f"A record in {self.history}, which says what that history holds, cannot be read: {self.reason}."

    def next(self) -> str:
        return (
            "Install a newer mirrorfeed if one wrote it; if someone changed it, bring the history back by RESTORE TABLE"
            " … TO VERSION AS OF …."
        )


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
