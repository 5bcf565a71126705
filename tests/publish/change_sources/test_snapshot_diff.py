"""Publication across a gap in the feed, by comparing the versions at its two ends. The mirror always has rows."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from fixtures.mirror import Mirror, canonical
from mirrorfeed.config.loader import load
from mirrorfeed.config.model import Config
from mirrorfeed.errors import MirrorfeedError
from mirrorfeed.landing.errors import IncompatibleSchemaError
from mirrorfeed.landing.schema import columns_of
from mirrorfeed.orchestration.dry_run import plan_next_steps
from mirrorfeed.orchestration.publish_run import publish_tables
from mirrorfeed.orchestration.run_context import Callbacks, RunContext
from mirrorfeed.publish.change_sources.delta_feed import DeltaFeed
from mirrorfeed.publish.change_sources.errors import RangeComparedWarning, VersionNotComparableError
from mirrorfeed.publish.change_sources.feed_gap import SnapshotDiff, bridge_gap
from mirrorfeed.publish.row_diff import (
    DIFFERS,
    HASH,
    differences,
    differing_rows,
    one_per_key,
    with_hashes,
)
from mirrorfeed.publish.rows_and_markers import key_positions
from mirrorfeed.publish.table_result import TableResult
from mirrorfeed.source.errors import FeedGapError
from mirrorfeed.source.snapshot_or_range import Range
from mirrorfeed.storage.local_folder import FolderStore
from tests.support.clock import FakeClock
from tests.support.delta import DeltaTable, SparkTable, Zone


def field(name: str, type_: str) -> dict[str, Any]:
    return {"name": name, "type": type_, "nullable": True, "metadata": {}}


def a_config(folder: Path, more: str = "on_gap: compare", part: str = "") -> Config:
    text = f"landing_zone: ./landing\n{more}\ntables: [{{source: ./t, target: sales.orders, keys: [id]{part}}}]\n"
    (folder / "mirrorfeed.yml").write_text(text, encoding="utf-8")
    return load(str(folder / "mirrorfeed.yml"))


def published(spark: SparkSession, config: Config) -> tuple[TableResult, list[MirrorfeedError]]:
    errors: list[MirrorfeedError] = []
    (outcome,) = publish_tables(RunContext(spark, config, Callbacks(on_problem=errors.append), clock=FakeClock()))
    return outcome, errors


def test_gap_is_bridged_without_a_new_snapshot(spark: SparkSession, tmp_path: Path) -> None:
    table = DeltaTable(spark, tmp_path / "t")
    zone, config = (
        Zone(tmp_path / "landing", table),
        a_config(tmp_path, "on_gap: compare\nmax_versions_per_publication: 2"),
    )
    table.insert(1, 2, 3)
    zone.publish()
    table.set_feed(False)
    table.sql("UPDATE {} SET v = 'new' WHERE id = 2")
    table.sql("UPDATE {} SET v = 'v2' WHERE id = 2")  # as before
    table.sql("DELETE FROM {} WHERE id = 3")
    table.sql("ALTER TABLE {} ADD COLUMNS (w int)")
    table.sql("INSERT INTO {} VALUES (4, 'v4', 4)")
    table.set_feed(True)
    assert [row.next for row in plan_next_steps(spark, config)] == ["versions 2 to 8, by comparison"]
    outcome, errors = published(spark, config)
    assert outcome.error is None
    assert outcome.rows == {"upsert": 1, "delete": 1}
    (note,) = errors
    assert isinstance(note, RangeComparedWarning)
    assert isinstance(note.cause, FeedGapError)
    assert (note.cause.table, note.cause.published, note.cause.where) == (str(table.source), 1, 2)
    assert note.range == Range(1, 8)
    assert "increase the retention" in note.solution
    assert zone.mirrors_the_table()
    table.sql("UPDATE {} SET v = 'newer' WHERE id = 1")
    outcome, errors = published(spark, config)
    assert (outcome.rows, errors) == ({"upsert": 1}, [])
    assert zone.mirrors_the_table()


@pytest.mark.slow
def test_fields_added_to_structs_within_a_gap_are_null_before(spark: SparkSession, tmp_path: Path) -> None:
    table = DeltaTable(
        spark, tmp_path / "t", "id int, s struct<a: string>, l array<struct<a: string>>, m map<int, struct<a: string>>"
    )
    zone, config = Zone(tmp_path / "landing", table), a_config(tmp_path)
    row = "named_struct('a', 'x'), array(named_struct('a', 'x'), NULL), map(1, named_struct('a', 'x'))"
    table.sql(f"INSERT INTO {{}} VALUES (1, {row}), (2, {row}), (3, {row}), (4, NULL, NULL, NULL)")
    zone.publish()
    table.set_feed(False)
    table.sql("ALTER TABLE {} ADD COLUMNS (s.b string FIRST, l.element.b struct<c: string>, m.value.b string)")
    table.sql("UPDATE {} SET s.b = 'y' WHERE id = 1")
    table.sql("UPDATE {} SET l = array(named_struct('a', 'x', 'b', named_struct('c', 'y'))) WHERE id = 2")
    table.set_feed(True)
    outcome, (note,) = published(spark, config)
    assert isinstance(note, RangeComparedWarning)
    assert (outcome.error, outcome.rows) == (None, {"upsert": 2})
    mirror = Mirror(zone.store, "sales.schema/orders")
    mirror.take()
    assert {row["id"]: json.loads(row["s"] or "null") for row in mirror.rows} == {
        1: {"b": "y", "a": "x"},
        2: {"b": None, "a": "x"},
        3: {"a": "x"},
        4: None,
    }


@pytest.mark.slow
def test_snapshot_diff_publishes_only_selected_rows_and_columns(spark: SparkSession, tmp_path: Path) -> None:
    table = DeltaTable(spark, tmp_path / "t", "id int, v string, w string, secret string")
    config = a_config(
        tmp_path, part=", exclude_columns: [secret], where: v <> 'out', rename: {w: W}, cast: {w: string(2)}"
    )
    mirror = Mirror(FolderStore(str(tmp_path / "landing")), "sales.schema/orders")
    table.sql(
        "INSERT INTO {} VALUES (1, 'a', 'xyz', 's'), (2, 'a', 'x', 's'), (3, 'out', 'x', 's'), (4, 'a', 'x', 's'),"
        " (5, NULL, 'x', 's'), (6, 'a', 'x', 's')"
    )
    published(spark, config)
    table.set_feed(False)
    table.sql("UPDATE {} SET secret = 'other'")  # unpublished columns
    table.sql("UPDATE {} SET w = 'xyw' WHERE id = 1")  # also unpublished
    table.sql("UPDATE {} SET v = 'out' WHERE id = 2")
    table.sql("UPDATE {} SET v = 'in' WHERE id IN (3, 5)")
    table.sql("UPDATE {} SET w = 'new' WHERE id = 4")
    table.sql("DELETE FROM {} WHERE id = 6")
    table.set_feed(True)
    outcome, (note,) = published(spark, config)
    assert isinstance(note, RangeComparedWarning)
    assert (outcome.error, outcome.rows) == (None, {"upsert": 3, "delete": 2})
    mirror.take()
    wanted = [(1, "a", "xy"), (3, "in", "x"), (4, "a", "ne"), (5, "in", "x")]
    assert canonical(mirror.rows) == canonical({"id": id_, "v": v, "W": w} for id_, v, w in wanted)


@pytest.mark.parametrize("keys", ["[id]", "[]"])
def test_only_rows_with_keys_are_compared(tmp_path: Path, keys: str) -> None:
    text = f"landing_zone: ./landing\non_gap: compare\ntables: [{{source: ./t, target: sales.orders, keys: {keys}}}]\n"
    (tmp_path / "mirrorfeed.yml").write_text(text, encoding="utf-8")
    (table,) = load(str(tmp_path / "mirrorfeed.yml")).tables
    source = DeltaFeed(None, table.source)  # type: ignore[arg-type]  # nothing is read
    gap = FeedGapError(table="t", published=1, where=2, reason="the change data feed is off")
    assert isinstance(bridge_gap(source, table, gap, lambda _: None), SnapshotDiff) == (keys == "[id]")


def test_excluded_column_renamed_within_a_gap_stops_the_table(spark: SparkSession, tmp_path: Path) -> None:
    table = DeltaTable(spark, tmp_path / "t", "id int, secret string", properties={"delta.columnMapping.mode": "name"})
    config = a_config(tmp_path, part=", exclude_columns: [secret]")
    table.sql("INSERT INTO {} VALUES (1, 'a')")
    published(spark, config)
    before = {path.name for path in (tmp_path / "landing").rglob("*.parquet")}
    table.set_feed(False)
    table.sql("ALTER TABLE {} RENAME COLUMN secret TO leaked")
    table.set_feed(True)
    outcome, _ = published(spark, config)
    assert isinstance(outcome.error, IncompatibleSchemaError)
    assert {path.name for path in (tmp_path / "landing").rglob("*.parquet")} == before


def test_missing_published_version_is_reported(spark: SparkSession, tmp_path: Path) -> None:
    table = DeltaTable(spark, tmp_path / "t")
    zone, config = Zone(tmp_path / "landing", table), a_config(tmp_path)
    table.insert(1, 2, 3)
    zone.publish()
    before = set(table.path.glob("*.parquet"))
    table.sql("UPDATE {} SET v = 'new'")
    for file in before:  # as VACUUM would
        file.unlink()
    shutil.rmtree(table.path / "_change_data", ignore_errors=True)
    outcome, errors = published(spark, config)
    assert isinstance(outcome.error, VersionNotComparableError)
    assert (outcome.error.table, outcome.error.published) == (str(table.source), 1)
    assert errors == []


@pytest.mark.soak  # as in `test_schema_changes`
def test_columns_dropped_within_a_gap_follow_on_dropped_column(spark: SparkSession, tmp_path: Path) -> None:
    table = DeltaTable(spark, tmp_path / "t", properties={"delta.columnMapping.mode": "name"})
    original = Zone(tmp_path / "landing", table)
    table.sql("INSERT INTO {} VALUES (1, 'a'), (2, NULL)")
    original.publish()
    table.set_feed(False)
    table.sql("ALTER TABLE {} RENAME COLUMN v TO w")
    table.set_feed(True)
    for dropped, rows in {"keep": {"upsert": 1}, "reseed": {"insert": 2}}.items():
        zone = Zone.copied(original, tmp_path / dropped)
        outcome, _ = published(spark, a_config(tmp_path / dropped, f"on_gap: compare\non_dropped_column: {dropped}"))
        assert outcome.error is None
        assert outcome.rows == rows
        assert zone.mirrors_the_table()


@pytest.fixture(scope="module")
def scattered(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Zone:
    """A published table and the next versions, which update and add rows.

    The second deletion vector of its file is larger than 64 KiB, too large for Delta's feed reader."""
    folder = tmp_path_factory.mktemp("scattered")
    table = SparkTable(spark, folder / "t", "id int, v string", properties={"delta.enableDeletionVectors": "true"})
    zone = Zone(folder / "landing", table)
    table.sql("INSERT INTO {} SELECT /*+ COALESCE(1) */ id, concat('v', id % 3) FROM range(0, 402000, 1, 1)")
    table.sql("DELETE FROM {} WHERE id % 65536 >= 8400")  # a few rows remain, in seven blocks of the vector
    zone.publish()
    table.sql("DELETE FROM {} WHERE id % 2 = 0")
    table.sql("UPDATE {} SET v = 'new' WHERE id < 10")
    table.sql("INSERT INTO {} VALUES (-1, 'added')")
    return zone


@pytest.mark.slow
def test_unreadable_feed_is_replaced_by_a_snapshot_diff(spark: SparkSession, tmp_path: Path, scattered: Zone) -> None:
    zone = Zone.copied(scattered, tmp_path)
    outcome, errors = published(spark, a_config(tmp_path, ""))
    assert outcome.error is None
    assert outcome.rows == {"delete": 29_400, "upsert": 6}
    (note,) = errors
    assert isinstance(note, RangeComparedWarning)
    assert (note.range.from_version_exclusive, note.range.to_version_inclusive) == (2, 5)
    assert "a deletion vector is too large" in note.problem
    assert "`REORG TABLE … APPLY (PURGE)`" in note.solution
    zone.table.sql("UPDATE {} SET v = 'newer' WHERE id = 1")
    outcome, errors = published(spark, a_config(tmp_path, ""))
    assert (len(outcome.records), errors) == (1, [])
    assert zone.mirrors_the_table()


@pytest.mark.slow
def test_snapshot_diff_has_exact_row_markers_if_configured(
    spark: SparkSession, tmp_path: Path, scattered: Zone
) -> None:
    Zone.copied(scattered, tmp_path)
    outcome, _ = published(spark, a_config(tmp_path, "changes: full\nrow_markers: exact"))
    assert outcome.rows == {"delete": 29_400, "update": 5, "insert": 1}


@pytest.mark.slow
def test_unreadable_feed_and_version_are_a_gap(spark: SparkSession, tmp_path: Path, scattered: Zone) -> None:
    zone = Zone.copied(scattered, tmp_path)
    for vector in zone.table.path.glob("deletion_vector_*.bin"):
        vector.unlink()
    outcome, errors = published(spark, a_config(tmp_path, ""))
    assert isinstance(outcome.error, FeedGapError)
    assert outcome.error.problem.endswith("cannot be read: in versions 3 to 5 a file is missing.")
    assert errors == []


def test_duplicate_key_is_published_once_with_its_current_row(
    spark: SparkSession,
) -> None:
    columns = tuple(columns_of("t", {"fields": [field("id", "integer"), field("v", "string")]}))
    before = spark.sql(
        "SELECT * FROM VALUES (1, 'a'), (1, 'b'), (2, 'a'), (2, 'b'), (3, 'c'), (NULL, 'd') AS t (id, v)"
    )
    now = spark.sql("SELECT * FROM VALUES (1, 'b'), (3, 'c') AS t (id, v)")
    key = key_positions(columns, ["id"])
    known = one_per_key(with_hashes(before, columns, ["id"]).select(*key, HASH), key)
    found = differences(with_hashes(now, columns, ["id"]), known, key).where(DIFFERS)
    rows = differing_rows(found, columns, with_marker=True).orderBy("id").collect()
    assert [tuple(row) for row in rows] == [(1, "b", 4, None), (2, None, 2, None)]
