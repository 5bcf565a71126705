"""Plans for tables: what a question needs, and whether a plan still fits its table."""

from __future__ import annotations

from datetime import datetime

from pyspark.sql import SparkSession

from mirrorfeed.archive import feed, policy, restore
from mirrorfeed.archive import plan as planning
from mirrorfeed.archive.engine import is_databricks
from mirrorfeed.archive.files import archived_among, index_of
from mirrorfeed.archive.plan import Plan, Prices
from mirrorfeed.errors import Terminal
from mirrorfeed.feed import history
from mirrorfeed.feed.ranges import Range
from mirrorfeed.feed.source import Source
from mirrorfeed.stores.tiers import Priority


def make_plan(
    spark: SparkSession,
    source: Source,
    where: str | None,
    feed_from: int | None,
    feed_to: int | None,
    priority: Priority,
    prices: Prices | None,
    now: datetime,
) -> Plan:
    """For a query at the newest version, or for the change feed from one version to another."""
    interval = policy.required(spark, source)
    found = history.detail(spark, source)
    if feed_from is None:
        answer = index_of(spark, source).needed(where, interval, now, None)
        version, archived = answer.version, list(answer.archived)
    else:
        if is_databricks(spark):
            raise FeedOnDatabricks(str(source))
        newest = history.newest_version(spark, source)
        version = newest if feed_to is None else min(feed_to, newest)
        changed = feed.needed(spark, source, found.location, Range(feed_from - 1, version))
        archived = archived_among(changed, interval, now)
    return planning.make(
        str(source),
        found.table_id,
        version,
        archived,
        priority,
        where=where,
        feed_from=feed_from,
        prices=prices,
    )


def check_plan(spark: SparkSession, source: Source, made: Plan) -> None:
    newest = history.newest_version(spark, source)
    restore.check_table(made, history.detail(spark, source).table_id, newest)


class FeedOnDatabricks(Terminal):
    def __init__(self, table: str) -> None:
        self.table = table

    def what(self) -> str:
        return f"Databricks does not tell which archived files the change feed of {self.table} needs."

    def next(self) -> str:
        return "Plan with open source Spark on the table's path, or publish before files reach the archive."
