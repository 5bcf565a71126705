"""Read and change tables with archived files. A read fails at once if it needs archived files that are not restored.

Publishing and histories use the archive only through the functions of this module. They load other modules of the
archive only for tables that may have archived files.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from mirrorfeed.source.identifier import Source
    from mirrorfeed.source.snapshot_or_range import Range, Snapshot

PROPERTY = "delta.timeUntilArchived"


def has_interval(properties: Mapping[str, str]) -> bool:
    return PROPERTY in properties


def interval_days(source: Source, properties: Mapping[str, str]) -> int | None:
    """Return the archive interval in a table's properties in days, or None if there is none.

    Raises `InvalidIntervalError` if the properties are invalid.
    """
    if not has_interval(properties):
        return None
    from mirrorfeed.archive.archive_interval import parse_policy

    policy = parse_policy(str(source), properties)
    return policy.days if policy else None


def set_interval(spark: SparkSession, source: Source, days: int, now: datetime) -> None:
    """Set the archive interval of a table, unless it has one."""
    from mirrorfeed.archive import archive_interval

    if archive_interval.read(spark, source) is None:
        archive_interval.set_first(spark, source, days, now)


def check(
    spark: SparkSession, source: Source, what: Range | Snapshot, properties: Mapping[str, str] | None = None
) -> None:
    """Raise an error if a read needs files that do not exist, or archived files that are not restored.

    `what` is the snapshot, or the range whose changes are read. Raises `ArchivedFilesNeededError` if archived files are
    not restored. If files are missing, raises `FeedGapError` for a range, and `SnapshotFilesDeletedError` for a
    snapshot. Does nothing on Databricks, or if `properties` set no archive interval. Without `properties`, also checks
    a table without an archive interval, because a shallow clone uses files of a table that may have one.
    """
    if properties is None or has_interval(properties):
        from mirrorfeed.archive import guard  # imported late: few tables have archived files

        guard.check(spark, source, what)


def readable_rows(
    spark: SparkSession, source: Source, rows: DataFrame, where: str, properties: Mapping[str, str]
) -> DataFrame:
    """Return `rows`, the rows of a snapshot that match the SQL condition `where`. The result reads only checked files.

    Raises `ArchivedFilesNeededError` if archived files in which rows may match are not restored. Returns `rows`
    unchanged on Databricks, or if `properties` set no archive interval.
    """
    if not has_interval(properties):
        return rows
    from mirrorfeed.archive import guard  # imported late: few tables have archived files
    from mirrorfeed.storage import tiers_at

    arguments = (str(source), "--where", where)
    return guard.guarded_rows(spark, rows, tiers_at, datetime.now(UTC), "A snapshot", arguments=arguments)


def query(spark: SparkSession, source: Source, where: str, version: int) -> DataFrame:
    """Return the rows of a table at a version that match a SQL condition. The result reads only checked files.

    Raises `ArchivedFilesNeededError` if archived files in which rows may match are not restored, also on Databricks.
    """
    from mirrorfeed.archive.guarded_table import GuardedTable

    return GuardedTable(spark, source).query(where, version=version)


def readable_keys(
    spark: SparkSession, source: Source, keys: DataFrame, version: int | None, properties: Mapping[str, str]
) -> DataFrame:
    """Return `keys`, the deleted keys that a search finds in the source. The result reads only checked files.

    Checks the files that the search needs or, with a `version`, all files of this version. Raises
    `lookup_needs_archived_files` if archived files are not restored. Returns `keys` unchanged on Databricks, or if
    `properties` set no archive interval.
    """
    if not has_interval(properties):
        return keys
    from mirrorfeed.archive import guard  # imported late: few tables have archived files

    return guard.readable_keys(spark, source, keys, version)


def check_query(spark: SparkSession, rows: DataFrame, statement: str, operation: str) -> None:
    """Raise `ArchivedFilesNeededError` if a query needs archived files that are not restored.

    `rows` is the query as a DataFrame, and `statement` as SQL. `operation` is a name of the read for the error message.
    Does nothing if the plan of the query does not show its files, or on Databricks.
    """
    from mirrorfeed.archive import guard  # imported late: few tables have archived files

    guard.check_query(spark, rows, statement, operation)
