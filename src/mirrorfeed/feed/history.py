"""What the history of a Delta table says, from DESCRIBE and time travel: versions, feed, schemas, identity."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import Enum
from functools import partial
from typing import Any

from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as F

from mirrorfeed.errors import Terminal
from mirrorfeed.feed.faults import (
    EXPIRED,
    FEED_OFF,
    FILES_GONE,
    LOG_GONE,
    NOT_THERE,
    SCHEMA_DIFFERS,
    conditions,
    first_of,
    parameter,
)
from mirrorfeed.feed.features import UnknownFeatures, unknown
from mirrorfeed.feed.log import metadata_changes
from mirrorfeed.feed.metrics import rows_at_most
from mirrorfeed.feed.ranges import Commit, Facts, first_missing
from mirrorfeed.feed.source import Source

FEED = "delta.enableChangeDataFeed"
_ROW_TRACKING = "delta.enableRowTracking"

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
"""More doubtful commits than these are looked up in the log itself, at once, where it can be read."""
_AT_ONCE = 4
"""Questions about schemas; each takes some milliseconds of waiting."""
_FORMATS = ("delta", "iceberg")
"""Of which Databricks computes changes; that another engine has none of Iceberg is said by the engine."""


@dataclass(frozen=True, slots=True)
class Detail:
    table_id: str
    location: str
    properties: Mapping[str, str]
    partition_columns: tuple[str, ...]
    files: int
    bytes: int
    format: str = "delta"
    features: tuple[str, ...] = ()

    @property
    def records_changes(self) -> bool:
        return self.properties.get(FEED, "false").lower() == "true"

    @property
    def tracks_rows(self) -> bool:
        return self.format == "iceberg" or self.properties.get(_ROW_TRACKING, "false").lower() == "true"


class Feed(Enum):
    """Where a table's changes come from."""

    RECORDED = "recorded with every commit"
    COMPUTED = "computed from row tracking when it is read"
    OFF = "off"


class SourceMissing(Terminal):
    """The catalog shows no such table to whoever runs the command: it is not there, or the right to see it is
    missing."""

    code = "MF2001"

    def __init__(self, table: str) -> None:
        self.table = table

    def what(self) -> str:
        return f"There is no table {self.table}, or it is not to be seen from here."

    def next(self) -> str:
        return "Check `source` in the configuration, and the right to select from the table."


class NoTableAtPath(Terminal):
    """The source is a path, and no Delta table is there."""

    code = "MF2002"

    def __init__(self, path: str) -> None:
        self.path = path

    def what(self) -> str:
        return f"There is no Delta table at {self.path}: either nothing is there, or files that are no Delta table."

    def next(self) -> str:
        return "Check the path. It must be the folder that holds the table's _delta_log."


class NotDelta(Terminal):
    """The source is a view, or a table of another format: only Delta tables have a change data feed."""

    code = "MF2003"

    def __init__(self, table: str, found: str) -> None:
        self.table, self.found = table, found

    def what(self) -> str:
        return f"{self.table} is {self.found}, not a Delta table, so it has no change data feed."

    def next(self) -> str:
        return "Name the Delta table that holds the data."


class NoIdentity(Terminal):
    """The table has no id. Without one, a table that was dropped and made again could not be told from the one
    before."""

    code = "MF2004"

    def __init__(self, table: str, format_: str) -> None:
        self.table, self.format = table, format_

    def what(self) -> str:
        return (
            f"{self.table}, a table in the format {self.format}, has no id in DESCRIBE DETAIL: if it were dropped and"
            " made again, its mirror would keep the rows of both."
        )

    def next(self) -> str:
        return "Publish a Delta table that holds the same rows, or ask for this format with the output of that command."


class LogDamaged(Terminal):
    """Files are missing from the transaction log of the source, so Delta itself cannot read the table."""

    code = "MF2005"

    def __init__(self, table: str) -> None:
        self.table = table

    def what(self) -> str:
        return f"The transaction log of {self.table} cannot be read: commits are missing from it."

    def next(self) -> str:
        return "Put the missing files back into its _delta_log folder, or restore the table from a copy."


class VersionExpired(Terminal):
    """The version is so old that its files may be deleted already, so it is not read."""

    code = "MF2006"

    def __init__(self, table: str, version: int) -> None:
        self.table, self.version = table, version

    def what(self) -> str:
        return f"Version {self.version} of {self.table} is older than its delta.deletedFileRetentionDuration."

    def next(self) -> str:
        return "Ask for a newer version, or set a longer duration, if VACUUM has not taken its files yet."


class NoVersions(Terminal):
    """The source has no commit at all, so there is no version to publish."""

    code = "MF2007"

    def __init__(self, table: str) -> None:
        self.table = table

    def what(self) -> str:
        return f"The history of {self.table} is empty: no version of it can be named."

    def next(self) -> str:
        return "Check the table's _delta_log folder, or write to the table, then publish again."


def detail(spark: SparkSession, source: Source) -> Detail:
    """The table's identity, or a refusal where the source is missing, a view, or not Delta."""
    with _refusals(source):
        row = spark.sql(f"DESCRIBE DETAIL {source.sql}").first()
    found = row.asDict() if row else {}
    format_ = (found.get("format") or "unknown").lower()
    if format_ not in _FORMATS:
        raise NotDelta(str(source), f"a table in the format {format_}")
    if not found.get("id"):
        raise NoIdentity(str(source), format_)
    features = tuple(found.get("tableFeatures") or ())
    if strange := unknown(features):
        raise UnknownFeatures(str(source), strange)
    return Detail(
        found["id"],
        found.get("location") or "",
        found.get("properties") or {},
        tuple(found.get("partitionColumns") or ()),
        found.get("numFiles") or 0,
        found.get("sizeInBytes") or 0,
        format_,
        features,
    )


def feed_of(spark: SparkSession, source: Source, table: Detail) -> Feed:
    """Which feed a table has now. Whether one is computed is for the engine to say: not every one does that."""
    if table.records_changes:
        return Feed.RECORDED
    if table.tracks_rows and feed_on_at(spark, source, newest_version(spark, source)):
        return Feed.COMPUTED
    return Feed.OFF


_NO_TABLE = (
    "TABLE_OR_VIEW_NOT_FOUND",
    "SCHEMA_NOT_FOUND",
    "CATALOG_NOT_FOUND",
    "NO_SUCH_CATALOG_EXCEPTION",
    "REQUIRES_SINGLE_PART_NAMESPACE",  # a name of three parts, where the only catalog is Spark's own
    "INVALID_ATTRIBUTE_NAME_SYNTAX",  # a backtick in a name, which Delta's commands cannot spell
    "DELTA_PATH_DOES_NOT_EXIST",
    "DELTA_TABLE_NOT_FOUND",
)
_VIEW = ("EXPECT_TABLE_NOT_VIEW",)
_NOT_DELTA = ("DELTA_MISSING_DELTA_TABLE", "DELTA_TABLE_ONLY_OPERATION", "DELTA_NOT_A_DELTA_TABLE")


@contextmanager
def _refusals(source: Source) -> Iterator[None]:
    """What stands for no table, or for none that can be read, becomes an error that says so."""
    try:
        yield
    except Exception as error:
        if first_of(error, LOG_GONE):
            raise LogDamaged(str(source)) from error
        if first_of(error, _VIEW):
            raise NotDelta(str(source), "a view") from error
        if first_of(error, (*_NO_TABLE, *_NOT_DELTA)) and source.path is not None:
            raise NoTableAtPath(source.path) from error
        if first_of(error, _NO_TABLE):
            raise SourceMissing(str(source)) from error
        if first_of(error, _NOT_DELTA):
            raise NotDelta(str(source), "a table in another format") from error
        raise


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


def cloned_from(spark: SparkSession, source: Source) -> str | None:
    """The table that this one began as a clone of, as long as its history tells."""
    with _refusals(source):
        told = spark.sql(f"DESCRIBE HISTORY {source.sql}").where("operation = 'CLONE'")
        first = told.orderBy("version").select("operationParameters").first()
    return (first["operationParameters"] or {}).get("source") or "another table" if first else None


def parameters(spark: SparkSession, source: Source, version: int) -> Mapping[str, str]:
    """What the history tells of how a version was made; nothing where it tells nothing of it."""
    with _refusals(source):
        told = spark.sql(f"DESCRIBE HISTORY {source.sql}").where(f"version = {int(version)}")
        found = told.select("operationParameters").first()
    return (found["operationParameters"] or {}) if found else {}


def newest_version(spark: SparkSession, source: Source) -> int:
    return _newest(spark, source, 1)[-1].version


def newest_or_next(spark: SparkSession, source: Source, after: int) -> int | None:
    """The newest version, or the next after this one if that is there; None where the engine does not tell. For that a
    plan is made, where the history takes a job of Spark."""
    try:
        _ = spark.read.option("versionAsOf", after + 1).table(source.sql).schema
    except Exception as error:
        newest = parameter(error, "latest") if first_of(error, (NOT_THERE,)) else None
        return int(newest) if newest and newest.isdigit() else None
    return after + 1


def _since(spark: SparkSession, source: Source, after: int | None) -> tuple[int, list[Commit]]:
    """The newest version, and the commits after this one; the newest commit where there is none to go on from."""
    if after is None:
        found = _newest(spark, source, 1)
        return found[-1].version, found
    if newest_or_next(spark, source, after) == after:
        return after, []
    found = commits(spark, source, after)
    return found[-1].version, [commit for commit in found if commit.version > after]


def _newest(spark: SparkSession, source: Source, limit: int | None = None) -> list[Commit]:
    """The newest commits, ascending."""
    statement = f"DESCRIBE HISTORY {source.sql}" + ("" if limit is None else f" LIMIT {limit}")
    with _refusals(source):
        answer = spark.sql(statement)
        # Times come as those of this machine's clocks. To ask Spark for others is a job of its own, which is needed
        # only for the hours that clocks show twice, as Connect does not say which of the two is meant.
        rows = answer.collect()
        found = [_commit(row, row["timestamp"].astimezone(UTC)) for row in rows]
        if any(shown_twice(row["timestamp"]) for row in rows):
            rows = answer.withColumn("micros", F.unix_micros("timestamp")).collect()
            found = [_commit(row, _at(row["micros"])) for row in rows]
    if not found:
        raise NoVersions(str(source))
    return sorted(found, key=lambda commit: commit.version)


def _commit(row: Row, timestamp: datetime) -> Commit:
    rows = rows_at_most(row["operation"], row["operationParameters"] or {}, row["operationMetrics"] or {})
    return Commit(row["version"], timestamp, row["operation"], rows)


def shown_twice(local: datetime) -> bool:
    """Whether the clocks of this machine show a time without a zone a second time, an hour later."""
    return local.replace(fold=0).astimezone(UTC) != local.replace(fold=1).astimezone(UTC)


def _at(micros: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=micros)


def facts(
    spark: SparkSession,
    source: Source,
    after: int | None,
    limit: int,
    schema: Callable[[int], dict[str, Any]] | None = None,
) -> Facts:
    """What `decide` needs; schemas and feed are looked at for no more than `limit` versions after the published one.
    Schemas are asked of `schema`, or else of `schema_at`."""
    with ThreadPoolExecutor(1) as meanwhile:
        asked = meanwhile.submit(_since, spark, source, after)
        table = detail(spark, source)
    latest, new = asked.result()
    if after is None:
        # Where the property is set, the engine need not be asked: what is committed later is judged by its own version.
        off = None if table.records_changes else _feed_off_at(spark, source, new)
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
    doubtful = [commit for commit in near if commit.operation not in _KEEPS_SCHEMA]
    if len(doubtful) > _FEW:
        changed = metadata_changes(spark, table.location, [commit.version for commit in doubtful])
        doubtful = [commit for commit in doubtful if changed is None or commit.version in changed]
    breaks, stop, reason = _breaks(schema or partial(schema_at, spark, source), after, near[:1], doubtful)
    whole = [commit for commit in doubtful if stop is None or commit.version < stop]
    off = _feed_off_at(spark, source, [commit for commit in whole if commit.operation not in _KEEPS_FEED])
    return Facts(
        table.table_id,
        latest,
        tuple(new),
        off,
        tuple(breaks),
        stop if reason is LogDamaged else None,
        stop if reason is VersionExpired else None,
        table.properties,
        table.partition_columns,
        table.bytes,
    )


def _feed_off_at(spark: SparkSession, source: Source, doubtful: list[Commit]) -> int | None:
    return next((commit.version for commit in doubtful if not feed_on_at(spark, source, commit.version)), None)


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


def first_with_feed(spark: SparkSession, source: Source) -> int | None:
    """The first version from which on the feed tells of all changes up to now; None where it is off."""
    return begin_of_feed(commits(spark, source), lambda version: feed_on_at(spark, source, version))


def begin_of_feed(known: Sequence[Commit], on_at: Callable[[int], bool]) -> int | None:
    """The same of these commits, ascending. Asked is only where a commit may have switched it."""
    first, after = None, None
    for commit in reversed(known):
        if after is not None and after.version != commit.version + 1:
            break
        may_switch = after is None or after.operation not in _KEEPS_FEED
        if may_switch and not on_at(commit.version):
            break
        first, after = commit.version, commit
    return first


def schema_at(spark: SparkSession, source: Source, version: int) -> dict[str, Any]:
    """The table's schema at a version, as Spark spells schemas in JSON."""
    try:
        with _refusals(source):
            frame = spark.read.option("versionAsOf", version).table(source.sql)
            schema: dict[str, Any] = json.loads(frame.schema.json())
    except Exception as error:
        if first_of(error, (EXPIRED,)):
            raise VersionExpired(str(source), version) from error
        raise
    return schema


def _breaks(
    schema: Callable[[int], dict[str, Any]], after: int, first: list[Commit], doubtful: list[Commit]
) -> tuple[list[int], int | None, type[Terminal] | None]:
    """The versions at which the schema changed by more than added columns, the first also where the schema before it
    is not known any more; and the first version whose schema cannot be known, where this ends, with the reason."""
    looked_at = sorted({commit.version for commit in (*first, *doubtful)})
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        asked = {version: pool.submit(schema, version) for version in (after, *looked_at) if first}
    found: list[int] = []
    before: dict[str, Any] | None = None
    with suppress(Exception):  # the log may begin later, or have a hole there
        before = asked[after].result() if first else None
    for version in looked_at:
        try:
            now = asked[version].result()
        except (LogDamaged, VersionExpired) as error:
            return found, version, type(error)
        if before is None or not only_adds(before, now):
            found.append(version)
        before = now
    return found, None, None


def only_adds(before: dict[str, Any], now: dict[str, Any]) -> bool:
    """Whether every column of `before` is in `now` with the same type and nullability."""
    kept = {field["name"]: (field["type"], field["nullable"]) for field in now["fields"]}
    return all(kept.get(field["name"]) == (field["type"], field["nullable"]) for field in before["fields"])
