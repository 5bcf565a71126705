"""Read the changes between two versions or times, without publishing."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any, Literal

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from mirrorfeed.errors import ConfigurationError
from mirrorfeed.landing.schema import FEED_COLUMNS
from mirrorfeed.runtime.spark_session import lossless_settings
from mirrorfeed.source.change_preview_errors import (
    bound_outside_history,
    bounds_reversed,
    format_time,
    invalid_bound,
    range_unreadable,
)
from mirrorfeed.source.errors import FeedGapError, FeedUnreadableError, GapReason
from mirrorfeed.source.identifier import Source, quote
from mirrorfeed.source.reader import read_changes, read_errors
from mirrorfeed.source.snapshot_or_range import Commit, Range, first_missing
from mirrorfeed.source.table_info import TableInfo, read_table_info
from mirrorfeed.source.versions import read_commits, read_schema, utc_time

Bound = int | datetime
"""Start or end of a range: a version or a time."""
PastEnd = Literal["error", "empty"]
"""If a range ends after the newest version: raise an error (`error`), or return the changes that exist (`empty`)."""
_TIME = re.compile(r"\d{4}-\d{2}-\d{2}(?:[ T]\d{2}:\d{2}:\d{2}(?:\.\d{1,6})?(?:Z|[+-]\d{2}:\d{2})?)?")


def to_json_rows(rows: DataFrame) -> list[dict[str, Any]]:
    """Return the rows as dictionaries of JSON values. Decimals become text, because JSON numbers would be rounded."""
    columns = [
        F.col(quote(name)).cast("string").alias(name) if type_.startswith("decimal") else F.col(quote(name))
        for name, type_ in rows.dtypes
    ]
    text = F.to_json(F.struct(*columns), {"ignoreNullFields": "false"})
    with lossless_settings(rows.sparkSession):
        return [json.loads(row[0]) for row in rows.select(text).collect()]


def changes_between(
    spark: SparkSession,
    source: Source,
    start: str | int,
    end: str | int | None = None,
    past_end: PastEnd = "error",
    check: Callable[[Range, TableInfo], None] = lambda _, __: None,
) -> tuple[Range, DataFrame]:
    """Return the range between two versions or times (both included), and the changes in this range.

    The changes have the columns of the range's last version. Run queries on the changes inside the context managers
    `preview_errors` and `lossless_settings`. If `end` is None, the range ends at the newest version. With
    `past_end="empty"`, `start` and `end` can be after the newest version. Then only changes that exist are returned.
    `check` raises an error if files of the range cannot be read.

    Raises `invalid_bound` for an invalid bound, `range_unreadable` for unreadable changes, and the errors of
    `resolve_range`.
    """
    table = read_table_info(spark, source)  # raises a clear error for a view, which has no history
    history = read_commits(spark, source)
    last = None if end is None else parse_bound(spark, end)
    range_ = resolve_range(str(source), parse_bound(spark, start), last, history, past_end)
    before, to = range_.from_version_exclusive, range_.to_version_inclusive
    if not range_.versions:
        newest = Range(history[-1].version - 1, history[-1].version)
        return range_, read_changes(spark, source, newest).limit(0)
    with preview_errors(str(source), range_):
        if (hole := first_missing(before, to, history)) is not None:
            raise FeedGapError(table=str(source), published=before, where=hole, reason=GapReason.NO_COMMIT)
        check(range_, table)
        feed = read_changes(spark, source, range_)
        names = [field["name"] for field in read_schema(spark, source, to, {})["fields"]]
        if missing := [f"{name!r} is gone" for name in names if name not in feed.columns]:
            raise FeedUnreadableError(table=str(source), range=range_, version=str(to), read_version=None, lost=missing)
        rows = feed.select(*(quote(name) for name in names), *FEED_COLUMNS)
        rows.isEmpty()  # most errors occur when a read is planned, so report them now
    return range_, rows


@contextmanager
def preview_errors(table: str, range_: Range) -> Iterator[None]:
    """Context manager that raises `range_unreadable` if the changes of `range_` cannot be read."""
    try:
        with read_errors(table, range_):
            yield
    except (FeedGapError, FeedUnreadableError) as error:
        raise range_unreadable(cause=error) from error


def parse_bound(spark: SparkSession, text: str | int) -> Bound:
    """Convert text to a version or a time. A time without a time zone is in the time zone of the session.
    Raises `invalid_bound` for other text."""
    if isinstance(text, int):
        return text
    if text.isascii() and text.isdigit():
        return int(text)
    try:
        if not _TIME.fullmatch(text):
            raise ValueError(text)
        datetime.fromisoformat(text)
        (row,) = spark.sql(f"SELECT unix_micros(TIMESTAMP_LTZ '{text}')").collect()
        return utc_time(row[0])
    except (ValueError, OverflowError) as error:
        raise invalid_bound(text=text) from error


def resolve_range(table: str, start: Bound, end: Bound | None, history: Sequence[Commit], past_end: PastEnd) -> Range:
    """Return the range between two versions or times, both included. The range can be empty.

    Times select the commits from `start` to `end`. If `end` is None, the range ends at the newest version. `history`
    has all commits in ascending order. Raises `bounds_reversed` if `start` is after `end`. Raises
    `bound_outside_history` if `start` is before the first commit, unless this commit is version 0. If `past_end` is
    "error", also raises `bound_outside_history` if `start` or `end` is after the last commit.
    """
    first, last = history[0], history[-1]

    def outside(bound: Bound, reason: str) -> ConfigurationError:
        text = f"Version {bound}" if isinstance(bound, int) else f"The time {format_time(bound)} UTC"
        return bound_outside_history(table=table, bound=text, reason=reason, first=first, last=last)

    def crossed() -> ConfigurationError:
        shown = [f"{format_time(each)} UTC" if isinstance(each, datetime) else str(each) for each in (start, end)]
        return bounds_reversed(start=shown[0], end=shown[1])

    if end is not None and type(start) is type(end) and start > end:  # type: ignore[operator]
        raise crossed()
    if isinstance(start, datetime):
        if start < first.timestamp and first.version > 0:
            raise outside(start, "before the retained history")
        from_version = next((c.version for c in history if c.timestamp >= start), last.version + 1)
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
            to_version = max((c.version for c in history if c.timestamp <= end), default=from_version - 1)
        else:
            to_version = min(end, last.version)
        if type(start) is not type(end) and to_version < from_version:
            raise crossed()
    return Range(from_version - 1, max(to_version, from_version - 1))
