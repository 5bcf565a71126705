"""What an interval would do before it is set: how much would be cold, and which questions would fail.

Nothing is set and no data file is read. The questions are conditions on the table, or whole statements from the query
history of Databricks; these are only planned.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from mirrorfeed.archive.archived_share import Share, share_of
from mirrorfeed.archive.errors import CannotSimulate, NoConditions, NoHistory
from mirrorfeed.archive.file_index.archived_files import archived_among
from mirrorfeed.archive.file_index.log_file import LogFile
from mirrorfeed.archive.guard.local_engine import LocalIndex, files_of, query
from mirrorfeed.archive.guard.predicate import filtered
from mirrorfeed.archive.interval_policy import Policy
from mirrorfeed.errors import MirrorfeedError, first_line
from mirrorfeed.source import reader, versions
from mirrorfeed.source.identifier import Source

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
        files_of(reader.at(spark, source, version).where("false"))
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
        needed = files_of(_planned(spark, source, version, question))
    except (PySparkException, MirrorfeedError) as error:
        return Outcome(question, {}, first_line(str(error)))
    found = {}
    for days, archived in away.items():
        there = [known[uri] for uri in needed if uri in archived]
        found[days] = Need(len(there), sum(file.size or 0 for file in there))
    return Outcome(question, found)


def _planned(spark: SparkSession, source: Source, version: int, question: Question) -> DataFrame:
    if not question.is_statement:
        return filtered(reader.at(spark, source, version), str(source), question.text)
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
