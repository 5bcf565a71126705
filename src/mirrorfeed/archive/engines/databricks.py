"""Archived files on Databricks, which itself checks queries and statements for archived files."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar

from pyspark.sql import DataFrame, SparkSession

from mirrorfeed.archive.archive_interval import parse_policy
from mirrorfeed.archive.data_files import DataFile, NeededFiles, normalize_uri
from mirrorfeed.archive.data_skipping import apply_condition
from mirrorfeed.archive.errors import active_rows_unavailable, one_table_per_plan, only_newest_version
from mirrorfeed.source import reader, versions
from mirrorfeed.source.identifier import Source, quote
from mirrorfeed.source.table_info import read_table_info


@dataclass(frozen=True)
class DatabricksEngine:
    """Implementation of `Engine` with the SQL statements of Databricks. Its `SHOW ARCHIVED FILES` lists the files."""

    spark: SparkSession
    guards_itself: ClassVar[bool] = True

    def must_check(self, statement: str) -> bool:
        return False

    def query(self, statement: str) -> DataFrame:
        raise one_table_per_plan()

    def plan_query(self, frame: DataFrame, now: datetime) -> tuple[DataFrame, Sequence[NeededFiles]]:
        return frame, ()

    def needed_by_change(self, source: Source, statement: str, now: datetime) -> Sequence[NeededFiles]:
        return ()

    def without_compaction(self) -> AbstractContextManager[object]:
        return nullcontext()  # Databricks itself leaves out archived files

    def needed(self, source: Source, where: str | None, now: datetime, version: int | None = None) -> NeededFiles:
        table = read_table_info(self.spark, source)
        at = versions.newest_version(self.spark, source)
        if version not in (None, at):
            raise only_newest_version(table=str(source), version=version or 0, newest=at)
        apply_condition(self.spark.table(source.sql), str(source), where)
        rows = []
        if parse_policy(str(source), table.properties) is not None:
            # The line break ends a comment at the end of the condition.
            condition = "" if where is None else f" WHERE ({where}\n)"
            rows = self.spark.sql(f"SHOW ARCHIVED FILES FOR {source.sql}{condition}").collect()
        files = tuple(DataFile(normalize_uri(row[0])) for row in rows)
        return NeededFiles(str(source), table.table_id, normalize_uri(table.location), at, files)

    def read(self, source: Source, version: int | None) -> DataFrame:
        at = versions.newest_version(self.spark, source) if version is None else version
        return reader.read_version(self.spark, source, at)

    def partitions(self, source: Source, version: int | None) -> list[dict[str, str | None]]:
        if version is None:
            rows = self.spark.sql(f"SHOW PARTITIONS {source.sql}").collect()
        else:
            columns = map(quote, read_table_info(self.spark, source).partition_columns)
            rows = reader.read_version(self.spark, source, version).select(*columns).distinct().collect()
        texts = ({name: None if value is None else str(value) for name, value in row.asDict().items()} for row in rows)
        return sorted(texts, key=str)

    def rows_without(self, source: Source, left_out: Collection[str], version: int) -> DataFrame:
        raise active_rows_unavailable(table=str(source))
