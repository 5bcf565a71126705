"""Delta's own test cases of its feed, clones, log and timestamps, published into a mirror."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from fixtures.mirror import canonical
from mirrorfeed.source import versions as history
from mirrorfeed.source.change_preview import changes_between, parse_bound, resolve_range
from tests.support.delta import SPARK_4_0, DeltaTable, SparkTable, Zone

STATEMENTS = {
    "UPDATE {} SET v = 'once' WHERE id = 1": "1 once x, 2 b x, 3 c y",
    "UPDATE {} SET v = 'twice' WHERE id = 1": "1 twice x, 2 b x, 3 c y",
    "DELETE FROM {} WHERE id = 2": "1 twice x, 3 c y",
    "DELETE FROM {} WHERE id < 3": "3 c y",  # one of which is already deleted
    "INSERT INTO {} VALUES (2, 'back', 'y'), (4, 'd', 'x')": "2 back y, 3 c y, 4 d x",
    "UPDATE {} SET id = 6 - id WHERE id IN (2, 4)": "4 back y, 3 c y, 2 d x",  # they swap values
    "OPTIMIZE {}": "4 back y, 3 c y, 2 d x",
    """MERGE INTO {} t USING (SELECT 3 AS id, 'merged' AS v, 'x' AS p UNION ALL SELECT 5, 'e', 'z') s ON t.id = s.id
       WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT * WHEN NOT MATCHED BY SOURCE AND t.id = 2 THEN DELETE
    """: "4 back y, 3 merged x, 5 e z",
    "MERGE INTO {} t USING (SELECT 99 AS id) s ON t.id = s.id WHEN MATCHED THEN DELETE": "4 back y, 3 merged x, 5 e z",
    "UPDATE {} SET p = 'y' WHERE id = 5": "4 back y, 3 merged x, 5 e y",  # to another partition
    "DELETE FROM {}" if SPARK_4_0 else "TRUNCATE TABLE {}": "",  # Delta 4.0 has no TRUNCATE TABLE
    "RESTORE TABLE {} TO VERSION AS OF 3": "1 twice x, 2 b x, 3 c y",
}
"""Statements, with the rows after each."""
OVERWRITTEN = "7 dynamic x, 3 c y"


def _rows(spelled: str) -> Any:
    rows = [each.split(" ") for each in spelled.split(", ") if each]
    return canonical({"id": int(id_), "v": v, "p": p} for id_, v, p in rows)


@pytest.mark.parametrize(
    "vectors",
    [
        # Ordered changes without vectors are in `test_source`, and all kinds of commits in `feed/test_differential`.
        pytest.param(False, id="without deletion vectors", marks=pytest.mark.soak),
        pytest.param(True, id="with deletion vectors", marks=pytest.mark.slow),
    ],
)
def test_full_changes_take_the_mirror_through_every_version_in_order(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, vectors: bool
) -> None:
    """Slow, because many kinds of commits are published in one range, with the rows of each version. Spark writes all
    commits with deletion vectors."""
    kind, properties = (SparkTable, {"delta.enableDeletionVectors": "true"}) if vectors else (DeltaTable, {})
    table = kind(spark, tmp_path / "t", "id int, v string, p string", properties=properties, by="p")
    table.sql("INSERT INTO {} VALUES (1, 'a', 'x'), (2, 'b', 'x'), (3, 'c', 'y')")
    zone = Zone(tmp_path / "zone", table, changes="full")
    zone.publish()
    snapshot = zone.files
    for statement in STATEMENTS:
        table.sql(statement)
    overwrite = spark.sql("SELECT 7 AS id, 'dynamic' AS v, 'x' AS p").write.format("delta").mode("overwrite")
    overwrite.option("partitionOverwriteMode", "dynamic").save(str(table.path))
    zone.publish()
    changes = [row for file in zone.files[len(snapshot) :] for row in file.to_pylist()]
    assert zone.mirrors_the_table()
    assert {row["__rowMarker__"] for row in changes} == {2, 4}
    pending = map(_rows, [*STATEMENTS.values(), OVERWRITTEN])
    expected = next(pending)
    for state in _states([row for file in snapshot for row in file.to_pylist()], changes):
        while state == expected:
            expected = next(pending, None)
    assert expected is None, "a version was not passed"
    reported = changes_and_rows(table)
    monkeypatch.setattr(history, "open_local_table", lambda _: None)
    assert reported == changes_and_rows(table)  # with Spark


def changes_and_rows(table: DeltaTable) -> tuple[Any, Any]:
    """Commits as the table history reports them."""
    names = ("version", "operation", "operationParameters", "operationMetrics", "userMetadata")
    newest = history.read_history(table.spark, table.source, 4)
    return history.read_commits(table.spark, table.source), [{name: row[name] for name in names} for row in newest]


def _states(rows: Sequence[dict[str, Any]], changes: Sequence[dict[str, Any]]) -> Iterator[Any]:
    """Rows by key after each change."""
    rows_by_id = {row["id"]: row for row in rows}
    yield canonical(rows_by_id.values())
    for change in changes:
        marker = change.pop("__rowMarker__")
        if marker == 2:
            rows_by_id.pop(change["id"], None)
        else:
            rows_by_id[change["id"]] = change
        yield canonical(rows_by_id.values())


@pytest.mark.slow
def test_clone_of_an_old_version_is_an_independent_source(spark: SparkSession, tmp_path: Path) -> None:
    original = DeltaTable(spark, tmp_path / "original")
    original.insert(1, 2)
    original.sql("DELETE FROM {} WHERE id = 1")
    clone = DeltaTable.cloned(original, tmp_path / "clone", version=1)
    zone = Zone(tmp_path / "zone", clone)
    zone.publish()
    assert zone.record["to_version_inclusive"] == 0
    original.insert(3)
    assert len(zone.publish().records) == 0
    clone.sql("UPDATE {} SET v = 'new' WHERE id = 2")  # rewrites a file of the original
    clone.insert(4)
    zone.publish()
    assert sorted(row["id"] for row in clone.rows()) == [1, 2, 4]
    assert zone.mirrors_the_table()


@pytest.mark.slow
def test_clone_into_an_emptied_table_is_published(spark: SparkSession, tmp_path: Path) -> None:
    table, other = DeltaTable(spark, tmp_path / "t"), DeltaTable(spark, tmp_path / "other")
    table.insert(1, 2)
    other.insert(2, 7)
    zone = Zone(tmp_path / "zone", table)
    zone.publish()
    table.sql("DELETE FROM {}")
    table.sql(f"CREATE OR REPLACE TABLE {{}} SHALLOW CLONE {other.source.sql}")
    table.sql("DELETE FROM {} WHERE id = 7")
    zone.publish()
    assert zone.record["to_version_inclusive"] == 4
    assert zone.mirrors_the_table()


@pytest.mark.slow
def test_refreshed_deep_clone_is_published_as_file_changes(spark: SparkSession, tmp_path: Path) -> None:
    """Open source Delta has no deep clones, so the commit is written as the protocol describes it."""
    table = DeltaTable(spark, tmp_path / "t")
    table.insert(1, 2)
    table.insert(3, 4)
    zone = Zone(tmp_path / "zone", table)
    zone.publish()
    first, second = (actions(table, version, "add") for version in (1, 2))
    for file in first:
        shutil.copy(table.path / file["path"], table.path / f"copy-of-{file['path']}")
    now = int(datetime.now(UTC).timestamp() * 1000)
    tombstone = {"deletionTimestamp": now, "dataChange": True, "partitionValues": {}, "extendedFileMetadata": True}
    commit(
        table,
        {"commitInfo": {"timestamp": now, "operation": "CLONE", "operationParameters": {"isShallow": "false"}}},
        {"metaData": actions(table, 0, "metaData")[0]},
        *({"remove": {"path": file["path"], "size": file["size"], **tombstone}} for file in (*first, *second)),
        *({"add": {**file, "path": f"copy-of-{file['path']}"}} for file in first),
    )
    assert sorted(row["id"] for row in table.rows()) == [1, 2]
    zone.publish()
    assert zone.record["to_version_inclusive"] == 3
    assert zone.mirrors_the_table()


def test_log_with_compacted_commits_is_read_correctly(spark: SparkSession, tmp_path: Path) -> None:
    table = DeltaTable(spark, tmp_path / "t")
    table.insert(1)
    zone = Zone(tmp_path / "zone", table)
    zone.publish()
    table.insert(2)
    table.sql("ALTER TABLE {} ADD COLUMNS (w int)")
    table.sql("INSERT INTO {} VALUES (3, 'c', 3)")
    lines = [line for version in (2, 3, 4) for line in table.commit_file(version).read_text().splitlines()]
    remaining = [line for line in lines if "commitInfo" not in json.loads(line)]
    compacted = table.path / "_delta_log" / f"{2:020d}.{4:020d}.compacted.json"
    compacted.write_text("\n".join(remaining) + "\n")
    table.sql("INSERT INTO {} VALUES (4, 'd', 4)")
    spark.catalog.clearCache()
    zone.publish()
    assert zone.mirrors_the_table()
    assert [column["name"] for column in zone.record["columns"]] == ["id", "v", "w"]


def actions(table: DeltaTable, version: int, kind: str) -> list[dict[str, Any]]:
    """Actions of one kind in a commit."""
    found = map(json.loads, table.commit_file(version).read_text().splitlines())
    return [each[kind] for each in found if kind in each]


def commit(table: DeltaTable, *lines: dict[str, Any]) -> None:
    table.commit_file(table.latest + 1).write_text("".join(json.dumps(each) + "\n" for each in lines))


START = int(time.time()) - 2 * 86_400
"""Delta's default retention is seven days."""


@pytest.fixture(scope="module")
def backwards(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> DeltaTable:
    """The clock went back before versions 3 and 4 were committed."""
    table = DeltaTable(spark, tmp_path_factory.mktemp("delta") / "backwards")
    for i in range(1, 6):
        table.insert(i)
    for version, seconds in enumerate((0, 100, 200, 50, 60, 300)):
        os.utime(table.commit_file(version), (START + seconds, START + seconds))
    return table


def versions_of_delta(table: DeltaTable, bound: str, seconds: int) -> tuple[str, set[int]]:
    """A time, and the versions that Delta returns from it and up to it."""
    moment = datetime.fromtimestamp(START + seconds, UTC).strftime("%Y-%m-%d %H:%M:%S")
    reader = table.spark.read.option("readChangeFeed", "true")
    if bound == "start":
        reader = reader.option("startingTimestamp", moment)
    else:
        reader = reader.option("startingVersion", 0).option("endingTimestamp", moment)
    return moment, {row["_commit_version"] for row in reader.table(table.source.sql).collect()}


@pytest.mark.parametrize("bound", ["start", "end"])
def test_timestamps_resolve_to_the_same_versions_as_in_delta(backwards: DeltaTable, bound: str) -> None:
    known = history.read_commits(backwards.spark, backwards.source)
    for seconds in (0, 100, 150, 200, 201, 300):
        moment, versions = versions_of_delta(backwards, bound, seconds)
        at = parse_bound(backwards.spark, moment)
        resolved = resolve_range("t", *((at, None) if bound == "start" else (0, at)), known, "error")
        # Version 0 has no rows.
        first = max(1, resolved.from_version_exclusive + 1)
        assert set(range(first, resolved.to_version_inclusive + 1)) == versions, seconds


@pytest.mark.parametrize("bound", ["start", "end"])
def test_changes_by_timestamp_are_the_same_as_in_delta(backwards: DeltaTable, bound: str) -> None:
    moment, versions = versions_of_delta(backwards, bound, 150)
    _, changes = changes_between(backwards.spark, backwards.source, *((moment,) if bound == "start" else (0, moment)))
    assert {row["_commit_version"] for row in changes.collect()} == versions


@pytest.mark.slow
def test_in_commit_timestamps_are_used_instead_of_file_times(spark: SparkSession, tmp_path: Path) -> None:
    table = DeltaTable(spark, tmp_path / "t")
    table.insert(1)
    table.sql("ALTER TABLE {} SET TBLPROPERTIES (delta.enableInCommitTimestamps = true)")
    table.insert(2)
    table.insert(3)
    for version in range(5):
        os.utime(table.commit_file(version), (START, START))
    known = history.read_commits(spark, table.source)
    third = f"{known[3].timestamp:%Y-%m-%d %H:%M:%S.%f}"[:-3]
    _, changed = changes_between(spark, table.source, third)
    assert [row["_change_type"] for row in changed.collect()] == ["insert", "insert"]
    zone = Zone(tmp_path / "zone", table)
    zone.publish()
    assert zone.mirrors_the_table()
