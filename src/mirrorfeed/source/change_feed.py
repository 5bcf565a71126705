"""Check the change data feed (CDF) of a table, and read its commits after the published version."""

from __future__ import annotations

import math
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from pyspark.sql import SparkSession

from mirrorfeed.runtime.spark_errors import FEED_OFF, FILES_GONE, SCHEMA_DIFFERS, find_condition, list_conditions
from mirrorfeed.source.errors import GapReason
from mirrorfeed.source.identifier import Source
from mirrorfeed.source.snapshot_or_range import Commit, Facts, first_missing
from mirrorfeed.source.table_info import (
    TableInfo,
    find_metadata_changes,
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

KEEPS_FEED = KEEPS_SCHEMA | {
    *("WRITE", "STREAMING UPDATE", "MERGE", "ADD COLUMNS", "CHANGE COLUMN", "RENAME COLUMN", "DROP COLUMNS")
}
"""Operations that never turn the feed on or off. After any other operation, a query checks whether the feed is on."""
_MAX_CANDIDATES = 16
"""If more commits may change the schema, the Delta log is first searched for those that change metadata."""


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
    earlier: Sequence[Commit] = (),
) -> Facts:
    """Return the facts that decide the next publication of a table: its unpublished commits and its properties.

    `after` is the published version, or None before the first publication. Only the first `limit` versions after it are
    checked for schema changes and for a feed that is off.

    Raises `ValueError` if `spark` is None, unless the table is in a local folder and has no new version. With
    `without_spark`, also reads new versions of such a table without Spark, and raises `ValueError` if that is not
    possible.

    `known` has properties and commits that were already read: the newest commit, and all commits after `after`.
    `earlier` are commits that an earlier call returned. They are read again only if the log cannot be read directly.
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
            newest = known[1][-1] if known else read_newest_commit(session, source, local)
            return newest.version, [newest]
        has_new = known or local or any(commit.version > after for commit in earlier)
        if not has_new and newest_version(session, source, after) == after:
            return after, []
        pool.submit(lambda: (schema(after), schema(after + 1)))  # in parallel, because the history takes long
        history = known[1] if known else read_commits(session, source, after, local, earlier)
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
        is_reused = bool(checked) and any(commit is checked[0] for commit in earlier)
        if is_reused or len(candidates) > _MAX_CANDIDATES:
            searched = [commit.version for commit in (checked if is_reused else candidates)]
            changed = find_metadata_changes(session, info.location, searched)
            if changed is None and is_reused:  # a commit may have been deleted since it was read
                return read_facts(spark, source, after, limit, without_spark=without_spark)
            candidates = [commit for commit in candidates if changed is None or commit.version in changed]
        if checked:
            may_break = sorted({commit.version for commit in (checked[0], *candidates)})
            breaks, unreadable = find_schema_breaks(schema, after, may_break)
        readable = [commit for commit in candidates if commit.version < min(unreadable, default=math.inf)]
        maybe_off = [commit for commit in readable if commit.operation not in KEEPS_FEED]
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
