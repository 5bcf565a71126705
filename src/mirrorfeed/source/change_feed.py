"""Whether a table has a change data feed, from which version on, and of which kind."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum

from pyspark.sql import SparkSession

from mirrorfeed.runtime.spark_errors import FEED_OFF, FILES_GONE, SCHEMA_DIFFERS, conditions, first_of
from mirrorfeed.source.identifier import Source
from mirrorfeed.source.ranges import Commit
from mirrorfeed.source.schemas import KEEPS_SCHEMA
from mirrorfeed.source.table_info import Detail
from mirrorfeed.source.versions import commits, newest_version

KEEPS_FEED = KEEPS_SCHEMA | {
    "WRITE",
    "STREAMING UPDATE",
    "MERGE",
    "ADD COLUMNS",
    "CHANGE COLUMN",
    "RENAME COLUMN",
    "DROP COLUMNS",
}
"""Operations that are known to leave the feed's switch as it was. Any other is looked at."""


class Feed(Enum):
    """Where a table's changes come from."""

    RECORDED = "recorded with every commit"
    COMPUTED = "computed from row tracking when it is read"
    OFF = "off"


def feed_of(spark: SparkSession, source: Source, table: Detail) -> Feed:
    """Which feed a table has now. Whether one is computed is for the engine to say: not every one does that."""
    if table.records_changes:
        return Feed.RECORDED
    if table.tracks_rows and feed_on_at(spark, source, newest_version(spark, source)):
        return Feed.COMPUTED
    return Feed.OFF


def feed_on_at(spark: SparkSession, source: Source, version: int) -> bool:
    """Whether the feed was on at a version; Delta itself is asked, by a read of that version alone."""
    feed = spark.read.option("readChangeFeed", "true").option("startingVersion", version)
    try:
        feed.option("endingVersion", version).table(source.sql).isEmpty()
    except Exception as error:
        if FEED_OFF in conditions(error):
            return False
        # Otherwise it is on. That its rows are gone, or do not fit the schema, is found where they are read.
        if first_of(error, (SCHEMA_DIFFERS, *FILES_GONE)) is None:
            raise
    return True


def first_off(spark: SparkSession, source: Source, doubtful: list[Commit]) -> int | None:
    """The first of these versions at which the feed was off."""
    return next((commit.version for commit in doubtful if not feed_on_at(spark, source, commit.version)), None)


def first_with_feed(spark: SparkSession, source: Source) -> int | None:
    """The first version from which on the feed tells of all changes up to now; None where it is off."""
    return begin_of_feed(commits(spark, source), lambda version: feed_on_at(spark, source, version))


def begin_of_feed(known: Sequence[Commit], on_at: Callable[[int], bool]) -> int | None:
    """The same of these commits, ascending. Asked is only where a commit may have switched it."""
    first, after = None, None
    for commit in reversed(known):
        if after is not None and after.version != commit.version + 1:
            break
        may_switch = after is None or after.operation not in KEEPS_FEED
        if may_switch and not on_at(commit.version):
            break
        first, after = commit.version, commit
    return first
