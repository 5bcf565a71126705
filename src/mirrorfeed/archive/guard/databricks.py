"""For Databricks, which knows its archived files itself: in a runtime, over Connect and on serverless compute."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar

from pyspark.sql import DataFrame, SparkSession

from mirrorfeed.archive.errors import OnlyNewestVersion, OnlyOnOneMachine, TableByTable
from mirrorfeed.archive.file_index.log_file import LogFile, plain
from mirrorfeed.archive.guard.engine import Answer, Facts, Judged, Need
from mirrorfeed.archive.guard.predicate import filtered
from mirrorfeed.archive.interval_policy import Policy
from mirrorfeed.source import reader, versions
from mirrorfeed.source.identifier import Source
from mirrorfeed.source.table_info import detail_of


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
        found = detail_of(self.spark, self.source)
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
        return detail_of(self.spark, self.source).location

    def newest_version(self) -> int:
        return versions.newest_version(self.spark, self.source)

    def rows(self, version: int) -> DataFrame:
        return reader.at(self.spark, self.source, version)

    def partitions(self, version: int | None) -> list[dict[str, str | None]]:
        return [row.asDict() for row in self.spark.sql(f"SHOW PARTITIONS {self.source.sql}").collect()]

    def changed(self, first: int) -> Sequence[LogFile]:
        return ()

    def without(self, left_out: Collection[str], version: int) -> DataFrame:
        raise OnlyOnOneMachine(table=str(self.source))
