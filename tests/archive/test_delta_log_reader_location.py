"""The log answers comparisons for any table location and name. Delta answers all other conditions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from mirrorfeed.archive import delta_log_reader, restore_planner
from mirrorfeed.archive.data_skipping import UncertainFiles
from mirrorfeed.archive.engines.open_source import OpenSourceEngine
from mirrorfeed.archive.guarded_table import GuardedTable
from mirrorfeed.source.identifier import Source
from mirrorfeed.storage.tier_store import Priority
from tests.archive.archived_table import NOW, Orders, days


@pytest.fixture(scope="module")
def orders(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Orders]:
    table = Orders(spark, tmp_path_factory.mktemp("place") / "a b é" / "orders", interval=60)
    spark.sql(f"CREATE TABLE placed USING delta LOCATION '{table.path}'")
    spark.sql("CREATE TEMP VIEW seen AS SELECT * FROM placed")
    yield table
    spark.sql("DROP VIEW seen")
    spark.sql("DROP TABLE placed")


@pytest.mark.slow
def test_comparisons_without_delta_give_the_same_files(
    spark: SparkSession, orders: Orders, monkeypatch: pytest.MonkeyPatch
) -> None:
    conditions = ["day = 1", "day > 1 AND id < 30", "id = 15", "day >= 1L AND 12 > id", "v = 'v25'", "id = 45", None]
    engine = OpenSourceEngine(spark)
    for source in (orders.source, Source.parse("placed"), Source.parse("default.placed")):
        for where in conditions if source is orders.source else conditions[2:3]:
            assert engine.find_in_log(source, where, NOW) == engine.find_in_plan(source, where, NOW)
    assert engine.find_in_log(source, "day = 1", NOW, 1) == engine.find_in_plan(source, "day = 1", NOW, 1)

    def asks_delta(*_: object, **__: object) -> None:
        raise AssertionError

    monkeypatch.setattr(OpenSourceEngine, "find_in_plan", asks_delta)
    monkeypatch.setattr(OpenSourceEngine, "newest", asks_delta)
    assert days(GuardedTable(spark, "placed", now=lambda: NOW)._needed("day < 3 AND id = 15").files) == ["1"]
    plan = restore_planner.plan_query(spark, Priority.STANDARD, NOW, source=orders.source, where="id = 25")
    assert (plan.version, [Path(file.uri).parent.name for file in plan.files]) == (2, ["day=2"])


@pytest.mark.parametrize(
    "where",
    ["day = 1 OR id = 15", "day + 1 = 2", "day IN (1, 2)", "_metadata.file_size > 0", "rand() < 2", "gone = 1"],
)
def test_complex_conditions_are_left_to_delta(spark: SparkSession, orders: Orders, where: str) -> None:
    engine = OpenSourceEngine(spark)
    with pytest.raises(UncertainFiles):
        engine.find_in_log(orders.source, where, NOW)


@pytest.mark.parametrize("name", ["seen", "gone", "other.schema.placed", "/nowhere/at/all"])
def test_unknown_tables_are_left_to_delta(spark: SparkSession, orders: Orders, name: str) -> None:
    with pytest.raises(UncertainFiles), delta_log_reader.open_log(spark, Source.parse(name)):
        pass


def test_remote_log_is_copied_as_far_as_needed(spark: SparkSession, orders: Orders, tmp_path: Path) -> None:
    folder = spark._jvm.org.apache.hadoop.fs.Path(str(orders.path / "_delta_log"))  # type: ignore[union-attr]
    with delta_log_reader.open_log(spark, orders.source) as columns:
        remote = replace(columns, local_path=lambda name: delta_log_reader.copy_log_file(spark, folder, tmp_path, name))
        assert remote.metadata == columns.metadata
    assert {path.name for path in tmp_path.iterdir()} == {f"{version:020d}.json" for version in range(3)}
    with pytest.raises(UncertainFiles, match="gone"):
        delta_log_reader.copy_log_file(spark, folder, tmp_path, "_sidecars/gone.parquet")
