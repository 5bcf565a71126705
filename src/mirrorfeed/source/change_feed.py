"""Check and enable the change data feed (CDF) of a table, and read its commits after the published version."""

from __future__ import annotations

import math
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from enum import Enum
from functools import partial
from typing import Any

from pyspark.sql import SparkSession

from mirrorfeed.landing.errors import reserved_columns
from mirrorfeed.landing.schema import reserved_names
from mirrorfeed.runtime.spark_errors import FEED_OFF, FILES_GONE, SCHEMA_DIFFERS, find_condition, list_conditions
from mirrorfeed.source.errors import GapReason, NoTableAtPathError, no_computed_feed
from mirrorfeed.source.identifier import Source
from mirrorfeed.source.snapshot_or_range import Commit, Facts, first_missing
from mirrorfeed.source.table_info import (
    FEED,
    TableInfo,
    find_metadata_changes,
    has_table_features,
    is_missing_locally,
    local_table_info,
    open_local_table,
    read_table_info,
)
from mirrorfeed.source.versions import (
    KEEPS_SCHEMA,
    SPARK_REQUIRED,
    find_schema_breaks,
    newest_version,
    read_commits,
    read_newest_commit,
    read_schema,
)

DEFAULT_LINE = "spark.databricks.delta.properties.defaults.enableChangeDataFeed true"
"""Spark configuration that enables the change data feed for every new table."""
_KEEPS_FEED = KEEPS_SCHEMA | {
    *("WRITE", "STREAMING UPDATE", "MERGE", "ADD COLUMNS", "CHANGE COLUMN", "RENAME COLUMN", "DROP COLUMNS")
}
"""Operations that never turn the feed on or off. After any other operation, a query checks whether the feed is on."""
_MAX_CANDIDATES = 16
"""If more commits may change the schema, the Delta log is first searched for those that change metadata."""
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
    if info.tracks_rows or has_table_features(table):
        return None
    from deltalake import PostCommitHookProperties

    # Spark writes checkpoints and deletes expired commits, as the settings of its session say.
    hooks = PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False)
    try:
        table.alter.set_table_properties({FEED: "true"}, post_commithook_properties=hooks)
    except Exception:  # for example, another writer has changed the properties
        return None
    return _SWITCHED_ON


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


def is_feed_on(spark: SparkSession | None, source: Source, version: int) -> bool:
    """Return whether the feed was on when a version was committed. Reads the changes of the version."""
    if spark is None:
        raise ValueError(SPARK_REQUIRED)
    feed = spark.read.option("readChangeFeed", "true").option("startingVersion", version)
    try:
        feed.option("endingVersion", version).table(source.sql).isEmpty()
    except Exception as error:
        if FEED_OFF in list_conditions(error):
            return False
        # Otherwise the feed is on. Deleted rows or a schema that does not fit are reported when the range is read.
        if find_condition(error, (SCHEMA_DIFFERS, *FILES_GONE)) is None:
            raise
    return True


def first_version_with_feed(spark: SparkSession, source: Source) -> int | None:
    """Return the first version of the current period in which the feed is on, or None if the feed is off now."""
    first: Commit | None = None
    for commit in reversed(read_commits(spark, source)):
        if first and first.version != commit.version + 1:
            break
        if (first is None or first.operation not in _KEEPS_FEED) and not is_feed_on(spark, source, commit.version):
            break
        first = commit
    return first.version if first else None


def is_same_table(facts: Facts, spark: SparkSession, source: Source) -> bool:
    """Return whether the source still has the table id and the partition columns that `facts` contains."""
    now = read_table_info(spark, source)
    return now.table_id == facts.table_id and set(now.partition_columns) == set(facts.partitions)


def read_facts(
    spark: SparkSession | None,
    source: Source,
    after: int | None,
    limit: int,
    *,
    without_spark: bool = False,
    known: tuple[TableInfo, Sequence[Commit]] | None = None,
) -> Facts:
    """Return the facts that decide the next publication of a table: its unpublished commits and its properties.

    `after` is the published version, or None before the first publication. Only the first `limit` versions after it are
    checked for schema changes and for a feed that is off.

    Raises `ValueError` if `spark` is None, unless the table is in a local folder and has no new version. With
    `without_spark`, also reads new versions of such a table without Spark, and raises `ValueError` if that is not
    possible.

    `known` has properties and commits that were already read: the newest commit, and all commits after `after`.
    """
    local = open_local_table(source)
    if local is not None and local.version() == after and (info := local_table_info(local, source)):
        return Facts(info.table_id, after, (), properties=info.properties, partitions=info.partition_columns)
    if spark is None and not (without_spark and local):
        raise ValueError(SPARK_REQUIRED)
    session: Any = spark  # None only if all reads are local
    schemas: dict[int, dict[str, Any]] = {}
    schema = partial(read_schema, spark, source, schemas=schemas)

    def read_new() -> tuple[int, list[Commit]]:
        if after is None:
            newest = known[1][-1] if known else read_newest_commit(session, source)
            return newest.version, [newest]
        if not known and local is None and newest_version(session, source, after) == after:
            return after, []
        pool.submit(lambda: (schema(after), schema(after + 1)))  # in parallel, because the history takes long
        history = known[1] if known else read_commits(session, source, after)
        return history[-1].version, [commit for commit in history if commit.version > after]

    with ThreadPoolExecutor(2) as pool:
        pending = pool.submit(read_new)
        info = local_table_info(local, source, counted=True) if local else known[0] if known else None
        info = info or read_table_info(session, source, counted=True)
        latest, new = pending.result()
    unreadable, breaks = dict[int, GapReason](), tuple[int, ...]()
    if after is None:  # later commits are checked at their own versions
        maybe_off = [] if info.records_changes else new
    else:
        missing = first_missing(after, latest, new)
        end = min(after + limit, latest if missing is None else missing - 1)
        checked = [commit for commit in new if commit.version <= end]
        candidates = [commit for commit in checked if commit.operation not in KEEPS_SCHEMA]
        if len(candidates) > _MAX_CANDIDATES:
            changed = find_metadata_changes(session, info.location, [commit.version for commit in candidates])
            candidates = [commit for commit in candidates if changed is None or commit.version in changed]
        if checked:
            may_break = sorted({commit.version for commit in (checked[0], *candidates)})
            breaks, unreadable = find_schema_breaks(schema, after, may_break)
        readable = [commit for commit in candidates if commit.version < min(unreadable, default=math.inf)]
        maybe_off = [commit for commit in readable if commit.operation not in _KEEPS_FEED]
    # Without row tracking, the properties of a version say whether its feed is on.
    known_off = local.version() if local and not (info.records_changes or info.tracks_rows) else None
    off = next(
        (
            each.version
            for each in maybe_off
            if each.version == known_off or not is_feed_on(spark, source, each.version)
        ),
        None,
    )
    if off is not None:
        unreadable[off] = GapReason.FEED_OFF
    return Facts(
        info.table_id,
        latest,
        tuple(new),
        unreadable,
        breaks,
        info.properties,
        info.partition_columns,
        info.bytes,
        schemas,
    )
