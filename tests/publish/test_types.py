"""Values of every type: written to files, applied by the replica, and compared with their source."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable as AnyDeltaTable
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from fixtures.mirror import canonical
from mirrorfeed.landing.names import Target
from mirrorfeed.landing.schema import columns_of
from mirrorfeed.mirror.verify import compare, mirror_of
from mirrorfeed.mirror.verify.row_comparison import RowComparison, compare_rows
from mirrorfeed.publish.files import row_staging
from mirrorfeed.publish.rows_and_markers import PROBLEM, snapshot_rows
from mirrorfeed.source.identifier import Source
from tests.support.delta import SPARK_4_0, DeltaTable
from tests.support.journeys import Journey, newest_version
from tests.support.values import ROWS, any_type, create, insert


@pytest.mark.parametrize("what", ["snapshot", pytest.param("range", marks=pytest.mark.slow)])
def test_every_value_is_equal_in_the_mirror(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """In the files of a snapshot and of a range. Spark writes one of them, and pyarrow the other, as a small batch."""
    journey = Journey(spark, tmp_path / "source", tmp_path, ("id",))
    few = row_staging.SMALL_BATCH_ROWS
    with any_type(spark):
        create(spark, journey.sql)
        for first, most in zip((0, ROWS), (0, few) if what == "snapshot" else (few, 0), strict=True):
            insert(spark, journey.sql, first)
            monkeypatch.setattr(row_staging, "SMALL_BATCH_ROWS", most)
            differed = journey.publish().differed
            # Spark 4.0 ignores format options of a write, so all files are rewritten.
            assert (differed != "") is (SPARK_4_0 and not most)
        found = compared(journey)
        assert found.equal, found.first
        assert found.source_rows == 2 * ROWS
        rows = mirrored(journey)
        left, right = (
            canonical(row | {"id": row["id"] % ROWS} for row in rows if row["id"] // ROWS == half) for half in (0, 1)
        )
        assert left == right, (left - right, right - left)


def mirrored(journey: Journey) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = AnyDeltaTable(journey.place / "mirror/s/t").to_pyarrow_table().to_pylist()
    return rows


def compared(journey: Journey) -> RowComparison:
    journey.replicate()
    mirror = mirror_of(str(journey.place / "mirror"), Target.parse("s.t"))
    return compare(journey.spark, Source(path=str(journey.source)), newest_version(journey.source), mirror, ("id",))


def test_identity_default_and_generated_columns_are_published(spark: SparkSession, tmp_path: Path) -> None:
    from delta.tables import DeltaTable as Maker
    from delta.tables import IdentityGenerator

    journey = Journey(spark, tmp_path / "source", tmp_path, ("id",))
    columns = Maker.create(spark).addColumn("id", "int").addColumn("seven", "int")
    columns = columns.addColumn("twice", "int", generatedAlwaysAs="id * 2")
    columns = columns.addColumn("counted", "bigint", generatedAlwaysAs=IdentityGenerator())
    columns = columns.property("delta.feature.allowColumnDefaults", "supported")
    DeltaTable.built(spark, journey.source, columns).sql("ALTER TABLE {} ALTER COLUMN seven SET DEFAULT 7")
    for id_ in (1, 2):
        spark.sql(f"INSERT INTO {journey.sql} (id) VALUES ({id_})")
        journey.publish()
    journey.replicate()
    rows, expected = mirrored(journey), AnyDeltaTable(journey.source).to_pyarrow_table().to_pylist()
    assert canonical(rows) == canonical(expected)
    assert sorted((row["id"], row["seven"], row["twice"]) for row in rows) == [(1, 7, 2), (2, 7, 4)]
    assert len({row["counted"] for row in rows} - {None}) == 2


REFUSED = ["interval day to second", "interval year to month", "string collate UTF8_LCASE", "interval", "time"]
REFUSED += ["geometry(4326)", "geography(4326)"]


@pytest.mark.slow
@pytest.mark.parametrize("type_", REFUSED)
def test_types_unknown_to_open_source_delta_cannot_be_created(spark: SparkSession, tmp_path: Path, type_: str) -> None:
    with pytest.raises(PySparkException):
        spark.sql(f"CREATE TABLE delta.`{tmp_path}/t` (v {type_}) USING delta")


@pytest.mark.skipif(SPARK_4_0, reason="Spark 4.0 has no geometry and no geography")
def test_geo_types_become_wkb_and_base64_when_nested(spark: SparkSession) -> None:
    point = "X'0101000000000000000000F03F0000000000000040'"
    places = f"st_geomfromwkb({point}, 3857) AS flat, st_geogfromwkb({point}) AS round"
    frame = spark.sql(f"SELECT 1 AS id, {places} UNION ALL SELECT 2, NULL, NULL").selectExpr(
        "*", "array(named_struct('place', round)) AS nested", "map(1, flat) AS keyed"
    )
    columns = columns_of("t", json.loads(frame.schema.json()))
    landed = snapshot_rows(frame, columns).drop(PROBLEM)
    (row, _) = landed.orderBy("id").collect()
    assert [column.form for column in columns] == ["integer", "binary", "binary", "string", "string"]
    assert row["flat"] == row["round"] == bytes.fromhex(point[2:-1])
    assert (row["nested"], row["keyed"]) == (
        '[{"place":"AQEAAAAAAAAAAADwPwAAAAAAAABA"}]',
        '{"1":"AQEAAAAAAAAAAADwPwAAAAAAAABA"}',
    )
    assert str(compare_rows(0, frame, landed, ("id",))) == "equal at version 0, 2 rows"
