"""Switching the change data feed on: when a table is created, for one that exists, or as a session's default."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

from pyspark.sql import SparkSession

from mirrorfeed.landing.schema import ReservedColumn, reserved_names
from mirrorfeed.source.change_feed import Feed, feed_of
from mirrorfeed.source.identifier import Source, quote
from mirrorfeed.source.table_info import FEED, detail_of

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
