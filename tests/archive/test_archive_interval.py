from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from mirrorfeed.archive import archive_interval
from mirrorfeed.archive.archive_interval import PROPERTY, Policy, SafeInterval, parse_policy, to_properties
from mirrorfeed.archive.errors import InvalidIntervalError, interval_increase_too_early, no_archive_interval
from mirrorfeed.source.table_info import parse_days, read_table_info
from tests.raised import raises
from tests.support.delta import DeltaTable

START = datetime(2026, 1, 1, tzinfo=UTC)
DAY = timedelta(days=1)


def test_interval_of_a_table_is_set_changed_stepped_and_unset(spark: SparkSession, tmp_path: Path) -> None:
    table = DeltaTable(spark, tmp_path / "t")
    with raises(no_archive_interval) as missing:
        archive_interval.step(spark, table.source, START)
    assert missing.value.table == f"{tmp_path}/t"
    assert archive_interval.read(spark, table.source) is None
    archive_interval.set_first(spark, table.source, parse_days("60 days"), START)
    assert read_table_info(spark, table.source).properties[PROPERTY] == "60 days"
    with raises(interval_increase_too_early) as longer:
        archive_interval.set_first(spark, table.source, 90, START)
    assert (longer.value.now, longer.value.rule, longer.value.wanted) == (60, 60, 90)
    assert "the lifecycle rule has archived after 60 days" in str(longer.value)
    archive_interval.change_interval(spark, table.source, 90, exact=True, now=START)
    assert archive_interval.step(spark, table.source, START + 7 * DAY).days == 67
    before = table.latest
    assert archive_interval.step(spark, table.source, START + 7 * DAY).days == 67
    assert table.latest == before  # without a change nothing is written
    assert archive_interval.set_first(spark, table.source, 30, START + 8 * DAY).days == 30
    assert archive_interval.step(spark, table.source, START + 99 * DAY).days == 30
    assert spark.conf.get("spark.databricks.delta.allowArbitraryProperties.enabled") == "false"
    archive_interval.unset(spark, table.source)
    assert [name for name in read_table_info(spark, table.source).properties if "rchive" in name] == []


BROKEN = [
    {PROPERTY: "2 months"},
    {PROPERTY: "60 days", "mirrorfeed.archive.movedFrom": "60 days"},
    {
        **to_properties(Policy(60, SafeInterval(60, START, 90), True)),
        "mirrorfeed.archive.movedFromSince": "2026-01-01T00:00:00",  # in an unknown time zone
    },
    {
        **to_properties(Policy(60, SafeInterval(60, START, 90), True)),
        "mirrorfeed.archive.movedFromSince": "yesterday",
    },
]


@pytest.mark.parametrize("broken", BROKEN)
def test_invalid_interval_properties_are_reported(broken: dict[str, str]) -> None:
    with pytest.raises(InvalidIntervalError) as caught:
        parse_policy("main.t", broken)
    listed = ", ".join(f"{name} = {value!r}" for name, value in broken.items())
    assert caught.value.listed == listed


def test_invalid_interval_properties_are_repaired_by_set_and_unset(spark: SparkSession, tmp_path: Path) -> None:
    table, broken = DeltaTable(spark, tmp_path / "t"), BROKEN[-1]  # all existing properties
    listed = ", ".join(f"'{name}' = '{value}'" for name, value in broken.items())

    def break_it() -> None:
        with archive_interval.any_property(spark):
            table.sql(f"ALTER TABLE {{}} SET TBLPROPERTIES ({listed})")
        with pytest.raises(InvalidIntervalError, match=str(table.path)):
            archive_interval.step(spark, table.source, START)

    break_it()
    assert archive_interval.set_first(spark, table.source, 90, START) == Policy(90)
    assert archive_interval.read(spark, table.source) == Policy(90)
    break_it()
    archive_interval.unset(spark, table.source)
    assert archive_interval.read(spark, table.source) is None
    assert spark.conf.get("spark.databricks.delta.allowArbitraryProperties.enabled", None) is None
