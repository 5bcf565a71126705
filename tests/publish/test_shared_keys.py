"""A key that two rows share for some time: the mirror gets the remaining row."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from mirrorfeed.landing.output_format import Output
from mirrorfeed.landing.schema import Problem
from mirrorfeed.landing.selection import Selection
from mirrorfeed.publish.errors import RowsRefusedError
from mirrorfeed.publish.files import row_staging
from mirrorfeed.source.errors import FeedGapError
from tests.support.delta import DeltaTable, SparkTable, Zone

WAYS: dict[str, dict[str, Any]] = {
    "net": {},
    "full": {"changes": "full"},
    "exact": {"changes": "full", "row_markers": "exact"},
    "by time": {"output": Output(by_time=True)},
}


def measures_look_up(zone: Zone) -> bool:
    """Publish, and return whether deleted keys were looked up."""
    result = zone.publish()
    return "look_up_seconds" in result.measured[result.records[0].batch]


@pytest.fixture
def all_rows_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_staging, "SMALL_BATCH_ROWS", 0)


@pytest.mark.parametrize(
    ("between", "ways"),
    [
        pytest.param(True, ("net",), id="in two publications"),
        pytest.param(False, ("full",), id="in one range"),
        pytest.param(True, ("exact",), id="in two publications, exact markers", marks=pytest.mark.slow),
        pytest.param(False, ("net",), id="in one range, net changes", marks=pytest.mark.slow),
        pytest.param(True, ("full", "by time"), id="in two publications, other forms", marks=pytest.mark.soak),
        pytest.param(False, ("exact", "by time"), id="in one range, other forms", marks=pytest.mark.soak),
    ],
)
def test_newer_row_remains_after_the_older_one_is_deleted(
    spark: SparkSession, tmp_path: Path, between: bool, ways: tuple[str, ...]
) -> None:
    table = DeltaTable(spark, tmp_path / "t")
    table.sql("INSERT INTO {} VALUES (1, 'a'), (2, 'b'), (3, 'c')")
    zones = [Zone(tmp_path / way, table, **WAYS[way]) for way in ways]
    for zone in zones:
        zone.publish()
    table.sql("INSERT INTO {} VALUES (1, 'a2')")
    if between:
        for zone in zones:
            zone.publish()
    table.sql("DELETE FROM {} WHERE v IN ('a', 'c')")
    for zone in zones:
        zone.publish()
        assert zone.mirrors_the_table(), zone.root.name


@pytest.mark.usefixtures("all_rows_are_many")
@pytest.mark.soak  # duplicates are also allowed in `test_remaining_duplicates_are_refused`
@pytest.mark.parametrize("way", ["exact", "by time"])
def test_table_is_deduplicated_after_duplicates_were_published(spark: SparkSession, tmp_path: Path, way: str) -> None:
    table = DeltaTable(spark, tmp_path / "t")
    table.insert(*range(10))
    zone = Zone(tmp_path / "zone", table, **WAYS[way])
    zone.publish()
    table.sql("INSERT INTO {} SELECT id, 'new' FROM {}")
    zone.publish()
    table.sql("INSERT OVERWRITE {} SELECT id, max(v) FROM {} WHERE id <> 3 GROUP BY id")
    zone.publish()
    assert zone.mirrors_the_table()


@pytest.mark.parametrize("first", ["the new row", pytest.param("the old row", marks=pytest.mark.slow)])
def test_dimension_row_is_closed_in_its_own_commit(spark: SparkSession, tmp_path: Path, first: str) -> None:
    table = DeltaTable(spark, tmp_path / "t", "id int, v string, is_current boolean")
    table.sql("INSERT INTO {} VALUES (1, 'a', true), (2, 'b', true)")
    zone = Zone(tmp_path / "zone", table, selection=Selection(where="is_current"))
    zone.publish()
    statements = ["INSERT INTO {} VALUES (1, 'a2', true)", "UPDATE {} SET is_current = false WHERE v = 'a'"]
    for statement in statements if first == "the new row" else reversed(statements):
        table.sql(statement)
        zone.publish()
    assert {row["id"]: row["v"] for row in zone.mirrored} == {1: "a2", 2: "b"}


def test_remaining_duplicates_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    table = DeltaTable(spark, tmp_path / "t")
    table.sql("INSERT INTO {} VALUES (1, 'v1'), (1, 'x'), (1, 'y')")
    Zone(tmp_path / "zone", table, validate_keys="none").publish()
    zone = Zone(tmp_path / "zone", table)
    table.sql("DELETE FROM {} WHERE v = 'v1'")
    with pytest.raises(RowsRefusedError) as caught:
        zone.publish()
    assert [(row.problem, row.key) for row in caught.value.rows][:1] == [(Problem.DUPLICATE_KEY, "id = 1")]
    table.sql("DELETE FROM {} WHERE v = 'x'")
    zone.publish()
    assert zone.mirrors_the_table()


@pytest.mark.parametrize(
    ("most", "most_keys"),
    [
        pytest.param(row_staging.SMALL_BATCH_ROWS, 0, marks=pytest.mark.slow),
        pytest.param(0, 0, marks=pytest.mark.slow),
        (0, row_staging.MAX_COLLECTED_KEYS),
    ],
)
def test_update_after_a_second_row_came_and_went_is_published(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int, most_keys: int
) -> None:
    """The first query does not show the net change of key 1, so it comes from the second one."""
    monkeypatch.setattr(row_staging, "SMALL_BATCH_ROWS", most)
    monkeypatch.setattr(row_staging, "MAX_COLLECTED_KEYS", most_keys)
    table = DeltaTable(spark, tmp_path / "t")
    table.sql("INSERT INTO {} VALUES (1, 'a'), (2, 'x'), (3, 'y')")
    zone = Zone(tmp_path / "zone", table)
    zone.publish()
    table.sql("INSERT INTO {} VALUES (1, 'b')")
    table.sql("DELETE FROM {} WHERE v IN ('b', 'y')")
    table.sql("UPDATE {} SET v = concat(v, '2') WHERE id < 3")
    assert zone.publish().rows == {"upsert": 2, "delete": 1}
    assert zone.mirrors_the_table()


@pytest.mark.slow
def test_keys_of_every_type_are_looked_up(spark: SparkSession, tmp_path: Path) -> None:
    types = ("string", "tinyint", "bigint", "decimal(9,2)", "date", "timestamp", "timestamp_ntz", "binary", "boolean")
    names = tuple(f"k{n}" for n in range(len(types)))
    columns = ", ".join(f"`{name}` {type_}" for name, type_ in zip(names, types, strict=True))
    table = SparkTable(spark, tmp_path / "t", f"{columns}, v string, c char(3)")
    rows = [
        "'it''s', 1Y, -5L, 1.50, date'1582-10-10', timestamp'1582-10-10 00:00:00.000001Z',"
        " timestamp_ntz'0001-01-01 00:00:00', X'00ff', true",
        "'', 2Y, 7L, -0.01, date'9999-12-31', timestamp'9999-12-31 23:59:59.999999Z',"
        " timestamp_ntz'2026-10-25 02:30:00', X'', false",
    ]
    table.sql(
        "INSERT INTO {} VALUES "
        + ", ".join(f"({row}, '{v}', '{n}')" for n, row in enumerate(rows) for v in ("old", "new"))
    )
    Zone(tmp_path / "zone", table, (*names, "c"), validate_keys="none").publish()
    zone = Zone(tmp_path / "zone", table, (*names, "c"))
    table.sql("DELETE FROM {} WHERE v = 'old'")
    progress = zone.publish()
    assert progress.rows == {"delete": 2, "upsert": 2}
    assert [row["v"] for row in zone.mirrored] == ["new", "new"]


@pytest.mark.slow
def test_only_deleted_keys_of_a_table_without_guaranteed_keys_are_looked_up(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = DeltaTable(spark, tmp_path / "t")
    table.insert(0, 1, 2, 3)
    zone = Zone(tmp_path / "zone", table)
    zone.publish()
    table.sql("UPDATE {} SET v = 'new' WHERE id = 1")
    assert not measures_look_up(zone)
    looked_up = {}
    for id_, way in enumerate(("source", "range", "none")):
        table.sql(f"DELETE FROM {{}} WHERE id = {id_}")
        looked_up[way] = measures_look_up(Zone(zone.root, table, validate_keys=way))
    assert looked_up == {"source": True, "range": False, "none": False}
    assert zone.mirrors_the_table()


@pytest.mark.slow
def test_exact_markers_need_the_files_of_the_version_at_which_keys_are_looked_up(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = DeltaTable(spark, tmp_path / "t")
    table.sql("INSERT INTO {} VALUES (0, 'z'), (1, 'a'), (2, 'b')")
    table.sql("INSERT INTO {} VALUES (3, 'c')")
    zone = Zone(tmp_path / "zone", table, max_versions_per_publication=1, **WAYS["exact"])
    zone.publish()
    table.sql("DELETE FROM {} WHERE id = 1")
    before = set(table.path.glob("*.parquet"))
    table.sql("OPTIMIZE {}")
    table.sql("INSERT INTO {} VALUES (1, 'again')")
    for file in before - table.live_files():
        file.unlink()
    with pytest.raises(FeedGapError, match="after version 2 cannot be read: at version 3 a file is missing"):
        zone.publish()  # the newest version has key 1, and a later range inserts it


def test_keys_are_looked_up_in_the_newest_version_if_files_are_gone(spark: SparkSession, tmp_path: Path) -> None:
    table = DeltaTable(spark, tmp_path / "t")
    table.sql("INSERT INTO {} VALUES (1, 'a'), (2, 'b'), (9, 'z')")
    table.sql("INSERT INTO {} VALUES (1, 'a2')")
    Zone(tmp_path / "zone", table, validate_keys="none").publish()
    zone = Zone(tmp_path / "zone", table, max_versions_per_publication=1)
    table.sql("DELETE FROM {} WHERE v = 'a'")
    before = set(table.path.glob("*.parquet"))
    table.sql("OPTIMIZE {}")
    for file in before - table.live_files():
        file.unlink()
    zone.publish()
    assert zone.mirrors_the_table()
