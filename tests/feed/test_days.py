"""Days that the calendar of old left out come out of the feed as they went in, and the session is as it was."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql import SparkSession

from mirrorfeed.feed.days import SETTING, all_days, are_read
from mirrorfeed.feed.preview import changes_between
from mirrorfeed.feed.source import Source
from mirrorfeed.keep.run import Keeping, keep
from tests.delta import DeltaTable, Zone

DAYS = ["1582-10-04", "1582-10-05", "1582-10-10", "1582-10-14", "1582-10-15"]
GONE = "1582-10-10"
DELETE, UPSERT = 2, 4


class Settings:
    """Those of a session, which may let nobody change them."""

    def __init__(self, value: str | None, *, free: bool = True) -> None:
        self.value, self._free = value, free

    def get(self, name: str) -> str | None:
        assert name == SETTING
        return self.value

    def set(self, name: str, value: str) -> None:
        if not self._free:
            raise RuntimeError("[CONFIG_NOT_AVAILABLE]")
        self.value = value


def session(value: str | None, *, free: bool = True) -> Any:
    return SimpleNamespace(conf=Settings(value, free=free))


@pytest.mark.parametrize("before", ["false", "true"])
def test_the_setting_is_taken_back_when_the_last_of_those_who_read_is_done(before: str) -> None:
    spark = session(before)
    first, second = all_days(spark), all_days(spark)
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert spark.conf.value == "true"
    second.__exit__(None, None, None)
    assert spark.conf.value == before


def test_each_session_gets_back_what_it_had_also_after_a_failure() -> None:
    one, other = session("false"), session("false")
    with suppress(ZeroDivisionError), all_days(one), all_days(other):
        assert (one.conf.value, other.conf.value) == ("true", "true")
        raise ZeroDivisionError
    assert (one.conf.value, other.conf.value) == ("false", "false")


@pytest.mark.parametrize(
    ("spark", "found"),
    [
        (session("false"), True),
        (session("true", free=False), True),
        (session("false", free=False), False),
        (session(None, free=False), False),
        (SimpleNamespace(), False),
    ],
)
def test_a_session_may_not_let_it_be_set(spark: Any, found: bool) -> None:
    assert are_read(spark) is found


def test_the_days_are_right_wherever_the_feed_is_read(spark: SparkSession, tmp_path: Path) -> None:
    before = spark.conf.get(SETTING)
    table = DeltaTable(spark, tmp_path / "t", "day date, at timestamp, m map<date, timestamp>")
    zone = Zone(tmp_path / "zone", table, ("day",))
    kept = Keeping(table.source, Source(path=str(tmp_path / "kept")))
    zone.publish()
    keep(spark, kept)
    rows = (f"(date'{day}', timestamp'{day} 01:00:00Z', map(date'{day}', timestamp'{day} 01:00:00Z'))" for day in DAYS)
    table.sql(f"INSERT INTO {{}} VALUES {', '.join(rows)}")
    table.sql(f"DELETE FROM {{}} WHERE day = date'{GONE}'")

    zone.publish()
    keep(spark, kept)
    history = spark.read.table(kept.history.sql).where("_change_type = 'insert'")
    changed = changes_between(spark, table.source, 1, 1).first(9)
    assert {
        "publication": sorted((str(row["day"]), row["__rowMarker__"]) for row in zone.last),
        "a preview": sorted((row["day"], row["at"][:10], *(at[:10] for at in row["m"].values())) for row in changed),
        "history": sorted(map(tuple, history.selectExpr("string(day)", "string(date(at))").collect())),
    } == {
        "publication": [(day, DELETE if day == GONE else UPSERT) for day in DAYS],
        "a preview": [(day, day, day) for day in DAYS],
        "history": [(day, day) for day in DAYS],
    }
    assert spark.conf.get(SETTING) == before
