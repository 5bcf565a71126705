"""The change feed for people: from a version or time to another, both included, as a DataFrame and as counts."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from mirrorfeed.landing.schema import FEED_COLUMNS
from mirrorfeed.runtime.session_settings import faithful
from mirrorfeed.source.errors import (
    BadBound,
    BoundsCrossed,
    FeedUnreadable,
    Gap,
    NotRecorded,
    OutsideHistory,
    SchemasDiffer,
    spell_time,
)
from mirrorfeed.source.identifier import Source, quote
from mirrorfeed.source.ranges import Commit, Range, first_missing
from mirrorfeed.source.reader import changes, read_faults
from mirrorfeed.source.table_info import detail_of
from mirrorfeed.source.versions import commits, schema_at

PastEnd = Literal["error", "empty"]
_TIME = re.compile(r"\d{4}-\d{2}-\d{2}(?: \d{2}:\d{2}:\d{2}(?:\.\d{3})?)?")


Bound = int | datetime


@dataclass(frozen=True, slots=True)
class Changes:
    """The rows of a range of the feed, pinned at both ends; no rows where the range is empty. What else is made of them
    is to be asked for within `faithful`."""

    table: str
    range: Range
    rows: DataFrame

    def counts(self) -> dict[str, int]:
        """Rows by change type."""
        with _refusals(self.table, self.range):
            found = self.rows.groupBy("_change_type").count().collect()
        return {row["_change_type"]: row["count"] for row in sorted(found)}

    def first(self, count: int) -> list[dict[str, Any]]:
        """The first rows, by version."""
        if not count:
            return []
        with _refusals(self.table, self.range):
            return spelled(self.rows.orderBy("_commit_version").limit(count))


def spelled(rows: DataFrame) -> list[dict[str, Any]]:
    """As JSON has them; decimals are text, for numbers of JSON would be rounded."""
    columns = [
        F.col(quote(name)).cast("string").alias(name) if type_.startswith("decimal") else F.col(quote(name))
        for name, type_ in rows.dtypes
    ]
    text = F.to_json(F.struct(*columns), {"ignoreNullFields": "false"})
    with faithful(rows.sparkSession):
        return [json.loads(row[0]) for row in rows.select(text).collect()]


def changes_between(
    spark: SparkSession, source: Source, start: str | int, end: str | int | None = None, past_end: PastEnd = "error"
) -> Changes:
    """The feed from a version or time to another, both included, in the columns of the range's end. Without an end,
    to the newest version. Past the newest, an error, or, with `empty`, what there is."""
    detail_of(spark, source)  # a view has no history, and says so less clearly
    known = commits(spark, source)
    last = None if end is None else parse_bound(end, moments(spark))
    range_ = resolve(str(source), parse_bound(start, moments(spark)), last, known, past_end)
    if range_.from_version_exclusive >= range_.to_version_inclusive:
        newest = Range(known[-1].version - 1, known[-1].version)
        return Changes(str(source), range_, changes(spark, source, newest).limit(0))
    hole = first_missing(range_.from_version_exclusive, range_.to_version_inclusive, [each.version for each in known])
    if hole is not None:
        raise NotRecorded(table=str(source), where=hole, reason="the log has no commit")
    names = [field["name"] for field in schema_at(spark, source, range_.to_version_inclusive)["fields"]]
    with _refusals(str(source), range_):
        feed = changes(spark, source, range_)
        if missing := [f"{name!r} is gone" for name in names if name not in feed.columns]:
            raise FeedUnreadable(
                table=str(source),
                range=range_,
                version=str(range_.to_version_inclusive),
                read_version=None,
                lost=missing,
            )
        rows = feed.select(*(quote(name) for name in names), *FEED_COLUMNS)
        rows.isEmpty()  # most refusals show up when a read is planned: here, and not in the caller's hands
    return Changes(str(source), range_, rows)


@contextmanager
def _refusals(table: str, range_: Range) -> Iterator[None]:
    """Findings in words for someone who looks, and does not publish."""
    try:
        with read_faults(table, range_):
            yield
    except Gap as gap:
        raise NotRecorded(table=table, where=gap.where, reason=gap.reason) from gap
    except FeedUnreadable as fault:
        raise SchemasDiffer(fault=fault) from fault


def moments(spark: SparkSession) -> Callable[[str], datetime]:
    """When a time in the session's zone is, which Spark alone can tell: it knows zones that Python does not."""

    def moment(text: str) -> datetime:
        (row,) = spark.sql(f"SELECT unix_micros(TIMESTAMP_LTZ '{text}')").collect()
        return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=row[0])

    return moment


def parse_bound(text: str | int, moment: Callable[[str], datetime]) -> Bound:
    """A version, or a time that is asked for when it is."""
    if isinstance(text, int):
        return text
    if text.isascii() and text.isdigit():
        return int(text)
    if not _TIME.fullmatch(text):
        raise BadBound(text=text)
    try:
        datetime.fromisoformat(text)
        return moment(text)
    except (ValueError, OverflowError) as error:
        raise BadBound(text=text) from error


def resolve(table: str, start: Bound, end: Bound | None, known: Sequence[Commit], past_end: PastEnd) -> Range:
    """The versions between two bounds, both included: a start at a time is the first commit then or later, an end the
    last one then or earlier."""
    first, last = known[0], known[-1]
    if end is not None and type(start) is type(end) and start > end:  # type: ignore[operator]
        shown = [str(each) if isinstance(each, int) else f"{spell_time(each)} UTC" for each in (start, end)]
        raise BoundsCrossed(start=shown[0], end=shown[1])
    if isinstance(start, datetime) and start < first.timestamp and first.version > 0:
        raise OutsideHistory(table=table, bound=_spell(start), reason="before the kept history", first=first, last=last)
    if isinstance(start, datetime):
        from_version = next((c.version for c in known if c.timestamp >= start), last.version + 1)
    else:
        from_version = start
    if from_version < first.version:
        raise OutsideHistory(
            table=table, bound=f"Version {from_version}", reason="before the kept history", first=first, last=last
        )
    if from_version > last.version:
        if past_end == "error":
            raise OutsideHistory(
                table=table, bound=_spell(start), reason="past the newest version", first=first, last=last
            )
        return Range(last.version, last.version)

    to_version = last.version
    if isinstance(end, datetime):
        if end > last.timestamp and past_end == "error":
            raise OutsideHistory(
                table=table, bound=_spell(end), reason="past the newest version", first=first, last=last
            )
        to_version = max((c.version for c in known if c.timestamp <= end), default=from_version - 1)
    elif end is not None:
        if end > last.version and past_end == "error":
            raise OutsideHistory(
                table=table, bound=_spell(end), reason="past the newest version", first=first, last=last
            )
        to_version = min(end, last.version)
    return Range(from_version - 1, max(to_version, from_version - 1))


def _spell(bound: Bound) -> str:
    return f"Version {bound}" if isinstance(bound, int) else f"The time {spell_time(bound)} UTC"
