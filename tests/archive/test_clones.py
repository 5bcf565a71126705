"""Shallow clones use files of the original table, so the archive interval of the original applies to them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from fixtures.tiers import Clock, FolderTiers
from mirrorfeed.archive import archive_interval, guard, restore
from mirrorfeed.archive.archive_report import share
from mirrorfeed.archive.archived_files import ArchivedFilesNeededError, find_unreadable
from mirrorfeed.archive.data_files import DataFile, NeededFiles
from mirrorfeed.archive.errors import file_of_deleted_table
from mirrorfeed.archive.guard import Guarded
from mirrorfeed.archive.guarded_table import GuardedTable
from mirrorfeed.archive.restore_plan import plan_files
from mirrorfeed.archive.table_maintenance import maintain
from mirrorfeed.publish.change_sources.delta_feed import DeltaFeed
from mirrorfeed.source.snapshot_or_range import Range, Snapshot
from mirrorfeed.storage.tier_store import Tier, TierFacts, TiersOfTables, TierStore
from tests.archive.archived_table import NOW, Orders, days
from tests.raised import raises
from tests.support.delta import DeltaTable, SparkTable, Zone


@pytest.fixture(scope="module")
def original(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Orders:
    """A table with an interval from version 2."""
    return Orders(spark, tmp_path_factory.mktemp("clones") / "original", interval=60)


@pytest.fixture(scope="module")
def clone(spark: SparkSession, original: Orders) -> DeltaTable:
    """A clone of version 1, which has no interval, with added files of its own."""
    cloned = DeltaTable.cloned(original, original.path.with_name("clone"), 1)
    cloned.sql("INSERT INTO {} VALUES (15, 'own', 1)")
    tiers = FolderTiers(original.path.with_name("aside"), Clock(NOW))
    tiers.archive(file.uri for file in original.files("1", "2"))
    return cloned


@pytest.mark.soak
def test_files_of_the_original_table_use_its_interval(spark: SparkSession, clone: DeltaTable) -> None:
    guarded = Guarded(spark, now=lambda: NOW)
    with pytest.raises(ArchivedFilesNeededError) as caught:
        guarded.sql(f"SELECT * FROM {clone.source.sql} WHERE id = 15")
    assert days(caught.value.files) == ["1"]
    assert f" of {clone.path} at version" in str(caught.value)
    assert guarded.sql(f"SELECT * FROM {clone.source.sql} WHERE day = 3").count() == 10
    table = GuardedTable(spark, clone.source, now=lambda: NOW)
    assert days(table._needed("id < 25").files) == ["1", "2"]
    with pytest.raises(ArchivedFilesNeededError):
        table.query("id = 25")
    with pytest.raises(ArchivedFilesNeededError):
        table.delete("id = 25")
    assert share(spark, clone.source, NOW).archived_files == 2
    assert maintain(spark, clone.source, NOW).left_out == ({"day": "1"}, {"day": "2"})


def test_snapshot_and_range_of_a_clone_without_an_interval_are_checked(spark: SparkSession, clone: DeltaTable) -> None:
    for what in (Snapshot(0), Range(-1, 0)):
        with pytest.raises(ArchivedFilesNeededError) as caught:
            guard.check(spark, clone.source, what, lambda _: None, NOW)
        assert days(caught.value.files) == ["1", "2"]
    guard.check(spark, clone.source, Range(0, 1), lambda _: None, NOW)


def test_publication_of_a_clone_without_an_interval_names_archived_files(
    spark: SparkSession, clone: DeltaTable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A publication checks only tables with an interval before it reads them. The cloud refuses the other reads."""

    def refuse(*_: object) -> None:
        raise OSError("This operation is not permitted on an archived blob., 409, BlobArchived")

    monkeypatch.setattr(DeltaFeed, "_stage_snapshot", refuse)
    zone = Zone(tmp_path, clone)
    with pytest.raises(ArchivedFilesNeededError) as caught:
        zone.publish()
    assert {"1", "2"} <= set(days(caught.value.files))
    assert zone.files == []


def test_own_files_of_a_clone_use_its_own_interval(spark: SparkSession, clone: DeltaTable, tmp_path: Path) -> None:
    copy = DeltaTable.copied(clone, tmp_path / "clone")
    archive_interval.set_first(spark, copy.source, 1000, NOW)
    assert days(GuardedTable(spark, copy.source, now=lambda: NOW)._needed().files) == ["1", "2"]
    assert days(GuardedTable(spark, copy.source, now=lambda: NOW)._needed("id = 15").files) == ["1"]


def test_clone_with_a_missing_original_is_refused(
    spark: SparkSession, original: Orders, clone: DeltaTable, tmp_path: Path
) -> None:
    log = original.path / "_delta_log"
    log.rename(tmp_path / "aside")
    try:
        with raises(file_of_deleted_table) as caught:
            Guarded(spark).sql(f"SELECT * FROM {clone.source.sql} WHERE day = 3")
    finally:
        (tmp_path / "aside").rename(log)
    assert caught.value.table == str(clone.path)
    assert caught.value.uri.startswith(f"file:{original.path}/day=3/part-")


@pytest.mark.slow
def test_deletion_vector_of_a_clone_uses_the_interval_of_the_clone(spark: SparkSession, tmp_path: Path) -> None:
    original = SparkTable(spark, tmp_path / "original", properties={"delta.enableDeletionVectors": "true"})
    original.sql("INSERT INTO {} SELECT /*+ REPARTITION(1) */ cast(id AS int), 'v' FROM range(10)")
    clone = DeltaTable.cloned(original, tmp_path / "clone", original.latest)
    clone.sql("DELETE FROM {} WHERE id = 3")
    archive_interval.set_first(spark, clone.source, 30, NOW)
    (vector,) = (f"file:{path}" for path in clone.path.rglob("*.bin"))
    tiers, query = FolderTiers(tmp_path / "aside", Clock(NOW)), f"SELECT sum(id) FROM {clone.source.sql}"
    assert Guarded(spark, lambda _: tiers, lambda: NOW).needed(query) == []
    guarded = Guarded(spark, lambda _: tiers, lambda: NOW + timedelta(days=100))
    assert guarded.sql(query).first() == (42,)
    tiers.archive([vector])
    with pytest.raises(ArchivedFilesNeededError) as caught:
        guarded.sql(query)
    assert [file.deletion_vector for file in caught.value.files] == [vector]


@dataclass(frozen=True)
class Bucket(TierStore):
    """A bucket with readable files."""

    name: str

    def facts(self, uris: Sequence[str]) -> dict[str, TierFacts]:
        assert all(uri.startswith(f"s3://{self.name}/") for uri in uris)
        return {uri: TierFacts(Tier.HOT) for uri in uris}


def test_files_of_a_clone_are_looked_up_in_their_own_buckets() -> None:
    file = DataFile("s3://original/t/part-0")
    for each in (file, replace(file, deletion_vector="s3://clone/t/vector.bin")):
        needed = NeededFiles("t", "id", "s3://clone/t", 1, (each,))
        assert find_unreadable(needed, lambda uri: Bucket(uri.split("/")[2])) == []
        assert restore.tiers_of(plan_files([needed], None)) == TiersOfTables(tuple(sorted(each.uris)))
