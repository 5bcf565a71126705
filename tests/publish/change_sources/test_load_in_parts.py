"""A first load in parts: stops, kills, changes of the source and lost versions, on Delta tables."""

from __future__ import annotations

import hmac
import re
import shutil
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

import pytest
from pyspark.sql import SparkSession

from fixtures.faults import Crash, Fault, FaultyStore, Mode
from fixtures.mirror import canonical
from mirrorfeed.errors import TransientError
from mirrorfeed.landing.delivery import Delivery
from mirrorfeed.landing.schema import Problem
from mirrorfeed.orchestration.retry_policy import needs_reload
from mirrorfeed.publish.change_sources import delta_feed
from mirrorfeed.publish.change_sources.delta_feed import DeltaFeed
from mirrorfeed.publish.change_sources.errors import first_comparison_impossible, load_incomplete, row_hashes_lost
from mirrorfeed.publish.change_sources.feed_gap import bridge_gap
from mirrorfeed.publish.change_sources.full_compare import FullCompare, RowHashTable
from mirrorfeed.publish.errors import RowsRefusedError, load_unfinished
from mirrorfeed.publish.files import row_staging
from mirrorfeed.publish.key_repair import repair
from mirrorfeed.publish.table_publisher import publish
from mirrorfeed.publish.table_result import TableResult
from mirrorfeed.runtime.credentials import Secret
from mirrorfeed.runtime.spark_session import setting
from mirrorfeed.source.errors import SourceRecreatedError, load_version_lost
from mirrorfeed.source.identifier import Source
from mirrorfeed.storage import Store
from tests.raised import raises
from tests.support.delivered import verified
from tests.support.delta import DeltaTable, Zone
from tests.support.entries import FOLDER, changed


def in_parts(spark: SparkSession, folder: Path, files: int = 3, **options: Any) -> Zone:
    """A table with ten rows in each of its files, whose load has one part for each file."""
    table = DeltaTable(spark, folder / "t")
    for at in range(files):
        table.insert(*range(10 * at, 10 * at + 10))
    return Zone(folder / "landing", table, **{"load_part_size": 1024, **options})


def run(
    zone: Zone,
    store: Store | None = None,
    *,
    parts: int = 1,
    upload_from: Literal["driver", "executors"] = "driver",
) -> TableResult:
    """Run once, and stop after this number of publications."""
    left = iter([False] * (parts - 1))
    feed = DeltaFeed(zone.table.spark, zone.table.source, upload_from=upload_from, selection=zone.plan.selection)
    began: list[str] = []

    def stop() -> bool:
        return bool(began) and next(left, True)

    return publish(feed, store or zone.store, zone.plan, on_step=lambda result: began.append(result.step), stop=stop)


def progress(result: TableResult) -> tuple[int, int] | None:
    return result.load and (result.load.parts_published, result.load.parts)


def check_mirror(zone: Zone) -> None:
    assert zone.mirrors_the_table()
    assert not list(zone.root.glob("_mirrorfeed_files/*")), "files are left in the staging area"


def test_load_continues_after_each_part_while_the_source_changes(spark: SparkSession, tmp_path: Path) -> None:
    zone = in_parts(spark, tmp_path)
    pinned = zone.table.latest

    first = run(zone)
    zone.table.sql("UPDATE {} SET v = 'changed' WHERE id IN (1, 15, 29)")
    zone.plan = changed(zone.plan, load_part_size=2048)  # has no effect on the load
    second = run(zone)
    zone.table.sql("DELETE FROM {} WHERE id = 2 OR id = 25")
    zone.table.insert(40)
    with raises(load_unfinished):
        repair(DeltaFeed(spark, zone.table.source), zone.store, zone.plan, None)
    third = run(zone)

    assert [progress(each) for each in (first, second, third)] == [(1, 3), (2, 3), None]
    assert [each.inserts for each in (first, second, third)] == [10, 10, 10]
    assert [each.published_version for each in (first, second, third)] == [None, None, pinned]
    assert re.fullmatch(rf"snapshot to {pinned}, 1 of 3 parts \(3\d %\)", replace(first).what)
    assert replace(third).what == f"snapshot to {pinned}"
    assert re.fullmatch(r"loaded 1 of 3 parts \(3\d %\): 10 inserts(, about .* left)?", first.in_words)
    assert (first.first_load, second.first_load) == (True, False)
    zone.publish()
    check_mirror(zone)


def test_one_run_publishes_all_parts_and_then_the_changes(spark: SparkSession, tmp_path: Path) -> None:
    zone = in_parts(spark, tmp_path)
    run(zone)
    zone.table.sql("DELETE FROM {} WHERE id < 20")

    result = zone.publish()

    assert [str(each.load) if each.load else str(each.to_version_inclusive) for each in result.records] == [
        "part 2 of 3",
        "part 3 of 3",
        str(zone.table.latest),
    ]
    check_mirror(zone)


def test_table_of_one_part_gets_the_same_record_as_without_parts(spark: SparkSession, tmp_path: Path) -> None:
    zone = in_parts(spark, tmp_path, files=2, load_part_size=2**30)

    (record,) = zone.publish().records

    assert (record.load, record.format) == (None, 1)
    assert b"load" not in record.to_json()


@pytest.mark.parametrize(
    "mode",
    [Mode.KILLED_AFTER, *(pytest.param(mode, marks=pytest.mark.slow) for mode in (Mode.KILLED, Mode.LOST, Mode.LATE))],
)
def test_run_that_fails_inside_a_part_loses_nothing(
    spark: SparkSession, tmp_path: Path, mode: Mode, counted: Counter[str]
) -> None:
    zone = in_parts(spark, tmp_path, files=2)
    run(zone)

    def play(name: str, *faults: Fault) -> list[str]:
        copy = Zone.copied(zone, tmp_path / name)
        store = FaultyStore(copy.store, faults)
        with suppress(TransientError, Crash):
            run(copy, store, parts=3)
        store.deliver()
        copy.publish()
        check_mirror(copy)
        return store.verbs

    for at, verb in enumerate(play("calm")):
        if verb in ("create", "create_once", "rename"):
            play(f"fault{at}", Fault(at, mode, late=3))
            counted["crash points inside a part, with Spark"] += 1


def test_driver_and_executors_upload_parts_of_one_load(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both upload the same files, and either continues a load that the other began."""
    monkeypatch.setattr(row_staging, "SMALL_BATCH_ROWS", 0)  # so that Spark writes the files
    monkeypatch.setattr(delta_feed, "_SMALL_BYTES", 0)
    zone = in_parts(spark, tmp_path)
    copy = Zone(tmp_path / "copy", zone.table, load_part_size=1024)
    ends: tuple[Literal["driver", "executors"], ...] = ("driver", "executors")
    for at in range(3):
        (record,) = run(zone, upload_from=ends[at % 2]).records
        (other,) = run(copy, upload_from=ends[(at + 1) % 2]).records
        assert [(file.number, file.rows, file.bytes, file.sha256) for file in record.files] == [
            (file.number, file.rows, file.bytes, file.sha256) for file in other.files
        ]
        assert record.load == other.load
    check_mirror(zone)
    check_mirror(copy)


@pytest.mark.parametrize("mode", ["soft_delete", pytest.param("append", marks=pytest.mark.slow)])
def test_load_in_parts_of_each_delivery_mode_continues_with_the_changes(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: Any
) -> None:
    """Keys are hashed, so another column divides the selected rows. The source changes between the parts."""
    monkeypatch.setenv("KEY_OF_PARTS", key := "the secret of this test")
    table = DeltaTable(spark, tmp_path / "t", "id int, v string, note string, day string", by="day")
    for at in range(3):
        rows = (f"({number}, 'v{number}', 'secret', 'day{at}')" for number in range(3 * at, 3 * at + 3))
        table.sql(f"INSERT INTO {{}} VALUES {', '.join(rows)}")
    hidden = {
        "transform": {"id": "hash", "v": "hash", "note": "mask('-')"},
        "hash_key": Secret(env="KEY_OF_PARTS"),
    }
    selected = {"where": "id <> 5", "rename": {"id": "Key", "v": "value", "day": "since"}, **hidden}
    zone = Zone(tmp_path / "landing", table, load_part_size=1024, delivery=Delivery(mode), **selected)

    (first,) = run(zone).records
    table.sql("DELETE FROM {} WHERE id IN (1, 7)")  # one of them is published
    table.sql("UPDATE {} SET v = 'new' WHERE id = 4")
    (second,) = run(zone).records
    table.sql("UPDATE {} SET id = 10 WHERE id = 0")
    table.sql("INSERT INTO {} VALUES (7, 'again', 'secret', 'day2')")
    third, *_ = zone.publish().records

    assert [(str(each.load), each.rows["insert"]) for each in (first, second, third)] == [
        ("part 1 of 3", 3),
        ("part 2 of 3", 2),
        ("part 3 of 3", 3),
    ]
    text = "2 deleted rows marked" if mode == "soft_delete" else "also at 1 earlier version"
    assert str(verified(zone, zone.mirrored, tmp_path / "mirror")) == f"equal at version 7, 7 rows, {text}"

    def hashed(value: object) -> str:
        return hmac.new(key.encode(), str(value).encode(), "sha256").hexdigest()

    def row(number: int, day: int) -> dict[str, str]:
        return {"Key": hashed(number), "value": hashed(f"v{number}"), "note": "-", "since": f"day{day}"}

    mirrored = [{name: each.pop(name) for name in ("Key", "value", "note", "since")} | each for each in zone.mirrored]
    if mode == "soft_delete":
        marked = [{**row(number, 0), "_deleted": True} for number in (0, 1)]
        assert canonical([each for each in mirrored if each.pop("_deleted_at")]) == canonical(marked)
        return
    time = datetime.fromisoformat(str(first.committed))
    added = {"_change_type": "insert", "_commit_version": 3, "_commit_timestamp": time}
    loaded = [{**row(number, number // 3), **added} for number in range(9) if number != 5]
    assert canonical([each for each in mirrored if each["_commit_version"] == 3]) == canonical(loaded)


def test_version_that_vacuum_deleted_during_the_load_stops_it(spark: SparkSession, tmp_path: Path) -> None:
    zone = in_parts(spark, tmp_path)
    run(zone)
    gone = zone.table.live_files()
    zone.table.sql("UPDATE {} SET v = 'all'")
    for file in gone - zone.table.live_files():
        file.unlink()

    with raises(load_version_lost, match=r"cannot continue with part 2 of 3: version 3") as caught:
        zone.publish()

    assert needs_reload(changed(zone.plan, on_gap="reseed"), caught.value)
    assert not needs_reload(zone.plan, caught.value)
    assert len(list(zone.folder.glob("*.parquet"))) == 1


def test_row_that_no_part_reads_stops_the_load(spark: SparkSession, tmp_path: Path) -> None:
    """A wrong plan stands for a file that Delta skips by mistake."""
    zone = in_parts(spark, tmp_path)
    run(zone)
    record = max(zone.folder.glob("_mirrorfeed/*/*.json"))
    text = record.read_text(encoding="utf-8")
    assert '"rows_published": 10' in text
    record.write_text(text.replace('"rows_published": 10', '"rows_published": 9'), encoding="utf-8")

    with raises(load_incomplete, match="have 29 rows, and version 3 has 30"):
        zone.publish()

    assert len(list(zone.folder.glob("*.parquet"))) == 2


@pytest.mark.slow
def test_load_of_a_replaced_table_continues_before_the_difference(spark: SparkSession, tmp_path: Path) -> None:
    zone = in_parts(spark, tmp_path)
    run(zone)
    zone.table.replace((1, "v1"), (2, "other"), (99, "new"))
    feed = DeltaFeed(spark, zone.table.source)

    with pytest.raises(SourceRecreatedError) as caught:
        publish(feed, zone.store, zone.plan)
    bridge = bridge_gap(feed, zone.plan, caught.value)
    assert bridge is not None
    result = publish(bridge, zone.store, zone.plan)

    assert [str(each.load) for each in result.records] == ["part 2 of 3", "part 3 of 3", "None"]
    check_mirror(zone)


def test_duplicate_keys_in_other_parts_are_refused_before_the_first_part(spark: SparkSession, tmp_path: Path) -> None:
    table = DeltaTable(spark, tmp_path / "t", "id int, v string", by="v")
    for part in ("a", "b"):
        table.sql(f"INSERT INTO {{}} SELECT CAST(id AS int), '{part}' FROM range(0, 5, 1, 1)")
    zone = Zone(tmp_path / "landing", table, load_part_size=1)

    with pytest.raises(RowsRefusedError) as caught:
        zone.publish()

    assert {row.problem for row in caught.value.rows} == {Problem.DUPLICATE_KEY}
    assert not list(zone.folder.rglob("*.parquet"))


def test_rows_refused_in_a_later_part_need_a_new_load(spark: SparkSession, tmp_path: Path) -> None:
    zone = in_parts(spark, tmp_path, files=2)
    zone.table.insert(15)

    with pytest.raises(RowsRefusedError) as caught:
        zone.publish()

    assert "part" not in caught.value.problem
    assert "mirrorfeed rebuild" in caught.value.solution
    assert len(list(zone.folder.glob("*.parquet"))) == 1


def test_comparison_does_not_start_before_the_load_is_complete(spark: SparkSession, tmp_path: Path) -> None:
    zone = in_parts(spark, tmp_path, files=2)
    run(zone)

    with raises(first_comparison_impossible, match="its first load is not complete"):
        publish(DeltaFeed(spark, zone.table.source), zone.store, changed(zone.plan, changes="compare"))


@dataclass(frozen=True)
class Compared:
    """A Delta table that is published by comparison, with its row hashes and a landing zone."""

    zone: Zone
    hashes: Source

    @classmethod
    def of(cls, spark: SparkSession, folder: Path, **options: Any) -> Compared:
        """A table with 30 rows. The first comparison writes three files of row hashes."""
        table = DeltaTable(spark, folder / "t")
        table.insert(*range(30))
        zone = Zone(folder / "landing", table, **{"changes": "compare", "load_part_size": 1024, **options})
        return cls(zone, Source(path=str(folder / "hashes")))

    @property
    def is_begun(self) -> bool:
        return Path(self.hashes.path or "").exists()

    @classmethod
    def copied(cls, original: Compared, folder: Path) -> Compared:
        shutil.copytree(original.hashes.path or "", folder / "hashes") if original.is_begun else folder.mkdir()
        original.zone.root.mkdir(exist_ok=True)
        zone = Zone.copied(original.zone, folder)
        zone.plan = changed(zone.plan, changes="compare", load_part_size=1024)
        return cls(zone, Source(path=str(folder / "hashes")))

    def run(self, store: Store | None = None, *, parts: int = 1, **options: Any) -> TableResult:
        zone, spark = self.zone, self.zone.table.spark
        left, began = iter([False] * (parts - 1)), list[str]()
        hashes = RowHashTable(spark, self.hashes, str(zone.table.source))
        source = FullCompare(spark, zone.table.source, hashes, **options)
        # So that the first comparison writes several files.
        with (
            setting(spark, "spark.sql.shuffle.partitions", "3"),
            setting(spark, "spark.sql.adaptive.coalescePartitions.minPartitionSize", "1b"),
            setting(spark, "spark.sql.adaptive.advisoryPartitionSizeInBytes", "1b"),
        ):
            return publish(
                source,
                store or zone.store,
                zone.plan,
                on_step=lambda result: began.append(result.step),
                stop=lambda: bool(began) and next(left, True),
            )


def test_first_comparison_is_loaded_in_parts_while_the_source_changes(spark: SparkSession, tmp_path: Path) -> None:
    """All parts have the rows of the comparison that began the load. A later comparison finds the changes."""
    compared = Compared.of(spark, tmp_path)
    zone, rows = compared.zone, compared.zone.table.rows()

    (first,) = compared.run().records
    zone.table.sql("DELETE FROM {} WHERE id = 2 OR id = 25")
    zone.plan = changed(zone.plan, load_part_size=2048)  # has no effect on the load
    assert first.load is not None
    count = len(first.load.slices)
    rest = compared.run(parts=count - 1)

    records = [first, *rest.records]
    assert count > 1
    assert [str(each.load) for each in records] == [f"part {at + 1} of {count}" for at in range(count)]
    assert {each.read and each.read.rows for each in records} == {30}
    assert rest.published_version == 0
    assert canonical(zone.mirrored) == canonical(rows)


@pytest.mark.slow
@pytest.mark.parametrize("parts", [0, 1])
def test_comparison_that_is_killed_inside_a_part_loses_nothing(
    spark: SparkSession, tmp_path: Path, parts: int, counted: Counter[str]
) -> None:
    compared = Compared.of(spark, tmp_path)
    if parts:
        compared.run(parts=parts)

    def play(name: str, *faults: Fault) -> list[str]:
        copy = Compared.copied(compared, tmp_path / name)
        store = FaultyStore(copy.zone.store, faults)
        with suppress(TransientError, Crash):
            copy.run(store)
        copy.zone.table.sql("UPDATE {} SET v = 'changed' WHERE id IN (1, 15, 29)")
        copy.run(parts=9)
        copy.run()
        check_mirror(copy.zone)
        return store.verbs

    for at, verb in enumerate(play("calm")):
        if verb in ("create", "create_once", "rename"):
            play(f"fault{at}", Fault(at, Mode.KILLED_AFTER))
            counted["crash points inside a part of a comparison, with Spark"] += 1


@pytest.mark.slow
def test_duplicate_keys_of_a_comparison_are_refused_before_the_first_part(spark: SparkSession, tmp_path: Path) -> None:
    compared = Compared.of(spark, tmp_path)
    compared.zone.table.insert(15)

    with pytest.raises(RowsRefusedError) as caught:
        compared.run()

    assert {row.problem for row in caught.value.rows} == {Problem.DUPLICATE_KEY}
    assert not list(compared.zone.folder.rglob("*.parquet"))


@pytest.mark.slow
def test_all_parts_of_an_appended_comparison_have_one_time(spark: SparkSession, tmp_path: Path) -> None:
    compared = Compared.of(spark, tmp_path, delivery=Delivery("append"))
    compared.run()
    compared.run(parts=9)

    rows = [row for file in compared.zone.files for row in file.to_pylist()]
    assert len(rows) == 30
    assert len({row["_commit_timestamp"] for row in rows}) == 1


@pytest.mark.slow
def test_row_hashes_that_are_lost_during_the_load_stop_it(spark: SparkSession, tmp_path: Path) -> None:
    compared = Compared.of(spark, tmp_path)
    compared.run()
    for file in Path(compared.hashes.path or "").glob("*.parquet"):
        file.unlink()

    with raises(row_hashes_lost) as caught:
        compared.run()

    assert needs_reload(changed(compared.zone.plan, on_gap="reseed"), caught.value)


def test_values_that_are_not_published_are_not_in_the_log(spark: SparkSession, tmp_path: Path) -> None:
    zone = in_parts(spark, tmp_path, where="id > 15 OR id < 0", cast={"v": "string(2)"})

    result = zone.publish()

    assert [each.rows["insert"] for each in result.records] == [4, 10]
    assert [each.up_to for each in result.records[0].load.slices] == ["19", None]  # type: ignore[union-attr]
    zone.plan = changed(zone.plan, where=None, cast={"id": "string"})
    zone.store.remove_folder(FOLDER)
    assert [each.load for each in zone.publish().records] == [None]
