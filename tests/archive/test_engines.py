"""Statements sent to Databricks, recorded by a stand-in session."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import Row, SparkSession

from fixtures.databricks import RecordingDatabricks
from fixtures.tiers import Clock, FolderTiers
from mirrorfeed.archive.archived_files import ArchivedFilesNeededError
from mirrorfeed.archive.engines import engine_of
from mirrorfeed.archive.engines.databricks import DatabricksEngine
from mirrorfeed.archive.engines.open_source import OpenSourceEngine
from mirrorfeed.archive.errors import InvalidPredicateError, only_newest_version
from mirrorfeed.archive.guarded_table import GuardedTable
from mirrorfeed.archive.table_maintenance import EARLY_DELETION, check_files, maintain
from mirrorfeed.storage.tier_store import Priority
from tests.archive.archived_table import NOW, Orders
from tests.raised import raises

SHOW = "SHOW ARCHIVED FILES FOR "


@pytest.fixture(scope="module")
def table(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Orders:
    return Orders(spark, tmp_path_factory.mktemp("native") / "orders", interval=60)


def test_engine_is_detected_from_the_session(spark: SparkSession, table: Orders) -> None:
    assert isinstance(engine_of(RecordingDatabricks(spark, {})), DatabricksEngine)  # type: ignore[arg-type]
    assert isinstance(engine_of(spark), OpenSourceEngine)


@pytest.mark.parametrize(
    ("where", "statement"),
    [
        (None, SHOW + "{}"),
        ("id = 15", SHOW + "{} WHERE (id = 15\n)"),
        ("id = 15 -- note", SHOW + "{} WHERE (id = 15 -- note\n)"),
    ],
)
def test_databricks_lists_its_archived_files(
    spark: SparkSession, table: Orders, where: str | None, statement: str
) -> None:
    engine = RecordingDatabricks(spark, {SHOW: [("file:///t/part-0",)]})
    answer = DatabricksEngine(engine).needed(table.source, where, NOW, None)  # type: ignore[arg-type]
    assert engine.statements == [statement.replace("{}", table.source.sql)]
    assert ([file.uri for file in answer.files], answer.active) == (["file:/t/part-0"], None)


def test_invalid_predicate_never_reaches_a_statement(spark: SparkSession, table: Orders) -> None:
    engine = RecordingDatabricks(spark, {})
    with pytest.raises(InvalidPredicateError):
        DatabricksEngine(engine).needed(table.source, "id = 1) OR (1 = 1", NOW, None)  # type: ignore[arg-type]
    assert engine.statements == []


def test_older_version_is_left_to_the_engine(spark: SparkSession, table: Orders) -> None:
    with raises(only_newest_version) as caught:
        DatabricksEngine(RecordingDatabricks(spark, {})).needed(table.source, None, NOW, 1)  # type: ignore[arg-type]
    assert (caught.value.version, caught.value.newest) == (1, 2)


@pytest.mark.slow
def test_partitions_of_an_older_version_are_read_from_that_version(spark: SparkSession, table: Orders) -> None:
    session: Any = RecordingDatabricks(spark, {"SHOW PARTITIONS": [Row(day=1), Row(day=None)]})
    engine = DatabricksEngine(session)
    assert engine.partitions(table.source, None) == [{"day": "1"}, {"day": None}]
    assert engine.partitions(table.source, 0) == []
    assert engine.partitions(table.source, 1) == [{"day": day} for day in "1234"]


def test_every_file_listed_by_databricks_is_checked(spark: SparkSession, table: Orders, tmp_path_factory) -> None:  # type: ignore[no-untyped-def]
    clock = Clock(NOW)
    tiers = FolderTiers(tmp_path_factory.mktemp("aside"), clock)
    old = [file.uri for file in table.files("1", "2")]
    engine = RecordingDatabricks(spark, {SHOW: [(uri,) for uri in old]})
    guarded = GuardedTable(engine, table.source, lambda _: tiers, lambda: NOW)  # type: ignore[arg-type]
    tiers.archive(old)
    tiers.restore(old[:1], Priority.HIGH)
    clock.pass_(1)
    with pytest.raises(ArchivedFilesNeededError, match="1 archived file of"):
        guarded.query()  # Databricks only samples files, so it might treat all as restored
    tiers.restore(old, Priority.HIGH)
    clock.pass_(1)
    assert guarded.query().count() == 40


def test_maintenance_runs_the_statements_of_the_engine(spark: SparkSession, tmp_path: Path) -> None:
    table = Orders(spark, tmp_path / "orders")
    spark.sql(f"ALTER TABLE {table.source.sql} ADD COLUMN (`a``b` INT)")
    engine = RecordingDatabricks(spark, {})
    done = maintain(engine, table.source, NOW, zorder=("id", "a`b"), purge=True, analyze=True, vacuum=True)  # type: ignore[arg-type]
    name = table.source.sql
    assert (
        list(done.statements)
        == engine.statements
        == [
            f"OPTIMIZE {name} ZORDER BY (`id`, `a``b`)",
            f"REORG TABLE {name} APPLY (PURGE)",
            f"ANALYZE TABLE {name} COMPUTE DELTA STATISTICS",
            f"VACUUM {name}",
        ]
    )
    assert done.notes == (EARLY_DELETION,)


def test_fsck_finds_missing_files(spark: SparkSession, table: Orders) -> None:
    engine = RecordingDatabricks(spark, {"FSCK REPAIR TABLE": [("file:/t/gone",)]})
    assert check_files(engine, table.source, NOW).missing == ("file:/t/gone",)  # type: ignore[arg-type]
    assert engine.statements == [f"FSCK REPAIR TABLE {table.source.sql} DRY RUN"]
