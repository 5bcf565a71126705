from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from mirrorfeed.source import versions
from mirrorfeed.source.identifier import Source
from mirrorfeed.source.pending_commits import PendingCommits, pending_commits
from mirrorfeed.source.snapshot_or_range import Commit
from mirrorfeed.source.versions import only_adds_columns, read_commits
from tests.support import commits as plain
from tests.support.delta import DeltaTable

NO_SPARK: Any = None


def test_commits_are_ascending_with_operation_and_time(spark: SparkSession, table: DeltaTable) -> None:
    found = read_commits(spark, table.source)
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
    """A time zone in which clocks go back from 3 to 2 on 26 October 2025, at 1:00 UTC."""
    with monkeypatch.context() as patched:
        patched.setenv("TZ", "Europe/Oslo")
        time.tzset()
        yield
    time.tzset()


@pytest.mark.usefixtures("oslo")
def test_commits_have_their_own_times_if_clocks_go_back(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = DeltaTable(spark, tmp_path / "t")
    times = [datetime(2025, 10, 25, 22, 30, tzinfo=UTC) + timedelta(hours=hours) for hours in range(5)]
    for number, moment in enumerate(times):
        if number:
            table.insert(number)
        os.utime(table.commit_file(number), (moment.timestamp(), moment.timestamp()))
    assert [commit.timestamp for commit in read_commits(spark, table.source)] == times
    monkeypatch.setattr(versions, "open_local_table", lambda _: None)
    assert [commit.timestamp for commit in read_commits(spark, table.source)] == times


def test_in_commit_timestamps_take_precedence(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = DeltaTable(spark, tmp_path / "t")
    table.insert(1)
    table.sql("ALTER TABLE {} SET TBLPROPERTIES (delta.enableInCommitTimestamps = true)")
    table.insert(2)
    for version in range(4):
        os.utime(table.commit_file(version), (1_577_836_800 + version, 1_577_836_800 + version))
    found = read_commits(spark, table.source)
    assert [commit.timestamp.year > 2020 for commit in found] == [False, False, True, True]
    monkeypatch.setattr(versions, "open_local_table", lambda _: None)
    assert found == read_commits(spark, table.source)


def test_local_table_has_the_same_commits_with_and_without_spark(
    spark: SparkSession, table: DeltaTable, holed: DeltaTable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`test_delta_cases` compares commits that Spark writes."""
    backwards = DeltaTable.copied(table, tmp_path / "backwards")
    for version, seconds in enumerate((0, 100, 200, 50, 50, 60, 300, 299, 301)):
        os.utime(backwards.commit_file(version), (1_767_225_600 + seconds, 1_767_225_600 + seconds))
    arguments = [(each.source, after) for each in (table, holed, backwards) for after in (None, 3)]
    with monkeypatch.context() as patched:
        patched.setattr(SparkSession, "sql", lambda *_: pytest.fail("Spark was asked"))
        found = [read_commits(spark, *each) for each in arguments]
    monkeypatch.setattr(versions, "open_local_table", lambda _: None)
    assert found == [read_commits(spark, *each) for each in arguments]


@pytest.mark.usefixtures("oslo")
@pytest.mark.parametrize(
    ("local", "is_repeated"),
    [
        (datetime(2025, 10, 26, 1, 59, 59), False),
        (datetime(2025, 10, 26, 2, 0), True),
        (datetime(2025, 10, 26, 2, 30, fold=1), True),
        (datetime(2025, 10, 26, 3, 0), False),
        (datetime(2025, 7, 1), False),
    ],
)
def test_repeated_hour_of_a_clock_change_is_recognized(local: datetime, is_repeated: bool) -> None:
    assert versions.is_ambiguous(local) is is_repeated


@pytest.mark.parametrize(("after", "expected"), [(0, [1, 2, 3, 4, 5, 6, 7, 8]), (6, [7, 8]), (8, [8]), (99, [8])])
def test_commits_after_a_version_include_at_least_the_newest(
    spark: SparkSession, table: DeltaTable, after: int, expected: list[int]
) -> None:
    assert [commit.version for commit in read_commits(spark, table.source, after)] == expected


def test_commits_after_an_old_version_are_complete(spark: SparkSession, tmp_path: Path) -> None:
    table = DeltaTable(spark, tmp_path / "t")
    for i in range(17):
        table.insert(i)
    assert [commit.version for commit in read_commits(spark, table.source, 0)] == list(range(1, 18))
    assert [commit.version for commit in read_commits(spark, table.source, 15)] == [16, 17]


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
def test_schemas_with_only_added_columns_are_recognized(now: dict[str, Any], expected: bool) -> None:
    assert only_adds_columns(_schema(("id", "integer", False), ("v", "string", True)), now) is expected


def commit(folder: Path, version: int, operation: str = "WRITE", **metrics: str) -> None:
    log = folder / "_delta_log"
    log.mkdir(exist_ok=True)
    info = {"commitInfo": {"operation": operation, "operationMetrics": metrics}}
    text = "\n".join(map(json.dumps, ({"add": {"path": "x"}}, info)))
    (log / f"{version:020d}.json").write_text(text, encoding="utf-8")


def test_pending_commits_of_a_folder_are_counted_by_its_log(spark: SparkSession, tmp_path: Path) -> None:
    for version in (3, 4, 5):
        commit(tmp_path, version, numOutputRows="2", numOutputBytes="50")
    for other in ("00000000000000000009.checkpoint.parquet", "_last_checkpoint", "00000000000000000006.json.tmp"):
        (tmp_path / "_delta_log" / other).touch()
    folder = Source(path=str(tmp_path))
    found = [pending_commits(spark, folder, after, measured=True) for after in (5, 4, 3)]
    assert found == [PendingCommits(0), PendingCommits(1, 2, 50), PendingCommits(2, 4, 100)]
    assert pending_commits(spark, folder, 3, measured=False) == PendingCommits(2)
    assert pending_commits(spark, folder, 1, measured=True) == PendingCommits(4, None, None)  # version 2 is missing
    assert pending_commits(spark, folder, 8, measured=True).versions == 3  # the clock went back
    commit(tmp_path, 6, "RESTORE")
    assert pending_commits(spark, folder, 5, measured=True) == PendingCommits(1, None, None)


def test_pending_commits_of_a_catalog_table_are_counted_by_the_engine(spark: SparkSession, tmp_path: Path) -> None:
    table = DeltaTable(spark, tmp_path / "t")
    table.insert(1, 2, 3)
    table.sql("UPDATE {} SET v = 'x' WHERE id = 1")
    spark.sql(f"CREATE TABLE noticed USING DELTA LOCATION '{tmp_path / 't'}'")
    by_name, by_path = Source.parse("noticed"), table.source
    try:
        for after in (0, 1, 2):
            found = pending_commits(spark, by_name, after, measured=True)
            assert found == pending_commits(spark, by_path, after, measured=True)
            assert found.versions == 2 - after
            assert pending_commits(spark, by_name, after, measured=False) == PendingCommits(int(after < 2))
        assert pending_commits(spark, by_name, 0, measured=True).rows == 4
        for measured in (True, False):
            assert pending_commits(spark, by_name, 5, measured=measured).versions == 3  # the clock went back
    finally:
        spark.sql("DROP TABLE noticed")


@pytest.mark.parametrize(
    ("first", "moved", "limits"),
    [(3, 0, [2]), (4, 0, [2, 6]), (3, 1, [2, 2, 6])],
    ids=["all known", "one unknown", "another table"],
)
def test_earlier_commits_are_not_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: int, moved: int, limits: list[int]
) -> None:
    source, read = Source(path=str(tmp_path / "t")), list[int | None]()
    deltalake.write_deltalake(tmp_path / "t", pa.table({"id": [0]}))
    for number in range(1, 7):
        if number == 6:
            earlier = [replace(each, timestamp=each.timestamp + timedelta(moved)) for each in commits_after(source, 0)]
        assert plain.commit(tmp_path / "t", f"INSERT INTO {{}} VALUES ({number})")
    expected = commits_after(source, 2)

    def counted(*arguments: Any) -> Any:
        read.append(arguments[2])
        return history(*arguments)

    history = versions.read_history
    monkeypatch.setattr(versions, "_MARGIN", 2)
    monkeypatch.setattr(versions, "read_history", counted)
    assert commits_after(source, 2, [each for each in earlier if each.version >= first]) == expected
    assert read == limits


def commits_after(source: Source, version: int, earlier: Sequence[Commit] = ()) -> list[Commit]:
    return read_commits(NO_SPARK, source, version, earlier=earlier)
