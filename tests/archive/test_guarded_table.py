"""Read tables with and without archived files. The archived files are moved away, so that reading them fails."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from fixtures.tiers import Clock, FolderTiers
from mirrorfeed.api.archive_table import ArchiveAwareTable
from mirrorfeed.archive.archived_files import ArchivedFilesNeededError, not_enough_active_rows
from mirrorfeed.archive.engines.open_source import OpenSourceEngine
from mirrorfeed.archive.errors import (
    InvalidPredicateError,
    VersionMissingError,
    active_rows_unavailable,
    column_missing,
    negative_number,
)
from mirrorfeed.archive.guarded_table import GuardedTable
from mirrorfeed.runtime.spark_session import setting
from mirrorfeed.storage.tier_store import Priority
from tests.archive.archived_table import NOW, Orders, data_moved_away, days
from tests.raised import Expected, raises
from tests.support.delta import SparkTable


@pytest.fixture(scope="module")
def table(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Orders:
    """Versions: 1 adds the data, of which days 1 and 2 are old; 2 sets the interval; 3 deletes one row of day 3."""
    orders = Orders(
        spark,
        tmp_path_factory.mktemp("archive") / "orders",
        properties={"delta.enableDeletionVectors": "true"},
        interval=60,
    )
    orders.sql("DELETE FROM {} WHERE id = 35")
    return orders


@pytest.fixture(scope="module")
def clock() -> Clock:
    return Clock(NOW)


@pytest.fixture(scope="module")
def tiers(table: Orders, clock: Clock, tmp_path_factory: pytest.TempPathFactory) -> FolderTiers:
    """Storage tiers in which days 1 and 2 are archived."""
    orders = FolderTiers(tmp_path_factory.mktemp("aside"), clock)
    orders.archive(file.uri for file in table.files("1", "2"))
    return orders


@pytest.fixture
def guarded(spark: SparkSession, table: Orders, tiers: FolderTiers) -> GuardedTable:
    return GuardedTable(spark, table.source, lambda _: tiers, lambda: NOW)


@pytest.mark.parametrize(
    ("where", "version", "rows"),
    [
        ("day = 3", None, 9),
        ("id > 29", 1, 20),
        pytest.param("day >= 3 AND v < 'v35'", None, 5, marks=pytest.mark.slow),
        pytest.param("id > 29", None, 19, marks=pytest.mark.slow),
        pytest.param("id < 0", None, 0, marks=pytest.mark.slow),
    ],
)
def test_query_that_needs_no_archived_file_is_answered(
    guarded: GuardedTable, where: str, version: int | None, rows: int
) -> None:
    found = guarded.query(where, ["id"], version)
    assert (found.columns, found.count()) == (["id"], rows)


@pytest.mark.parametrize(
    ("where", "needed"),
    [
        (None, ["1", "2"]),
        ("id = 15 OR id = 35", ["1"]),
        pytest.param("day = 2", ["2"], marks=pytest.mark.slow),
        pytest.param("length(v) = 3", ["1", "2"], marks=pytest.mark.slow),
    ],
)
def test_query_that_needs_archived_files_fails_before_it_reads(
    guarded: GuardedTable, where: str | None, needed: list[str]
) -> None:
    with pytest.raises(ArchivedFilesNeededError) as caught:
        guarded.query(where)
    assert days(caught.value.files) == needed


def test_error_names_count_bytes_files_and_the_fix(guarded: GuardedTable, table: Orders) -> None:
    with pytest.raises(ArchivedFilesNeededError) as caught:
        guarded.query("id = 15")
    (file,) = caught.value.files
    assert str(caught.value) == (
        f"A query needs 1 archived file ({file.bytes} B) of {table.path} at version 3: {file.uri}. Nothing was read."
        f" Restore the files with `mirrorfeed archive plan {table.path} --where 'id = 15' --to PLAN` and `mirrorfeed"
        f" archive restore PLAN`, or use conditions that need no archived file."
    )


@pytest.mark.parametrize("where", ["day = '2026-01-05'", "`a b` = 1", 'v = "$HOME"', r"v LIKE '\_%'", "v = '`id`'"])
def test_fix_is_a_valid_shell_command(where: str) -> None:
    solution = ArchivedFilesNeededError(needed=(), arguments=("t", "--where", where)).solution
    command = solution.removeprefix("Restore the files with `").partition("` and `mirrorfeed archive restore")[0]
    printed = subprocess.run(["sh", "-c", f'set -- {command}; printf %s "$6"'], capture_output=True, text=True)
    assert printed.stdout == where


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        (lambda t: t.count(), 39),
        pytest.param(lambda t: t.count(version=1), 40, marks=pytest.mark.slow),
        (lambda t: t.bounds("id", version=1), (10, 49)),
        (lambda t: t.partitions(), [{"day": "1"}, {"day": "2"}, {"day": "3"}, {"day": "4"}]),
    ],
    ids=["count", "count of an older version", "bounds", "partitions"],
)
def test_queries_answered_by_the_log_need_no_data(
    guarded: GuardedTable, table: Orders, question: Callable[[GuardedTable], Any], answer: Any
) -> None:
    with data_moved_away(table.path):
        assert question(guarded) == answer


@pytest.mark.parametrize(
    ("column", "version"),
    [
        pytest.param("id", 3, id="a deletion vector leaves bounds that may not be exact"),
        pytest.param("v", 1, id="texts are cut in the log", marks=pytest.mark.slow),
    ],
)
def test_inexact_bounds_of_the_log_need_archived_files(guarded: GuardedTable, column: str, version: int) -> None:
    with pytest.raises(ArchivedFilesNeededError, match="A query for bounds needs 2 archived files"):
        guarded.bounds(column, version)


def test_limit_returns_active_rows_and_fails_with_too_few(guarded: GuardedTable, table: Orders) -> None:
    assert {row["day"] for row in guarded.limit(19).collect()} == {3, 4}
    assert guarded.limit(10, "day > 3").count() == 10
    with raises(not_enough_active_rows) as caught:
        guarded.limit(20)
    archived = sum(file.bytes or 0 for file in caught.value.files)
    assert (caught.value.limit, caught.value.found) == (20, 19)
    assert caught.value.computed["missing"] == f"2 archived files ({archived / 1024:.1f} KiB)"
    with pytest.raises(InvalidPredicateError, match="names `id`, which is not a column"):
        guarded.limit(1, "id = 15")


@pytest.mark.parametrize(
    ("question", "error", "words"),
    [
        (lambda t: t.query(columns=["id", "nope"]), column_missing, "has no column 'nope'. Use one of the columns of"),
        (lambda t: t.bounds("nope"), column_missing, "has no column 'nope'"),
        (lambda t: t.query(version=-1), VersionMissingError, "cannot be read at version -1. The newest version is 3."),
        (lambda t: t._needed(version=-1), VersionMissingError, "cannot be read at version -1"),
        (
            lambda t: t.query("day = 3", version=4),
            VersionMissingError,
            "cannot be read at version 4. The newest version is 3.",
        ),
        (lambda t: t.count(version=9), VersionMissingError, "at version 9"),
        (lambda t: t.partitions(version=-2), VersionMissingError, "at version -2"),
        (lambda t: t.limit(-1), negative_number, "is negative: -1."),
        (lambda t: t.stream(-1), negative_number, "The starting version for"),
    ],
)
def test_invalid_query_is_reported_in_a_sentence(
    guarded: GuardedTable, question: Callable[[GuardedTable], Any], error: Expected, words: str
) -> None:
    with raises(error) as caught:
        question(guarded)
    assert words in str(caught.value)


def test_path_may_contain_pattern_characters(spark: SparkSession, tmp_path: Path) -> None:
    orders = Orders(spark, tmp_path / "{2026,x} [old] a*b" / "t", interval=60)
    guarded = GuardedTable(spark, orders.source, now=lambda: NOW)
    assert days(guarded._needed("id < 15").files) == ["1"]
    assert days(OpenSourceEngine(spark).files(orders.source, 2).values()) == ["1", "2", "3", "4"]
    assert guarded.query("day = 3").count() == 10
    assert len(orders.changed_files(1, 1)) == 4


def test_recent_rows_report_the_files_left_out(guarded: GuardedTable) -> None:
    found = guarded.recent(["id"])
    assert sorted(row["id"] for row in found.rows.collect()) == [i for i in range(30, 50) if i != 35]
    assert days(found.left_out) == ["1", "2"]
    assert str(found).startswith("version 3 without 2 archived files (")
    assert str(found).endswith(", 20 rows")


def test_active_rows_can_be_queried_on_without_archived_files(guarded: GuardedTable) -> None:
    rows = guarded.recent().rows
    assert rows.where("day = 3").count() == 9
    assert rows.groupBy("day").count().count() == 2
    assert guarded._guard("A query", rows.select("id")).count() == 19


def test_active_rows_keep_names_of_mapped_columns(spark: SparkSession, tmp_path: Path) -> None:
    mapped = {"delta.columnMapping.mode": "name", "delta.enableDeletionVectors": "true"}
    table = Orders(spark, tmp_path / "a b é" / "t", properties=mapped, interval=60)
    table.sql("DELETE FROM {} WHERE id = 35")
    table.sql("ALTER TABLE {} RENAME COLUMN v TO w")
    old = table.files("1", "2")
    FolderTiers(tmp_path / "aside", Clock(NOW)).archive(file.uri for file in old)
    rows = GuardedTable(spark, table.source, now=lambda: NOW).recent(["id", "w", "day"]).rows
    assert sorted(map(tuple, rows.collect())) == [(id_, f"v{id_}", id_ // 10) for id_ in range(30, 50) if id_ != 35]


def test_active_rows_are_not_selected_on_databricks() -> None:
    assert "On Databricks, the rows in active files of t cannot be selected (`recent`)." in str(
        active_rows_unavailable(table="t")
    )


@pytest.mark.parametrize(("start", "needed"), [(None, ["1", "2"]), (1, ["1", "2"]), (3, [])])
def test_stream_is_guarded_for_its_start(guarded: GuardedTable, start: int | None, needed: list[str]) -> None:
    if not needed:
        assert guarded.stream(start).isStreaming
        return
    with pytest.raises(ArchivedFilesNeededError, match="A stream") as caught:
        guarded.stream(start)
    assert days(caught.value.files) == needed


def test_archived_file_is_never_read_without_tiers(spark: SparkSession, table: Orders) -> None:
    with pytest.raises(ArchivedFilesNeededError):
        GuardedTable(spark, table.source, now=lambda: NOW).query("day = 2")


def test_files_are_returned_as_rows_with_their_facts(
    spark: SparkSession, table: Orders, tiers: FolderTiers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mirrorfeed.api.archive_table.tiers_at", lambda _: tiers)
    (row,) = ArchiveAwareTable(spark, table.source).files("id < 15", tiers=True)
    assert (row.rows, row.age_days, row.partition, row.tier) == (10, 100, {"day": "1"}, "archive")
    assert row.why == "its partition and statistics do not rule out a match"


def test_planning_reads_no_data_file(spark: SparkSession, table: Orders) -> None:
    with data_moved_away(table.path):
        found = GuardedTable(spark, table.source, now=lambda: NOW)._needed("id = 15 OR id = 35")
    assert (days(found.files), found.active, found.version) == (["1"], 1, 3)


@pytest.mark.slow
def test_table_without_a_policy_is_read_normally(spark: SparkSession, tmp_path: Path) -> None:
    orders = Orders(spark, tmp_path / "t")
    assert GuardedTable(spark, orders.source, now=lambda: NOW).query().count() == 40


def test_texts_are_compared_by_the_collation_of_their_column(spark: SparkSession, tmp_path: Path) -> None:
    """Publication compares texts exactly, because Fabric does. A query uses the collation."""
    with setting(spark, "spark.databricks.delta.schema.typeCheck.enabled", "false"):  # it rejects collations
        orders = SparkTable.at(spark, tmp_path / "t")
        texts = "SELECT v COLLATE UTF8_LCASE AS v FROM VALUES ('a'), ('A') AS t(v)"
        orders.sql(f"CREATE TABLE {{}} USING DELTA AS {texts}")
        table = GuardedTable(spark, orders.source)
        assert table.query("v = 'a'").count() == table.limit(9).where("v = 'A'").count() == 2


def test_partly_restored_table_is_still_guarded(guarded: GuardedTable, tiers: FolderTiers, clock: Clock) -> None:
    first, second = guarded._needed("day <= 2").files
    tiers.restore([first.uri], Priority.HIGH)
    with pytest.raises(ArchivedFilesNeededError, match="2 archived files"):
        guarded.query("day <= 2")  # a pending restore is not complete
    clock.pass_(1)
    with pytest.raises(ArchivedFilesNeededError, match="1 archived file ") as caught:
        guarded.query("day <= 2")
    assert caught.value.files == (second,)
    tiers.restore([second.uri], Priority.STANDARD)
    clock.pass_(15)
    assert guarded.query("day <= 2").count() == 20
    tiers.archive((first.uri, second.uri))  # restore the previous state for other tests
