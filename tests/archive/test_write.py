"""Changing a table whose old days are moved away: statements that would read them fail before they start."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from fixtures.tiers import Clock, FolderTiers
from mirrorfeed.archive import policy
from mirrorfeed.archive.guard import ArchiveAwareTable, ArchivedFilesNeeded
from mirrorfeed.archive.write import ColumnKept, GuardedWriter
from tests.archive.scenes import NOW, Orders, days

UPSERT = "WHEN MATCHED THEN UPDATE SET v = s.v WHEN NOT MATCHED THEN INSERT *"


@pytest.fixture(scope="module")
def table(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Orders:
    made = Orders(spark, tmp_path_factory.mktemp("archive") / "orders")
    policy.set_first(spark, made.source, 60, NOW)
    tiers = FolderTiers(tmp_path_factory.mktemp("aside"), Clock(NOW))
    tiers.archive(file.uri for file in made.files() if file.partition in ({"day": "1"}, {"day": "2"}))
    return made


@pytest.fixture
def writer(spark: SparkSession, table: Orders) -> GuardedWriter:
    return GuardedWriter(spark, ArchiveAwareTable(spark, table.source, now=lambda: NOW))


def rows(spark: SparkSession, *ids: int) -> DataFrame:
    values = ", ".join(f"({i}, 'merged', {i // 10})" for i in ids)
    return spark.sql(f"SELECT * FROM VALUES {values} AS r(id, v, day)")


@pytest.mark.parametrize(
    ("statement", "needed"),
    [
        (lambda w, s: w.delete("id = 15"), ["1"]),
        (lambda w, s: w.delete("day = 2"), ["2"]),
        (lambda w, s: w.update({"v": "'x'"}, "v = 'v35' OR id = 25"), ["2"]),
        (lambda w, s: w.update({"v": "'x'"}), ["1", "2"]),
        (lambda w, s: w.merge(rows(s, 25, 35), ["id"], UPSERT), ["2"]),
        (lambda w, s: w.merge(rows(s, 35), ["id"], "WHEN NOT MATCHED BY SOURCE THEN DELETE"), ["1", "2"]),
        (lambda w, s: w.merge(rows(s, 35).selectExpr("'35' id", "v", "day"), ["id"], UPSERT), ["1", "2"]),
    ],
    ids=[
        "DELETE",
        "DELETE of a partition",
        "UPDATE with OR",
        "UPDATE of all",
        "MERGE by its keys",
        "MERGE with NOT MATCHED BY SOURCE",
        "MERGE by a key of another type",
    ],
)
def test_a_statement_that_touches_archived_files_fails_before_it_starts(
    spark: SparkSession,
    table: Orders,
    writer: GuardedWriter,
    statement: Callable[[GuardedWriter, SparkSession], None],
    needed: list[str],
) -> None:
    before = {path.name for path in (table.path / "_delta_log").iterdir()}
    with pytest.raises(ArchivedFilesNeeded) as caught:
        statement(writer, spark)
    assert days(caught.value.files) == needed
    assert {path.name for path in (table.path / "_delta_log").iterdir()} == before


def test_statements_on_the_hot_part_run(spark: SparkSession, table: Orders, writer: GuardedWriter) -> None:
    """Reading an archived file would fail, for it is not there."""
    writer.delete("id = 30 AND day = 3 -- a comment")
    writer.update({"v": "concat(v, '!')"}, "id = 30 + 3")
    writer.merge(rows(spark, 34, 350), ["id"], UPSERT)
    writer.merge(rows(spark, 40), ["id"], "WHEN MATCHED THEN DELETE", "t.day = 4")
    found = ArchiveAwareTable(spark, table.source, now=lambda: NOW).query("day > 2").collect()
    changed = {row["id"]: row["v"] for row in found if row["v"] != f"v{row['id']}"}
    assert changed == {33: "v33!", 34: "merged", 350: "merged"}
    assert len(found) == 20 - 2 + 1


def test_a_column_is_kept_while_files_are_archived(writer: GuardedWriter, table: Orders) -> None:
    with pytest.raises(ColumnKept) as caught:
        writer.drop_column("v")
    assert str(caught.value) == (
        f"The column v of {table.path} is not dropped: 2 of its files are archived. Leave the column where it is, and"
        " select the others; or restore and rewrite these files first."
    )


def test_what_only_marks_files_as_removed_reads_none(spark: SparkSession, tmp_path: Path) -> None:
    table = Orders(spark, tmp_path / "t")
    policy.set_first(spark, table.source, 60, NOW)
    guarded = ArchiveAwareTable(spark, table.source, now=lambda: NOW)
    writer = GuardedWriter(spark, guarded)
    tiers = FolderTiers(tmp_path / "aside", Clock(NOW))
    tiers.archive(file.uri for file in table.files())
    writer.overwrite(rows(spark, 77))
    assert [row["id"] for row in guarded.query().collect()] == [77]
    tiers.archive(file.uri for file in table.files())
    writer.replace(rows(spark, 78).selectExpr("id"))
    assert [row.asDict() for row in guarded.query().collect()] == [{"id": 78}]
    assert policy.required(spark, table.source).days == 60
    tiers.archive(file.uri for file in table.files())
    writer.truncate()
    assert guarded.query().count() == 0
    spark.sql(f"CREATE TABLE to_drop USING DELTA LOCATION '{table.path}'")
    GuardedWriter(spark, ArchiveAwareTable(spark, "to_drop", now=lambda: NOW)).drop()
    assert not spark.catalog.tableExists("to_drop")
