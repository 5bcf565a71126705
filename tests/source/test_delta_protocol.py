"""What the log says of changed metadata, against what Delta says of every version."""

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
from mirrorfeed.source.change_feed import facts_of
from mirrorfeed.source.delta_protocol import metadata_changes
from mirrorfeed.source.identifier import Source
from tests.delta import FEED

COLUMNS = {"id": pa.int32(), "v": pa.string(), "w": pa.int64()}


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Source:
    """26 commits of another writer, nearly all of which say that they are writes."""
    path = tmp_path_factory.mktemp("delta") / "written"

    def write(*columns: str, mode: Any = "append", schema: Any = None, times: int = 1, **options: Any) -> None:
        row = pa.table({name: pa.nulls(1, COLUMNS[name]) for name in columns})
        for _ in range(times):
            write_deltalake(str(path), row, mode=mode, schema_mode=schema, **options)

    write("id", "v", configuration={FEED: "true"})
    write("id", "v", times=9)
    write("id", "v", "w", schema="merge")  # version 10
    write("id", "v", "w", times=4)
    write("id", "v", mode="overwrite", schema="overwrite")  # 15
    write("id", "v", "w", mode="overwrite", schema="overwrite")  # 16
    write("id", "v", "w", times=3)
    OtherWriter(str(path)).alter.set_table_properties({FEED: "false"})  # 20
    write("id", "v", "w")
    OtherWriter(str(path)).alter.set_table_properties({FEED: "true"})  # 22
    write("id", "v", "w", times=3)
    return Source(path=str(path))


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The versions of which Delta was asked for something."""
    found: list[int] = []

    def counted(question: Callable[..., Any]) -> Callable[..., Any]:
        def ask(spark: SparkSession, source: Source, version: int) -> Any:
            found.append(version)
            return question(spark, source, version)

        return ask

    for room, name in ((change_feed, "schema_at"), (change_feed, "feed_on_at")):
        monkeypatch.setattr(room, name, counted(getattr(room, name)))
    return found


def test_commits_that_hold_metadata_are_known(spark: SparkSession, written: Source) -> None:
    assert written.path is not None
    assert metadata_changes(spark, written.path, range(1, 26)) == {10, 15, 16, 20, 22}
    assert metadata_changes(spark, written.path, [3, 10, 11]) == {10}


@pytest.mark.parametrize("after", [0, 12])
def test_many_writes_are_read_at_once_and_delta_is_asked_about_the_others_alone(
    spark: SparkSession, written: Source, asked: list[int], monkeypatch: pytest.MonkeyPatch, after: int
) -> None:
    monkeypatch.setattr(change_feed, "_FEW", 8)
    found = facts_of(spark, written, after, limit=100)
    changed = {10, 15, 16, 20, 22} - set(range(after))
    assert set(asked) == {after, after + 1, *changed}
    asked.clear()
    monkeypatch.setattr(change_feed, "metadata_changes", lambda *_: None)
    assert facts_of(spark, written, after, limit=100) == found
    assert set(asked) >= set(range(after, 26)) - {20, 22}
    assert (found.breaks, found.feed_off_at) == ((15,), 20)


def test_a_log_that_is_not_there_as_a_whole_says_nothing(spark: SparkSession, tmp_path: Path) -> None:
    place = tmp_path / "a"
    for _ in range(3):
        write_deltalake(str(place), pa.table({"id": [1]}), mode="append")
    assert metadata_changes(spark, str(place), [0, 1, 2]) == {0}
    assert metadata_changes(spark, str(place), [0, 1, 2, 3]) is None
    (place / "_delta_log" / f"{1:020d}.json").write_text("")
    assert metadata_changes(spark, str(place), [0, 1, 2]) is None
    (place / "_delta_log" / f"{1:020d}.json").write_text("{no JSON\n")
    assert metadata_changes(spark, str(place), [0, 1, 2]) is None


def test_a_path_that_spark_takes_for_a_pattern_is_not_looked_up(spark: SparkSession, tmp_path: Path) -> None:
    write_deltalake(str(tmp_path / "a"), pa.table({"id": [1]}))
    assert metadata_changes(spark, str(tmp_path / "[ab]"), [0]) is None
