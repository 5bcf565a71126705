"""Publications are complete and exact with any session settings, and leave the session unchanged."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from datetime import date
from pathlib import Path
from threading import Event, Thread
from types import SimpleNamespace
from typing import Any

import deltalake
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from mirrorfeed.config.options import HistoryLocation
from mirrorfeed.history.append import append_versions
from mirrorfeed.publish.files import row_staging
from mirrorfeed.runtime.spark_session import (
    ALL_DAYS,
    SparkSettingError,
    all_days_are_read,
    lossless_settings,
    original_setting,
    setting,
)
from mirrorfeed.source.change_preview import changes_between, to_json_rows
from mirrorfeed.source.errors import FeedGapError, SnapshotFilesDeletedError, source_file_damaged
from mirrorfeed.source.identifier import Source
from tests.history.test_history import configured
from tests.raised import raises
from tests.support.delta import SPARK_4_0, DeltaTable, SparkTable, Zone

DAYS = ["1582-10-04", "1582-10-05", "1582-10-10", "1582-10-14", "1582-10-15"]
GONE = "1582-10-10"
HABITS = {
    "spark.sql.files.ignoreMissingFiles": "true",
    "spark.sql.files.ignoreCorruptFiles": "true",
    "spark.sql.legacy.timeParserPolicy": "LEGACY",
    "spark.sql.parquet.datetimeRebaseModeInRead": "LEGACY",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "LEGACY",
    "spark.sql.parquet.int96RebaseModeInRead": "LEGACY",
    "spark.sql.legacy.charVarcharAsString": "true",
    "spark.sql.readSideCharPadding": "false",
    "spark.sql.preserveCharVarcharTypeInfo": "true",
    "spark.sql.ansi.enabled": "false",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.adaptive.coalescePartitions.enabled": "false",
}
OTHERS = {
    "parquet.summary.metadata.level": "ALL",
    "spark.sql.caseSensitive": "true",
    "spark.sql.files.maxRecordsPerFile": "2",
    "spark.sql.shuffle.partitions": "200",
}
"""Settings that a session has while rows are published."""


class Settings:
    """Settings of a session that may be read-only."""

    def __init__(self, all_days: str | None, *, free: bool = True, others: Mapping[str, str] = HABITS) -> None:
        self.values, self._free = {ALL_DAYS: all_days, **others}, free

    def get(self, name: str, *default: str | None) -> str | None:
        return self.values.get(name, *default) if default else self.values[name]

    def set(self, name: str, value: str) -> None:
        if not self._free:
            raise RuntimeError("[CONFIG_NOT_AVAILABLE]")
        self.values[name] = value

    def unset(self, name: str) -> None:
        del self.values[name]


def session(all_days: str | None, *, free: bool = True, others: Mapping[str, str] = HABITS) -> Any:
    return SimpleNamespace(conf=Settings(all_days, free=free, others=others))


@pytest.mark.parametrize("all_days", ["false", "true"])
def test_settings_are_restored_when_the_last_reader_is_done(all_days: str) -> None:
    spark = session(all_days)
    before = dict(spark.conf.values)
    first, second = lossless_settings(spark), lossless_settings(spark)
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert spark.conf.values == {
        "spark.sql.datetime.java8API.enabled": "true",
        "spark.sql.files.ignoreMissingFiles": "false",
        "spark.sql.files.ignoreCorruptFiles": "false",
        "spark.sql.legacy.timeParserPolicy": "CORRECTED",
        "spark.sql.parquet.datetimeRebaseModeInRead": "CORRECTED",
        "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
        "spark.sql.parquet.int96RebaseModeInRead": "CORRECTED",
        "spark.sql.legacy.charVarcharAsString": "false",
        "spark.sql.readSideCharPadding": "true",
        "spark.sql.preserveCharVarcharTypeInfo": "false",
        "spark.sql.ansi.enabled": "true",
        "spark.sql.adaptive.enabled": "true",
        "spark.sql.adaptive.coalescePartitions.enabled": "true",
    }
    second.__exit__(None, None, None)
    assert spark.conf.values == before


def test_each_session_is_restored_also_after_a_failure() -> None:
    one, other = session("false"), session("false")
    before = dict(one.conf.values)
    with suppress(ZeroDivisionError), lossless_settings(one), lossless_settings(other):
        assert one.conf.values == other.conf.values != before
        raise ZeroDivisionError
    assert one.conf.values == other.conf.values == before


ZONE = "spark.sql.session.timeZone"


@pytest.mark.parametrize("original", ["UTC", None])
def test_thread_that_needs_another_value_of_a_setting_waits(original: str | None) -> None:
    """Otherwise a copy of rows would have the time zone of another copy, and the session would keep one of the two."""
    spark = session("true", others={} if original is None else {ZONE: original})
    before, found = dict(spark.conf.values), []

    def use_other_zone() -> None:
        with setting(spark, ZONE, "America/New_York"):
            found.append(spark.conf.values[ZONE])

    other = Thread(target=use_other_zone)
    with suppress(ZeroDivisionError), setting(spark, ZONE, "Asia/Tokyo"):
        other.start()
        other.join(0.1)
        assert (spark.conf.values[ZONE], found) == ("Asia/Tokyo", [])
        raise ZeroDivisionError
    other.join()
    assert (spark.conf.values, found) == (before, ["America/New_York"])


def test_thread_that_needs_the_original_value_of_a_setting_waits() -> None:
    """Otherwise a restore plan would contain the time zone of a copy that another thread makes."""
    spark, found = session("true", others={ZONE: "UTC"}), []

    def read_zone() -> None:
        with original_setting(ZONE):
            found.append(spark.conf.values[ZONE])

    other = Thread(target=read_zone)
    with setting(spark, ZONE, "Asia/Tokyo"):
        other.start()
        other.join(0.1)
        assert found == []
        with original_setting(ZONE):  # for this thread, the value of the outer context
            assert spark.conf.values[ZONE] == "Asia/Tokyo"
    other.join()
    assert found == ["UTC"]


def test_threads_share_a_value_of_a_setting_and_the_last_one_restores_it() -> None:
    spark, entered, leave = session("true", others={}), Event(), Event()
    before = dict(spark.conf.values)

    def use_same_zone() -> None:
        with setting(spark, ZONE, "Asia/Tokyo"):
            entered.set()
            leave.wait(10)

    other = Thread(target=use_same_zone)
    with setting(spark, ZONE, "Asia/Tokyo"):
        other.start()
        assert entered.wait(10)
    assert spark.conf.values[ZONE] == "Asia/Tokyo"
    leave.set()
    other.join()
    assert spark.conf.values == before


def test_a_thread_can_nest_values_of_a_setting() -> None:
    spark, seen = session("true", others={ZONE: "UTC"}), []
    with setting(spark, ZONE, "Asia/Tokyo"):
        with setting(spark, ZONE, "Asia/Tokyo"), setting(spark, ZONE, "Europe/Oslo"):
            seen.append(spark.conf.values[ZONE])
        seen.append(spark.conf.values[ZONE])
    assert (seen, spark.conf.values[ZONE]) == (["Europe/Oslo", "Asia/Tokyo"], "UTC")


@pytest.mark.parametrize(
    ("spark", "found"),
    [
        (session("false"), True),
        (session("true", free=False, others={}), True),
        (session("false", free=False, others={}), False),
        (session(None, free=False, others={}), False),
        (SimpleNamespace(), False),
    ],
)
def test_session_may_not_allow_changing_settings(spark: Any, found: bool) -> None:
    assert all_days_are_read(spark) is found


@pytest.mark.parametrize(
    ("name", "value", "refused"),
    [
        ("spark.sql.files.ignoreCorruptFiles", "true", True),
        ("spark.sql.files.ignoreCorruptFiles", "false", False),
        ("spark.sql.parquet.datetimeRebaseModeInRead", "LEGACY", True),
        ("spark.sql.parquet.datetimeRebaseModeInRead", "corrected", False),
        ("spark.sql.readSideCharPadding", "false", True),
        ("spark.sql.adaptive.enabled", "false", False),
    ],
)
def test_fixed_setting_that_changes_values_stops_the_table(name: str, value: str, refused: bool) -> None:
    spark = session("false", free=False, others={name: value})
    with (
        pytest.raises(SparkSettingError, match=f"{name} is {value}") if refused else nullcontext(),
        lossless_settings(spark),
    ):
        pass
    after = session("false")
    before = dict(after.conf.values)
    with lossless_settings(after):
        pass
    assert after.conf.values == before  # the refusal is not treated as another reader


@contextmanager
def old_habits(spark: SparkSession) -> Iterator[None]:
    """Legacy settings that people use for compatibility, and settings that ignore missing or corrupt files."""
    habits: dict[str, str] = HABITS | OTHERS
    if SPARK_4_0:
        del habits["spark.sql.preserveCharVarcharTypeInfo"]
    before = {name: spark.conf.get(name, None) for name in habits}
    try:
        for name, value in habits.items():
            spark.conf.set(name, value)
        yield
        assert {name: spark.conf.get(name) for name in habits} == habits
    finally:
        for name, old in before.items():
            if old is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, old)


@pytest.mark.parametrize("most", [0, pytest.param(row_staging.SMALL_BATCH_ROWS, marks=pytest.mark.soak)])
def test_old_dates_and_times_are_published_exactly_in_any_session(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    """In files that pyarrow writes for small batches, and in Spark's files."""
    monkeypatch.setattr(row_staging, "SMALL_BATCH_ROWS", most)
    table = DeltaTable(spark, tmp_path / "t", "id int, day date, at timestamp, m map<date, timestamp>")
    zone = Zone(tmp_path / "zone", table)
    day, at = f"date'{GONE}'", "timestamp'1000-01-01 00:00:00Z'"
    for id_ in (1, 2):  # a snapshot, and a range
        table.sql(f"INSERT INTO {{}} VALUES ({id_}, {day}, {at}, map({day}, {at}))")
        with old_habits(spark):
            zone.publish()
    files = spark.read.parquet(*map(str, sorted(zone.folder.glob("*.parquet"))))
    assert sorted(map(tuple, files.selectExpr("id", "string(day)", "unix_seconds(at)", "m").collect())) == [
        (id_, GONE, -30610224000, f'{{"{GONE}":"1000-01-01T00:00:00.000000Z"}}') for id_ in (1, 2)
    ]


@pytest.mark.slow
@pytest.mark.parametrize("most", [row_staging.SMALL_BATCH_ROWS, pytest.param(0, marks=pytest.mark.soak)])
def test_dates_of_other_writers_and_padded_texts_are_published_exactly(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    monkeypatch.setattr(row_staging, "SMALL_BATCH_ROWS", most)
    dates = DeltaTable(spark, tmp_path / "dates", "id int, day date")
    texts = SparkTable(spark, tmp_path / "texts", "id int, c char(3), s struct<c: char(2)>")
    zones = [Zone(tmp_path / f"zone of {table.path.name}", table) for table in (dates, texts)]
    for first in (0, 3):  # a snapshot, and a range
        ids = range(first, first + 3)
        rows = pa.table({"id": pa.array(ids, pa.int32()), "day": [date(1500, 3, 1)] * 3})
        deltalake.write_deltalake(str(dates.path), rows, mode="append")
        texts.sql("INSERT INTO {} VALUES " + ", ".join(f"({id_}, 'x', struct('y'))" for id_ in ids))
        with old_habits(spark):
            for zone in zones:
                zone.publish()
        assert [len(zone.files) for zone in zones] == [1 + bool(first)] * 2
        assert [str(row["day"]) for row in zones[0].last] == ["1500-03-01"] * 3
        assert [(row["c"], row["s"]) for row in zones[1].last] == [("x  ", '{"c":"y "}')] * 3


@pytest.mark.parametrize(
    ("what", "fault"),
    [
        ("a snapshot", "gone"),
        ("a range", "broken"),
        pytest.param("a snapshot", "broken", marks=pytest.mark.soak),
        pytest.param("a range", "gone", marks=pytest.mark.soak),
    ],
)
def test_unreadable_files_are_never_skipped(spark: SparkSession, tmp_path: Path, what: str, fault: str) -> None:
    table = DeltaTable(spark, tmp_path / "t")
    table.insert(1)
    zone = Zone(tmp_path / "zone", table)
    if what == "a range":
        zone.publish()
        table.sql("UPDATE {} SET v = 'new' WHERE id = 1")
    published = len(zone.files)
    folder = table.path / "_change_data" if what == "a range" else table.path
    for file in folder.glob("*.parquet"):
        if fault == "gone":
            file.unlink()
        else:
            file.write_bytes(b"PAR1" + bytes(file.stat().st_size))
    with (
        old_habits(spark),
        pytest.raises((FeedGapError, SnapshotFilesDeletedError)) if fault == "gone" else raises(source_file_damaged),
    ):
        zone.publish()
    assert len(zone.files) == published


def test_dates_are_correct_in_publication_preview_and_history(spark: SparkSession, tmp_path: Path) -> None:
    before = spark.conf.get(ALL_DAYS)
    table = DeltaTable(spark, tmp_path / "t", "day date, at timestamp, m map<date, timestamp>")
    zone = Zone(tmp_path / "zone", table, ("day",))
    with_history = configured(table.source, HistoryLocation(location=Source(path=str(tmp_path / "kept"))))
    append_versions(spark, with_history)
    rows = (f"(date'{day}', timestamp'{day} 01:00:00Z', map(date'{day}', timestamp'{day} 01:00:00Z'))" for day in DAYS)
    table.sql(f"INSERT INTO {{}} VALUES {', '.join(rows)}")

    zone.publish()
    append_versions(spark, with_history)
    history = spark.read.table(Source(path=str(tmp_path / "kept")).sql).where("_change_type = 'insert'")
    changed = to_json_rows(changes_between(spark, table.source, 1, 1)[1].limit(9))
    assert {
        "publication": sorted((str(row["day"]), str(row["at"])[:10]) for row in zone.last),
        "a preview": sorted((row["day"], row["at"][:10], *(at[:10] for at in row["m"].values())) for row in changed),
        "history": sorted(map(tuple, history.selectExpr("string(day)", "string(date(at))").collect())),
    } == {
        "publication": [(day, day) for day in DAYS],
        "a preview": [(day, day, day) for day in DAYS],
        "history": [(day, day) for day in DAYS],
    }
    assert spark.conf.get(ALL_DAYS) == before
