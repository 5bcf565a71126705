"""`delivery: soft_delete`: deleted rows stay in the mirror with their last values, a mark and the time of deletion.

`delivery: append`: every change is a row. The expected rows are computed from the versions of the source."""

from __future__ import annotations

import json
import os
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from fixtures.memory import MemoryStore
from fixtures.mirror import Mirror, canonical
from mirrorfeed.config.model import Table as ConfigTable
from mirrorfeed.landing.delivery import UPSERT, Delivery
from mirrorfeed.landing.errors import delivery_column_taken
from mirrorfeed.landing.selection import Selection
from mirrorfeed.publish.change_sources.delta_feed import DeltaFeed
from mirrorfeed.publish.change_sources.feed_gap import SnapshotDiff
from mirrorfeed.publish.change_sources.full_compare import FullCompare, RowHashTable
from mirrorfeed.publish.errors import RowsRefusedError, soft_delete_without_keys
from mirrorfeed.publish.files import row_staging
from mirrorfeed.publish.key_repair import repair
from mirrorfeed.publish.next_publication import with_keys
from mirrorfeed.publish.rows_and_markers import DELETE_FIRST
from mirrorfeed.publish.table_publisher import publish
from mirrorfeed.publish.table_result import TableResult
from mirrorfeed.source.errors import FeedGapError, GapReason
from mirrorfeed.source.identifier import Source
from tests.raised import raises
from tests.support.delivered import TimedTable, appended, changing, soft_deleted, state_of
from tests.support.delta import DeltaTable, Zone
from tests.support.entries import changed
from tests.support.tables import Table, TableFeed

SOFT, APPEND = Delivery("soft_delete"), Delivery("append")
WITH_PREIMAGES = Delivery("append", preimages=True)
HISTORIES = int(os.environ.get("MIRRORFEED_HISTORIES", "1"))
WAYS: dict[str, dict[str, Any]] = {
    "net": {},
    "full": {"changes": "full"},
    "exact": {"changes": "full", "row_markers": "exact"},
    "gap": {},
    "compare": {"changes": "compare"},
}
BASE = {"source": "main.sales.orders", "target": "sales.orders", "keys": ["id"]}


class Way(Zone):
    """A landing zone to which a table is published in one of `WAYS`, and the versions that were published."""

    def __init__(self, name: str, root: Path, table: DeltaTable, **options: Any) -> None:
        super().__init__(root, table, **{"delivery": SOFT, **WAYS[name], **options})
        self.name, self.publications = name, list[int]()

    @property
    def way(self) -> str:
        return {"exact": "full", "gap": "compare"}.get(self.name, self.name)

    def publish_now(self) -> None:
        spark, source = self.table.spark, self.table.source
        feed: Any = DeltaFeed(spark, source, selection=self.plan.selection)
        if self.name == "gap" and self.publications:
            gap = FeedGapError(table=str(source), published=self.publications[-1], where=1, reason=GapReason.FEED_OFF)
            feed = SnapshotDiff(spark, source, selection=self.plan.selection, cause=gap)
        if self.name == "compare":
            hashes = Source(path=f"{self.root}-hashes")
            feed = FullCompare(spark, source, RowHashTable(spark, hashes, str(source)))
        publish(feed, self.store, self.plan)
        self.publications.append(self.table.latest)

    def begin_load(self) -> None:
        """Publish the first part of a first load."""
        result, feed = TableResult(""), DeltaFeed(self.table.spark, self.table.source)
        publish(feed, self.store, self.plan, result, stop=lambda: result.load is not None)
        assert result.load, "the load has only one part"
        self.publications.append(self.table.latest)


def live_through(spark: SparkSession, place: Path, seed: int, ways: list[str]) -> int:
    """Publish a random history in several ways. Return the number of compared mirrors."""
    table, compared = TimedTable.create(spark, place / "t", seed), 0
    table.insert_two_files()
    zones = [Way(name, place / name, table.table) for name in ways]
    zones[0].plan = changed(zones[0].plan, load_part_size=1)
    zones[0].begin_load()
    for _ in range(table.random.randint(2, 3)):
        for _ in range(table.random.randint(1, 4)):
            table.commit()
        for zone in zones:
            zone.publish_now()
            expected = soft_deleted(table, zone.publications, way=zone.way)
            found = zone.mirrored
            if zone.name == "compare":  # the time of a deletion is the time of the comparison
                assert all((row["_deleted_at"] is not None) == row["_deleted"] for row in found)
                expected, found = ([{**row, "_deleted_at": None} for row in rows] for rows in (expected, found))
            assert canonical(found) == canonical(expected), (seed, zone.name, zone.publications, table.states)
            compared += 1
    return compared


@pytest.mark.parametrize("ways", [["net", "compare"], pytest.param(list(WAYS), marks=pytest.mark.slow)], ids=len)
def test_mirror_keeps_deleted_rows_over_random_histories(
    spark: SparkSession, tmp_path: Path, counted: Counter[str], ways: list[str]
) -> None:
    for seed in range(HISTORIES):
        counted["mirrors with marked rows compared"] += live_through(spark, tmp_path / str(seed), seed, ways)


APPENDS: dict[str, dict[str, Any]] = {
    "net": {"delivery": APPEND, "load_part_size": 1},
    "net with pre-images": {"delivery": WITH_PREIMAGES},
    "net without keys": {"delivery": APPEND, "keys": ()},
    "gap": {"delivery": APPEND},
    "compare": {"delivery": APPEND},
}


def append_through(spark: SparkSession, place: Path, seed: int, ways: list[str]) -> int:
    table, compared = TimedTable.create(spark, place / "t", seed), 0
    table.insert_two_files()
    zones = [Way(name.split()[0], place / name, table.table, **APPENDS[name]) for name in ways]
    zones[0].begin_load()
    for _ in range(table.random.randint(2, 3)):
        for _ in range(table.random.randint(1, 4)):
            table.commit()
        for zone in zones:
            zone.publish_now()
            found, has_keys = zone.mirrored, bool(zone.plan.keys)
            if zone.name == "compare":  # its versions are those of the comparisons
                versions = sorted({row["_commit_version"] for row in found})
                assert state_of(found, versions[-1]) == table.states[-1]
                continue
            preimages = zone.plan.delivery.preimages or not has_keys
            expected = appended(table, zone.publications, preimages=preimages, compares=zone.name == "gap")
            if has_keys:
                changed_at = zone.publications if zone.name == "gap" else range(len(table.states))
                befores = {after: table.states[before] for before, after in pairwise(changed_at)}
                changes = changing(found, befores, preimages=preimages)
                assert Counter(changes) == Counter(expected), (seed, zone.root.name, table.states)
                for version in range(zone.publications[0], zone.publications[-1] + 1):
                    if zone.name == "net" or version in zone.publications:
                        assert state_of(found, version) == table.states[version]
            signs = {"insert": 1, "update_postimage": 1, "delete": -1, "update_preimage": -1}
            if preimages:
                net = Counter[tuple[int, str | None]]()
                for row in found:
                    net[row["id"], row["v"]] += signs[row["_change_type"]]
                assert +net == Counter(table.states[-1].items())
                assert not -net
            assert all(row["_commit_timestamp"] == table.time(row["_commit_version"]) for row in found)
            compared += 1
    return compared


@pytest.mark.slow
def test_mirror_has_every_change_over_random_histories(
    spark: SparkSession, tmp_path: Path, counted: Counter[str]
) -> None:
    for seed in range(HISTORIES):
        counted["mirrors with appended changes compared"] += append_through(
            spark, tmp_path / str(seed), seed, list(APPENDS)
        )


def test_spark_writes_appended_rows_under_the_key_of_the_change(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(row_staging, "SMALL_BATCH_ROWS", 0)
    table = DeltaTable(spark, tmp_path / "t")
    table.sql("INSERT INTO {} VALUES (1, 'a'), (2, 'x')")
    zone = Way("net", tmp_path / "zone", table, delivery=APPEND, selection=Selection(where="v <> 'x'"))
    zone.publish_now()
    table.sql("UPDATE {} SET v = 'x' WHERE id = 1")  # leaves the selection
    table.sql("UPDATE {} SET v = 'b' WHERE id = 2")  # enters it
    zone.publish_now()
    rows = sorted((row["_commit_version"], row["_change_type"], row["id"], row["v"]) for row in zone.mirrored)
    assert rows == [(1, "insert", 1, "a"), (2, "delete", 1, "a"), (3, "insert", 2, "b")]
    metadata = json.loads((zone.folder / "_metadata.json").read_text())
    assert metadata == {"keyColumns": ["id", "_commit_version", "_change_type"]}
    assert zone.files[-1].column_names == ["id", "v", "_change_type", "_commit_version", "_commit_timestamp"]
    assert zone.record["delivery"]["mode"] == "append"
    table.sql("INSERT INTO {} VALUES (5, 'c'), (5, 'd')")
    with pytest.raises(RowsRefusedError, match="a key is not unique"):
        zone.publish_now()


@pytest.mark.slow
def test_spark_writes_marked_rows_and_looks_up_deleted_keys(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(row_staging, "SMALL_BATCH_ROWS", 0)
    table = DeltaTable(spark, tmp_path / "t")
    table.sql("INSERT INTO {} VALUES (1, 'a'), (2, 'b'), (3, 'c')")
    zone = Way("net", tmp_path / "zone", table)
    zone.publish_now()
    table.sql("INSERT INTO {} VALUES (1, 'a2')")
    zone.publish_now()
    table.sql("DELETE FROM {} WHERE v IN ('a', 'c')")
    zone.publish_now()
    assert [(row["id"], row["v"], row["_deleted"]) for row in sorted(zone.mirrored, key=lambda row: row["id"])] == [
        (1, "a2", False),
        (2, "b", False),
        (3, "c", True),
    ]


def test_repair_marks_a_row_that_only_the_mirror_has(spark: SparkSession, tmp_path: Path) -> None:
    table = DeltaTable(spark, tmp_path / "t")
    table.sql("INSERT INTO {} VALUES (1, 'a'), (2, 'b')")
    zone = Way("net", tmp_path / "zone", table)
    zone.publish_now()
    keys = spark.createDataFrame([(1, True), (9, False)], f"id int, {DELETE_FIRST} boolean")
    repair(DeltaFeed(spark, table.source), zone.store, zone.plan, keys)
    assert [(row["id"], row["__rowMarker__"], row["_deleted"]) for row in sorted(zone.last, key=repr)] == [
        (1, 2, False),
        (1, 4, False),
        (9, 4, True),
    ]
    assert [row["_deleted_at"] is not None for row in zone.mirrored if row["id"] == 9] == [True]


@pytest.mark.slow
def test_row_that_leaves_the_selection_is_marked_under_the_chosen_names(spark: SparkSession, tmp_path: Path) -> None:
    table = DeltaTable(spark, tmp_path / "t", "id int, _deleted string")
    table.sql("INSERT INTO {} VALUES (1, 'a'), (2, 'b')")
    selection = Selection(where="_deleted <> 'x'")
    delivery = Delivery("soft_delete", "Is gone", "gone_at")
    zone = Way("net", tmp_path / "zone", table, delivery=delivery, selection=selection)
    zone.publish_now()
    table.sql("UPDATE {} SET _deleted = 'x' WHERE id = 2")
    zone.publish_now()
    first, second = sorted(zone.mirrored, key=lambda row: row["id"])
    assert first == {"id": 1, "_deleted": "a", "Is gone": False, "gone_at": None}
    assert (second["_deleted"], second["Is gone"]) == ("b", True)
    assert second["gone_at"] is not None
    assert zone.files[-1].column_names == ["id", "_deleted", "Is gone", "gone_at", "__rowMarker__"]


@pytest.mark.parametrize("published", [False, True])
def test_clash_of_column_names_is_refused_before_anything_is_written(published: bool) -> None:
    zone, plan = MemoryStore(), ConfigTable.model_validate({**BASE, "delivery": "soft_delete"})
    rows = Table({"id": "long"} if published else {"id": "long", "_DELETED": "string"}, ("id",))
    if published:
        publish_by_hand(zone, plan, rows)
        rows.add_column("_DELETED", "string")
    before = zone.list("sales.schema/orders")
    with raises(delivery_column_taken) as caught:
        publish(TableFeed(rows), zone, plan)
    assert caught.value.facts["columns"] == ["_DELETED"]
    assert zone.list("sales.schema/orders") == before


def publish_by_hand(zone: MemoryStore, plan: ConfigTable, rows: Table) -> None:
    """Publish an empty table, whose file the source without Spark can write."""
    publish(TableFeed(rows), zone, plan)
    mirror = Mirror(zone, "sales.schema/orders")
    mirror.take()
    assert mirror.rows == []


def test_soft_delete_requires_keys() -> None:
    table = ConfigTable.model_validate({**BASE, "source": "/tables/orders", "keys": None, "delivery": "soft_delete"})
    with raises(soft_delete_without_keys):
        with_keys(table)


@pytest.mark.parametrize(
    ("delivery", "reason"),
    [
        ({"mode": "upsert", "deleted_column": "gone"}, "requires mode: soft_delete, not upsert"),
        ({"mode": "soft_delete", "deleted_column": "_Deleted_At"}, "is also `deleted_column`"),
        ({"mode": "soft_delete", "deleted_at_column": "_commit_version"}, "is reserved"),
        ({"mode": "hard_delete"}, "Input should be"),
        ("hard_delete", "Input should be"),
        ({"mode": "soft_delete", "preimages": True}, "requires mode: append, not soft_delete"),
    ],
)
def test_invalid_delivery_is_a_configuration_error(delivery: Any, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        ConfigTable.model_validate({**BASE, "delivery": delivery})
    assert ConfigTable.model_validate(BASE).delivery == UPSERT
