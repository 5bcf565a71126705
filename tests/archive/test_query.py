"""Queries over several tables with archived files: the result is correct, or the error lists all missing files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from fixtures.databricks import RecordingDatabricks
from fixtures.tiers import Clock, FolderTiers
from mirrorfeed.archive import restore, restore_planner
from mirrorfeed.archive.archived_files import ArchivedFilesNeededError
from mirrorfeed.archive.errors import no_query_plan, not_a_query, one_table_per_plan, query_not_plannable, unknown_files
from mirrorfeed.archive.guard import Guarded, guarded
from mirrorfeed.archive.guarded_table import GuardedTable
from mirrorfeed.archive.restore import TiersOfTables, session_time_zone
from mirrorfeed.runtime.spark_session import setting
from mirrorfeed.storage.tier_store import Priority
from tests.archive.archived_table import NOW, Orders, days
from tests.raised import raises
from tests.support.delta import SPARK_4_0

CASES = """
a join: orders 1 2, returns 2
SELECT o.id FROM orders o JOIN returns r ON o.id = r.id WHERE r.day = 2

a join of all: orders 1 2, returns 1 2
SELECT o.id FROM orders o JOIN returns r USING (id)

a join by partition: orders 1, returns 1
SELECT o.id FROM orders o JOIN returns r USING (day) WHERE day = 1

an outer join:
SELECT o.id FROM orders o LEFT JOIN returns r ON o.id = r.id AND r.day = 4 WHERE o.day = 3

an anti join: returns 1 2
SELECT id FROM orders ANTI JOIN returns USING (id) WHERE day = 3

IN: returns 1
SELECT id FROM orders WHERE day = 3 AND id IN (SELECT id FROM returns WHERE day = 1)

NOT IN: returns 2
SELECT id FROM orders WHERE day = 3 AND id NOT IN (SELECT id FROM returns WHERE day = 2)

EXISTS: returns 1 2
SELECT id FROM orders o WHERE day = 4 AND EXISTS (SELECT 1 FROM returns r WHERE r.id = o.id)

a scalar subquery: returns 1 2
SELECT id, (SELECT max(v) FROM returns) FROM orders WHERE day = 3

a correlated one: returns 2
SELECT id, (SELECT max(r.v) FROM returns r WHERE r.id = o.id AND r.day = 2) FROM orders o WHERE day = 3

one in another: orders 1, returns 1 2
SELECT id FROM orders WHERE day = 3
AND id > (SELECT min(id) FROM returns WHERE id IN (SELECT id FROM orders WHERE day = 1))

a CTE: orders 2
WITH old AS (SELECT * FROM orders WHERE day = 2) SELECT a.id FROM old a JOIN old b USING (id)

a CTE that is not used:
WITH old AS (SELECT * FROM orders WHERE day = 2) SELECT id FROM orders WHERE day = 3

a view:
SELECT id FROM recent_orders

a view of all: orders 1
SELECT v FROM every_order WHERE id = 15

UNION: returns 1
SELECT id FROM orders WHERE day = 3 UNION SELECT id FROM returns WHERE day = 1

EXCEPT:
SELECT id FROM orders WHERE day = 3 EXCEPT SELECT id FROM returns WHERE day = 4

GROUP BY:
SELECT day, count(*) FROM orders WHERE id >= 30 GROUP BY day

count(*):
SELECT count(*) FROM orders

a window:
SELECT id, sum(id) OVER (PARTITION BY day ORDER BY id) FROM orders WHERE day > 2

ORDER BY and LIMIT: orders 1 2
SELECT id FROM orders ORDER BY id LIMIT 3

an older version: orders 2
SELECT id FROM orders_before WHERE day = 2

values:
SELECT id FROM VALUES (31), (41) AS t(id) JOIN orders USING (id) WHERE day > 2

LATERAL: orders 1 2, returns 1 2
SELECT o.id, m FROM orders o, LATERAL (SELECT max(id) AS m FROM returns r WHERE r.v = o.v) WHERE o.day = 3

a table without an archive:
SELECT p.id FROM plain p JOIN orders o USING (id) WHERE o.day = 3

nothing at all:
SELECT id FROM orders WHERE 1 = 0

a pivot:
SELECT * FROM (SELECT day, id FROM orders WHERE day > 2) PIVOT (count(id) FOR day IN (3, 4))

grouping sets: orders 1 2
SELECT day, v, count(*) FROM orders GROUP BY GROUPING SETS ((day), (v))

a join that prunes while it runs: orders 1 2
SELECT o.id FROM orders o JOIN plain p ON o.day = p.day WHERE p.v = 'v35'
"""
"""Queries, each with the missing days of each table."""
VARIANTS = {
    *("a join of all", "a join by partition", "an anti join", "IN", "EXISTS", "a CTE that is not used", "a view"),
    *("EXCEPT", "GROUP BY", "a window", "values", "nothing at all", "a pivot", "grouping sets", "ORDER BY and LIMIT"),
    *("UNION", "a scalar subquery", "an older version"),
}
"""Queries that differ little from others: `make soak` asks them."""


def _case(block: str) -> tuple[str, str, dict[str, list[str]]]:
    (first, query) = block.split("\n", 1)
    name, _, needed = first.partition(":")
    return name, query, {table: found for table, *found in map(str.split, filter(None, needed.split(",")))}


NEEDED = [_case(block) for block in CASES.strip().split("\n\n")]
DAY_3, DAY_4 = ([(id_,) for id_ in range(10 * day, 10 * day + 10)] for day in (3, 4))
ANSWERS: dict[str, list[tuple[int, ...]]] = {
    "an outer join": DAY_3,
    "a CTE that is not used": DAY_3,
    "a view": DAY_3 + DAY_4,
    "EXCEPT": DAY_3,
    "GROUP BY": [(3, 10), (4, 10)],
    "count(*)": [(40,)],
    "a window": [(id_, sum(range(id_ // 10 * 10, id_ + 1))) for (id_,) in DAY_3 + DAY_4],
    "values": [(31,), (41,)],
    "a table without an archive": DAY_3,
    "nothing at all": [],
    "a pivot": [(10, 10)],
}
"""Results of the queries that need no archived file."""


@pytest.fixture(scope="module")
def tables(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Orders]]:
    """Two tables with an archive and one without, as views, so that queries can name them."""
    folder = tmp_path_factory.mktemp("statements")
    created = {name: Orders(spark, folder / name, interval=60) for name in ("orders", "returns")}
    created["plain"] = Orders(spark, folder / "plain")
    views = {name: f"SELECT * FROM {table.source.sql}" for name, table in created.items()}
    views |= {
        "recent_orders": "SELECT * FROM orders WHERE day >= 3",
        "every_order": "SELECT * FROM orders",
        "orders_before": f"SELECT * FROM {created['orders'].source.sql} VERSION AS OF 1",
    }
    for name, query in views.items():
        spark.sql(f"CREATE OR REPLACE TEMP VIEW {name} AS {query}")
    yield created
    for name in views:
        spark.catalog.dropTempView(name)


@pytest.fixture(scope="module")
def clock() -> Clock:
    return Clock(NOW)


@pytest.fixture(scope="module")
def tiers(tables: dict[str, Orders], clock: Clock, tmp_path_factory: pytest.TempPathFactory) -> FolderTiers:
    archive = FolderTiers(tmp_path_factory.mktemp("aside"), clock)
    for name in ("orders", "returns"):
        archive.archive(file.uri for file in tables[name].files("1", "2"))
    return archive


@pytest.fixture
def asking(spark: SparkSession, tiers: FolderTiers) -> Guarded:
    return Guarded(spark, lambda _: tiers, lambda: NOW)


@pytest.mark.parametrize(
    ("name", "query", "needed"),
    [
        pytest.param(name, *rest, id=name, marks=[pytest.mark.slow] if name in VARIANTS else [])
        for name, *rest in NEEDED
    ],
)
def test_query_is_answered_or_names_the_archived_files_it_needs(
    asking: Guarded, name: str, query: str, needed: dict[str, list[str]]
) -> None:
    if not needed:
        assert sorted(map(tuple, asking.sql(query).collect())) == ANSWERS[name]
        return
    with pytest.raises(ArchivedFilesNeededError) as caught:
        asking.sql(query)
    assert {Path(each.table).name: days(each.files) for each in caught.value.needed} == needed


def test_returned_frame_can_be_queried_further(asking: Guarded, spark: SparkSession) -> None:
    found = asking.table("recent_orders")
    assert found.where("id > 45").count() == 4
    assert found.join(asking.sql("SELECT id FROM returns WHERE day = 3"), "id").count() == 10
    found.createOrReplaceTempView("kept")
    try:
        assert spark.sql("SELECT count(*) FROM kept a JOIN kept b USING (id) WHERE a.day = 4").first() == (10,)
    finally:
        spark.catalog.dropTempView("kept")


def test_error_names_missing_files_per_table_and_the_fix(asking: Guarded, tables: dict[str, Orders]) -> None:
    with pytest.raises(ArchivedFilesNeededError) as caught:
        asking.sql("SELECT o.id FROM orders o JOIN returns r ON o.id = r.id AND o.day = 1 AND r.day = 1")
    first, second = (each.files[0] for each in caught.value.needed)
    assert caught.value.problem == (
        f"The query needs 1 archived file ({first.bytes} B) of {tables['orders'].path} at version 2: {first.uri};"
        f" 1 archived file ({second.bytes} B) of {tables['returns'].path} at version 2: {second.uri}. Nothing was read."
    )
    assert ArchivedFilesNeededError(needed=caught.value.needed, statement="SELECT 'a'").solution == (
        "Restore the files with `mirrorfeed archive plan --sql \"SELECT 'a'\" --to PLAN` and `mirrorfeed archive"
        " restore PLAN`, or use conditions that need no archived file."
    )
    of_frames = ArchivedFilesNeededError(needed=caught.value.needed)
    assert "with `error.plan().save('PLAN')` and `mirrorfeed archive restore PLAN`" in of_frames.solution
    assert [file.uri for file in of_frames.plan().files] == sorted([first.uri, second.uri])


@pytest.fixture
def scripts(spark: SparkSession) -> Iterator[None]:
    """Spark 4.0 runs SQL scripts only with this setting."""
    spark.conf.set("spark.sql.scripting.enabled", "true")
    yield
    spark.conf.unset("spark.sql.scripting.enabled")


@pytest.mark.usefixtures("scripts")
@pytest.mark.parametrize(
    ("statement", "kind"),
    [
        ("DELETE FROM orders WHERE id = 15", "DeleteFromTable"),
        ("WITH x AS (SELECT 1 AS id) INSERT INTO plain SELECT id, 'v', 1 FROM x", "InsertIntoStatement"),
        ("CREATE TABLE copied AS SELECT * FROM orders", "CreateTableAsSelect"),
        ("CACHE TABLE cached AS SELECT * FROM orders", "CacheTableAsSelect"),
        ("OPTIMIZE orders", "OptimizeTableCommand"),
        ("RESTORE TABLE orders TO VERSION AS OF 1", "RestoreTableStatement"),
        (
            "EXECUTE IMMEDIATE 'DELETE FROM orders WHERE id = 15'",
            "ExecuteImmediateQuery" if SPARK_4_0 else "UnresolvedExecuteImmediate",
        ),
        # Delta rewrites files to remove column mapping and some features.
        ("ALTER TABLE orders SET TBLPROPERTIES ('delta.columnMapping.mode' = 'none')", "SetTableProperties"),
        ("ALTER TABLE orders UNSET TBLPROPERTIES ('delta.columnMapping.mode')", "UnsetTableProperties"),
        ("ALTER TABLE orders DROP FEATURE columnMapping", "AlterTableDropFeature"),
        ("SHOW PARTITIONS orders", "ShowPartitions"),  # open source Delta reads rows for it
        ("BEGIN SELECT max(v) FROM orders; END", "CompoundBody"),
    ],
)
def test_statement_that_is_not_a_query_does_not_run(
    asking: Guarded, spark: SparkSession, statement: str, kind: str
) -> None:
    with raises(not_a_query) as caught:
        asking.sql(statement)
    assert (caught.value.kind, caught.value.statement) == (kind, statement)
    assert not spark.catalog.tableExists("copied")


def test_statements_that_read_no_rows_run_normally(spark: SparkSession, tables: dict[str, Orders]) -> None:
    sql = guarded(spark).sql
    assert [row[0] for row in sql("DESCRIBE orders").collect()][:3] == ["id", "v", "day"]
    sql("CREATE OR REPLACE TEMP VIEW made_so AS SELECT id FROM orders WHERE day = 3")
    assert sql("SELECT count(*) FROM made_so WHERE id < 35").collect()[0][0] == 5
    sql("DROP VIEW made_so")


def test_invalid_value_is_reported_when_the_query_is_planned(asking: Guarded) -> None:
    with raises(query_not_plannable) as caught:
        asking.sql("SELECT v FROM orders WHERE id = 'x'")
    assert str(caught.value).startswith("The query cannot be planned: [CAST_INVALID_INPUT] The value 'x' of the type")
    assert str(caught.value).endswith("Nothing was read. Correct the query, and run it again.")


@pytest.mark.parametrize("name", ["spark.sql.files.ignoreMissingFiles", "spark.sql.files.ignoreCorruptFiles"])
def test_session_that_ignores_missing_files_is_refused(
    asking: Guarded, spark: SparkSession, tables: dict[str, Orders], name: str
) -> None:
    """A file that is archived just after the check would be missing from the result, without an error."""
    with setting(spark, name, "true"):
        with raises(query_not_plannable) as caught:
            asking.frame(spark.range(1))
        writer = GuardedTable(spark, next(iter(tables.values())).source, now=lambda: NOW)
        with raises(query_not_plannable):
            writer.delete("id = 35")
    assert str(caught.value) == (
        f"The query cannot be planned: {name} is true, so rows of unreadable files would be missing. Nothing was read."
        f" Correct the query, and run it again."
    )


@pytest.mark.slow
def test_cached_rows_are_ignored(asking: Guarded, spark: SparkSession) -> None:
    frame = spark.table("orders").cache()
    spark.sql("CACHE LAZY TABLE all_orders AS SELECT * FROM orders")
    try:
        with pytest.raises(ArchivedFilesNeededError):
            asking.sql("SELECT * FROM orders WHERE day = 1")
        with pytest.raises(ArchivedFilesNeededError):
            asking.sql("SELECT max(v) FROM all_orders")
        assert asking.sql("SELECT id FROM all_orders WHERE day = 3").count() == 10
    finally:
        frame.unpersist(blocking=True)
        spark.sql("UNCACHE TABLE all_orders")
        spark.catalog.dropTempView("all_orders")


def test_rows_without_a_plan_are_refused_unless_local(
    asking: Guarded, spark: SparkSession, tables: dict[str, Orders]
) -> None:
    temporary = spark.createDataFrame([(31,), (32,)], "id int")
    orders = spark.table("orders")
    assert asking.frame(temporary.join(orders.where("day = 3"), "id")).count() == 2
    through = spark.createDataFrame(orders.select("id").rdd, "id int")
    with raises(unknown_files) as caught:
        asking.frame(through)
    assert caught.value.reads == "rows of an RDD, whose files it does not show"
    changes = spark.read.option("readChangeFeed", True).option("startingVersion", 1).table(tables["orders"].source.sql)
    with raises(unknown_files, match="the change feed"):
        asking.frame(changes)


@pytest.mark.parametrize("v1", [True, False], ids=["as files", "as files, in the newer form"])
def test_files_of_a_delta_table_cannot_be_read_as_plain_files(
    asking: Guarded, spark: SparkSession, tables: dict[str, Orders], tmp_path: Path, v1: bool
) -> None:
    """Reading such a folder would return only the rows of the remaining files."""
    orders = tables["orders"].path
    with setting(spark, "spark.sql.sources.useV1SourceList", "parquet" if v1 else ""):
        read = spark.read.schema("id int")
        for frame in (
            lambda: asking.sql(f"SELECT id FROM parquet.`{orders}`"),
            lambda: asking.sql(f"SELECT o.id FROM orders o JOIN parquet.`{orders}` USING (id) WHERE o.day = 3"),
            lambda: asking.frame(read.parquet(f"{orders}/day=3")),
            lambda: asking.frame(read.parquet(*map(str, orders.glob("day=3/*.parquet")))),
        ):
            with raises(unknown_files) as caught:
                frame()
            assert f"reads files of the Delta table file:{orders} directly" in str(caught.value)
        pq.write_table(pa.table({"id": [31, 32]}), tmp_path / "plain.parquet")
        assert asking.sql(f"SELECT id FROM parquet.`{tmp_path}/plain.parquet`").count() == 2
        assert asking.frame(spark.read.schema("add string").json(f"{orders}/_delta_log/*.json")).count() > 4


@pytest.mark.slow
def test_one_plan_restores_files_of_several_tables(
    spark: SparkSession, asking: Guarded, tables: dict[str, Orders], tiers: FolderTiers, clock: Clock
) -> None:
    orders, returns = (tables[name].source.sql for name in ("orders", "returns"))
    query = f"SELECT o.id FROM {orders} o JOIN {returns} r USING (id) WHERE o.day = 1 AND r.day = 1 AND o.id < 15"
    with session_time_zone(spark, "Europe/Paris"):
        plan = restore_planner.plan_statement(spark, Priority.HIGH, NOW, sql=query)
    pinned = query.replace(orders, f"{orders} VERSION AS OF 2").replace(returns, f"{returns} VERSION AS OF 2")
    assert (len(plan.tables), len(plan.files), plan.zone, plan.sql) == (2, 2, "Europe/Paris", pinned)
    restore.check_plan(spark, plan)
    both = TiersOfTables(tuple(file.uri for file in plan.files), lambda _: tiers)
    assert restore.request_files(plan, both).pending == 2
    with pytest.raises(ArchivedFilesNeededError):
        restore.run_query(spark, plan, both, NOW)
    with pytest.raises(ArchivedFilesNeededError) as caught:
        asking.frame(spark.sql(query))
    assert restore.run_query(spark, caught.value.plan(), both, NOW) is None  # was created only for files
    clock.pass_(1)
    assert restore.read_progress(plan, both).done
    rows = restore.run_query(spark, plan, both, NOW)
    assert rows is not None
    assert rows.count() == 5
    tiers.archive(file.uri for file in plan.files)  # restore the previous state for other tests


def test_databricks_guards_queries_itself(spark: SparkSession) -> None:
    engine = RecordingDatabricks(spark, {"SELECT": [(1,)]})
    assert Guarded(engine).sql("SELECT 1").collect() == [(1,)]  # type: ignore[arg-type]
    assert engine.statements == ["SELECT 1"]
    with raises(one_table_per_plan) as caught:
        Guarded(engine).needed("SELECT 1")  # type: ignore[arg-type]
    assert "only one table at a time" in str(caught.value)


def test_missing_plan_is_reported() -> None:
    assert "Nothing was read." in str(no_query_plan())
