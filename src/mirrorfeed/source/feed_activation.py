"""Enable the change data feed (CDF) of a table, and find out how and since when Delta provides it."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import TYPE_CHECKING

from pyspark.sql import SparkSession

from mirrorfeed.landing.errors import reserved_columns
from mirrorfeed.landing.schema import reserved_names
from mirrorfeed.source.change_feed import KEEPS_FEED, is_feed_on
from mirrorfeed.source.errors import NoTableAtPathError, no_computed_feed
from mirrorfeed.source.identifier import Source
from mirrorfeed.source.snapshot_or_range import Commit
from mirrorfeed.source.table_info import (
    FEED,
    TableInfo,
    is_missing_locally,
    local_table_info,
    open_local_table,
    read_table_info,
)
from mirrorfeed.source.versions import newest_version, read_commits

if TYPE_CHECKING:
    from deltalake import DeltaTable

DEFAULT_LINE = "spark.databricks.delta.properties.defaults.enableChangeDataFeed true"
"""Spark configuration that enables the change data feed for every new table."""
_TABLE_FEATURES = 7
"""Version of the writer protocol from which the protocol of a table lists its features."""
_SWITCHED_ON, _ON_ALREADY = "switched on", "on already"
"""Results of turning on a feed, for display."""


class FeedKind(Enum):
    """Way in which Delta provides the change data feed of a table."""

    RECORDED = "recorded with every commit"
    COMPUTED = "computed from row tracking when it is read"
    OFF = "off"


def enable_feed(spark: SparkSession, source: Source) -> str:
    """Turn on the change data feed of a table, unless Databricks can compute the feed from row tracking.

    Earlier changes are not recorded. Returns the result as text for display. Raises `reserved_columns` if a column of
    the table has a name that the feed reserves, such as `_change_type`, and `no_computed_feed` for an Iceberg table
    without a computed feed.
    """
    info = read_table_info(spark, source)
    _check_columns(source, spark.table(source.sql).columns)
    kind = feed_kind(spark, source, info)
    if kind is FeedKind.OFF:
        if info.format == "iceberg":  # no property of Delta turns on its feed
            raise no_computed_feed(table=str(source))
        spark.sql(f"ALTER TABLE {source.sql} SET TBLPROPERTIES ({FEED} = true)")
        return _SWITCHED_ON
    return _ON_ALREADY if kind is FeedKind.RECORDED else f"{kind.value}: no action is needed"


def enable_feed_without_spark(source: Source) -> str | None:
    """Turn on the change data feed of a table in a local folder with delta-rs, as `enable_feed` does with Spark.

    Returns None if Spark is needed. Then nothing was changed, or Spark finds the feed on. Raises `NoTableAtPathError`
    if the folder has no Delta table, and `reserved_columns` as `enable_feed`.
    """
    if is_missing_locally(source):
        raise NoTableAtPathError(path=str(source))
    if (table := open_local_table(source)) is None or (info := local_table_info(table, source)) is None:
        return None
    _check_columns(source, [field.name for field in table.schema().fields])
    if info.records_changes:
        return _ON_ALREADY
    if info.tracks_rows or _has_table_features(table):
        return None
    from deltalake import PostCommitHookProperties

    # Spark writes checkpoints and deletes expired commits, as the settings of its session say.
    hooks = PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False)
    try:
        table.alter.set_table_properties({FEED: "true"}, post_commithook_properties=hooks)
    except Exception:  # for example, another writer has changed the properties
        return None
    return _SWITCHED_ON


def _has_table_features(table: DeltaTable) -> bool:
    """Return whether the protocol of a table lists features, or requires readers of version 2 or later.

    delta-rs must not change the protocol of such a table: it adds reader features that the table does not use, so that
    older readers can no longer read the table.
    """
    protocol = table.protocol()
    return protocol.min_reader_version > 1 or protocol.min_writer_version >= _TABLE_FEATURES


def _check_columns(source: Source, columns: Sequence[str]) -> None:
    if reserved := reserved_names(columns):
        raise reserved_columns(table=str(source), columns=reserved)


def feed_kind(spark: SparkSession, source: Source, info: TableInfo) -> FeedKind:
    """Return whether Delta records the feed of a table, computes the feed from row tracking, or provides no feed.

    Runs a query if the table has row tracking, but Delta does not record the feed.
    """
    if info.records_changes:
        return FeedKind.RECORDED
    if info.tracks_rows and is_feed_on(spark, source, newest_version(spark, source)):
        return FeedKind.COMPUTED
    return FeedKind.OFF


def first_version_with_feed(spark: SparkSession, source: Source) -> int | None:
    """Return the first version of the current period in which the feed is on, or None if the feed is off now."""
    first: Commit | None = None
    for commit in reversed(read_commits(spark, source)):
        if first and first.version != commit.version + 1:
            break
        if (first is None or first.operation not in KEEPS_FEED) and not is_feed_on(spark, source, commit.version):
            break
        first = commit
    return first.version if first else None
