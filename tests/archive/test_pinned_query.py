"""Restore plans made from SQL read the tables, and the versions of them, that existed when the plan was made."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from fixtures.tiers import Clock, FolderTiers
from mirrorfeed.archive import restore
from mirrorfeed.archive.archived_files import ArchivedFilesNeededError
from mirrorfeed.archive.errors import InvalidQueryError, query_not_repeatable
from mirrorfeed.archive.guard import Guarded
from mirrorfeed.archive.pinned_query import pin_query
from mirrorfeed.archive.restore_planner import plan_statement
from mirrorfeed.storage.tier_store import Priority
from tests.archive.archived_table import NOW, Orders
from tests.raised import raises

ORDERS = "`spark_catalog`.`shop`.`orders`"


@pytest.fixture(scope="module")
def orders(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Orders]:
    """A table of the database `shop`, which is current. The database `other` also has a table `changed`."""
    folder = tmp_path_factory.mktemp("shop")
    tables = {name: Orders(spark, folder / name, interval=60) for name in ("shop.orders", "shop.changed")}
    tables["other.changed"] = Orders(spark, folder / "other.changed", days=1)
    for database in ("shop", "other"):
        spark.sql(f"CREATE DATABASE {database}")
    for name, each in tables.items():
        spark.sql(f"CREATE TABLE {name} USING delta LOCATION '{each.path}'")
    spark.sql("CREATE TEMPORARY VIEW ids AS SELECT 11 AS id")
    spark.sql("CREATE TEMPORARY FUNCTION newest() RETURNS int RETURN (SELECT max(id) FROM shop.orders)")
    spark.sql("CREATE VIEW shop.recent AS SELECT * FROM shop.orders WHERE day >= 3")
    spark.sql("USE shop")
    yield tables["shop.orders"]
    spark.sql("DROP TEMPORARY FUNCTION newest")
    spark.catalog.dropTempView("ids")
    spark.sql("USE default")
    for database in ("shop", "other"):
        spark.sql(f"DROP DATABASE {database} CASCADE")


@pytest.mark.slow
@pytest.mark.usefixtures("orders")
def test_plan_made_from_sql_returns_the_rows_of_its_versions(spark: SparkSession, tmp_path: Path) -> None:
    """All tables have a version: those without archived files can change, or can be replaced, as well."""
    plain, everything = Orders(spark, tmp_path / "plain"), FolderTiers(tmp_path / "aside", Clock(NOW))
    query = f"WITH changed AS (SELECT * FROM changed) SELECT c.v FROM changed c JOIN {plain.source.sql} USING (id)"
    planned = plan_statement(spark, Priority.HIGH, NOW, sql=query)
    assert [(each.table, each.version, len(each.files)) for each in planned.tables] == [
        ("spark_catalog.shop.changed", 2, 2),
        (str(plain.path), 1, 0),
    ]
    with pytest.raises(ArchivedFilesNeededError) as caught:
        Guarded(spark, now=lambda: NOW).sql(query)
    assert caught.value.plan(Priority.HIGH) == planned

    spark.sql("UPDATE shop.changed SET v = 'changed' WHERE id = 11")
    plain.sql("DELETE FROM {} WHERE id = 12")
    spark.sql("USE other")
    restore.check_plan(spark, planned)
    rows = restore.run_query(spark, planned, everything, NOW)
    spark.sql("USE shop")
    assert rows is not None
    assert sorted(row.v for row in rows.collect()) == [f"v{id_}" for id_ in range(10, 50)]


@pytest.mark.parametrize(
    ("query", "pinned"),
    [
        ("SELECT 'é' FROM shop . `orders`/* t */o", f"SELECT 'é' FROM {ORDERS} VERSION AS OF 2/* t */o"),
        ("SELECT * FROM orders VERSION AS OF 1", f"SELECT * FROM {ORDERS} VERSION AS OF 1"),
        ("FROM orders |> WHERE id > 3", f"FROM {ORDERS} VERSION AS OF 2 |> WHERE id > 3"),
        ("SELECT orders.id FROM IDENTIFIER('orders')", f"SELECT orders.id FROM {ORDERS} VERSION AS OF 2"),
        (
            "SELECT 1 WHERE EXISTS (SELECT 1 FROM orders) AND 2 IN (SELECT id FROM Orders)",
            f"SELECT 1 WHERE EXISTS (SELECT 1 FROM {ORDERS} VERSION AS OF 2)"
            f" AND 2 IN (SELECT id FROM {ORDERS} VERSION AS OF 2)",
        ),
        (
            "WITH orders AS (SELECT 1 AS id), b AS (SELECT * FROM orders) SELECT * FROM b JOIN ORDERS USING (id)",
            "WITH orders AS (SELECT 1 AS id), b AS (SELECT * FROM orders) SELECT * FROM b JOIN ORDERS USING (id)",
        ),
    ],
)
def test_tables_in_a_query_are_pinned(spark: SparkSession, orders: Orders, query: str, pinned: str) -> None:
    assert pin_query(spark, query, NOW).sql == pinned


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        ("SELECT * FROM recent", "recent is a view, or not a Delta table"),
        ("SELECT o.id FROM orders o JOIN ids USING (id)", "ids is a view, or not a Delta table"),
        ("SELECT id, ${spark.sql.shuffle.partitions} FROM orders", "it contains a variable"),
        ("SELECT newest() FROM orders", "it reads a source without versions"),
        ("TABLE orders", "[PARSE_SYNTAX_ERROR]"),
    ],
)
def test_query_whose_rows_could_change_is_not_planned(
    spark: SparkSession, orders: Orders, query: str, reason: str
) -> None:
    with raises(query_not_repeatable) as caught:
        plan_statement(spark, Priority.HIGH, NOW, sql=query)
    assert reason in caught.value.reason


@pytest.mark.usefixtures("orders")
def test_error_of_a_query_that_cannot_be_planned_has_a_plan_for_its_files(spark: SparkSession) -> None:
    with pytest.raises(ArchivedFilesNeededError) as caught:
        Guarded(spark, now=lambda: NOW).sql("SELECT id FROM recent UNION ALL SELECT id FROM orders WHERE day = 1")
    assert caught.value.plan().files_alone
    assert "error.plan().save('PLAN')" in caught.value.solution


def test_invalid_query_is_reported_before_it_is_pinned(spark: SparkSession, orders: Orders) -> None:
    with pytest.raises(InvalidQueryError, match="UNRESOLVED_COLUMN"):
        pin_query(spark, "SELECT nothing FROM orders", NOW)
