"""How much of a table is archived, now or with another interval, and how old its files are.

A simulation sets nothing and reads no data file. Its queries are conditions, or statements of the Databricks query
history, and are only planned.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from mirrorfeed.archive import interval as intervals
from mirrorfeed.archive.errors import CannotSimulate, NoConditions, NoHistory
from mirrorfeed.archive.file_index.archived_files import archived_among, archived_of
from mirrorfeed.archive.file_index.log_file import LogFile
from mirrorfeed.archive.guard.engine import NativeIndex
from mirrorfeed.archive.guard.local_engine import LocalIndex, query
from mirrorfeed.archive.guard.local_engine import files_of as planned_files
from mirrorfeed.archive.guard.predicate import filtered
from mirrorfeed.archive.interval import Policy
from mirrorfeed.display.humanize import counted, size
from mirrorfeed.errors import MirrorfeedError, first_line
from mirrorfeed.runtime.engine import is_databricks
from mirrorfeed.source import reader, versions
from mirrorfeed.source.identifier import Source
from mirrorfeed.source.table_info import read_table_info
from mirrorfeed.storage.tiers import TierStore

PARTS = HOT, ARCHIVED = "hot", "archived"
_AGES = (0, 7, 30, 90, 180, 365)
AGES = (*(f"{first}-{end} d" for first, end in pairwise(_AGES)), f"{_AGES[-1]} d on", "not known")


@dataclass(frozen=True, slots=True)
class Share:
    files: int
    bytes: int
    archived_files: int
    archived_bytes: int | None
    """None where archived files are named without their sizes, as Databricks does, and no storage tells them."""
    restored_files: int | None = None
    """Of the archived ones, those that are back; None where no storage was asked."""
    restored_bytes: int | None = None
    ages: Mapping[str, int] | None = None
    """Bytes by age, hot and archived; None on Databricks, which tells no ages."""
    copies: bool = False
    """Whether those that came back are copies beside the archive, so that both are paid for."""

    @property
    def archived(self) -> float | None:
        """Between 0 and 1: of the bytes, or of the files where the bytes are not known. None for a table without."""
        part, whole = self.archived_files, self.files
        if self.archived_bytes is not None and self.bytes:
            part, whole = self.archived_bytes, self.bytes
        return part / whole if whole else None

    @property
    def hot_bytes(self) -> int | None:
        """Of the files that are paid for as hot: those that came back too."""
        if self.archived_bytes is None:
            return None
        return max(0, self.bytes - self.archived_bytes) + (self.restored_bytes or 0)

    @property
    def cold_bytes(self) -> int | None:
        """Of those in the archive."""
        if self.archived_bytes is None or self.copies:
            return self.archived_bytes
        return self.archived_bytes - (self.restored_bytes or 0)

    @property
    def copied_bytes(self) -> int:
        """Of the hot ones, those that are in the archive too."""
        return (self.restored_bytes or 0) if self.copies else 0

    def __str__(self) -> str:
        bytes_ = "" if self.archived_bytes is None else f", {size(self.archived_bytes)} of {size(self.bytes)}"
        back = f"; back from it: {self.restored_files:,}" if self.restored_files else ""
        return f"{self.archived_files:,} of {counted(self.files, 'file')} in the archive{bytes_}{back}"


def share(spark: SparkSession, source: Source, now: datetime, tiers: TierStore | None = None) -> Share:
    """Of the newest version. A file counts as archived by its age, whatever tier it is in; the storage tells which of
    those came back, and sizes that Databricks does not name."""
    interval = intervals.read(spark, source)
    if (files := files_of(spark, source)) is not None:
        archived = archived_of(spark, str(source), read_table_info(spark, source).location, files, interval, now)
        return _seen(replace(share_of(files, archived), ages=ages_of(files, now)), archived, tiers)
    archived = list(NativeIndex(spark, source).needed(None, interval, now, None).archived)
    whole = read_table_info(spark, source, counted=True)
    # These are two statements, and the table may have changed between them.
    found = Share(max(whole.files, len(archived)), whole.bytes, len(archived), None if archived else 0)
    return _seen(found, archived, tiers)


def _seen(found: Share, archived: Sequence[LogFile], tiers: TierStore | None) -> Share:
    if tiers is None:
        return found
    facts = tiers.facts([file.uri for file in archived]).values()
    back = [each for each in facts if each.tier.is_readable]
    told = sum(each.bytes or 0 for each in facts)
    return replace(
        found,
        archived_bytes=told if found.archived_bytes is None else found.archived_bytes,
        restored_files=len(back),
        restored_bytes=sum(each.bytes or 0 for each in back),
        copies=tiers.restores_copies,
    )


def ages_of(files: Iterable[LogFile], now: datetime) -> dict[str, int]:
    """Bytes by age, the youngest first, in the same parts for all tables."""
    found = dict.fromkeys(AGES, 0)
    for file in files:
        age = None if file.created is None else max(0, (now - file.created) // timedelta(days=1))
        found[AGES[-1 if age is None else bisect_right(_AGES, age) - 1]] += file.size or 0
    return {label: count for label, count in found.items() if count or label != AGES[-1]}


def files_of(spark: SparkSession, source: Source) -> list[LogFile] | None:
    """All files of the newest version; None on Databricks, which tells ages and sizes of none."""
    if is_databricks(spark):
        return None
    return list(LocalIndex(spark, source).log().files(versions.newest_version(spark, source)).values())


def share_of(files: Collection[LogFile], archived: Collection[LogFile]) -> Share:
    known = all(file.size is not None for file in archived)
    return Share(len(files), _bytes(files), len(archived), _bytes(archived) if known else None)


def by_age(files: Iterable[LogFile], interval: Policy, now: datetime) -> list[tuple[str, dict[str, float]]]:
    """Hot and archived bytes by age, the youngest first. No column holds both: the interval is one of the ages."""
    ages = sorted({*_AGES, interval.days})
    labels = [*(f"{first}-{end} d" for first, end in pairwise(ages)), f"{ages[-1]} d on", "not known"]
    found = {label: dict.fromkeys(PARTS, 0.0) for label in labels}
    for file in files:
        part = ARCHIVED if archived_among([file], interval, now) else HOT
        age = None if file.created is None else max(0, (now - file.created) // timedelta(days=1))
        label = labels[-1 if age is None else bisect_right(ages, age) - 1]
        found[label][part] += file.size or 0
    if not any(found["not known"].values()):
        del found["not known"]
    return list(found.items())


def _bytes(files: Iterable[LogFile]) -> int:
    return sum(file.size or 0 for file in files)


_MOST_STATEMENTS = 1000


@dataclass(frozen=True, slots=True)
class Question:
    text: str
    is_statement: bool = False
    times: int = 1
    """How often it was asked."""


@dataclass(frozen=True, slots=True)
class Need:
    """The archived files that a question would need."""

    files: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Outcome:
    question: Question
    needs: Mapping[int, Need]
    """By the days of the interval; a question that needs any would fail."""
    error: str | None = None
    """Why nothing is known of it."""

    def fails(self, days: int) -> bool:
        return self.error is None and self.needs[days].files > 0


@dataclass(frozen=True, slots=True)
class Simulation:
    version: int
    shares: Mapping[int, Share]
    outcomes: tuple[Outcome, ...]

    def failing(self, days: int) -> tuple[int, int]:
        """How many questions would fail, and how many were looked at, each as often as it was asked."""
        known = [outcome for outcome in self.outcomes if outcome.error is None]
        failed = sum(outcome.question.times for outcome in known if outcome.fails(days))
        return failed, sum(outcome.question.times for outcome in known)


def simulate(
    spark: SparkSession, source: Source, intervals: Sequence[int], questions: Iterable[Question], now: datetime
) -> Simulation:
    """At the newest version; or `CannotSimulate` where Spark shows neither plans nor the log."""
    version = versions.newest_version(spark, source)
    try:
        known = LocalIndex(spark, source).log().files(version)
        # A planned read tells whether this Spark shows its plans at all.
        planned_files(reader.at_version(spark, source, version).where("false"))
    except MirrorfeedError:
        raise
    except Exception as error:
        raise CannotSimulate(table=str(source), reason=first_line(str(error))) from error
    archived = {days: archived_among(known.values(), Policy(days), now) for days in intervals}
    away = {days: {file.uri for file in listed} for days, listed in archived.items()}
    shares = {days: share_of(known.values(), listed) for days, listed in archived.items()}
    outcomes = tuple(_outcome(spark, source, version, question, known, away) for question in questions)
    return Simulation(version, shares, outcomes)


def _outcome(
    spark: SparkSession,
    source: Source,
    version: int,
    question: Question,
    known: Mapping[str, LogFile],
    away: Mapping[int, set[str]],
) -> Outcome:
    try:
        needed = planned_files(_planned(spark, source, version, question))
    except (PySparkException, MirrorfeedError) as error:
        return Outcome(question, {}, first_line(str(error)))
    found = {}
    for days, archived in away.items():
        there = [known[uri] for uri in needed if uri in archived]
        found[days] = Need(len(there), sum(file.size or 0 for file in there))
    return Outcome(question, found)


def _planned(spark: SparkSession, source: Source, version: int, question: Question) -> DataFrame:
    if not question.is_statement:
        return filtered(reader.at_version(spark, source, version), str(source), question.text)
    return query(spark, question.text)


def conditions_in(path: str) -> list[Question]:
    """A condition a line; empty lines and those that begin with `--` are left out."""
    try:
        lines = [line.strip() for line in Path(path).read_text(encoding="utf-8-sig").splitlines()]
    except (OSError, UnicodeDecodeError) as error:
        raise NoConditions(path=path, reason=str(error)) from error
    return [Question(line) for line in lines if line and not line.startswith("--")]


def asked(spark: SparkSession, source: Source, days: int) -> list[Question]:
    """The queries of the last days that name the table, from the query history of Databricks, the most frequent first;
    or `NoHistory`."""
    if source.path is not None:
        raise NoHistory(table=str(source), reason="queries on a path are not found in it by name")
    name = source.parts[-1].lower().replace("\\", "\\\\").replace("'", "\\'")
    try:
        rows = spark.sql(f"""
            SELECT statement_text, count(*) AS times FROM system.query.history
            WHERE start_time >= current_timestamp() - INTERVAL {days} DAYS AND execution_status = 'FINISHED'
              AND statement_type = 'SELECT' AND contains(lower(statement_text), '{name}')
            GROUP BY statement_text ORDER BY times DESC LIMIT {_MOST_STATEMENTS}""").collect()
    except PySparkException as error:
        raise NoHistory(table=str(source), reason=first_line(str(error))) from error
    return [Question(str(row[0]), True, int(row[1])) for row in rows]
