"""The feed between two versions or times, both inclusive."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from mirrorfeed.source.change_preview import Bound, PastEnd, changes_between, parse_bound, resolve_range, to_json_rows
from mirrorfeed.source.change_preview_errors import (
    bound_outside_history,
    bounds_reversed,
    invalid_bound,
    range_unreadable,
)
from mirrorfeed.source.errors import FeedUnreadableError
from mirrorfeed.source.snapshot_or_range import Commit, Range
from tests.raised import raises
from tests.support.delta import DeltaTable


def in_utc(statement: str) -> Any:
    """Return the result of a query for the time in the statement, in a session whose time zone is UTC."""
    found = datetime.fromisoformat(statement.split("'")[1])
    found = found if found.tzinfo else found.replace(tzinfo=UTC)
    return SimpleNamespace(collect=lambda: [[(found - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)]])


SESSION: Any = SimpleNamespace(sql=in_utc)


def at(hour: int) -> datetime:
    return datetime(2026, 3, 1, hour, tzinfo=UTC)


MILLISECONDS = timedelta(milliseconds=7)
HISTORY = [Commit(version, at(hour), "WRITE") for version, hour in ((3, 6), (4, 8), (5, 10), (6, 12))]


@pytest.mark.parametrize(
    ("text", "bound"),
    [
        ("7", 7),
        (7, 7),
        ("2026-03-01", datetime(2026, 3, 1, tzinfo=UTC)),
        ("2026-03-01 08:30:00", datetime(2026, 3, 1, 8, 30, tzinfo=UTC)),
        ("2026-03-01 08:30:00.250", datetime(2026, 3, 1, 8, 30, 0, 250_000, tzinfo=UTC)),
        ("2026-03-01 08:30:00.250125", datetime(2026, 3, 1, 8, 30, 0, 250_125, tzinfo=UTC)),
        ("2026-03-01T08:30:00.25Z", datetime(2026, 3, 1, 8, 30, 0, 250_000, tzinfo=UTC)),
        ("2026-03-01T10:30:00+02:00", datetime(2026, 3, 1, 8, 30, tzinfo=UTC)),
    ],
)
def test_bound_is_a_version_or_a_time(text: str | int, bound: Bound) -> None:
    assert parse_bound(SESSION, text) == bound


@pytest.mark.parametrize("text", ["", "-1", "now", "2026-13-01", "2026-03-01T08:30", "2026-03-01 08:30", "٣"])
def test_invalid_bounds_are_rejected(text: str) -> None:
    with raises(invalid_bound, match=r"is neither a version nor a time"):
        parse_bound(SESSION, text)


@pytest.mark.parametrize(
    ("start", "end", "past_end", "expected"),
    [
        (3, None, "error", Range(2, 6)),
        (4, 5, "error", Range(3, 5)),
        (5, 5, "error", Range(4, 5)),
        (at(8), at(10), "error", Range(3, 5)),
        (at(7), at(11), "error", Range(3, 5)),
        (at(9), at(9), "error", Range(4, 4)),
        (4, at(12), "error", Range(3, 6)),
        (6, 9, "empty", Range(5, 6)),
        (9, None, "empty", Range(6, 6)),
        (at(13), None, "empty", Range(6, 6)),
        (at(11), at(23), "empty", Range(5, 6)),
    ],
)
def test_both_ends_are_included(start: Bound, end: Bound | None, past_end: PastEnd, expected: Range) -> None:
    assert resolve_range("t", start, end, HISTORY, past_end) == expected


@pytest.mark.parametrize(
    ("start", "end", "words"),
    [
        (2, None, "Version 2 is before the retained history of t."),
        (at(5), None, "The time 2026-03-01 05:00:00 UTC is before the retained history of t."),
        (7, None, "Version 7 is past the newest version of t."),
        (4, 7, "Version 7 is past the newest version of t."),
        (4, at(13), "The time 2026-03-01 13:00:00 UTC is past the newest version of t."),
        (at(13), None, "The time 2026-03-01 13:00:00 UTC is past the newest version of t."),
        (at(12) + MILLISECONDS, None, "The time 2026-03-01 12:00:00.007 UTC is past the newest version of t."),
    ],
)
def test_bounds_outside_the_history_are_rejected_with_its_range(start: Bound, end: Bound | None, words: str) -> None:
    with raises(bound_outside_history) as caught:
        resolve_range("t", start, end, HISTORY, "error")
    assert str(caught.value).startswith(words)
    assert "version 3 (2026-03-01 06:00:00 UTC) to version 6 (2026-03-01 12:00:00 UTC)" in str(caught.value)


def test_times_are_compared_by_millisecond() -> None:
    known = [Commit(each.version, each.timestamp + MILLISECONDS, each.operation) for each in HISTORY]
    with raises(bound_outside_history) as caught:
        resolve_range("t", at(6), None, known, "error")
    assert caught.value.computed["oldest"] == "version 3 (2026-03-01 06:00:00.007 UTC)"
    with raises(bounds_reversed, match=r"start 2026-03-01 06:00:00\.007 UTC is after the end 2026-03-01 06:00:00 UTC"):
        resolve_range("t", at(6) + MILLISECONDS, at(6), known, "error")


def test_start_after_the_end_is_rejected() -> None:
    with raises(bounds_reversed, match=r"The start 5 is after the end 4\."):
        resolve_range("t", 5, 4, HISTORY, "empty")
    with raises(bounds_reversed, match=r"The start 5 is after the end 2026-03-01 08:00:00 UTC\."):
        resolve_range("t", 5, at(8), HISTORY, "error")
    with raises(bounds_reversed, match=r"The start 2026-03-01 09:00:00 UTC is after the end 4\."):
        resolve_range("t", at(9), 4, HISTORY, "error")


@pytest.fixture(scope="module")
def table(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> DeltaTable:
    """A table with the feed on from version 2, and a column added at version 4."""
    created = DeltaTable(spark, tmp_path_factory.mktemp("preview") / "t", feed=False)
    created.insert(1)
    created.set_feed(True)
    created.insert(2, 3)
    created.sql("ALTER TABLE {} ADD COLUMNS (w int)")
    created.sql("UPDATE {} SET w = 1 WHERE id = 2")
    return created


def counted(spark: SparkSession, table: DeltaTable, *bounds: str | int, past_end: PastEnd = "error") -> dict[str, int]:
    """Rows by change type."""
    _, rows = changes_between(spark, table.source, *bounds, past_end=past_end)
    return by_type(rows)


def by_type(rows: DataFrame) -> dict[str, int]:
    return {row[0]: row[1] for row in rows.groupBy("_change_type").count().collect()}


def test_rows_are_counted_by_change_type(spark: SparkSession, table: DeltaTable) -> None:
    assert counted(spark, table, 2, 5) == {"insert": 2, "update_postimage": 1, "update_preimage": 1}


def test_rows_have_the_columns_of_the_last_version(spark: SparkSession, table: DeltaTable) -> None:
    feed = ["_change_type", "_commit_version", "_commit_timestamp"]
    assert changes_between(spark, table.source, 2, 3)[1].columns == ["id", "v", *feed]
    assert changes_between(spark, table.source, 2, 4)[1].columns == ["id", "v", "w", *feed]


def test_column_missing_in_the_newest_version_cannot_be_shown(spark: SparkSession, tmp_path: Path) -> None:
    table = DeltaTable(spark, tmp_path / "t")
    table.sql("ALTER TABLE {} ADD COLUMNS (w int)")
    table.sql("INSERT INTO {} VALUES (1, 'a', 1)")
    table.sql("RESTORE TABLE {} TO VERSION AS OF 0")
    with raises(range_unreadable) as caught:
        changes_between(spark, table.source, 0, 2)
    cause = caught.value.cause
    assert isinstance(cause, FeedUnreadableError)
    assert (cause.version, list(cause.lost)) == ("2", ["'w' is gone"])
    assert counted(spark, table, 3) == {"delete": 1}


def test_start_before_the_feed_is_an_error(spark: SparkSession, table: DeltaTable) -> None:
    with raises(range_unreadable, match=r"at version 1 the change data feed is off\. Start at a later version"):
        changes_between(spark, table.source, 1)


def test_start_past_the_end_returns_no_rows_or_fails(spark: SparkSession, table: DeltaTable) -> None:
    range_, rows = changes_between(spark, table.source, 99, past_end="empty")
    assert (rows.collect(), range_.versions) == ([], 0)
    assert counted(spark, table, 5, 99, past_end="empty").keys() == {
        "update_postimage",
        "update_preimage",
    }
    with raises(bound_outside_history):
        changes_between(spark, table.source, 5, 99)


@pytest.mark.slow  # `publish/test_delta_cases` covers more times
def test_timestamps_give_the_same_range_as_spark(spark: SparkSession, table: DeltaTable) -> None:
    times = spark.sql(f"DESCRIBE HISTORY {table.source.sql}").orderBy("version").select("timestamp").collect()
    start, end = (times[version][0].strftime("%Y-%m-%d %H:%M:%S.%f")[:-3] for version in (3, 5))
    reader = spark.read.option("readChangeFeed", "true").option("startingTimestamp", start)
    of_delta = reader.option("endingTimestamp", end).table(table.source.sql)
    assert changes_between(spark, table.source, start, end)[0] == Range(2, 5)
    assert counted(spark, table, start, end) == {
        row[0]: row[1] for row in of_delta.groupBy("_change_type").count().collect()
    }


@pytest.mark.parametrize(
    "zone",
    ["+02:00", *(pytest.param(zone, marks=pytest.mark.slow) for zone in ("GMT-3", "PST")), "Europe/Stockholm"],
)
def test_times_are_in_the_session_time_zone(spark: SparkSession, table: DeltaTable, zone: str) -> None:
    before = spark.conf.get("spark.sql.session.timeZone") or "UTC"
    times = spark.sql(f"DESCRIBE HISTORY {table.source.sql}").where("version = 3")
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        (row,) = times.select(F.date_format("timestamp", "yyyy-MM-dd HH:mm:ss.SSS")).collect()
        assert changes_between(spark, table.source, row[0])[0] == Range(2, 5)
        assert changes_between(spark, table.source, 3)[0] == Range(2, 5)
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)


def test_first_rows_preserve_all_digits(spark: SparkSession) -> None:
    rows = spark.sql("SELECT 7L AS _commit_version, 12345678901234567.89BD AS `a.b`, 0.5D AS f, NULL AS n")
    assert to_json_rows(rows) == [{"_commit_version": 7, "a.b": "12345678901234567.89", "f": 0.5, "n": None}]
