"""Publication through Spark where the driver sends the files: in the result, and through a handover."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from mirrorfeed.feed.ranges import Gap
from mirrorfeed.publish.carry import Carrier, InResult, Kept
from mirrorfeed.publish.handover import Handover, HandoverLost, HandoverUnusable
from mirrorfeed.publish.source import DeltaFeed
from mirrorfeed.publish.table import Progress, RowsRefused, publish
from mirrorfeed.publish.writer import StagingJob
from tests.delta import DeltaTable, Zone


def carried(zone: Zone, carrier: Carrier, **options: Any) -> Progress:
    feed = DeltaFeed(zone.table.spark, zone.table.source, lambda: carrier)
    return publish(feed, zone.store, replace(zone.plan, **options))


@pytest.fixture
def orders(spark: SparkSession, tmp_path: Path) -> Zone:
    table = DeltaTable(spark, tmp_path / "orders")
    table.sql("INSERT INTO {} SELECT cast(id AS int), 'v' || id FROM range(0, 3000, 1, 3)")
    return Zone(tmp_path / "zone", table)


@pytest.mark.parametrize("by", ["result", "handover"])
def test_a_snapshot_and_ranges_come_as_they_would_from_executors(
    spark: SparkSession, orders: Zone, tmp_path: Path, by: str
) -> None:
    carrier: Carrier = InResult() if by == "result" else Handover(spark, str(tmp_path / "handover"))
    assert carried(orders, carrier, file_size=4096).rows == {"insert": 3000}
    assert orders.mirrors_the_table()
    orders.table.sql("UPDATE {} SET v = 'new' WHERE id < 20")
    orders.table.sql("DELETE FROM {} WHERE id >= 2990")
    assert carried(orders, carrier).rows == {"upsert": 20, "delete": 10}
    assert orders.mirrors_the_table()
    assert carried(orders, carrier).publications == 0
    assert not list((tmp_path / "handover").rglob("*.parquet"))


def test_a_first_load_of_an_empty_table_still_gives_a_file(spark: SparkSession, tmp_path: Path) -> None:
    zone = Zone(tmp_path / "zone", DeltaTable(spark, tmp_path / "empty"))
    assert carried(zone, Handover(spark, str(tmp_path / "handover"))).files == 1
    assert zone.mirrors_the_table()


def test_rows_that_cannot_be_published_are_refused_and_nothing_of_them_is_left(
    spark: SparkSession, orders: Zone, tmp_path: Path
) -> None:
    handover = Handover(spark, str(tmp_path / "handover"))
    carried(orders, handover)
    before = orders.everything()
    orders.table.insert(1)  # a second row of this key
    orders.table.sql("INSERT INTO {} VALUES (NULL, 'no key')")
    with pytest.raises(RowsRefused, match="a key is NULL"):
        carried(orders, handover)
    assert orders.everything() == before
    assert not list((tmp_path / "handover").rglob("*.parquet"))


def test_what_a_dead_run_left_in_the_handover_is_removed_by_the_next_and_others_keep_theirs(
    spark: SparkSession, orders: Zone, tmp_path: Path
) -> None:
    handover = Handover(spark, str(tmp_path / "handover"))
    with pytest.raises(Died):
        carried(orders, Dying(handover))
    (left,) = {path.parent for path in (tmp_path / "handover").rglob("*.parquet")}
    elsewhere = tmp_path / "handover/another/00000000000000000001-a/part.parquet"
    elsewhere.parent.mkdir(parents=True)
    elsewhere.write_bytes(b"")

    carried(orders, handover)

    assert not left.exists()
    assert elsewhere.exists()
    assert orders.mirrors_the_table()


class Died(BaseException):
    """As a process ends that is killed: nothing is put in order."""


class Dying:
    def __init__(self, handover: Handover) -> None:
        self._handover = handover

    @contextmanager
    def keep(self, encoded: DataFrame, job: StagingJob) -> Iterator[Kept]:
        with self._handover.keep(encoded, job):
            for place in Path(self._handover.root).glob("*/*"):
                shutil.copytree(place, f"{place}-of-another-run")
            raise Died


class Meddling:
    """A handover of which something goes missing between the executors' part and the driver's."""

    def __init__(self, handover: Handover, pattern: str) -> None:
        self._handover, self._pattern = handover, pattern

    def keep(self, encoded: DataFrame, job: StagingJob) -> AbstractContextManager[Kept]:
        kept = self._handover.keep(encoded, job)

        @contextmanager
        def meddled() -> Iterator[Kept]:
            with kept as inner:
                for path in Path(self._handover.root).glob(self._pattern):
                    shutil.rmtree(path) if path.is_dir() else path.unlink()
                yield inner

        return meddled()


@pytest.mark.parametrize("pattern", ["*", "*/*/part-00000*"])
def test_a_handover_that_loses_what_it_was_given_publishes_nothing_and_the_next_run_everything(
    spark: SparkSession, tmp_path: Path, pattern: str
) -> None:
    table = DeltaTable(spark, tmp_path / "orders")
    # More than is fetched at once with the receipts.
    table.sql("INSERT INTO {} SELECT cast(id AS int), repeat(sha2('' || id, 256), 20) FROM range(0, 24000, 1, 2)")
    zone = Zone(tmp_path / "zone", table)
    handover = Handover(spark, str(tmp_path / "handover"))
    with pytest.raises(HandoverLost) as lost:
        carried(zone, Meddling(handover, pattern), compression="none")
    assert "did not keep what executors gave: " in str(lost.value)
    assert str(lost.value).endswith(
        "Nothing of it is published. See that there is room and that nobody else changes it, then publish again."
    )
    assert zone.files == []
    carried(zone, handover, compression="none")
    assert zone.mirrors_the_table()


def test_receipts_that_went_missing_are_missed(
    spark: SparkSession, orders: Zone, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = type(spark.read).parquet

    def some(self: Any, place: str) -> DataFrame:
        next(Path(place).glob("part-00000*")).unlink()
        return read(self, place)

    monkeypatch.setattr(type(spark.read), "parquet", some)
    with pytest.raises(HandoverLost, match=r": (0 of 2|2 of 4|4 of 6) receipts are there\."):
        carried(orders, Handover(spark, str(tmp_path / "handover")))
    assert orders.files == []


def test_a_source_that_lost_files_is_blamed_itself(spark: SparkSession, orders: Zone, tmp_path: Path) -> None:
    handover = Handover(spark, str(tmp_path / "handover"))
    carried(orders, handover)
    orders.table.insert(5000)
    newest = max((tmp_path / "orders").glob("*.parquet"), key=os.path.getmtime)
    newest.unlink()
    with pytest.raises(Gap, match="a file is gone"):
        carried(orders, handover)


def test_a_handover_that_cannot_be_written_is_refused_at_once(
    spark: SparkSession, orders: Zone, tmp_path: Path
) -> None:
    (tmp_path / "handover").write_text("no folder")
    with pytest.raises(HandoverUnusable) as unusable:
        Handover(spark, str(tmp_path / "handover")).check(orders.store)
    assert f"Spark cannot write into the handover {tmp_path}/handover: " in str(unusable.value)
    assert str(unusable.value).endswith(
        "Check `handover`: a volume (/Volumes/catalog/schema/volume) with the privileges READ VOLUME and WRITE VOLUME"
        " for who publishes. Nothing was staged."
    )


def die(*_: object) -> None:
    raise Died


def test_checking_a_handover_leaves_nothing_there_and_clears_what_a_run_left_that_died_at_it(
    spark: SparkSession, orders: Zone, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    handover = Handover(spark, str(tmp_path / "handover"))
    monkeypatch.setattr(Handover, "_remove", die)
    with pytest.raises(Died):
        handover.check(orders.store)
    monkeypatch.undo()
    assert list((tmp_path / "handover").iterdir()) != []
    handover.check(orders.store)
    assert list((tmp_path / "handover").iterdir()) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount a file system that is full")
def test_a_full_handover_publishes_nothing_and_says_so(spark: SparkSession, tmp_path: Path) -> None:
    table = DeltaTable(spark, tmp_path / "orders")
    table.sql("INSERT INTO {} SELECT cast(id AS int), repeat(sha2('' || id, 256), 20) FROM range(0, 6000, 1, 2)")
    zone = Zone(tmp_path / "zone", table)
    full = tmp_path / "full"
    full.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "none", str(full)], check=True)
    try:
        with pytest.raises(HandoverLost, match="No space left on device"):
            carried(zone, Handover(spark, str(full)), compression="none")
        assert zone.files == []
        assert not list(full.rglob("*.parquet"))
    finally:
        subprocess.run(["umount", "--lazy", str(full)], check=True)


def test_a_volume_that_only_spark_sees_is_tidied_through_the_workspace(spark: SparkSession) -> None:
    removed = []

    class Workspace:
        class dbfs:
            @staticmethod
            def delete(path: str, *, recursive: bool) -> None:
                removed.append((path, recursive))

    Handover(spark, "/Volumes/main/mirrorfeed/handover", Workspace)._remove("/Volumes/main/mirrorfeed/handover/x")
    assert removed == [("/Volumes/main/mirrorfeed/handover/x", True)]
