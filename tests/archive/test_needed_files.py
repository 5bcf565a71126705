"""Files that queries, changes and ranges need, compared with the answers in `needed_files.json`.

`--renew` records the answers. If two methods find needed files, both must give the same answer."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from fixtures.tiers import Clock, FolderTiers
from mirrorfeed.archive import archive_interval, guard
from mirrorfeed.archive.archived_files import ArchivedFilesNeededError, not_enough_active_rows
from mirrorfeed.archive.data_files import DataFile
from mirrorfeed.archive.data_skipping import UncertainFiles
from mirrorfeed.archive.engines.open_source import OpenSourceEngine
from mirrorfeed.archive.guard import Guarded
from mirrorfeed.archive.guarded_table import GuardedTable
from mirrorfeed.archive.restore_planner import plan_feed, plan_query, plan_statement
from mirrorfeed.errors import MirrorfeedError, error_name
from mirrorfeed.source.snapshot_or_range import Range
from mirrorfeed.storage.tier_store import Priority
from tests.archive.archived_table import NOW, Orders
from tests.support.delta import DeltaTable

ANSWERS = Path(__file__).with_name("needed_files.json")
CONDITIONS = [
    "",
    "day = 1",
    "day = 3",
    "day > 1 AND id < 30",
    "day >= 2 AND v >= 'v25'",
    "id = 15",
    "id = 15 AND day = 3",
    "15 = id",
    "id = 45",
    "id < 0",
    "v = 'v25'",
    "v > 'v4'",
    "id IS NOT NULL",
    "id IS NULL",
    "day IS NULL",
    "day = 1 OR id = 25",
    "NOT (day = 1)",
    "day IN (2, 3)",
    "id BETWEEN 18 AND 21",
    "id <=> 15",
    "day + 1 = 2",
    "length(v) = 3",
    "v LIKE 'v1%'",
    "upper(v) = 'V25'",
    "coalesce(id > 40, true)",
    "id = cast('15' AS int)",
    "day = 1L",
    "id = 15.5",
    "v = ''",
    "1 = 0",
    "true",
    "id = (SELECT 1)",
    "rand() < 0.5",
    "gone = 1",
    "id = = 1",
]
SELECTS = [
    "SELECT * FROM {orders} WHERE day = 1",
    "SELECT * FROM {orders} VERSION AS OF 1 WHERE id = 25",
    "SELECT o.id FROM {orders} o JOIN {returns} r ON o.id = r.id WHERE r.day = 2",
    "SELECT o.id FROM {orders} o LEFT JOIN {returns} r ON o.id = r.id AND r.day = 4 WHERE o.day = 3",
    "SELECT id FROM {orders} WHERE day = 3 AND id NOT IN (SELECT id FROM {returns} WHERE day = 2)",
    "SELECT id, (SELECT max(v) FROM {returns}) FROM {orders} WHERE day = 3",
    "SELECT n.id FROM {orders} n JOIN {orders} VERSION AS OF 1 b USING (id) WHERE n.day = 1 AND b.day = 1",
    "SELECT id FROM {orders} WHERE day = 3 UNION ALL SELECT id FROM {clone} WHERE id = 15",
    "SELECT * FROM {clone} WHERE day = 3",
    "SELECT * FROM {clone} WHERE day < 3",
    "SELECT count(*) FROM {orders}",
    "SELECT count(*) FROM {returns}",
    "SELECT max(day) FROM {returns}",
    "SELECT id FROM {orders} ORDER BY id LIMIT 3",
    "SELECT * FROM {plain} WHERE day = 1",
    "SELECT p.id FROM {plain} p JOIN {returns} r ON p.day = r.day WHERE p.v = 'v35'",
    "WITH old AS (SELECT * FROM {returns} WHERE day = 2) SELECT a.id FROM old a JOIN old b USING (id)",
    "SELECT * FROM parquet.`{orders_path}`",
    "SHOW TABLES",
    "SHOW PARTITIONS {orders}",
    "DELETE FROM {orders}",
    "OPTIMIZE {orders}",
    "SELECT v FROM {orders} WHERE id = 'x'",
]
UPSERT = "WHEN MATCHED THEN UPDATE SET v = s.v WHEN NOT MATCHED THEN INSERT *"
CHANGES: dict[str, Callable[[GuardedTable, SparkSession], None]] = {
    "DELETE id = 15": lambda writer, _: writer.delete("id = 15"),
    "DELETE day = 2": lambda writer, _: writer.delete("day = 2"),
    "DELETE length(v) = 3": lambda writer, _: writer.delete("length(v) = 3"),
    "DELETE true": lambda writer, _: writer.delete("true"),
    "UPDATE v = 'v35' OR id = 25": lambda writer, _: writer.update({"v": "'x'"}, "v = 'v35' OR id = 25"),
    "UPDATE": lambda writer, _: writer.update({"v": "'x'"}),
    "UPDATE with a subquery": lambda writer, _: writer.update({"v": "(SELECT 'x')"}, "day = 1"),
    "MERGE 25, 35": lambda writer, spark: writer.merge(_rows(spark, 25, 35), ["id"], UPSERT),
    "MERGE 35 by id and day": lambda writer, spark: writer.merge(_rows(spark, 15, 35), ["id", "day"], UPSERT),
    "MERGE where t.day = 1": lambda writer, spark: writer.merge(_rows(spark, 15, 25), ["id"], UPSERT, "t.day = 1"),
    "MERGE of a text key": lambda writer, spark: writer.merge(
        _rows(spark, 35).selectExpr("'35' id", "v", "day"), ["id"], UPSERT
    ),
    "MERGE not matched by source": lambda writer, spark: writer.merge(
        _rows(spark, 35), ["id"], "WHEN NOT MATCHED BY SOURCE THEN DELETE"
    ),
}
RANGES = [(0, 1), (0, 3), (1, 2), (2, 3), (0, 0)]


def _rows(spark: SparkSession, *ids: int) -> DataFrame:
    values = ", ".join(f"({id_}, 'm', {id_ // 10})" for id_ in ids)
    return spark.sql(f"SELECT * FROM VALUES {values} AS r(id, v, day)")


@pytest.fixture(scope="module")
def tables(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> dict[str, DeltaTable]:
    """Days 1 and 2 of `orders` and `returns` are archived, including the files of `clone`.

    Version 3 of `orders` deletes a row of day 1 and a row of day 3 with deletion vectors."""
    folder = tmp_path_factory.mktemp("needed")
    orders = Orders(spark, folder / "orders", properties={"delta.enableDeletionVectors": "true"}, interval=60)
    returns = Orders(spark, folder / "returns", interval=60)
    orders.sql("DELETE FROM {} WHERE id IN (12, 35)")
    clone = DeltaTable.cloned(returns, folder / "clone", 1)
    clone.sql("INSERT INTO {} VALUES (15, 'own', 1)")
    return {"orders": orders, "returns": returns, "clone": clone, "plain": Orders(spark, folder / "plain")}


Compare = Callable[[str, Callable[[], Any]], None]


@pytest.fixture(scope="module")
def compare(request: pytest.FixtureRequest, tables: dict[str, DeltaTable]) -> Iterator[Compare]:
    """Compare the answer to a question, or the error and its files, with the recorded answer."""
    renews = request.config.getoption("renew")
    expected: dict[str, Any] = json.loads(ANSWERS.read_text(encoding="utf-8"))

    def compare(question: str, ask: Callable[[], Any]) -> None:
        found: Any
        try:
            found = ask()
        except ArchivedFilesNeededError as error:
            found = [error_name(error), _needed(tables, error.needed)]
        except MirrorfeedError as error:
            found = error_name(error)
            if not_enough_active_rows.matches(error):
                found = [found, _files(tables, error.facts["files"])]
        except PySparkException as error:
            found = type(error).__name__
        found = json.loads(json.dumps(found))
        if renews:
            expected[question] = found
        assert found == expected[question], question

    yield compare
    if renews:
        lines = ",\n".join(f"  {json.dumps(each)}: {json.dumps(expected[each])}" for each in expected)
        ANSWERS.write_text(f"{{\n{lines}\n}}\n", encoding="utf-8")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "conditions", "of_version_1"),
    [
        pytest.param("orders", CONDITIONS[::6], CONDITIONS[2:3], id="orders, every sixth"),
        pytest.param("orders", CONDITIONS, CONDITIONS[:4], id="orders, all", marks=pytest.mark.slow),
        pytest.param("clone", CONDITIONS[:6], CONDITIONS[:4], id="clone", marks=pytest.mark.slow),
    ],
)
def test_files_of_conditions_are_as_recorded(
    spark: SparkSession,
    tables: dict[str, DeltaTable],
    compare: Compare,
    name: str,
    conditions: list[str],
    of_version_1: list[str],
) -> None:
    for where in conditions:
        _check_condition(spark, tables, compare, name, where, None)
    for where in of_version_1:
        _check_condition(spark, tables, compare, name, where, 1)
        compare(
            f"query {name}: {where}",
            partial(_rows_of, GuardedTable(spark, tables[name].source, now=lambda: NOW), where),
        )


def _check_condition(
    spark: SparkSession, tables: dict[str, DeltaTable], compare: Compare, name: str, where: str, version: int | None
) -> None:
    engine, source, question = OpenSourceEngine(spark), tables[name].source, f"{name}@{version}: {where}"
    arguments = (source, where or None, NOW, version)
    compare(question, lambda: _needed(tables, [engine.find_in_plan(*arguments)]))
    with suppress(UncertainFiles):
        found = engine.find_in_log(*arguments)
        compare(question, lambda: _needed(tables, [found]))


def _rows_of(table: GuardedTable, where: str) -> int:
    return table.query(where or None).count()


@pytest.mark.parametrize(
    ("selects", "planned"),
    [
        pytest.param(SELECTS[6:9], [], id="versions and clones"),
        pytest.param(SELECTS, SELECTS[:5], id="all", marks=pytest.mark.slow),
    ],
)
def test_files_of_statements_are_as_recorded(
    spark: SparkSession, tables: dict[str, DeltaTable], compare: Compare, selects: list[str], planned: list[str]
) -> None:
    guarded = Guarded(spark, lambda _: None, lambda: NOW)
    names = {name: table.source.sql for name, table in tables.items()} | {"orders_path": str(tables["orders"].path)}

    def run(statement: str) -> Any:
        found = guarded.sql(statement)
        return found.count() if statement.startswith("SELECT") else found.columns

    for select in selects:
        compare(select, partial(run, select.format(**names)))
    for select in planned:
        compare(f"plan {select}", partial(_statement_plan, spark, tables, select.format(**names)))


def _statement_plan(spark: SparkSession, tables: dict[str, DeltaTable], statement: str) -> Any:
    return _planned(tables, plan_statement(spark, Priority.HIGH, NOW, sql=statement))


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        pytest.param(
            "clone", ["DELETE id = 15", "UPDATE v = 'v35' OR id = 25", "MERGE 25, 35"], id="clone, one of each"
        ),
        pytest.param("clone", list(CHANGES), id="clone, all", marks=pytest.mark.slow),
        pytest.param("orders", list(CHANGES), id="orders, all", marks=pytest.mark.slow),
    ],
)
def test_files_of_changes_are_as_recorded(
    spark: SparkSession, tables: dict[str, DeltaTable], compare: Compare, name: str, changes: list[str]
) -> None:
    writer = GuardedTable(spark, tables[name].source, now=lambda: NOW)
    for change in changes:
        compare(f"{name}: {change}", partial(CHANGES[change], writer, spark))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "ranges"),
    [
        pytest.param("clone", RANGES[:1], id="clone"),
        pytest.param("clone", RANGES[1:], id="clone, other ranges", marks=pytest.mark.slow),
        pytest.param("orders", RANGES, id="orders", marks=pytest.mark.slow),
        pytest.param("returns", RANGES, id="returns", marks=pytest.mark.slow),
    ],
)
def test_files_of_other_reads_are_as_recorded(
    spark: SparkSession, tables: dict[str, DeltaTable], compare: Compare, name: str, ranges: list[tuple[int, int]]
) -> None:
    source = tables[name].source
    table = GuardedTable(spark, source, now=lambda: NOW)
    reads: dict[str, Callable[[], Any]] = {
        "count": table.count,
        "count at 1": lambda: table.count(1),
        "bounds of id": lambda: table.bounds("id"),
        "bounds of v": lambda: table.bounds("v"),
        "partitions": table.partitions,
        "limit 19": lambda: table.limit(19).count(),
        "limit 25": lambda: table.limit(25).count(),
        "recent": lambda: _files(tables, table.recent().left_out),
        "stream": lambda: table.stream().isStreaming,
        "stream from 1": lambda: table.stream(1).isStreaming,
        "stream from 2": lambda: table.stream(2).isStreaming,
    }
    for read, ask in reads.items():
        compare(f"{name}: {read}", ask)
    compare(f"{name}: plan of id = 15", partial(_plan_of, spark, tables, source, "id = 15"))
    for first, last in ranges:
        what = last if first == last else Range(first, last)
        compare(f"{name}: {what}", partial(guard.check, spark, source, what, now=NOW))
        compare(f"{name}: plan of {first} to {last}", partial(_plan_of, spark, tables, source, None, first, last))


def _plan_of(spark: SparkSession, tables: dict[str, DeltaTable], *arguments: Any) -> Any:
    source, where, first, last = (*arguments, None, None)[:4]
    if first is None:
        return _planned(tables, plan_query(spark, Priority.HIGH, NOW, source=source, where=where))
    return _planned(tables, plan_feed(spark, Priority.HIGH, NOW, source=source, first=first, last=last))


@pytest.mark.slow
def test_files_that_were_not_restored_are_as_recorded(
    spark: SparkSession, tables: dict[str, DeltaTable], compare: Compare, tmp_path: Path
) -> None:
    clock = Clock(NOW)
    tiers = FolderTiers(tmp_path / "aside", clock)
    source, plain = tables["orders"].source, tables["plain"].source
    archived = GuardedTable(spark, source, now=lambda: NOW)._needed("day < 3").files
    tiers.archive(archived[0].uris)
    compare("orders, partly restored", GuardedTable(spark, source, lambda _: tiers, lambda: NOW).query)
    archive_interval.set_first(spark, plain, 60, NOW)
    compare("plain, with an interval", GuardedTable(spark, plain, now=lambda: NOW).query)

    archive_interval.unset(spark, plain)  # other tests use the same tables
    tiers.restore(archived[0].uris, Priority.HIGH)
    clock.pass_(1)
    assert all(tier.is_readable for tier in tiers.read_tiers(archived[0].uris).values())


def _needed(tables: dict[str, DeltaTable], needed: Sequence[Any]) -> Any:
    assert all(each.table_id and each.location for each in needed)
    return [[Path(each.table).name, each.version, _files(tables, each.files), each.active] for each in needed]


def _planned(tables: dict[str, DeltaTable], plan: Any) -> Any:
    files = [DataFile(file.uri) for file in plan.files]
    return [[[Path(each.table).name, each.version] for each in plan.tables], _files(tables, files)]


def _files(tables: dict[str, DeltaTable], files: Sequence[DataFile]) -> list[str]:
    """File names without their random parts, and with the number of rows."""
    found = []
    for file in files:
        path = Path(file.uri.removeprefix("file:"))
        folder = next(name for name, table in tables.items() if table.path in path.parents)
        kind = path.relative_to(tables[folder].path).parts[0]
        found.append(f"{folder}/{kind if '=' in kind or kind[0] == '_' else path.name[:4]} {file.rows}".strip())
    return sorted(found)
