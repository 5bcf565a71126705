"""Create restore plans for queries and for ranges of the change data feed."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from pyspark.sql import SparkSession

from mirrorfeed.archive import archive_interval, guard
from mirrorfeed.archive.archived_files import find_archived
from mirrorfeed.archive.data_files import NeededFiles
from mirrorfeed.archive.engines import engine_of
from mirrorfeed.archive.errors import VersionMissingError, archived_feed_unknown, nothing_to_restore
from mirrorfeed.archive.fixed_time import fix_relative_times, moment
from mirrorfeed.archive.guard import Guarded
from mirrorfeed.archive.pinned_query import pin_query
from mirrorfeed.archive.restore_plan import Plan, plan_files
from mirrorfeed.runtime.spark_session import is_databricks
from mirrorfeed.source import reader, versions
from mirrorfeed.source.errors import FeedGapError
from mirrorfeed.source.identifier import Source
from mirrorfeed.source.snapshot_or_range import Range
from mirrorfeed.source.table_info import read_table_info
from mirrorfeed.storage.tier_store import Priority


def plan_statement(spark: SparkSession, priority: Priority, now: datetime, *, sql: str) -> Plan:
    """Return the restore plan for a SQL query. The plan reads the versions of the tables that are the newest now.

    Raises `nothing_to_restore` if the query needs no archived file, and the errors of `pin_query`.
    """
    query = pin_query(spark, sql, now)
    if needed := Guarded(spark, now=lambda: now).needed(query.sql):
        return query.plan(needed, priority)
    raise nothing_to_restore(statement=sql)


def plan_query(
    spark: SparkSession, priority: Priority, now: datetime, *, source: Source, where: str | None = None
) -> Plan:
    """Return the restore plan for the rows of a table that match `where`, or for all rows if `where` is None.

    Raises `no_archive_interval` if the table has no archive interval.
    """
    at = moment(spark, now)
    archive_interval.required(spark, source)
    where = where and fix_relative_times(where, at, spark.table(source.sql).columns)
    needed = engine_of(spark).needed(source, where, now)
    return replace(plan_files([needed], priority), where=where, zone=at.zone)


def plan_feed(
    spark: SparkSession, priority: Priority, now: datetime, *, source: Source, first: int, last: int | None = None
) -> Plan:
    """Return the restore plan for the versions `first` to `last` of a table's change data feed.

    The default for `last` is the newest version. Raises `VersionMissingError` if versions are missing,
    `no_archive_interval` if the table has no archive interval, `archived_feed_unknown` on Databricks, and the errors of
    `check_readable`.
    """
    table = read_table_info(spark, source)
    policy = archive_interval.required(spark, source, table)
    if is_databricks(spark):
        raise archived_feed_unknown(table=str(source))
    newest = versions.newest_version(spark, source)
    end = newest if last is None else last
    if not 0 <= first <= end <= newest:
        asked = f"versions {first} to {'the newest' if last is None else last}"
        raise VersionMissingError(table=str(source), versions=asked, newest=newest)
    range_ = Range(first - 1, end)
    try:
        changed = guard.files_to_read(spark, source, table, range_)
    except FeedGapError as error:
        raise VersionMissingError(table=str(source), versions=str(range_), newest=newest) from error
    check_readable(spark, source, range_)
    files = find_archived(spark, str(source), table.location, changed, policy, now)
    needed = NeededFiles(str(source), table.table_id, table.location, end, tuple(files))
    return replace(plan_files([needed], priority), feed_from=first)


def check_readable(spark: SparkSession, source: Source, range_: Range) -> None:
    """Raise `FeedGapError` or `FeedUnreadableError` if Delta cannot read the changes of a range, for example if they
    expired.
    """
    with reader.read_errors(str(source), range_):
        reader.read_changes(spark, source, range_)
