from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import deltalake
import pytest
from pyspark.sql import SparkSession

from mirrorfeed.source import versions
from mirrorfeed.source.change_feed import begin_of_feed, facts_of, feed_on_at, first_with_feed
from mirrorfeed.source.change_preview import changes_between
from mirrorfeed.source.errors import LogDamaged, NoTableAtPath, NotDelta, SourceMissing
from mirrorfeed.source.identifier import Source
from mirrorfeed.source.ranges import Commit
from mirrorfeed.source.table_info import detail_of
from mirrorfeed.source.versions import commits, only_adds
from tests.delta import DeltaTable


@pytest.fixture(scope="module")
def table(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> DeltaTable:
    """Versions 0 to 8, with the feed off at 2 and 3, and a column added at 6."""
    made = DeltaTable(spark, tmp_path_factory.mktemp("delta") / "orders")
    made.insert(1)
    made.set_feed(False)
    made.insert(2)
    made.set_feed(True)
    made.insert(3)
    made.sql("ALTER TABLE {} ADD COLUMNS (w int)")
    made.sql("OPTIMIZE {}")
    made.sql("UPDATE {} SET w = 1")
    return made


@pytest.fixture(scope="module")
def holed(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> DeltaTable:
    """Version 4 of 0 to 8 is missing, between the checkpoints of 3 and 6: nothing but the history shows it."""
    path = tmp_path_factory.mktemp("delta") / "holed"
    made = DeltaTable(spark, path)
    for i in range(1, 9):
        made.insert(i)
        if i % 3 == 0:
            deltalake.DeltaTable(path).create_checkpoint()
    made.commit_file(4).unlink()
    return made


def test_commits_ascend_and_know_their_operation_and_time(spark: SparkSession, table: DeltaTable) -> None:
    found = commits(spark, table.source)
    assert [(commit.version, commit.operation) for commit in found] == [
        (0, "CREATE TABLE"),
        (1, "WRITE"),
        (2, "SET TBLPROPERTIES"),
        (3, "WRITE"),
        (4, "SET TBLPROPERTIES"),
        (5, "WRITE"),
        (6, "ADD COLUMNS"),
        (7, "OPTIMIZE"),
        (8, "UPDATE"),
    ]
    times = [commit.timestamp for commit in found]
    assert times == sorted(times)
    assert times[-1].tzinfo is UTC
    assert abs((datetime.now(UTC) - times[-1]).total_seconds()) < 3600


@pytest.fixture
def oslo(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Clocks that go back from 3 to 2 on 26 October 2025, at 1 in UTC."""
    with monkeypatch.context() as here:
        here.setenv("TZ", "Europe/Oslo")
        time.tzset()
        yield
    time.tzset()


@pytest.mark.usefixtures("oslo")
def test_commits_keep_their_times_where_clocks_go_back(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = DeltaTable(spark, tmp_path / "t")
    made = [datetime(2025, 10, 25, 22, 30, tzinfo=UTC) + timedelta(hours=hours) for hours in range(5)]
    for number, moment in enumerate(made):
        if number:
            table.insert(number)
        os.utime(table.commit_file(number), (moment.timestamp(), moment.timestamp()))
    assert [commit.timestamp for commit in commits(spark, table.source)] == made
    monkeypatch.setattr(versions, "opened", lambda _: None)
    assert [commit.timestamp for commit in commits(spark, table.source)] == made


def test_times_that_commits_tell_themselves_are_those_that_count(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = DeltaTable(spark, tmp_path / "t")
    table.insert(1)
    table.sql("ALTER TABLE {} SET TBLPROPERTIES (delta.enableInCommitTimestamps = true)")
    table.insert(2)
    for version in range(4):
        os.utime(table.commit_file(version), (1_577_836_800 + version, 1_577_836_800 + version))
    told = commits(spark, table.source)
    assert [commit.timestamp.year > 2020 for commit in told] == [False, False, True, True]
    monkeypatch.setattr(versions, "opened", lambda _: None)
    assert told == commits(spark, table.source)


def test_the_commits_of_a_table_in_a_folder_of_this_machine_are_told_without_spark_as_spark_tells_them(
    spark: SparkSession, table: DeltaTable, holed: DeltaTable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that Spark makes are held against it in `test_delta_cases`."""
    backwards = DeltaTable.copied(table, tmp_path / "backwards")
    for version, seconds in enumerate((0, 100, 200, 50, 50, 60, 300, 299, 301)):
        os.utime(backwards.commit_file(version), (1_767_225_600 + seconds, 1_767_225_600 + seconds))
    asked = [(each.source, after) for each in (table, holed, backwards) for after in (None, 3, 7)]
    with monkeypatch.context() as meanwhile:
        meanwhile.setattr(SparkSession, "sql", lambda *_: pytest.fail("Spark was asked"))
        told = [commits(spark, *each) for each in asked]
    monkeypatch.setattr(versions, "opened", lambda _: None)
    assert told == [commits(spark, *each) for each in asked]


@pytest.mark.usefixtures("oslo")
@pytest.mark.parametrize(
    ("local", "twice"),
    [
        (datetime(2025, 10, 26, 1, 59, 59), False),
        (datetime(2025, 10, 26, 2, 0), True),
        (datetime(2025, 10, 26, 2, 30, fold=1), True),
        (datetime(2025, 10, 26, 3, 0), False),
        (datetime(2025, 7, 1), False),
    ],
)
def test_the_hour_that_clocks_show_twice_is_known(local: datetime, twice: bool) -> None:
    assert versions.shown_twice(local) is twice


@pytest.mark.parametrize(("after", "expected"), [(0, [1, 2, 3, 4, 5, 6, 7, 8]), (6, [7, 8]), (8, [8]), (99, [8])])
def test_commits_after_a_version_hold_at_least_the_newest(
    spark: SparkSession, table: DeltaTable, after: int, expected: list[int]
) -> None:
    assert [commit.version for commit in commits(spark, table.source, after)] == expected


def test_commits_after_a_version_far_back_are_all_there(spark: SparkSession, tmp_path: Path) -> None:
    table = DeltaTable(spark, tmp_path / "t")
    for i in range(17):
        table.insert(i)
    assert [commit.version for commit in commits(spark, table.source, 0)] == list(range(1, 18))
    assert [commit.version for commit in commits(spark, table.source, 15)] == [16, 17]


def test_the_feed_is_known_for_every_version(spark: SparkSession, table: DeltaTable) -> None:
    on = [version for version in range(9) if feed_on_at(spark, table.source, version)]
    assert on == [0, 1, 4, 5, 6, 7, 8]


@pytest.mark.parametrize(("after", "off"), [(0, 2), (1, 2), (4, None), (8, None)])
def test_the_first_version_without_the_feed_is_a_fact(
    spark: SparkSession, table: DeltaTable, after: int, off: int | None
) -> None:
    found = facts_of(spark, table.source, after, limit=100)
    assert found.feed_off_at == off
    assert [commit.version for commit in found.commits] == list(range(after + 1, 9))
    assert found.latest == 8


def test_a_table_that_was_never_published_is_judged_by_its_newest_version(
    spark: SparkSession, table: DeltaTable, tmp_path: Path
) -> None:
    found = facts_of(spark, table.source, None, limit=100)
    assert (found.latest, [commit.version for commit in found.commits], found.feed_off_at) == (8, [8], None)
    off = DeltaTable(spark, tmp_path / "off", feed=False)
    assert facts_of(spark, off.source, None, limit=100).feed_off_at == 0


def test_a_table_with_nothing_new_is_not_asked_for_its_history(
    spark: SparkSession, table: DeltaTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    def asked(*_: object) -> None:
        raise AssertionError("the history was asked")

    monkeypatch.setattr(versions, "_newest", asked)
    for _ in ("here", "by Spark"):
        found = facts_of(spark, table.source, 8, limit=100)
        assert (found.latest, found.commits, found.breaks, found.feed_off_at) == (8, (), (), None)
        with pytest.raises(AssertionError, match="the history was asked"):
            facts_of(spark, table.source, 7, limit=100)
        with pytest.raises(AssertionError, match="the history was asked"):  # it went back
            facts_of(spark, table.source, 9, limit=100)
        monkeypatch.setattr(versions, "opened", lambda _: None)


def test_an_engine_that_does_not_say_which_version_is_the_newest_is_asked_for_the_history(
    spark: SparkSession, table: DeltaTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(versions, "opened", lambda _: None)
    monkeypatch.setattr(versions, "parameter", lambda *_: None)
    found = facts_of(spark, table.source, 8, limit=100)
    assert (found.latest, found.commits) == (8, ())


def test_added_columns_break_no_range(spark: SparkSession, table: DeltaTable) -> None:
    assert facts_of(spark, table.source, 4, limit=100).breaks == ()


@pytest.mark.parametrize(
    ("statement", "follows"),
    [
        ("ALTER TABLE {} RENAME COLUMN v TO w", "RENAME COLUMN"),
        ("ALTER TABLE {} DROP COLUMN v", "DROP COLUMNS"),
        ("ALTER TABLE {} ALTER COLUMN id DROP NOT NULL", "CHANGE COLUMN"),
    ],
)
def test_other_changes_of_columns_break_a_range(
    spark: SparkSession, tmp_path: Path, statement: str, follows: str
) -> None:
    mapped = {"delta.columnMapping.mode": "name"}
    table = DeltaTable(spark, tmp_path / "t", "id int NOT NULL, v string", properties=mapped)
    table.insert(1)
    table.sql(statement)
    assert commits(spark, table.source)[-1].operation == follows
    assert facts_of(spark, table.source, 0, limit=100).breaks == (2,)
    assert facts_of(spark, table.source, 1, limit=100).breaks == (2,)


def test_schemas_and_the_feed_are_looked_at_for_no_more_versions_than_asked_for(
    spark: SparkSession, table: DeltaTable
) -> None:
    assert facts_of(spark, table.source, 0, limit=1).feed_off_at is None
    assert facts_of(spark, table.source, 0, limit=2).feed_off_at == 2


@pytest.mark.parametrize(
    ("after", "there", "damaged_at"), [(2, [3, 5, 6, 7, 8], None), (3, [5, 6, 7, 8], None), (4, [5, 6, 7, 8], 5)]
)
def test_a_missing_version_is_a_fact_and_not_a_failure(
    spark: SparkSession, holed: DeltaTable, after: int, there: list[int], damaged_at: int | None
) -> None:
    found = facts_of(spark, holed.source, after, limit=100)
    assert [commit.version for commit in found.commits] == there
    assert found.damaged_at == damaged_at


def test_a_log_that_cannot_be_read_at_all_is_an_error_that_says_so(spark: SparkSession, tmp_path: Path) -> None:
    table = DeltaTable(spark, tmp_path / "t")
    for i in range(3):
        table.insert(i)
    table.commit_file(2).unlink()
    with pytest.raises(LogDamaged) as caught:
        facts_of(spark, table.source, 1, limit=100)
    assert caught.value.table == f"{tmp_path}/t"


def test_an_id_tells_a_table_from_another_at_its_place(spark: SparkSession) -> None:
    source = Source.parse("recreated")
    ids = []
    for statement in ("CREATE TABLE", "CREATE OR REPLACE TABLE", "CREATE TABLE"):
        spark.sql(f"{statement} recreated (id int) USING DELTA")
        ids.append(detail_of(spark, source).table_id)
        if statement != "CREATE TABLE" or len(ids) == 3:
            spark.sql("DROP TABLE recreated")
    assert len(set(ids)) == 3


def test_restoring_and_optimizing_keep_the_id(spark: SparkSession, tmp_path: Path) -> None:
    """What Spark itself restores and optimizes is published as the same table in `test_delta_cases`."""
    table = DeltaTable(spark, tmp_path / "t")
    table.insert(1)
    before = detail_of(spark, table.source).table_id
    table.sql("RESTORE TABLE {} TO VERSION AS OF 0")
    table.sql("OPTIMIZE {}")
    assert detail_of(spark, table.source).table_id == before


def test_a_missing_table_is_said_to_be_missing(spark: SparkSession) -> None:
    for name in ("nowhere", "no_schema.nowhere", "no_catalog.no_schema.nowhere"):
        with pytest.raises(SourceMissing) as caught:
            detail_of(spark, Source.parse(name))
        assert caught.value.table == name


@pytest.mark.parametrize("kind", ["nothing", "an empty folder", "Parquet files", "a log without commits", "a file"])
@pytest.mark.parametrize("look", [detail_of, commits], ids=["detail", "commits"])
def test_a_path_without_a_delta_table_is_said_to_have_none(
    spark: SparkSession, tmp_path: Path, kind: str, look: Any
) -> None:
    path = tmp_path / "orders"
    match kind:
        case "an empty folder":
            path.mkdir()
        case "Parquet files":
            spark.range(1).write.parquet(str(path))
        case "a log without commits":
            (path / "_delta_log").mkdir(parents=True)
        case "a file":
            path.write_text("id\n1\n")
    with pytest.raises(NoTableAtPath) as caught:
        look(spark, Source(path=str(path)))
    assert caught.value.path == str(path)


def test_views_and_tables_of_other_formats_are_refused(spark: SparkSession, table: DeltaTable) -> None:
    spark.sql(f"CREATE VIEW a_view AS SELECT * FROM {table.source.sql}")
    spark.sql(f"CREATE TEMPORARY VIEW a_temporary_view AS SELECT * FROM {table.source.sql}")
    spark.sql("CREATE TABLE in_parquet (id int) USING PARQUET")
    expected = {
        "a_view": "a_view is a view, not a Delta table, so it has no change data feed.",
        "a_temporary_view": "a_temporary_view is a view, not a Delta table, so it has no change data feed.",
        "in_parquet": "in_parquet is a table in the format parquet, not a Delta table, so it has no change data feed.",
    }
    try:
        for name, words in expected.items():
            with pytest.raises(NotDelta) as caught:
                detail_of(spark, Source.parse(name))
            assert caught.value.problem == words
    finally:
        spark.sql("DROP VIEW a_view")
        spark.sql("DROP VIEW a_temporary_view")
        spark.sql("DROP TABLE in_parquet")


@pytest.mark.parametrize(
    "folder", ["with space", "dotted.name", "tick`ed", "quo'te\"d", "Łódź-注文", "a%20b", "semi;colon--"]
)
def test_paths_of_any_spelling_lead_to_their_table(spark: SparkSession, tmp_path: Path, folder: str) -> None:
    table = DeltaTable(spark, tmp_path / folder)
    table.insert(1)
    assert [commit.version for commit in commits(spark, table.source)] == [0, 1]
    assert facts_of(spark, table.source, 0, limit=10).table_id
    assert table.commit_file(1).exists()


@pytest.mark.parametrize("name", ["a.b", "it's; DROP TABLE x --", "two words", "ti`ck", "Łódź", "x` y"])
def test_a_name_of_any_spelling_is_looked_up_as_it_is(spark: SparkSession, name: str) -> None:
    """Spark's own catalog has no such names; others may."""
    for source in (Source((name,)), Source(("default", name)), Source((name, name)), Source((name, name, name))):
        with pytest.raises(SourceMissing) as caught:
            detail_of(spark, source)
        assert str(source) in str(caught.value)


def _schema(*fields: tuple[str, Any, bool]) -> dict[str, Any]:
    return {"type": "struct", "fields": [{"name": n, "type": t, "nullable": null} for n, t, null in fields]}


@pytest.mark.parametrize(
    ("now", "expected"),
    [
        (_schema(("id", "integer", False), ("v", "string", True)), True),
        (_schema(("v", "string", True), ("id", "integer", False)), True),
        (_schema(("id", "integer", False), ("new", "date", True), ("v", "string", True)), True),
        (_schema(("id", "integer", False)), False),
        (_schema(("id", "integer", False), ("V", "string", True)), False),
        (_schema(("id", "long", False), ("v", "string", True)), False),
        (_schema(("id", "integer", True), ("v", "string", True)), False),
        (_schema(("id", "integer", False), ("v", {"type": "array", "elementType": "string"}, True)), False),
    ],
)
def test_which_schemas_only_add_to_another(now: dict[str, Any], expected: bool) -> None:
    assert only_adds(_schema(("id", "integer", False), ("v", "string", True)), now) is expected


@pytest.mark.parametrize(
    ("operations", "on", "expected"),
    [
        (["CREATE TABLE", "WRITE", "WRITE"], [0, 1, 2], 0),
        (["CREATE TABLE", "WRITE", "SET TBLPROPERTIES", "WRITE"], [2, 3], 2),
        (["CREATE TABLE", "SET TBLPROPERTIES", "SET TBLPROPERTIES", "WRITE"], [0, 2, 3], 2),
        (["CREATE TABLE", "WRITE"], [], None),
    ],
    ids=["from the first on", "switched on later", "off in between", "off"],
)
def test_the_feed_begins_after_the_last_version_without_it(
    operations: list[str], on: list[int], expected: int | None
) -> None:
    known = [Commit(n, datetime(2026, 1, 1, tzinfo=UTC), operation) for n, operation in enumerate(operations)]
    asked: list[int] = []

    def on_at(version: int) -> bool:
        asked.append(version)
        return version in on

    assert begin_of_feed(known, on_at) == expected
    assert 1 not in asked or operations[2:3] != ["WRITE"]  # a write switches nothing
    holed = [known[0], *(replace(each, version=each.version + 5) for each in known[1:])]
    assert begin_of_feed(holed, lambda _: True) == 6


def test_a_feed_that_was_just_switched_on_begins_with_that_version_and_has_nothing(
    spark: SparkSession, tmp_path: Path
) -> None:
    quiet = DeltaTable(spark, tmp_path / "quiet", feed=False)
    quiet.insert(1)
    assert first_with_feed(spark, quiet.source) is None
    quiet.set_feed(True)
    assert first_with_feed(spark, quiet.source) == 2
    assert changes_between(spark, quiet.source, 2).rows.isEmpty()
