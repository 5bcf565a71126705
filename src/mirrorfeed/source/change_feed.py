"""The change data feed of a table: is it on, how to turn it on, facts for the next range, and a preview for people."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from enum import Enum
from functools import partial
from typing import Any, Literal

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from mirrorfeed.landing.errors import ReservedColumn
from mirrorfeed.landing.schema import FEED_COLUMNS, reserved_names
from mirrorfeed.runtime.errors import FEED_OFF, FILES_GONE, SCHEMA_DIFFERS, conditions, first_of
from mirrorfeed.runtime.spark_session import faithful
from mirrorfeed.source import errors
from mirrorfeed.source.errors import (
    BoundsCrossed,
    FeedUnreadable,
    Gap,
    GapReason,
    LogDamaged,
    OutsideHistory,
    VersionExpired,
    format_time,
)
from mirrorfeed.source.identifier import Source, quote
from mirrorfeed.source.next_step import Commit, Facts, Range, first_missing
from mirrorfeed.source.reader import changes, read_errors
from mirrorfeed.source.table_info import FEED, TableInfo, find_metadata_changes, read_table_info
from mirrorfeed.source.versions import (
    KEEPS_SCHEMA,
    commits,
    find_schema_breaks,
    newest_commit,
    newest_version,
    schema_at,
)

DEFAULT_LINE = "spark.databricks.delta.properties.defaults.enableChangeDataFeed true"
"""Spark configuration of a cluster or job with which every new table records its changes."""
_CHANGES_COLUMNS = {"ADD COLUMNS", "CHANGE COLUMN", "RENAME COLUMN", "DROP COLUMNS"}
_KEEPS_FEED = KEEPS_SCHEMA | _CHANGES_COLUMNS | {"WRITE", "STREAMING UPDATE", "MERGE"}
"""Operations that never turn the feed on or off. After any other, Delta is asked."""
_MAX_DOUBTFUL = 16
"""If more commits may have changed the schema, the log is searched for those that did, where it can be read."""


class FeedKind(Enum):
    RECORDED = "recorded with every commit"
    COMPUTED = "computed from row tracking when it is read"
    OFF = "off"


class EnableResult(Enum):
    NOW = "switched on"
    BEFORE = "on already"
    COMPUTED = "computed from row tracking when it is read: no action is needed"


def enable_feed(spark: SparkSession, source: Source) -> EnableResult:
    """Turn the feed on for an existing table, unless the engine computes it. Earlier changes are not recorded."""
    info = read_table_info(spark, source)
    if reserved := reserved_names(spark.table(source.sql).columns):
        raise ReservedColumn(table=str(source), columns=reserved)
    if (kind := feed_kind(spark, source, info)) is not FeedKind.OFF:
        return EnableResult.BEFORE if kind is FeedKind.RECORDED else EnableResult.COMPUTED
    spark.sql(f"ALTER TABLE {source.sql} SET TBLPROPERTIES ({FEED} = true)")
    return EnableResult.NOW


def feed_kind(spark: SparkSession, source: Source, info: TableInfo) -> FeedKind:
    """The feed that a table has now. Not every engine computes one from row tracking, so the engine is asked."""
    if info.records_changes:
        return FeedKind.RECORDED
    if info.tracks_rows and is_feed_on(spark, source, newest_version(spark, source)):
        return FeedKind.COMPUTED
    return FeedKind.OFF


def is_feed_on(spark: SparkSession, source: Source, version: int) -> bool:
    """Whether the feed was on at a version. Delta decides: the changes of this version alone are read."""
    feed = spark.read.option("readChangeFeed", "true").option("startingVersion", version)
    try:
        feed.option("endingVersion", version).table(source.sql).isEmpty()
    except Exception as error:
        if FEED_OFF in conditions(error):
            return False
        # Otherwise it is on. Deleted rows or a schema that does not fit are reported when the range is read.
        if first_of(error, (SCHEMA_DIFFERS, *FILES_GONE)) is None:
            raise
    return True


def first_version_with_feed(spark: SparkSession, source: Source) -> int | None:
    """The first version since which all changes are in the feed; None if it is off."""
    return find_feed_start(commits(spark, source), partial(is_feed_on, spark, source))


def find_feed_start(known: Sequence[Commit], is_on: Callable[[int], bool]) -> int | None:
    """The same, given all commits in ascending order. `is_on` is called only for commits that may turn the feed off."""
    first, after = None, None
    for commit in reversed(known):
        if after is not None and after.version != commit.version + 1:
            break
        may_switch = after is None or after.operation not in _KEEPS_FEED
        if may_switch and not is_on(commit.version):
            break
        first, after = commit.version, commit
    return first


def is_same_table(facts: Facts, spark: SparkSession, source: Source) -> bool:
    """Whether the table of `facts` still exists. With other partition columns it is another one, because Delta returns
    earlier changes with NULL in them."""
    now = read_table_info(spark, source)
    return now.table_id == facts.table_id and set(now.partition_columns) == set(facts.partitions)


def read_schema(
    spark: SparkSession, source: Source, version: int, schemas: dict[int, dict[str, Any]]
) -> dict[str, Any]:
    """The schema at a version, which `schemas` has afterwards."""
    if version not in schemas:
        schemas[version] = schema_at(spark, source, version)
    return schemas[version]


def read_facts(spark: SparkSession, source: Source, after: int | None, limit: int) -> Facts:
    """Read what `decide` needs. Schemas and feed are checked for at most `limit` versions after the published one."""
    schemas: dict[int, dict[str, Any]] = {}
    schema = partial(read_schema, spark, source, schemas=schemas)

    def read_new() -> tuple[int, list[Commit]]:
        if after is None:
            newest = newest_commit(spark, source)
            return newest.version, [newest]
        if newest_version(spark, source, after) == after:
            return after, []
        pool.submit(lambda: (schema(after), schema(after + 1)))  # meanwhile, because the history takes long
        found = commits(spark, source, after)
        return found[-1].version, [commit for commit in found if commit.version > after]

    with ThreadPoolExecutor(2) as pool:
        history = pool.submit(read_new)
        info = read_table_info(spark, source, counted=True)
        latest, new = history.result()
    if after is None:
        # If the property is set, Delta need not be asked. Later commits are judged by their own version.
        feed_off_at = None if info.records_changes else _first_without_feed(spark, source, new)
        return _facts(info, latest, new, feed_off_at=feed_off_at)
    missing = first_missing(after, latest, [commit.version for commit in new])
    end = min(after + limit, latest) if missing is None else min(after + limit, missing - 1)
    near = [commit for commit in new if commit.version <= end]
    doubtful = [commit for commit in near if commit.operation not in KEEPS_SCHEMA]
    if len(doubtful) > _MAX_DOUBTFUL:
        changed = find_metadata_changes(spark, info.location, [commit.version for commit in doubtful])
        doubtful = [commit for commit in doubtful if changed is None or commit.version in changed]
    breaks, stop, reason = find_schema_breaks(schema, after, near[:1], doubtful)
    readable = [commit for commit in doubtful if stop is None or commit.version < stop]
    maybe_off = [commit for commit in readable if commit.operation not in _KEEPS_FEED]
    return _facts(
        info,
        latest,
        new,
        feed_off_at=_first_without_feed(spark, source, maybe_off),
        breaks=tuple(breaks),
        schemas=schemas,
        damaged_at=stop if reason is LogDamaged else None,
        expired_at=stop if reason is VersionExpired else None,
    )


def _facts(info: TableInfo, latest: int, new: Sequence[Commit], **found: Any) -> Facts:
    return Facts(
        info.table_id,
        latest,
        tuple(new),
        properties=info.properties,
        partitions=info.partition_columns,
        bytes=info.bytes,
        **found,
    )


def _first_without_feed(spark: SparkSession, source: Source, doubtful: Sequence[Commit]) -> int | None:
    return next((commit.version for commit in doubtful if not is_feed_on(spark, source, commit.version)), None)


Bound = int | datetime
"""A version or a time."""
PastEnd = Literal["error", "empty"]
_TIME = re.compile(r"\d{4}-\d{2}-\d{2}(?:[ T]\d{2}:\d{2}:\d{2}(?:\.\d{1,6})?(?:Z|[+-]\d{2}:\d{2})?)?")


def to_json_rows(rows: DataFrame) -> list[dict[str, Any]]:
    """Rows as JSON values. Decimals are text, because JSON numbers would be rounded."""
    columns = [
        F.col(quote(name)).cast("string").alias(name) if type_.startswith("decimal") else F.col(quote(name))
        for name, type_ in rows.dtypes
    ]
    text = F.to_json(F.struct(*columns), {"ignoreNullFields": "false"})
    with faithful(rows.sparkSession):
        return [json.loads(row[0]) for row in rows.select(text).collect()]


def changes_between(
    spark: SparkSession, source: Source, start: str | int, end: str | int | None = None, past_end: PastEnd = "error"
) -> tuple[Range, DataFrame]:
    """The range between two versions or times, both included, and its rows in the columns of the last version. Further
    queries on the rows must run within `preview_errors` and `faithful`.

    Without `end`, up to the newest version. Beyond the newest version, `past_end` decides: raise an error, or return
    the changes that exist.
    """
    read_table_info(spark, source)  # reports a view more clearly than its missing history would
    known = commits(spark, source)
    last = None if end is None else parse_bound(end, time_parser(spark))
    range_ = resolve(str(source), parse_bound(start, time_parser(spark)), last, known, past_end)
    if not range_.versions:
        newest = Range(known[-1].version - 1, known[-1].version)
        return range_, changes(spark, source, newest).limit(0)
    hole = first_missing(range_.from_version_exclusive, range_.to_version_inclusive, [each.version for each in known])
    with preview_errors(str(source), range_):
        if hole is not None:
            before = range_.from_version_exclusive
            raise Gap(table=str(source), published=before, where=hole, reason=GapReason.NO_COMMIT)
        feed = changes(spark, source, range_)
        names = [field["name"] for field in schema_at(spark, source, range_.to_version_inclusive)["fields"]]
        if missing := [f"{name!r} is gone" for name in names if name not in feed.columns]:
            version = str(range_.to_version_inclusive)
            raise FeedUnreadable(table=str(source), range=range_, version=version, read_version=None, lost=missing)
        rows = feed.select(*(quote(name) for name in names), *FEED_COLUMNS)
        rows.isEmpty()  # most errors occur when a read is planned, so report them now
    return range_, rows


@contextmanager
def preview_errors(table: str, range_: Range) -> Iterator[None]:
    """Translate findings into errors for somebody who reads and does not publish."""
    try:
        with read_errors(table, range_):
            yield
    except (Gap, FeedUnreadable) as error:
        raise errors.RangeUnreadable(cause=error) from error


def time_parser(spark: SparkSession) -> Callable[[str], datetime]:
    """A function that parses times in the session's zone. Spark knows zones that Python does not."""

    def parse_time(text: str) -> datetime:
        (row,) = spark.sql(f"SELECT unix_micros(TIMESTAMP_LTZ '{text}')").collect()
        return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=row[0])

    return parse_time


def parse_bound(text: str | int, parse_time: Callable[[str], datetime]) -> Bound:
    """Parse a version or a time. Raise `BadBound`."""
    if isinstance(text, int):
        return text
    if text.isascii() and text.isdigit():
        return int(text)
    try:
        if not _TIME.fullmatch(text):
            raise ValueError(text)
        datetime.fromisoformat(text)
        return parse_time(text)
    except (ValueError, OverflowError) as error:
        raise errors.BadBound(text=text) from error


def resolve(table: str, start: Bound, end: Bound | None, known: Sequence[Commit], past_end: PastEnd) -> Range:
    """The versions between two bounds, both included: from the first commit at or after a start time to the last commit
    at or before an end time."""
    first, last = known[0], known[-1]

    def outside(bound: Bound, reason: str) -> OutsideHistory:
        text = f"Version {bound}" if isinstance(bound, int) else f"The time {format_time(bound)} UTC"
        return OutsideHistory(table=table, bound=text, reason=reason, first=first, last=last)

    def crossed() -> BoundsCrossed:
        shown = [f"{format_time(each)} UTC" if isinstance(each, datetime) else str(each) for each in (start, end)]
        return BoundsCrossed(start=shown[0], end=shown[1])

    if end is not None and type(start) is type(end) and start > end:  # type: ignore[operator]
        raise crossed()
    if isinstance(start, datetime):
        if start < first.timestamp and first.version > 0:
            raise outside(start, "before the retained history")
        from_version = next((c.version for c in known if c.timestamp >= start), last.version + 1)
    else:
        from_version = start
    if from_version < first.version:
        raise outside(from_version, "before the retained history")
    if from_version > last.version:
        if past_end == "error":
            raise outside(start, "past the newest version")
        return Range(last.version, last.version)
    to_version = last.version
    if end is not None:
        if past_end == "error" and end > (last.timestamp if isinstance(end, datetime) else last.version):  # type: ignore[operator]
            raise outside(end, "past the newest version")
        if isinstance(end, datetime):
            to_version = max((c.version for c in known if c.timestamp <= end), default=from_version - 1)
        else:
            to_version = min(end, last.version)
        if type(start) is not type(end) and to_version < from_version:
            raise crossed()
    return Range(from_version - 1, max(to_version, from_version - 1))
