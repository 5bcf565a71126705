"""Values of every type, on their whole way: into files, through the replica, and back against their source."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession, types

from fixtures.journeys import Journey, newest_version
from mirrorfeed.feed.changes import PROBLEM, snapshot_rows
from mirrorfeed.feed.source import Source
from mirrorfeed.landing.names import Target
from mirrorfeed.landing.schema import columns_of
from mirrorfeed.verify import Comparison, compare, compare_rows, mirror_of

SPARK_4_0 = not hasattr(types, "GeometryType")

VALUES: dict[str, tuple[str, ...]] = {
    "boolean": ("true", "false"),
    "tinyint": ("-128Y", "127Y"),
    "smallint": ("-32768S", "32767S"),
    "int": ("-2147483648", "2147483647"),
    "bigint": ("-9223372036854775808L", "9223372036854775807L"),
    "float": ("float('NaN')", "float('-Infinity')", "float('-0.0')", "1.4E-45F", "3.4028234E38F"),
    "double": ("double('NaN')", "double('Infinity')", "double('-0.0')", "4.9E-324D", "1.7976931348623157E308D"),
    "decimal(38,0)": ("99999999999999999999999999999999999999BD", "-1BD"),
    "decimal(38,38)": ("0.99999999999999999999999999999999999999BD",),
    "decimal(5,2)": ("999.99BD", "-0.01BD"),
    "string": ("''", "' '", "'Łódź → \\u0000 \"x\"'", "'line\\nbreak'"),
    "char(5)": ("'ab'",),
    "varchar(5)": ("'abcde'",),
    "binary": ("X''", "X'00FF80'"),
    "date": ("date'0001-01-01'", "date'9999-12-31'", "date'1582-10-04'"),
    "timestamp": ("timestamp'0001-01-01 00:00:00Z'", "timestamp'9999-12-31 23:59:59.999999Z'"),
    "timestamp_ntz": ("timestamp_ntz'0001-01-01 00:00:00.000001'", "timestamp_ntz'9999-12-31 23:59:59.999999'"),
    "variant": ('parse_json(\'{"b":1,"a":[1,2.50,null]}\')', "parse_json('null')", "parse_json('\"x\"')"),
    "interval day to second": (
        "INTERVAL '1 02:03:04.000005' DAY TO SECOND",
        "INTERVAL '-106751991 04:00:54.775808' DAY TO SECOND",
        "INTERVAL '106751991 04:00:54.775807' DAY TO SECOND",
    ),
    "interval minute": ("INTERVAL '-3' MINUTE",),
    "interval year to month": ("INTERVAL '178956970-7' YEAR TO MONTH", "INTERVAL '-1-2' YEAR TO MONTH"),
    "interval month": ("INTERVAL '0' MONTH",),
    "struct<i: interval day to second, t: string collate UTF8_LCASE>": (
        "named_struct('i', INTERVAL '1 02:03:04.000005' DAY TO SECOND, 't', 'A')",
    ),
    "string collate UTF8_LCASE": ("'a'", "'A'", "'Ł'"),
    "array<variant>": ("array(parse_json('1'), NULL, parse_json('{}'))",),
    "array<double>": ("array(double('NaN'), double('-Infinity'), NULL)", "array()"),
    "array<decimal(38,18)>": ("array(12345678901234567890.123456789012345678BD, 0.000000000000000001BD, 0BD)",),
    "struct<b: binary, t: timestamp, n: timestamp_ntz, d: date, s: string>": (
        "named_struct('b', X'00FF', 't', timestamp'0001-01-01 00:00:00.000001Z', 'n',"
        " timestamp_ntz'9999-12-31 23:59:59', 'd', date'0001-01-01', 's', 'Łódź \"x\"')",
    ),
    "struct<`a b.c`: int, `ü,;{}()=`: int>": ("named_struct('a b.c', 1, 'ü,;{}()=', NULL)",),
    "map<string, int>": ("map('b', 1, 'a', NULL)", "map()"),
    "map<int, string>": ("map(2, 'b', 1, NULL)",),
    "map<bigint, map<date, string>>": ("map(2L, map(date'2026-01-01', 'x'), 1L, NULL)",),
    "map<boolean, int>": ("map(true, 1, false, 2)",),
    "map<decimal(10,2), int>": ("map(1.50BD, 1, -0.01BD, 2)",),
    "map<double, int>": ("map(double('NaN'), 1, 0.1D, 2, -1E300D, 3)",),
    "map<date, int>": ("map(date'0001-01-01', 1, date'9999-12-31', 2)",),
    "map<timestamp, int>": ("map(timestamp'2026-01-01 00:00:00.000001Z', 1)",),
    "map<timestamp_ntz, int>": ("map(timestamp_ntz'2026-01-01 00:00:00.000001', 1)",),
    "map<binary, int>": ("map(X'00FF', 1, X'', 2)",),
    "map<struct<a: int, b: string>, int>": ("map(named_struct('a', 1, 'b', NULL), 1)",),
    "map<array<int>, int>": ("map(array(1, NULL), 1)",),
    "array<struct<m: map<int, date>>>": ("array(named_struct('m', map(1, date'2026-01-01')), NULL)",),
}

if not SPARK_4_0:  # there Delta reads no field without a type, and inserts into none with a backtick in its name
    VALUES["struct<`c``d`: int, none: void>"] = ("named_struct('c`d', 1, 'none', NULL)",)


@pytest.fixture
def all_types(spark: SparkSession) -> Iterator[None]:
    """Open source Delta writes some types once it does not check them."""
    spark.conf.set("spark.databricks.delta.schema.typeCheck.enabled", "false")
    yield
    spark.conf.unset("spark.databricks.delta.schema.typeCheck.enabled")


@pytest.mark.usefixtures("all_types")
def test_every_value_is_the_same_in_the_mirror(spark: SparkSession, tmp_path: Path) -> None:
    journey = Journey(spark, tmp_path / "source", tmp_path, ("id",))
    columns = ", ".join(f"c{i} {type_}" for i, type_ in enumerate(VALUES))
    spark.sql(
        f"CREATE TABLE {journey.sql} (id int, nothing void, {columns}) USING delta"
        " TBLPROPERTIES (delta.enableChangeDataFeed = true, delta.columnMapping.mode = 'name')"
    )
    most = max(map(len, VALUES.values()))
    rows = [", ".join(v[i] if i < len(v) else "NULL" for v in VALUES.values()) for i in range(most + 1)]
    for first in (0, 100):  # a snapshot, and a range
        selected = (f"SELECT {first + number}, NULL, {row}" for number, row in enumerate(rows))
        spark.sql(f"INSERT INTO {journey.sql} " + " UNION ALL ".join(selected))
        journey.publish()
    found = compared(journey)
    assert found.equal, found.first
    assert found.source_rows == 2 * len(rows)


def compared(journey: Journey) -> Comparison:
    journey.replicate()
    mirror = mirror_of(str(journey.place / "mirror"), Target.parse("s.t"))
    return compare(journey.spark, Source(path=str(journey.source)), newest_version(journey.source), mirror, ("id",))


@pytest.mark.skipif(SPARK_4_0, reason="Delta 4.0 makes no generated and no identity columns by SQL")
def test_columns_that_delta_fills_are_columns_like_others(spark: SparkSession, tmp_path: Path) -> None:
    journey = Journey(spark, tmp_path / "source", tmp_path, ("id",))
    filled = "twice int GENERATED ALWAYS AS (id * 2), counted bigint GENERATED ALWAYS AS IDENTITY, seven int DEFAULT 7"
    spark.sql(
        f"CREATE TABLE {journey.sql} (id int, {filled}) USING delta"
        " TBLPROPERTIES (delta.enableChangeDataFeed = true, delta.feature.allowColumnDefaults = 'supported')"
    )
    for id_ in (1, 2):
        spark.sql(f"INSERT INTO {journey.sql} (id) VALUES ({id_})")
        journey.publish()
    found = compared(journey)
    assert (found.equal, found.source_rows) == (True, 2)
    assert spark.read.table(journey.sql).where("twice = 2 * id AND counted IS NOT NULL AND seven = 7").count() == 2


REFUSED = ["interval day to second", "interval year to month", "string collate UTF8_LCASE", "interval", "time"]
REFUSED += ["geometry(4326)", "geography(4326)"]


@pytest.mark.parametrize("type_", REFUSED)
def test_types_that_open_source_delta_does_not_know_do_not_come_into_its_tables(
    spark: SparkSession, tmp_path: Path, type_: str
) -> None:
    with pytest.raises(PySparkException):
        spark.sql(f"CREATE TABLE delta.`{tmp_path}/t` (v {type_}) USING delta")


@pytest.mark.skipif(SPARK_4_0, reason="Spark 4.0 has no geometry and no geography")
def test_places_are_their_well_known_bytes_and_base64_inside_of_others(spark: SparkSession) -> None:
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
    assert str(compare_rows("t", 0, frame, "m", landed, ("id",))) == "equal at version 0, 2 rows"
