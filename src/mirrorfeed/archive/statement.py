"""Any query over any tables: right, or refused before anything is read with all that is missing, table by table.

    sql = guarded(spark).sql

On classic Spark the whole plan is looked at. Databricks guards archived files itself, in a runtime, over Connect and on
serverless compute: there the statement goes to the engine as it is.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession

from mirrorfeed.amounts import a_few
from mirrorfeed.archive import classic
from mirrorfeed.archive import plan as planning
from mirrorfeed.archive.classic import Scan
from mirrorfeed.archive.engine import is_databricks
from mirrorfeed.archive.files import archived_in, policy_at
from mirrorfeed.archive.log import LogFile
from mirrorfeed.archive.needed import ArchivedFilesNeeded, amount, blocked_among
from mirrorfeed.archive.plan import Plan, PlannedTable
from mirrorfeed.archive.predicate import unlogged
from mirrorfeed.config.prices import Rates
from mirrorfeed.errors import Terminal, first_line
from mirrorfeed.feed.source import Source
from mirrorfeed.stores.tiered import tiers_at
from mirrorfeed.stores.tiers import Priority, TierStore

Tiers = Callable[[str], TierStore | None]
"""Of the table at a location; None where nothing archived can be told to be back."""


def guarded(spark: SparkSession) -> Guarded:
    return Guarded(spark)


@dataclass(frozen=True)
class Missing:
    """What a statement needs of one table at one version, and cannot read."""

    table: str
    table_id: str
    location: str
    version: int
    files: tuple[LogFile, ...]

    def __str__(self) -> str:
        return f"{amount(self.files)} of {self.table} at version {self.version}, {a_few([f.uri for f in self.files])}"


@dataclass(frozen=True)
class Guarded:
    spark: SparkSession
    tiers: Tiers = tiers_at
    now: Callable[[], datetime] = lambda: datetime.now(UTC)

    def sql(self, statement: str, args: Any = None) -> DataFrame:
        """The rows of a query, or `ArchivedFilesNeeded`. Statements that read no table's rows run as ever; those that
        change tables are refused, for `GuardedWriter` guards them."""
        if not is_databricks(self.spark):
            with unlogged():
                kind = classic.command(self.spark, statement)
            if kind is not None and not classic.reads_no_rows(kind):
                raise NoQuery(statement, kind)
            if kind is None:
                return self.frame(self._run(statement, args), statement)
        return self._run(statement, args)

    def _run(self, statement: str, args: Any) -> DataFrame:
        return self.spark.sql(statement) if args is None else self.spark.sql(statement, args)

    def table(self, name: str) -> DataFrame:
        """A table or a view by its name, or a table by its path."""
        statement = f"SELECT * FROM {Source.parse(name).sql}"
        return self.sql(statement)

    def frame(self, frame: DataFrame, statement: str | None = None) -> DataFrame:
        """The same rows, of any query that was made with DataFrames."""
        if is_databricks(self.spark):
            return frame
        planned = classic.planned(frame)
        if blocked := missing(self.spark, planned.scans, self.now(), self.tiers):
            raise StatementNeedsArchivedFiles(statement, blocked)
        return planned.rows

    def needed(self, statement: str) -> list[Missing]:
        """The files that count as archived and that a query needs, brought back or not."""
        if is_databricks(self.spark):
            raise TableByTable()
        planned = classic.planned(query(self.spark, statement))
        return missing(self.spark, planned.scans, self.now(), lambda _: None)


def query(spark: SparkSession, statement: str) -> DataFrame:
    """A query that is understood and not run; nothing else is carried out."""
    try:
        with unlogged():
            kind = classic.command(spark, statement)
            if kind is not None:
                raise NoQuery(statement, kind)
            return spark.sql(statement)
    except AnalysisException as error:
        raise BadStatement(statement, first_line(str(error))) from error


def missing(spark: SparkSession, scans: Iterable[Scan], now: datetime, tiers: Tiers) -> list[Missing]:
    """By table and version. The interval of the newest version holds for all."""
    grouped: dict[tuple[str, int], list[Scan]] = {}
    for scan in scans:
        grouped.setdefault((scan.location, scan.version), []).append(scan)
    found = []
    for (location, version), same in sorted(grouped.items(), key=lambda each: each[0]):
        archived = archived_in(spark, same, policy_at(spark, location), now)
        blocked = [file for owner, files in archived.items() for file in blocked_among(files, tiers(owner))]
        if blocked:
            listed = tuple(sorted(blocked, key=lambda file: file.uri))
            found.append(Missing(same[0].name, same[0].table_id, location, version, listed))
    return found


def plan_of(
    statement: str | None,
    tables: Sequence[Missing],
    priority: Priority,
    rates: Rates | None = None,
    zone: str | None = None,
) -> Plan:
    listed = [(PlannedTable(each.table, each.table_id, each.version), each.files) for each in tables]
    return planning.make_for_statement(statement, listed, priority, rates, zone)


class StatementNeedsArchivedFiles(ArchivedFilesNeeded):
    """Of one table or several."""

    def __init__(self, statement: str | None, tables: Sequence[Missing], asked: str = "The query") -> None:
        first, *_ = tables
        files = [file for each in tables for file in each.files]
        super().__init__(asked, first.table, first.version, None, files)
        self.statement, self.tables = statement, tuple(tables)

    def plan(self, priority: Priority = Priority.STANDARD, rates: Rates | None = None) -> Plan:
        """What brings all of it back. Of what is no statement that asks for rows, only the files are kept."""
        return plan_of(self.statement, self.tables, priority, rates)

    def what(self) -> str:
        is_ = "is" if len(self.files) == 1 else "are"
        named = "; ".join(map(str, self.tables))
        return f"{self.asked} needs {amount(self.files)} that {is_} in the archive: {named}. Nothing was read."

    def next(self) -> str:
        made = "Make the one plan that brings all of it back with `error.plan().save('PLAN')`"
        if self.statement is not None:
            asked = f"`mirrorfeed archive plan --sql {shlex.quote(self.statement)} --to PLAN`"
            made = f"Make the one plan that brings all of it back with {asked}"
        return (
            f"{made}, and carry it out with `mirrorfeed archive restore PLAN`; or ask for what needs no archived file."
        )


class BadStatement(Terminal):
    def __init__(self, statement: str, reason: str) -> None:
        self.statement, self.reason = statement, reason

    def what(self) -> str:
        return f"{' '.join(self.statement.split())!r} cannot be asked: {self.reason}."

    def next(self) -> str:
        return "Write a query as for spark.sql, over tables and views that this session sees."


class NoQuery(Terminal):
    def __init__(self, statement: str, kind: str) -> None:
        self.statement, self.kind = statement, kind

    def what(self) -> str:
        first = " ".join(self.statement.split())[:80]
        return (
            f"The statement is no query ({self.kind}), so what it reads is not guarded here: {first}. It did not run."
        )

    def next(self) -> str:
        return (
            "Change tables with archived files through mirrorfeed.archive.write.GuardedWriter, and maintain them with"
            " `mirrorfeed archive maintain`; INSERT the rows of a guarded query through its DataFrame; or let spark.sql"
            " run a statement on tables without an archive."
        )


class TableByTable(Terminal):
    def what(self) -> str:
        return "Databricks tells the archived files that a question needs of one table at a time."

    def next(self) -> str:
        return (
            "Plan each table that the query reads with `mirrorfeed archive plan TABLE`, with --where for its condition."
        )
