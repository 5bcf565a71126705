"""The protocol of an engine, and the engine of Databricks, which guards archived files itself."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar, Protocol

from pyspark.sql import DataFrame, SparkSession

from mirrorfeed.archive.errors import OnlyNewestVersion, OnlyOnOneMachine, TableByTable
from mirrorfeed.archive.file_index.log_file import LogFile, plain
from mirrorfeed.archive.guard.predicate import filtered
from mirrorfeed.archive.interval import Policy
from mirrorfeed.source import reader, versions
from mirrorfeed.source.identifier import Source
from mirrorfeed.source.table_info import read_table_info


@dataclass(frozen=True, slots=True)
class Answer:
    """What a question needs of a table at a version."""

    archived: tuple[LogFile, ...]
    hot: int | None
    """How many other files it needs; None where only Databricks knows, and for several reads of the table."""
    version: int


@dataclass(frozen=True, slots=True)
class Facts:
    """Of the newest version of a table."""

    table_id: str
    columns: tuple[str, ...]
    properties: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Need:
    """The files that count as archived and that something reads, of one table at one version."""

    table: str
    table_id: str
    location: str
    version: int
    files: Mapping[str, Sequence[LogFile]]
    """By the folder of the table in which they lie, be it this one or another."""


@dataclass(frozen=True, slots=True)
class Judged:
    """A query that is planned and not run."""

    rows: DataFrame
    needs: Sequence[Need]


class World(Protocol):
    guards_itself: ClassVar[bool]
    """Whether the engine guards what it is asked when it runs, and leaves archived files out where a LIMIT may."""

    def table(self, source: Source) -> FileIndex: ...

    def judges(self, statement: str) -> bool:
        """Whether it is a query, whose rows are to be judged; not so for what reads no rows, and where the engine
        judges. `NoQuery` for what reads rows and is none."""
        ...

    def query(self, statement: str) -> DataFrame:
        """A query that is understood and not run."""
        ...

    def judged(self, frame: DataFrame, now: datetime) -> Judged:
        """The same rows, and what they need; nothing where the engine sees to that when it runs."""
        ...

    def looked_into(self, source: Source, statement: str, now: datetime) -> Sequence[Need]:
        """What a DELETE, UPDATE or MERGE of a table needs: all files in which it looks for rows."""
        ...


class FileIndex(Protocol):
    guards_itself: ClassVar[bool]
    """As its world."""

    def facts(self) -> Facts: ...

    def needed(self, predicate: str | None, policy: Policy | None, now: datetime, version: int | None) -> Answer:
        """The archived files that must be read to know which rows match; too many rather than too few. Without a
        version: the newest. Reads no data file. Without a policy, no file is archived."""
        ...

    def location(self) -> str: ...

    def newest_version(self) -> int: ...

    def rows(self, version: int) -> DataFrame: ...

    def partitions(self, version: int | None) -> list[dict[str, str | None]]: ...

    def changed(self, first: int) -> Sequence[LogFile]:
        """The files that the changes from this version on need, up to the newest."""
        ...

    def without(self, left_out: Collection[str], version: int) -> DataFrame:
        """The rows that are in no file of these; or `OnlyOnOneMachine`."""
        ...


@dataclass(frozen=True)
class Databricks:
    """The statement goes to the engine as it is."""

    spark: SparkSession
    guards_itself: ClassVar[bool] = True

    def table(self, source: Source) -> NativeIndex:
        return NativeIndex(self.spark, source)

    def judges(self, statement: str) -> bool:
        return False

    def query(self, statement: str) -> DataFrame:
        raise TableByTable()

    def judged(self, frame: DataFrame, now: datetime) -> Judged:
        return Judged(frame, ())

    def looked_into(self, source: Source, statement: str, now: datetime) -> Sequence[Need]:
        return ()


@dataclass(frozen=True)
class NativeIndex:
    spark: SparkSession
    source: Source
    guards_itself: ClassVar[bool] = True

    def facts(self) -> Facts:
        found = read_table_info(self.spark, self.source)
        return Facts(found.table_id, tuple(self.spark.table(self.source.sql).columns), found.properties)

    def needed(self, predicate: str | None, policy: Policy | None, now: datetime, version: int | None) -> Answer:
        at = versions.newest_version(self.spark, self.source)
        if version not in (None, at):
            raise OnlyNewestVersion(table=str(self.source), version=version or 0, newest=at)
        filtered(self.spark.table(self.source.sql), str(self.source), predicate)
        if policy is None:
            return Answer((), None, at)
        # The line break ends a comment that the predicate may end with.
        where = "" if predicate is None else f" WHERE ({predicate}\n)"
        rows = self.spark.sql(f"SHOW ARCHIVED FILES FOR {self.source.sql}{where}").collect()
        return Answer(tuple(LogFile(plain(str(row[0]))) for row in rows), None, at)

    def location(self) -> str:
        return read_table_info(self.spark, self.source).location

    def newest_version(self) -> int:
        return versions.newest_version(self.spark, self.source)

    def rows(self, version: int) -> DataFrame:
        return reader.at_version(self.spark, self.source, version)

    def partitions(self, version: int | None) -> list[dict[str, str | None]]:
        return [row.asDict() for row in self.spark.sql(f"SHOW PARTITIONS {self.source.sql}").collect()]

    def changed(self, first: int) -> Sequence[LogFile]:
        return ()

    def without(self, left_out: Collection[str], version: int) -> DataFrame:
        raise OnlyOnOneMachine(table=str(self.source))
