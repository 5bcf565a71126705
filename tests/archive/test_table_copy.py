"""Copies of rows into new tables: what cannot be copied is refused before files are requested."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import (
    ArrayType,
    DataType,
    DayTimeIntervalType,
    IntegerType,
    MapType,
    NullType,
    StringType,
    StructField,
    StructType,
    VariantType,
    YearMonthIntervalType,
)

from fixtures.tiers import Clock, FolderTiers
from mirrorfeed.archive import restore
from mirrorfeed.archive.data_files import NeededFiles
from mirrorfeed.archive.engines import engine_of
from mirrorfeed.archive.errors import InvalidQueryError, rows_not_copyable
from mirrorfeed.archive.restore_plan import Plan, Terms, estimate
from mirrorfeed.runtime.spark_session import setting
from mirrorfeed.source.errors import copy_target_exists
from mirrorfeed.source.identifier import Source
from mirrorfeed.source.table_copy import find_obstacles
from tests.archive.archived_table import NOW, Orders
from tests.raised import raises

FEED_BY_DEFAULT = "spark.databricks.delta.properties.defaults.enableChangeDataFeed"


def schema(**columns: DataType) -> StructType:
    return StructType([StructField(name.replace("_", " "), type_) for name, type_ in columns.items()])


INT, TEXT, DAYS, YEARS = IntegerType(), StringType(), DayTimeIntervalType(), YearMonthIntervalType(0, 0)


@pytest.mark.parametrize(
    ("columns", "reasons"),
    [
        (schema(id=INT, last_id=TEXT, a=ArrayType(schema(x_y=VariantType()))), []),
        (schema(a=INT, A=TEXT, b=INT), ["2 columns are named 'a'"]),
        (schema(a=ArrayType(schema(x=INT, X=INT))), ["2 fields of a are named 'x'"]),
        (schema(i=DAYS), ["Delta cannot store the type interval day to second of i"]),
        (schema(i=MapType(INT, YEARS)), ["Delta cannot store the type interval year of i"]),
        (schema(s=schema(n=NullType())), ["Delta cannot store the type void of s.n"]),
        (schema(c=StringType("UTF8_LCASE")), ["Delta cannot store the type string collate UTF8_LCASE of c"]),
    ],
)
def test_columns_that_delta_cannot_store_are_found(columns: StructType, reasons: list[str]) -> None:
    assert find_obstacles(columns) == reasons


class Restore:
    """A plan for a table with two archived files, which is carried out as `mirrorfeed archive restore` does."""

    def __init__(self, spark: SparkSession, folder: Path, patched: pytest.MonkeyPatch) -> None:
        self.spark, self.table = spark, Orders(spark, folder / "orders", interval=60)
        self.tiers = FolderTiers(folder / "aside", Clock(NOW))
        patched.setattr(restore, "tiers_of", lambda _: self.tiers)
        (found,) = engine_of(spark).plan_query(spark.table(self.table.source.sql), NOW)[1]
        self.needed: NeededFiles = found

    def run(self, columns: str, into: Source) -> str | None:
        query = f"SELECT {columns} FROM {self.table.source.sql} VERSION AS OF 2"
        plan = Plan((self.needed,), "HIGH", sql=query, zone="UTC")
        return restore.restore(lambda: self.spark, estimate(plan, None, None, NOW), Terms(), into=str(into)).into


@pytest.fixture
def restored(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Restore:
    return Restore(spark, tmp_path, monkeypatch)


def test_rows_with_any_column_names_are_copied(spark: SparkSession, restored: Restore) -> None:
    """Also columns of a change data feed, in a session in which new tables get a feed."""
    into = Source.parse("default.copied_rows")
    with setting(spark, FEED_BY_DEFAULT, "true"):
        columns = "count(*), max(id) AS `last id`, named_struct('x y', 1) AS s, 'insert' AS _change_type"
        assert restored.run(columns, into) == str(into)
    copied = spark.read.table(into.sql)
    assert copied.columns == ["count(1)", "last id", "s", "_change_type"]
    assert copied.collect() == [(40, 49, (1,), "insert")]
    spark.sql(f"DROP TABLE {into.sql}")


def test_copy_that_cannot_be_made_is_refused_before_files_are_requested(
    spark: SparkSession, tmp_path: Path, restored: Restore
) -> None:
    restored.tiers.archive(file.uri for file in restored.needed.files)
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken/notes.txt").write_text("")
    with raises(rows_not_copyable) as caught:
        restored.run("id, v AS ID, INTERVAL '1' DAY AS i", Source.parse("nowhere.copy"))
    assert caught.value.reasons == [
        "2 columns are named 'id'",
        "Delta cannot store the type interval day of i",
        "the schema nowhere does not exist",
    ]
    with pytest.raises(InvalidQueryError, match="nothing"):
        restored.run("nothing", Source(path=str(tmp_path / "copy")))
    with raises(copy_target_exists):
        restored.run("id", Source(path=str(tmp_path / "taken")))
    assert restored.tiers.requests == []
