"""The protocol of an engine, and the engine of Databricks, which guards archived files itself."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar, Protocol

from pyspark.sql import DataFrame, SparkSession

from mirrorfeed.archive.errors import OnlyNewestVersion, OnlyOnOneMachine, TableByTable
from mirrorfeed.archive.file_index.log_file import LogFile, plain
from mirrorfeed.archive.guard.archived_files_needed import NeededFiles
from mirrorfeed.archive.guard.predicate import filtered
from mirrorfeed.archive.interval import Policy, understood
from mirrorfeed.source import reader, versions
from mirrorfeed.source.identifier import Source
from mirrorfeed.source.table_info import read_table_info


@dataclass(frozen=True, slots=True)
class TableFacts:
    """The newest version of a table."""

    table: str
    table_id: str
    location: str
    columns: tuple[str, ...]
    policy: Policy | None


class Engine(Protocol):
    guards_itself: ClassVar[bool]
    """Whether the engine refuses queries that need archived files, and skips archived files where a LIMIT allows it."""

    def judges(self, statement: str) -> bool:
        """Whether the statement is a query to judge. False if it reads no rows, or if the engine guards itself. Raises
        `NoQuery` for other statements."""
        ...

    def query(self, statement: str) -> DataFrame:
        """The query, analyzed but not run."""
        ...

    def judge(self, frame: DataFrame, now: datetime) -> tuple[DataFrame, Sequence[NeededFiles]]:
        """The same rows, and the archived files that they need. No files if the engine guards itself."""
        ...

    def needed_by_change(self, source: Source, statement: str, now: datetime) -> Sequence[NeededFiles]:
        """The archived files in which a DELETE, UPDATE or MERGE searches for rows."""
        ...

    def facts(self, source: Source) -> TableFacts: ...

    def needed(
        self, source: Source, facts: TableFacts, where: str | None, now: datetime, version: int | None = None
    ) -> NeededFiles:
        """The archived files that must be read to find the matching rows: possibly too many, never too few. Reads no
        data file. The default version is the newest."""
        ...

    def location(self, source: Source) -> str: ...

    def newest_version(self, source: Source) -> int: ...

    def rows(self, source: Source, version: int) -> DataFrame: ...

    def partitions(self, source: Source, version: int | None) -> list[dict[str, str | None]]: ...

    def changed(self, source: Source, first: int) -> Sequence[LogFile]:
        """The files that the changes need from version `first` to the newest."""
        ...

    def without(self, source: Source, left_out: Collection[str], version: int) -> DataFrame:
        """The rows that are not in these files. Raises `OnlyOnOneMachine`."""
        ...


@dataclass(frozen=True)
class DatabricksEngine:
    """Runs every statement unchanged."""

    spark: SparkSession
    guards_itself: ClassVar[bool] = True

    def judges(self, statement: str) -> bool:
        return False

    def query(self, statement: str) -> DataFrame:
        raise TableByTable()

    def judge(self, frame: DataFrame, now: datetime) -> tuple[DataFrame, Sequence[NeededFiles]]:
        return frame, ()

    def needed_by_change(self, source: Source, statement: str, now: datetime) -> Sequence[NeededFiles]:
        return ()

    def facts(self, source: Source) -> TableFacts:
        found = read_table_info(self.spark, source)
        columns = tuple(self.spark.table(source.sql).columns)
        policy = understood(str(source), found.properties)
        return TableFacts(str(source), found.table_id, found.location, columns, policy)

    def needed(
        self, source: Source, facts: TableFacts, where: str | None, now: datetime, version: int | None = None
    ) -> NeededFiles:
        at = versions.newest_version(self.spark, source)
        if version not in (None, at):
            raise OnlyNewestVersion(table=str(source), version=version or 0, newest=at)
        filtered(self.spark.table(source.sql), str(source), where)
        rows = []
        if facts.policy is not None:
            # The line break ends a comment at the end of the condition.
            condition = "" if where is None else f" WHERE ({where}\n)"
            rows = self.spark.sql(f"SHOW ARCHIVED FILES FOR {source.sql}{condition}").collect()
        files = tuple(LogFile(plain(str(row[0]))) for row in rows)
        return NeededFiles(str(source), facts.table_id, facts.location, at, files)

    def location(self, source: Source) -> str:
        return read_table_info(self.spark, source).location

    def newest_version(self, source: Source) -> int:
        return versions.newest_version(self.spark, source)

    def rows(self, source: Source, version: int) -> DataFrame:
        return reader.at_version(self.spark, source, version)

    def partitions(self, source: Source, version: int | None) -> list[dict[str, str | None]]:
        return [row.asDict() for row in self.spark.sql(f"SHOW PARTITIONS {source.sql}").collect()]

    def changed(self, source: Source, first: int) -> Sequence[LogFile]:
        return ()

    def without(self, source: Source, left_out: Collection[str], version: int) -> DataFrame:
        raise OnlyOnOneMachine(table=str(source))
