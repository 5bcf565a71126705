"""What Delta or Spark can hide from a plan: derived filters, cached data, reads inside subqueries."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from fixtures.tiers import Clock, FolderTiers, make_old
from mirrorfeed.archive import archive_interval, restore_planner
from mirrorfeed.archive.archived_files import ArchivedFilesNeededError
from mirrorfeed.archive.engines.open_source import files_of
from mirrorfeed.archive.errors import unknown_files
from mirrorfeed.archive.guard import Guarded
from mirrorfeed.archive.guarded_table import GuardedTable
from mirrorfeed.runtime.spark_session import setting
from mirrorfeed.storage.tier_store import Priority
from tests.archive.archived_table import NOW, Orders, days
from tests.raised import raises
from tests.support.delta import SPARK_4_0, DeltaTable

DERIVES = "spark.databricks.delta.generatedColumn.partitionFilterOptimization.enabled"


@contextmanager
def zone(spark: SparkSession, name: str) -> Iterator[None]:
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", name)
    try:
        yield
    finally:
        spark.conf.set("spark.sql.session.timeZone", str(before))


@pytest.fixture(scope="module")
def moments(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> DeltaTable:
    """Half past midnight in Paris, which is the previous day in UTC."""
    from delta.tables import DeltaTable as Maker

    columns = Maker.create(spark).addColumn("id", "int").addColumn("ts", "timestamp")
    columns = columns.addColumn("day", "date", generatedAlwaysAs="CAST(ts AS DATE)").partitionedBy("day")
    table = DeltaTable.built(spark, tmp_path_factory.mktemp("zones") / "t", columns)
    with zone(spark, "Europe/Paris"):
        table.sql("INSERT INTO {} (id, ts) VALUES (1, TIMESTAMP '2026-01-02 00:30:00')")
    archive_interval.set_first(spark, table.source, 60, NOW)
    return table


MIDNIGHT = "ts = TIMESTAMP '2026-01-01 23:30:00'"


def test_day_derived_in_another_time_zone_hides_no_file_or_row(spark: SparkSession, moments: DeltaTable) -> None:
    guarded = GuardedTable(spark, moments.source, now=lambda: NOW)
    with zone(spark, "UTC"):
        answer = guarded._needed(MIDNIGHT)
        found = guarded.query(MIDNIGHT)
        assert (len(answer.files), answer.active) == (0, 1)
        assert found.count() == 1
        assert found.where("id = 1").select("day").collect() == found.select("day").collect()
        assert spark.range(1, 3).join(found, "id").count() == 1
        assert guarded._guard("x", spark.table(moments.source.sql).where(MIDNIGHT)).count() == 1
    assert spark.conf.get(DERIVES) == "true"


@pytest.fixture(scope="module")
def orders(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Orders:
    """A table of which days 1 and 2 count as archived."""
    return Orders(spark, tmp_path_factory.mktemp("planned") / "orders", interval=60)


@contextmanager
def cached(spark: SparkSession, table: DeltaTable) -> Iterator[DataFrame]:
    """A cached table, by name and by version."""
    frames = [spark.table(table.source.sql), spark.read.option("versionAsOf", table.latest).table(table.source.sql)]
    for frame in frames:
        frame.cache().count()
    try:
        yield frames[0]
    finally:
        for frame in frames:
            frame.unpersist(blocking=True)


@pytest.mark.slow
def test_cached_data_hides_no_file(spark: SparkSession, orders: Orders) -> None:
    guarded = GuardedTable(spark, orders.source, now=lambda: NOW)
    with cached(spark, orders):
        assert days(guarded._needed().files) == ["1", "2"]
        assert days(guarded._needed("id = 15").files) == ["1"]
        plan = restore_planner.plan_query(spark, Priority.HIGH, NOW, source=orders.source, where="id < 30")
        assert len(plan.files) == 2
        with pytest.raises(ArchivedFilesNeededError):
            guarded.query("id = 15")
        assert guarded.query("day = 3").count() == 10


def test_planned_files_are_read_despite_later_caching(spark: SparkSession, tmp_path: Path) -> None:
    orders = Orders(spark, tmp_path / "orders", interval=60)
    tiers = FolderTiers(orders.path.with_name("aside"), Clock(NOW))
    tiers.archive(file.uri for file in orders.files("1", "2"))
    guarded = GuardedTable(spark, orders.source, now=lambda: NOW)
    found = guarded.query("day = 3")
    spark.sql(f"CACHE LAZY TABLE whole AS SELECT * FROM {orders.source.sql}")
    lazy = spark.table(orders.source.sql).cache()  # reading would fail, because the files are moved away
    try:
        assert found.count() == 10
        assert guarded.query("day = 4").where("id > 44").count() == 5
    finally:
        lazy.unpersist(blocking=True)
        spark.sql("UNCACHE TABLE whole")
        spark.catalog.dropTempView("whole")


@pytest.mark.skipif(SPARK_4_0, reason="Delta 4.0 has no other connector")
def test_table_read_through_another_connector_is_refused(spark: SparkSession, orders: Orders) -> None:
    """Its plan shows no files. Version 1 has no interval, and only paths are still read through the usual connector."""
    table, guarded = GuardedTable(spark, orders.source, now=lambda: NOW), Guarded(spark, now=lambda: NOW)
    by_path = spark.read.format("delta").option("versionAsOf", 1).load(str(orders.path))
    with setting(spark, "spark.databricks.delta.v2.enableMode", "STRICT"):
        for read in (
            lambda: guarded.sql(f"SELECT * FROM {orders.source.sql} WHERE day = 1"),
            lambda: guarded.sql(f"SELECT 1 WHERE EXISTS (SELECT * FROM {orders.source.sql} VERSION AS OF 1)"),
            lambda: guarded.frame(by_path),
            lambda: table.query("day = 1"),
            lambda: table.query("day = 1", version=1),
            lambda: table.delete("day = 3"),
        ):
            with raises(unknown_files, match=r"a Delta table in an unknown form \(DeltaV2Table\)"):
                read()


@pytest.mark.parametrize(
    ("question", "statistics", "rows"),
    [
        ("SELECT id FROM {} LIMIT 1", "true", 1),
        ("SELECT id FROM {} LIMIT 1", "false", 1),
        ("SELECT id FROM {} WHERE is_active(day)", "true", 1),
        ("SELECT id FROM {} WHERE id = {active}0 AND v > ''", "false", 1),
    ],
    ids=["LIMIT", "LIMIT without statistics", "Python UDF", "a session without statistics"],
)
def test_query_reads_only_the_files_that_were_checked(
    spark: SparkSession, cut: tuple[Guarded, DeltaTable, int], question: str, statistics: str, rows: int
) -> None:
    """By itself, Delta selects more files when such a query runs, because of the deletion vectors."""
    guarded, table, active = cut
    spark.udf.register("is_active", lambda day: day == active, "boolean")
    statement = question.replace("{}", table.source.sql).replace("{active}", str(active))
    with setting(spark, "spark.databricks.delta.stats.skipping", statistics):
        assert guarded.sql(statement).count() == rows
        assert guarded.needed(statement) == []


@pytest.fixture(scope="module")
def cut(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> tuple[Guarded, DeltaTable, int]:
    """A table of which only the file is active that Delta selects for LIMIT 1, and the day of this file."""
    folder = tmp_path_factory.mktemp("cut")
    orders = Orders(spark, folder / "orders", properties={"delta.enableDeletionVectors": "true"})
    orders.sql("DELETE FROM {} WHERE id % 10 > 0")
    (planned,) = files_of(spark.table(orders.source.sql).limit(1))
    day = planned.partition("day=")[2][0]
    make_old(orders.path, lambda add: NOW - timedelta(days=0 if add["partitionValues"]["day"] == day else 100))
    archive_interval.set_first(spark, orders.source, 60, NOW)
    FolderTiers(folder / "aside", Clock(NOW)).archive(each.uri for each in orders.files() if each.uri != planned)
    return Guarded(spark, now=lambda: NOW), orders, int(day)


slow = partial(pytest.param, marks=pytest.mark.slow)


@pytest.mark.parametrize(
    ("question", "needed"),
    [
        (lambda rows, table: rows.where("day = 3").selectExpr(f"(SELECT max(v) FROM {table}) AS most"), ["1", "2"]),
        (lambda rows, table: rows.where(f"day = 3 AND EXISTS (SELECT 1 FROM {table} o WHERE o.v = 'v15')"), ["1"]),
        (lambda rows, _: rows.where("day = 3").join(rows.where("day = 2"), "v"), ["2"]),
        slow(lambda rows, table: rows.where(f"day = 3 AND v > (SELECT min(v) FROM {table} WHERE day = 2)"), ["2"]),
        slow(lambda rows, table: rows.where(f"day = 3 AND id NOT IN (SELECT id FROM {table} WHERE day = 1)"), ["1"]),
        slow(
            lambda rows, _: rows.where("day = 3").select(F.col("id")).union(rows.where("day = 1").select("id")), ["1"]
        ),
    ],
    ids=["select list", "EXISTS", "join", "scalar", "NOT IN", "union"],
)
def test_query_is_guarded_for_everything_it_reads(
    spark: SparkSession, orders: Orders, question: Callable[[DataFrame, str], DataFrame], needed: list[str]
) -> None:
    guarded = GuardedTable(spark, orders.source, now=lambda: NOW)
    with pytest.raises(ArchivedFilesNeededError) as caught:
        guarded._guard("A question", question(spark.table(orders.source.sql), orders.source.sql))
    assert days(caught.value.files) == needed
