"""Plans for tables: what a question needs, and whether a plan still fits its table."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession

from mirrorfeed.archive import restore
from mirrorfeed.archive import restore_plan as planning
from mirrorfeed.archive.errors import FeedOnDatabricks, NoPolicy, NoSuchRange, NothingToBringBack
from mirrorfeed.archive.file_index.archived_files import archived_of
from mirrorfeed.archive.fixed_time import frozen, moment
from mirrorfeed.archive.guard import change_feed
from mirrorfeed.archive.guard.engine_choice import index_of
from mirrorfeed.archive.guard.missing_files import plan_of
from mirrorfeed.archive.guard.query import Guarded
from mirrorfeed.archive.guard.table import ArchiveAwareTable
from mirrorfeed.archive.interval_policy import understood
from mirrorfeed.archive.restore_plan import Plan
from mirrorfeed.runtime.engine import is_databricks
from mirrorfeed.runtime.spark_errors import FILES_GONE, first_of
from mirrorfeed.source import reader, versions
from mirrorfeed.source.identifier import Source
from mirrorfeed.source.ranges import Range
from mirrorfeed.source.table_info import detail_of
from mirrorfeed.storage.prices import Rates
from mirrorfeed.storage.tiers import Priority, TierStore


def make_plan(
    spark: SparkSession,
    source: Source,
    where: str | None,
    feed_from: int | None,
    feed_to: int | None,
    priority: Priority,
    rates: Rates | None,
    now: datetime,
) -> Plan:
    """For a query at the newest version, or for the change feed from one version to another."""
    index = index_of(spark, source)
    facts = index.facts()
    interval = understood(str(source), facts.properties)
    if interval is None:
        raise NoPolicy(table=str(source))
    at = moment(spark, now)
    if feed_from is None:
        asked = None if where is None else frozen(where, at, facts.columns)
        answer = index.needed(asked, interval, now, None)
        version, archived = answer.version, list(answer.archived)
    else:
        asked = None
        if is_databricks(spark):
            raise FeedOnDatabricks(table=str(source))
        version = _last_of_range(spark, source, feed_from, feed_to)
        range_ = Range(feed_from - 1, version)
        try:
            table = detail_of(spark, source)
            changed = change_feed.needed(spark, source, table, range_)
        except AnalysisException as error:
            if first_of(error, FILES_GONE) is None:
                raise
            raise NoSuchRange(table=str(source), first=feed_from, last=feed_to, newest=version) from error
        _check_readable(spark, source, range_)
        archived = archived_of(spark, str(source), table.location, changed, interval, now)
    return planning.make(
        str(source),
        facts.table_id,
        version,
        archived,
        priority,
        where=asked,
        feed_from=feed_from,
        rates=rates,
        zone=at.zone,
    )


def _check_readable(spark: SparkSession, source: Source, range_: Range) -> None:
    """Or `Gap`, where Delta does not read the range whatever is brought back, as one that is past its retention."""
    with reader.read_faults(str(source), range_):
        reader.changes(spark, source, range_)


def _last_of_range(spark: SparkSession, source: Source, first: int, last: int | None) -> int:
    newest = versions.newest_version(spark, source)
    end = newest if last is None else last
    if not 0 <= first <= end <= newest:
        raise NoSuchRange(table=str(source), first=first, last=last, newest=newest)
    return end


def make_statement_plan(
    spark: SparkSession, statement: str, priority: Priority, rates: Rates | None, now: datetime
) -> Plan:
    """For any query over tables that have an archive."""
    at = moment(spark, now)
    asked = frozen(statement, at)
    tables = Guarded(spark, now=lambda: now).needed(asked)
    if not tables:
        raise NothingToBringBack(statement=statement)
    return plan_of(asked, tables, priority, rates, at.zone)


def check_plan(spark: SparkSession, made: Plan) -> None:
    """Refuses a plan of which a table is another now."""
    for table in made.tables:
        source = Source.parse(table.table)
        newest = versions.newest_version(spark, source)
        one = replace(made, table=table.table, table_id=table.table_id, version=table.version)
        restore.check_table(one, detail_of(spark, source).table_id, newest)


def look_again(spark: SparkSession, made: Plan, tiers: TierStore, now: datetime) -> DataFrame | None:
    """The rows that were planned for, once it is known that all they need can be read: other files may have come to
    count as archived meanwhile. None where a plan has no rows to show: that of a range of the feed, or of files."""
    source = Source.parse(made.table)
    if made.sql is not None:
        return Guarded(spark, lambda _: tiers, lambda: now).sql(made.sql)
    if made.files_alone:
        return None
    if made.feed_from is None:
        return ArchiveAwareTable(spark, source, tiers, lambda: now).query(made.where, version=made.version)
    range_ = Range(made.feed_from - 1, made.version)
    change_feed.check(spark, source, range_, detail_of(spark, source).properties, tiers, now)
    _check_readable(spark, source, range_)
    return None
