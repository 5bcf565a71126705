"""From rows of the feed to rows of the landing zone: which row of a key is published, and as what."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from functools import reduce
from operator import or_

from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from mirrorfeed.feed.source import quote
from mirrorfeed.landing.schema import MARKER, Column

PROBLEM = "_change_type"
"""Last column of every result: None, or why the row cannot be published (`Problem`). No published table has a column
of this name, for it is one of the feed's."""

_JSON = {
    "ignoreNullFields": "false",
    "timeZone": "UTC",
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}
"""Nested values give the same text in every session, and lose nothing of a time."""


class Problem(IntEnum):
    NULL_KEY = 1
    DUPLICATE_KEY = 2
    CHANGE_WITHOUT_KEY = 3


class Marker(IntEnum):
    INSERT = 0
    UPDATE = 1
    DELETE = 2
    UPSERT = 4


def snapshot_rows(snapshot: DataFrame, columns: Sequence[Column]) -> DataFrame:
    """Every row, without a marker."""
    return snapshot.select(*_written(columns), F.lit(None).cast("int").alias(PROBLEM))


def key_problems(snapshot: DataFrame, keys: Sequence[str], limit: int) -> DataFrame:
    """The first keys of a snapshot that are NULL or stand more than once: the key columns and the problem."""
    key = [F.col(f"__key_{i}__") for i in range(len(keys))]
    counted = snapshot.groupBy(*(_col(name).alias(f"__key_{i}__") for i, name in enumerate(keys))).agg(
        F.count(F.lit(1)).alias("__count__")
    )
    null_key = reduce(or_, (part.isNull() for part in key))
    problem = F.when(null_key, Problem.NULL_KEY.value).when(F.col("__count__") > 1, Problem.DUPLICATE_KEY.value)
    return (
        counted.where(problem.isNotNull())
        .select(*(part.alias(name) for part, name in zip(key, keys, strict=True)), problem.cast("int").alias(PROBLEM))
        .limit(limit)
    )


def inserts(feed: DataFrame, columns: Sequence[Column]) -> DataFrame:
    """For tables without keys, which take inserts only."""
    problem = F.when(F.col("_change_type") != "insert", Problem.CHANGE_WITHOUT_KEY.value).cast("int").alias(PROBLEM)
    return feed.orderBy("_commit_version").select(*_written(columns), problem)


def net(feed: DataFrame, columns: Sequence[Column], keys: Sequence[str]) -> DataFrame:
    """One row a key for the whole range: what its last version left, as an upsert, or its key, as a delete."""
    return _last_of_each(feed, columns, keys, by_version=False)


def full(feed: DataFrame, columns: Sequence[Column], keys: Sequence[str]) -> DataFrame:
    """One row for every key and version; in the order of versions, deletes before upserts."""
    return _last_of_each(feed, columns, keys, by_version=True)


def _last_of_each(feed: DataFrame, columns: Sequence[Column], keys: Sequence[str], *, by_version: bool) -> DataFrame:
    # The table's columns go by their places, so that none of their names can be one of those used here.
    payload = [column for column in columns if column.name not in keys]
    key = [F.col(f"__key_{i}__") for i in range(len(keys))]
    null_key = reduce(or_, (part.isNull() for part in key))
    # Of a row that ends nothing is needed but its key: its other columns are not carried through the shuffle.
    live = F.col("_change_type").isin("insert", "update_postimage")
    events = feed.select(
        *(_col(name).alias(f"__key_{i}__") for i, name in enumerate(keys)),
        *(F.when(live, _col(column.name)).alias(f"__value_{i}__") for i, column in enumerate(payload)),
        F.col("_commit_version"),
        live.alias("__live__"),
    )
    group = key + ([F.col("_commit_version")] if by_version else [])
    newest_first = Window.partitionBy(*group).orderBy(F.desc("_commit_version"), F.desc("__live__"))
    rows = (
        events.withColumn("__place__", F.row_number().over(newest_first))
        .withColumn("__next__", F.lead(F.struct("_commit_version", "__live__")).over(newest_first))
        .withColumn("__gain__", F.sum(F.when(F.col("__live__"), 1).otherwise(-1)).over(Window.partitionBy(*group)))
        .where(F.col("__place__") == 1)
        .where(~(null_key & ~F.col("__live__") & (F.col("__gain__") == 0)))  # came and went unpublished
    )
    problem = F.when(null_key, Problem.NULL_KEY.value).when(_shared_key(), Problem.DUPLICATE_KEY.value)
    marker = F.when(F.col("__live__"), Marker.UPSERT.value).otherwise(Marker.DELETE.value).cast("int")
    if by_version:
        rows = rows.orderBy("_commit_version", "__live__", *key)
    place = {name: f"__key_{i}__" for i, name in enumerate(keys)}
    place |= {column.name: f"__value_{i}__" for i, column in enumerate(payload)}
    written = [_form(column, F.col(place[column.name])) for column in columns]
    return rows.select(*written, marker.alias(MARKER), problem.cast("int").alias(PROBLEM))


def _shared_key() -> SparkColumn:
    """Whether a key's events show that more than one row had it: two rows live in its last version, or rows gained
    and lost that do not fit how it ends. A row that ends live was gained or there before; one that ends dead, lost."""
    live, gain = F.col("__live__"), F.col("__gain__")
    twice = live & F.col("__next__.__live__") & (F.col("__next__._commit_version") == F.col("_commit_version"))
    return F.coalesce(twice, F.lit(False)) | F.when(live, ~gain.isin(0, 1)).otherwise(~gain.isin(-1, 0))


def _written(columns: Sequence[Column]) -> list[SparkColumn]:
    return [_form(column, _col(column.name)) for column in columns]


def _form(column: Column, value: SparkColumn) -> SparkColumn:
    return (F.to_json(value, _JSON) if column.type == "json" else value).alias(column.name)


def _col(name: str) -> SparkColumn:
    return F.col(quote(name))
