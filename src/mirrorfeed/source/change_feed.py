"""The change data feed of a table: whether it is on, how to turn it on, and the facts for the next range."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from enum import Enum
from functools import cache, partial
from typing import Any

from pyspark.sql import SparkSession

from mirrorfeed.landing.schema import ReservedColumn, reserved_names
from mirrorfeed.runtime.spark_errors import FEED_OFF, FILES_GONE, SCHEMA_DIFFERS, conditions, first_of
from mirrorfeed.source.delta_protocol import metadata_changes
from mirrorfeed.source.errors import LogDamaged, VersionExpired
from mirrorfeed.source.identifier import Source, quote
from mirrorfeed.source.ranges import Commit, Facts, first_missing
from mirrorfeed.source.table_info import FEED, Detail, detail_of
from mirrorfeed.source.versions import KEEPS_SCHEMA, breaks, commits, newest_version, schema_at, since

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


DEFAULT_SETTING = "spark.databricks.delta.properties.defaults.enableChangeDataFeed"
DEFAULT_LINE = f"{DEFAULT_SETTING} true"
"""As a cluster's or a job's Spark configuration takes it: every new table records its changes."""


class Enabled(Enum):
    NOW = "switched on"
    BEFORE = "on already"
    COMPUTED = "computed from row tracking when it is read: nothing is to be done"


def create_with_feed(spark: SparkSession, source: Source, columns: Sequence[tuple[str, str]]) -> None:
    """Creates a table that records its changes from the first on; `columns` are names and SQL types."""
    _refuse_reserved(source, [name for name, _ in columns])
    spelled = ", ".join(f"{quote(name)} {type_}" for name, type_ in columns)
    spark.sql(f"CREATE TABLE {source.sql} ({spelled}) USING DELTA TBLPROPERTIES ({FEED} = true)")


def enable(spark: SparkSession, source: Source) -> Enabled:
    """Switches it on for a table that exists, unless the engine computes it; changes made before are not recorded."""
    found = detail_of(spark, source)
    _refuse_reserved(source, spark.table(source.sql).columns)
    if (feed := feed_of(spark, source, found)) is not Feed.OFF:
        return Enabled.BEFORE if feed is Feed.RECORDED else Enabled.COMPUTED
    spark.sql(f"ALTER TABLE {source.sql} SET TBLPROPERTIES ({FEED} = true)")
    return Enabled.NOW


def enable_by_default(spark: SparkSession) -> None:
    """Switches it on for all tables that this session will create."""
    spark.conf.set(DEFAULT_SETTING, "true")


def _refuse_reserved(source: Source, columns: Sequence[str]) -> None:
    if reserved := reserved_names(columns):
        raise ReservedColumn(str(source), reserved)


_FEW = 16
"""More doubtful commits than these are looked up in the log itself, at once, where it can be read."""


def still_hold(facts: Facts, spark: SparkSession, source: Source) -> bool:
    """Whether it is the same table. Partitioned anew, it gives changes from before that with NULL in its partition
    columns, and is not."""
    now = detail_of(spark, source)
    return now.table_id == facts.table_id and set(now.partition_columns) == set(facts.partitions)


def facts_of(
    spark: SparkSession,
    source: Source,
    after: int | None,
    limit: int,
    schema: Callable[[int], dict[str, Any]] | None = None,
) -> Facts:
    """What `decide` needs; schemas and feed are looked at for no more than `limit` versions after the published one.
    Schemas are asked of `schema`, or else of `schema_at`, each once."""
    schema = cache(schema or partial(schema_at, spark, source))

    def first_schemas() -> None:
        if after is not None:
            schema(after), schema(after + 1)

    with ThreadPoolExecutor(1) as meanwhile:
        asked = meanwhile.submit(since, spark, source, after, first_schemas)
        table = detail_of(spark, source, counted=True)
    latest, new = asked.result()
    if after is None:
        # Where the property is set, the engine need not be asked: what is committed later is judged by its own version.
        off = None if table.records_changes else first_off(spark, source, new)
        partitions = table.partition_columns
        return Facts(
            *(table.table_id, latest, tuple(new), off),
            properties=table.properties,
            partitions=partitions,
            bytes=table.bytes,
        )
    missing = first_missing(after, latest, [commit.version for commit in new])
    end = min(after + limit, latest) if missing is None else min(after + limit, missing - 1)
    near = [commit for commit in new if commit.version <= end]
    doubtful = [commit for commit in near if commit.operation not in KEEPS_SCHEMA]
    if len(doubtful) > _FEW:
        changed = metadata_changes(spark, table.location, [commit.version for commit in doubtful])
        doubtful = [commit for commit in doubtful if changed is None or commit.version in changed]
    broken, stop, reason = breaks(schema, after, near[:1], doubtful)
    whole = [commit for commit in doubtful if stop is None or commit.version < stop]
    off = first_off(spark, source, [commit for commit in whole if commit.operation not in KEEPS_FEED])
    return Facts(
        table.table_id,
        latest,
        tuple(new),
        off,
        tuple(broken),
        stop if reason is LogDamaged else None,
        stop if reason is VersionExpired else None,
        table.properties,
        table.partition_columns,
        table.bytes,
    )
