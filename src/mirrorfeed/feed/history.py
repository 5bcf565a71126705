"""What the history of a Delta table says, from DESCRIBE and time travel: versions, feed, schemas, identity."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from mirrorfeed.errors import Terminal
from mirrorfeed.feed.ranges import Commit, Facts
from mirrorfeed.feed.source import Source

FEED = "delta.enableChangeDataFeed"

_KEEPS_SCHEMA = frozenset(
    {"UPDATE", "DELETE", "OPTIMIZE", "TRUNCATE", "VACUUM START", "VACUUM END", "COMPUTE STATS", "ADD CONSTRAINT"}
)
_KEEPS_FEED = _KEEPS_SCHEMA | {
    "WRITE",
    "STREAMING UPDATE",
    "MERGE",
    "ADD COLUMNS",
    "CHANGE COLUMN",
    "RENAME COLUMN",
    "DROP COLUMNS",
}
"""Operations that are known to leave the schema, or the feed's switch, as it was. Any other is looked at."""

_FEW = 16


@dataclass(frozen=True, slots=True)
class Detail:
    table_id: str
    location: str
    feed_on: bool


class SourceMissing(Terminal):
    def __init__(self, table: str) -> None:
        self.table = table

    def what(self) -> str:
        return f"There is no table {self.table}, or it is not to be seen from here."

    def next(self) -> str:
        return "Check `source` in the configuration, and the right to select from the table."


class NotDelta(Terminal):
    def __init__(self, table: str, found: str) -> None:
        self.table, self.found = table, found

    def what(self) -> str:
        return f"{self.table} is {self.found}, not a Delta table, so it has no change data feed."

    def next(self) -> str:
        return "Name the Delta table that holds the data."


class NoVersions(Terminal):
    def __init__(self, table: str) -> None:
        self.table = table

    def what(self) -> str:
        return f"The history of {self.table} is empty: no version of it can be named."

    def next(self) -> str:
        return "Check the table's _delta_log folder, or write to the table, then publish again."


def detail(spark: SparkSession, source: Source) -> Detail:
    """The table's identity, or a refusal where the source is missing, a view, or not Delta."""
    try:
        row = spark.sql(f"DESCRIBE DETAIL {source.sql}").select("format", "id", "location", "properties").first()
    except PySparkException as error:
        raise _refusal(source, error) from error
    if row is None or row["format"] != "delta":
        raise NotDelta(str(source), f"a table in the format {row['format'] if row else 'unknown'}")
    return Detail(row["id"], row["location"], row["properties"].get(FEED, "false").lower() == "true")


def _refusal(source: Source, error: PySparkException) -> Exception:
    condition = error.getCondition() or ""
    if condition.startswith(("TABLE_OR_VIEW_NOT_FOUND", "DELTA_PATH_DOES_NOT_EXIST", "DELTA_TABLE_NOT_FOUND")):
        return SourceMissing(str(source))
    if condition.startswith("EXPECT_TABLE_NOT_VIEW"):
        return NotDelta(str(source), "a view")
    if condition.startswith(("DELTA_MISSING_DELTA_TABLE", "DELTA_TABLE_ONLY_OPERATION", "DELTA_NOT_A_DELTA_TABLE")):
        return NotDelta(str(source), "something else")
    return error


def commits(spark: SparkSession, source: Source, after: int | None = None) -> list[Commit]:
    """The commits after a version (all without one), ascending. Never empty: the newest is always among them."""
    if after is None:
        found = _newest(spark, source)
    else:
        found, limit = _newest(spark, source, _FEW), _FEW
        while (lag := found[-1].version - after) > limit:  # more than asked for, and more may be committed meanwhile
            limit = lag + _FEW
            found = _newest(spark, source, limit)
    return [commit for commit in found if after is None or commit.version > after] or found[-1:]


def _newest(spark: SparkSession, source: Source, limit: int | None = None) -> list[Commit]:
    """The newest commits, ascending."""
    statement = f"DESCRIBE HISTORY {source.sql}" + ("" if limit is None else f" LIMIT {limit}")
    rows = spark.sql(statement).select("version", F.unix_micros("timestamp").alias("micros"), "operation").collect()
    if not rows:
        raise NoVersions(str(source))
    return sorted(map(_commit, rows), key=lambda commit: commit.version)


def _commit(row: Any) -> Commit:
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    return Commit(row["version"], epoch + timedelta(microseconds=row["micros"]), row["operation"])


def facts(spark: SparkSession, source: Source, after: int | None, limit: int) -> Facts:
    """What `decide` needs; schemas and feed are looked at for no more than `limit` versions after the published one."""
    table = detail(spark, source)
    found = commits(spark, source, after) if after is not None else _newest(spark, source, 1)
    latest = found[-1]
    if after is None:
        return Facts(table.table_id, latest, (), _feed_off_at(spark, source, found))
    new = [commit for commit in found if commit.version > after]
    near = [commit for commit in new if commit.version <= after + limit]
    doubtful = [commit for commit in near if commit.operation not in _KEEPS_FEED]
    return Facts(
        table_id=table.table_id,
        latest=latest,
        commits=tuple(new),
        feed_off_at=_feed_off_at(spark, source, doubtful),
        breaks=tuple(_breaks(spark, source, near)),
    )


def _feed_off_at(spark: SparkSession, source: Source, doubtful: list[Commit]) -> int | None:
    return next((commit.version for commit in doubtful if not feed_on_at(spark, source, commit.version)), None)


def feed_on_at(spark: SparkSession, source: Source, version: int) -> bool:
    """Whether the feed was on at a version; Delta itself is asked, by a read of that version alone."""
    feed = spark.read.option("readChangeFeed", "true").option("startingVersion", version)
    try:
        feed.option("endingVersion", version).table(source.sql).isEmpty()
    except PySparkException as error:
        if error.getCondition() == "DELTA_MISSING_CHANGE_DATA":
            return False
        if (error.getCondition() or "").startswith("DELTA_CHANGE_DATA_FEED_INCOMPATIBLE"):
            return True  # it is on; that its rows do not fit today's schema is found where they are read
        raise
    return True


def schema_at(spark: SparkSession, source: Source, version: int) -> dict[str, Any]:
    """The table's schema at a version, as Spark spells schemas in JSON."""
    schema: dict[str, Any] = json.loads(spark.read.option("versionAsOf", version).table(source.sql).schema.json())
    return schema


def _breaks(spark: SparkSession, source: Source, near: list[Commit]) -> list[int]:
    """The versions, but for the first, at which the schema changed by more than added columns."""
    found = []
    before: dict[str, Any] | None = None
    for commit in near:
        if before is not None and commit.operation in _KEEPS_SCHEMA:
            continue
        now = schema_at(spark, source, commit.version)
        if before is not None and not only_adds(before, now):
            found.append(commit.version)
        before = now
    return found


def only_adds(before: dict[str, Any], now: dict[str, Any]) -> bool:
    """Whether every column of `before` is in `now` with the same type and nullability."""
    kept = {field["name"]: (field["type"], field["nullable"]) for field in now["fields"]}
    return all(kept.get(field["name"]) == (field["type"], field["nullable"]) for field in before["fields"])
