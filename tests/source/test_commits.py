from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable as OtherWriter
from deltalake import write_deltalake
from pyspark.sql import SparkSession

from mirrorfeed.source import change_feed
from mirrorfeed.source.change_feed import read_facts
from mirrorfeed.source.errors import GapReason
from mirrorfeed.source.identifier import Source
from mirrorfeed.source.table_info import count_changes, find_metadata_changes
from tests.support.delta import FEED

COLUMNS = {"id": pa.int32(), "v": pa.string(), "w": pa.int64()}


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Source:
    """16 commits of another writer. Nearly all of them report the operation WRITE."""
    path = tmp_path_factory.mktemp("delta") / "written"

    def write(*columns: str, mode: Any = "append", schema: Any = None, times: int = 1, **options: Any) -> None:
        row = pa.table({name: pa.nulls(1, COLUMNS[name]) for name in columns})
        for _ in range(times):
            write_deltalake(str(path), row, mode=mode, schema_mode=schema, **options)

    write("id", "v", configuration={FEED: "true"})
    write("id", "v", times=3)
    write("id", "v", "w", schema="merge")  # version 4
    write("id", "v", "w", times=2)
    write("id", "v", mode="overwrite", schema="overwrite")  # 7
    write("id", "v", "w", mode="overwrite", schema="overwrite")  # 8
    write("id", "v", "w", times=2)
    OtherWriter(str(path)).alter.set_table_properties({FEED: "false"})  # 11
    write("id", "v", "w")
    OtherWriter(str(path)).alter.set_table_properties({FEED: "true"})  # 13
    write("id", "v", "w", times=2)
    return Source(path=str(path))


@pytest.fixture
def listings(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Versions for which Delta was queried."""
    found: list[int] = []

    def counted(question: Callable[..., Any]) -> Callable[..., Any]:
        def ask(spark: SparkSession, source: Source, version: int, **cache: Any) -> Any:
            if version not in cache.get("schemas", ()):
                found.append(version)
            return question(spark, source, version, **cache)

        return ask

    for room, name in ((change_feed, "read_schema"), (change_feed, "is_feed_on")):
        monkeypatch.setattr(room, name, counted(getattr(room, name)))
    return found


def test_commits_with_metadata_are_found(spark: SparkSession, written: Source) -> None:
    assert written.path is not None
    assert find_metadata_changes(spark, written.path, range(1, 16)) == {4, 7, 8, 11, 13}
    assert find_metadata_changes(spark, written.path, [3, 4, 5]) == {4}


@pytest.mark.slow
@pytest.mark.parametrize("after", [0, pytest.param(5, marks=pytest.mark.slow)])
def test_delta_checks_only_metadata_changes_among_many_writes(
    spark: SparkSession, written: Source, listings: list[int], monkeypatch: pytest.MonkeyPatch, after: int
) -> None:
    monkeypatch.setattr(change_feed, "_MAX_CANDIDATES", 4)
    found = read_facts(spark, written, after, limit=100)
    changed = {4, 7, 8, 11, 13} - set(range(after))
    assert set(listings) == {after, after + 1, *changed}
    listings.clear()
    monkeypatch.setattr(change_feed, "find_metadata_changes", lambda *_: None)
    assert read_facts(spark, written, after, limit=100) == found
    assert set(listings) >= set(range(after, 16)) - {11, 13}
    assert (found.breaks, found.unreadable) == ((7,), {11: GapReason.FEED_OFF})


def test_incomplete_log_returns_none(spark: SparkSession, tmp_path: Path) -> None:
    place = tmp_path / "a"
    for _ in range(3):
        write_deltalake(str(place), pa.table({"id": [1]}), mode="append")
    assert find_metadata_changes(spark, str(place), [0, 1, 2]) == {0}
    assert find_metadata_changes(spark, str(place), [0, 1, 2, 3]) is None
    (place / "_delta_log" / f"{1:020d}.json").write_text("")
    assert find_metadata_changes(spark, str(place), [0, 1, 2]) is None
    (place / "_delta_log" / f"{1:020d}.json").write_text("{no JSON\n")
    assert find_metadata_changes(spark, str(place), [0, 1, 2]) is None


def test_path_with_spark_pattern_characters_is_not_read(spark: SparkSession, tmp_path: Path) -> None:
    write_deltalake(str(tmp_path / "a"), pa.table({"id": [1]}))
    assert find_metadata_changes(spark, str(tmp_path / "[ab]"), [0]) is None


INSERTED, UPDATED, DELETED = "numTargetRowsInserted", "numTargetRowsUpdated", "numTargetRowsDeleted"


@pytest.mark.parametrize(
    ("operation", "metrics", "expected"),
    [
        ("WRITE", {"numOutputRows": "5", "numOutputBytes": "700", "numFiles": "1"}, (5, 700)),
        ("STREAMING UPDATE", {"numOutputRows": "7"}, (7, None)),
        ("WRITE", {"numOutputRows": "300005", "numDeletedRows": "5"}, (300_010, None)),  # replaceWhere
        ("WRITE", {"numOutputRows": "0", "numRemovedFiles": "1"}, (None, None)),
        ("WRITE", {}, (None, None)),
        ("UPDATE", {"numUpdatedRows": "2", "numAddedBytes": "300", "numCopiedRows": "900"}, (2, 300)),
        ("DELETE", {"numDeletedRows": "4", "numAddedBytes": "0", "numRemovedFiles": "1"}, (4, 0)),
        ("DELETE", {"numDeletedRows": "0", "numRemovedFiles": "0"}, (0, None)),
        ("DELETE", {"numDeletedRows": "0", "numRemovedFiles": "2"}, (None, None)),
        ("DELETE", {"numRemovedFiles": "2"}, (None, None)),
        ("MERGE", {INSERTED: "1", UPDATED: "2", DELETED: "3", "numTargetBytesAdded": "90"}, (6, 90)),
        ("MERGE", {INSERTED: "1", UPDATED: "2", DELETED: "3", "numOutputRows": "800"}, (6, None)),
        ("WRITE", {"numOutputRows": "3.0", "numOutputBytes": None}, (None, None)),  # of other writers
        ("WRITE", {"numOutputRows": None, "numOutputBytes": "700"}, (None, 700)),
        ("MERGE", {INSERTED: "1", UPDATED: None, DELETED: "-", "numTargetBytesAdded": "x"}, (None, None)),
        ("OPTIMIZE", {"numAddedBytes": "9999", "numRemovedFiles": "5"}, (0, 0)),
        ("RESTORE", {"numRestoredFiles": "5"}, (None, None)),
        ("TRUNCATE", {"numRemovedFiles": "1"}, (None, None)),
    ],
)
def test_changed_rows_and_bytes_of_a_commit_are_counted(
    operation: str, metrics: dict[str, str | None], expected: tuple[int | None, int | None]
) -> None:
    assert count_changes(operation, metrics) == expected
