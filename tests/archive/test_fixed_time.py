from __future__ import annotations

from datetime import UTC, datetime

import pytest
from pyspark.sql import SparkSession

from mirrorfeed.archive.errors import relative_time_in_plan
from mirrorfeed.archive.fixed_time import Moment, fix_relative_times, moment
from mirrorfeed.archive.restore import session_time_zone
from tests.raised import raises

AT = Moment(1767222000000000, "2026-01-01", "2026-01-01 00:00:00", "Europe/Paris")
DAY, TIME = "DATE '2026-01-01'", "timestamp_micros(1767222000000000)"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("day = DATE '2026-01-05'", "day = DATE '2026-01-05'"),
        ("day = current_date()", f"day = {DAY}"),
        ("day > date_sub(CURRENT_DATE, 3)", f"day > date_sub({DAY}, 3)"),
        ("day = curdate ( )", f"day = {DAY}"),
        ("ts > now() - INTERVAL 2 DAYS", f"ts > {TIME} - INTERVAL 2 DAYS"),
        ("ts > current_timestamp", f"ts > {TIME}"),
        ("ts > localtimestamp()", "ts > TIMESTAMP_NTZ '2026-01-01 00:00:00'"),
        ("s > unix_timestamp()", "s > 1767222000L"),
        ("s > unix_timestamp(t)", "s > unix_timestamp(t)"),
        ("z = current_timezone()", "z = 'Europe/Paris'"),
        ("v = 'current_date()' OR v = \"now()\"", "v = 'current_date()' OR v = \"now()\""),
        ("v = 'it\\'s now()' AND now() > t", f"v = 'it\\'s now()' AND {TIME} > t"),
        ("v = r'C:\\' AND day = current_date AND w = 'x'", f"v = r'C:\\' AND day = {DAY} AND w = 'x'"),
        ("SELECT current_date AS current_date, now() as now", f"SELECT {DAY} AS current_date, {TIME} as now"),
        ("SELECT 1 FROM t TIMESTAMP AS OF now()", f"SELECT 1 FROM t TIMESTAMP AS OF {TIME}"),
        ("`current_date` = day", "`current_date` = day"),
        ("t.current_date = day AND now = 1", "t.current_date = day AND now = 1"),
        ("a -- now()\n= now()", f"a -- now()\n= {TIME}"),
        ("a /* /* now() */ now() */ = now()", f"a /* /* now() */ now() */ = {TIME}"),
        ("ts > now(/* c */)", f"ts > {TIME}"),
        ("ts > now -- c\n ( /* /* c */ c */ -- )\n)", f"ts > {TIME}"),
        ("day = CURRENT_DATE /* x */ ()", f"day = {DAY}"),
        ("s > unix_timestamp(/* c */ t)", "s > unix_timestamp(/* c */ t)"),
        ("day > current_date /* c */ - 3", f"day > {DAY} /* c */ - 3"),
        ("my_now() > 1 AND now_() > 2", "my_now() > 1 AND now_() > 2"),
    ],
)
def test_relative_times_are_replaced_by_their_current_values(text: str, expected: str) -> None:
    assert fix_relative_times(text, AT) == expected


def test_column_named_like_a_relative_time_is_not_replaced() -> None:
    assert fix_relative_times("Current_Date = current_date()", AT, ["current_date"]) == f"Current_Date = {DAY}"


@pytest.mark.parametrize(
    "text",
    ["day = DATE 'today'", "ts > timestamp' Yesterday CET '", "t < current_time(3)", "t < current_time /* */ (3)"],
)
def test_irreplaceable_relative_times_are_refused(text: str) -> None:
    with raises(relative_time_in_plan):
        fix_relative_times(text, AT)


def test_refusal_names_the_relative_time() -> None:
    assert "'today'" in str(relative_time_in_plan(text="day = 'today'", word="'today'"))


def test_timestamp_is_shown_in_the_session_time_zone(spark: SparkSession) -> None:
    before = spark.conf.get("spark.sql.session.timeZone")
    with session_time_zone(spark, "Europe/Paris"):
        assert moment(spark, datetime(2025, 12, 31, 23, tzinfo=UTC)) == AT
    assert spark.conf.get("spark.sql.session.timeZone") == before
