"""Protocol for finding the archived files that a query or statement needs, and the function that selects an engine."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from typing import ClassVar, Protocol

from pyspark.sql import DataFrame, SparkSession

from mirrorfeed.archive.data_files import NeededFiles
from mirrorfeed.archive.engines.databricks import DatabricksEngine
from mirrorfeed.archive.engines.open_source import OpenSourceEngine
from mirrorfeed.runtime.spark_session import is_databricks
from mirrorfeed.source.identifier import Source


class Engine(Protocol):
    """Access to tables with archived files. Methods read the Delta log and plan queries, but read no data file."""

    guards_itself: ClassVar[bool]
    """True if Spark itself rejects queries that need archived files, unless a LIMIT makes Spark skip them."""

    def must_check(self, statement: str) -> bool:
        """Return whether to check a statement for archived files before it runs. False if Spark itself checks it.

        True for a query, False for a command that reads no data. Raises `not_a_query` if a command can read data files.
        """
        ...

    def query(self, statement: str) -> DataFrame:
        """Return a query as a DataFrame that Spark has analyzed but not run.

        Raises `not_a_query` for a command, `InvalidQueryError` for an invalid query, and `one_table_per_plan` if the
        engine can only check one table at a time.
        """
        ...

    def plan_query(self, frame: DataFrame, now: datetime) -> tuple[DataFrame, Sequence[NeededFiles]]:
        """Return a DataFrame with the rows of `frame`, and the archived files that it needs, including restored files.

        Returns no files if Spark itself checks queries. Raises `unknown_files` if the plan of Spark does not show all
        files, and `query_not_plannable` if Spark cannot plan the query or would skip unreadable files.
        """
        ...

    def needed_by_change(self, source: Source, statement: str, now: datetime) -> Sequence[NeededFiles]:
        """Return the archived files in which a DELETE, UPDATE or MERGE searches for rows.

        Returns no files if Spark itself checks statements.
        """
        ...

    def without_compaction(self) -> AbstractContextManager[object]:
        """Context manager in which a commit does not start an auto compaction that rewrites archived files."""
        ...

    def needed(self, source: Source, where: str | None, now: datetime, version: int | None = None) -> NeededFiles:
        """Return the archived files, including restored files, in which rows may match `where` (None: all rows).

        The default version is the newest. Raises `InvalidPredicateError` for an invalid condition, and
        `only_newest_version` if the engine does not know the archived files of an older version.
        """
        ...

    def read(self, source: Source, version: int | None) -> DataFrame:
        """Return the rows of a version. The default version is the newest."""
        ...

    def partitions(self, source: Source, version: int | None) -> list[dict[str, str | None]]:
        """Return one mapping per partition, from partition column to value. The default version is the newest."""
        ...

    def rows_without(self, source: Source, left_out: Collection[str], version: int) -> DataFrame:
        """Return the rows of all files of a version, except files whose URI is in `left_out`.

        Raises `active_rows_unavailable` if the engine cannot leave out files.
        """
        ...


def engine_of(spark: SparkSession) -> Engine:
    return DatabricksEngine(spark) if is_databricks(spark) else OpenSourceEngine(spark)
