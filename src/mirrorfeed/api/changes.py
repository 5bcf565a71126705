"""The change data feed of a table, as people look at it."""

from __future__ import annotations

from typing import Literal

from pyspark.sql import SparkSession

from mirrorfeed.api.results import Changes
from mirrorfeed.feed.preview import changes_between
from mirrorfeed.feed.source import Source
from mirrorfeed.feed.switch import first_with_feed


def changes(
    spark: SparkSession,
    source: Source,
    start: str | int | None,
    end: str | int | None,
    past_end: Literal["error", "empty"],
) -> Changes:
    begin = first_with_feed(spark, source) if start is None else start
    found = changes_between(spark, source, 0 if begin is None else begin, end, past_end)
    range_ = found.range
    rows = found.rows.orderBy("_commit_version")
    return Changes(found.table, range_.from_version_exclusive, range_.to_version_inclusive, rows)
