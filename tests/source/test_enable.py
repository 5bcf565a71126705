"""The feed is switched on in the three ways that there are."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from mirrorfeed.landing.schema import ReservedColumn
from mirrorfeed.source.change_feed import DEFAULT_LINE, Enabled, create_with_feed, enable, enable_by_default
from mirrorfeed.source.errors import NotDelta
from mirrorfeed.source.identifier import Source
from mirrorfeed.source.table_info import detail_of
from tests.delta import DeltaTable


def test_a_table_is_created_with_its_feed_on(spark: SparkSession, tmp_path: Path) -> None:
    source = Source(path=str(tmp_path / "t"))
    create_with_feed(spark, source, [("id", "int"), ("Łódź", "string"), ("ti`ck", "int")])
    assert detail_of(spark, source).records_changes
    assert spark.table(source.sql).columns == ["id", "Łódź", "ti`ck"]


def test_an_existing_table_is_altered_once(spark: SparkSession, tmp_path: Path) -> None:
    table = DeltaTable(spark, tmp_path / "t", feed=False)
    assert enable(spark, table.source) is Enabled.NOW
    assert detail_of(spark, table.source).records_changes
    assert enable(spark, table.source) is Enabled.BEFORE
    assert table.latest == 1


def test_the_default_holds_for_all_new_tables(spark: SparkSession, tmp_path: Path) -> None:
    setting = DEFAULT_LINE.split()[0]
    enable_by_default(spark)
    try:
        spark.sql(f"CREATE TABLE delta.`{tmp_path}/t` (id int) USING DELTA")
    finally:
        spark.conf.unset(setting)
    assert detail_of(spark, Source(path=str(tmp_path / "t"))).records_changes
    assert DEFAULT_LINE == "spark.databricks.delta.properties.defaults.enableChangeDataFeed true"


@pytest.mark.parametrize("name", ["_change_type", "_commit_version", "_COMMIT_TIMESTAMP", "__rowMarker__"])
def test_reserved_column_names_are_refused_by_name(spark: SparkSession, tmp_path: Path, name: str) -> None:
    table = DeltaTable(spark, tmp_path / "t", f"id int, `{name}` int", feed=False)
    with pytest.raises(ReservedColumn, match=f"need: '{name}'. Rename them in the source."):
        enable(spark, table.source)
    with pytest.raises(ReservedColumn, match=f"'{name}'"):
        create_with_feed(spark, Source(path=str(tmp_path / "new")), [(name, "int")])
    assert not (tmp_path / "new").exists()
    assert table.latest == 0


def test_a_view_is_refused(spark: SparkSession) -> None:
    spark.sql("CREATE OR REPLACE TEMPORARY VIEW one AS SELECT 1 AS id")
    with pytest.raises(NotDelta, match="one is a view, not a Delta table, so it has no change data feed"):
        enable(spark, Source(("one",)))
