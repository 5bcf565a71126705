"""Files that Spark writes: in the landing zone, and in a staging area with every kind of failure."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake
from pyspark.sql import DataFrame, Observation, SparkSession

from fixtures.faults import Crash
from fixtures.files_api import FilesApi, files_api
from mirrorfeed.errors import TransientError
from mirrorfeed.landing.schema import Column
from mirrorfeed.publish.change_sources.delta_feed import DeltaFeed
from mirrorfeed.publish.errors import (
    RowsRefusedError,
    StagingFilesLostError,
    StagingUnusableError,
    staging_not_visible,
    staging_path_required,
)
from mirrorfeed.publish.files import duplicate_keys, row_staging, spark_files, staging_area
from mirrorfeed.publish.files.spark_files import SparkFiles
from mirrorfeed.publish.files.staging_area import StagingArea, clear_staging, staging_area_for
from mirrorfeed.publish.files.staging_job import Staged, StagingJob
from mirrorfeed.publish.table_publisher import TableResult, publish
from mirrorfeed.source.errors import FeedGapError
from mirrorfeed.storage.databricks_volume import VolumeStore
from mirrorfeed.storage.errors import PathExistsError, StorageUnavailableError, SymbolicLinkError
from mirrorfeed.storage.local_folder import FolderStore
from tests.raised import raises
from tests.support.delta import DeltaTable, Zone
from tests.support.entries import changed


@pytest.fixture(autouse=True)
def never_few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_staging, "SMALL_BATCH_ROWS", 0)


@pytest.fixture
def staging_root(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Staging path for tests in which Spark and this process do not share the landing zone."""
    monkeypatch.setattr(DeltaFeed, "_stage", _through(str(tmp_path / "handover")))
    return tmp_path / "handover"


def _through(staging_path: str) -> Callable[..., Any]:
    def staged(feed: DeltaFeed, rows: DataFrame, job: StagingJob, **facts: Any) -> Any:
        return row_staging.stage(rows, job, StagingArea(staging_path), **facts)

    return staged


def published(zone: Zone, **options: Any) -> TableResult:
    return publish(DeltaFeed(zone.table.spark, zone.table.source), zone.store, changed(zone.plan, **options))


@pytest.fixture(scope="module")
def three_files(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> DeltaTable:
    table = DeltaTable(spark, tmp_path_factory.mktemp("three") / "orders", "id int NOT NULL, v string")
    table.sql("INSERT INTO {} SELECT cast(id AS int), 'v' || id FROM range(0, 3000, 1, 3)")
    return table


@pytest.fixture
def orders(three_files: DeltaTable, tmp_path: Path) -> Zone:
    return Zone(tmp_path / "zone", DeltaTable.copied(three_files, tmp_path / "orders"))


class CleanedByAnother(FolderStore):
    """Another publisher that wins removes the files of this one."""

    def rename(self, path: str, new_path: str) -> None:
        if path.startswith(staging_area.IN_ZONE):
            shutil.rmtree(f"{self.root}/{staging_area.IN_ZONE}")
        super().rename(path, new_path)


def test_files_removed_by_another_publisher_cause_a_transient_error(orders: Zone) -> None:
    feed = DeltaFeed(orders.table.spark, orders.table.source)
    with pytest.raises(
        StagingFilesLostError, match="it was deleted, possibly by another publisher of the table"
    ) as lost:
        publish(feed, CleanedByAnother(str(orders.root)), orders.plan)
    assert isinstance(lost.value, TransientError)
    published(orders)
    assert orders.mirrors_the_table()


class RepeatedRename(FolderStore):
    """Client that repeats a rename whose response was lost, so that its file already has the new name."""

    def rename(self, path: str, new_path: str) -> None:
        super().rename(path, new_path)
        if path.startswith(staging_area.IN_ZONE):
            raise PathExistsError(address=self.address(new_path))


def test_repeated_request_to_move_a_file_is_a_transient_error(orders: Zone) -> None:
    feed = DeltaFeed(orders.table.spark, orders.table.source)
    with pytest.raises(StorageUnavailableError, match="the name was already taken"):
        publish(feed, RepeatedRename(str(orders.root)), orders.plan)
    published(orders)
    assert orders.mirrors_the_table()


def left_in(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


@pytest.mark.parametrize("by", ["handover", pytest.param("zone", marks=pytest.mark.slow)])
def test_spark_writes_snapshot_and_ranges_that_are_uploaded_unchanged(
    spark: SparkSession, orders: Zone, tmp_path: Path, request: pytest.FixtureRequest, by: str
) -> None:
    between = tmp_path / "zone" / staging_area.IN_ZONE
    if by == "handover":
        between = request.getfixturevalue("staging_root")
    progress = published(orders, target_file_size=4096)
    assert progress.rows == {"insert": 3000}
    assert progress.files > 2
    assert orders.mirrors_the_table()
    orders.table.sql("UPDATE {} SET v = 'new' WHERE id < 20")
    orders.table.sql("DELETE FROM {} WHERE id >= 2990")
    progress = published(orders)
    assert (progress.rows, progress.differed) == ({"upsert": 20, "delete": 10}, "")
    published_file = max(orders.folder.glob("*.parquet"))
    assert b"org.apache.spark.version" in pq.read_metadata(published_file).metadata
    assert all(field.nullable for field in pq.read_schema(published_file))
    assert orders.mirrors_the_table()
    assert len(published(orders).records) == 0
    assert left_in(between) == []


def test_rows_are_counted_by_a_query_if_the_engine_reports_no_metrics(
    orders: Zone, staging_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Observation, "get", property(lambda _: {}))
    assert published(orders).rows == {"insert": 3000}
    assert orders.mirrors_the_table()


def test_empty_range_has_no_file_and_first_load_of_empty_table_has_one(
    spark: SparkSession, tmp_path: Path, staging_root: Path
) -> None:
    zone = Zone(tmp_path / "zone", DeltaTable(spark, tmp_path / "empty"))
    assert published(zone).files == 1
    zone.table.sql("DELETE FROM {}")
    zone.table.insert(1)
    zone.table.sql("DELETE FROM {}")
    assert (published(zone).rows, zone.mirrors_the_table()) == ({}, True)
    zone.table.sql("OPTIMIZE {}")
    assert published(zone).files == 0


def test_full_changes_are_in_commit_order_across_spark_files(spark: SparkSession, tmp_path: Path) -> None:
    table = DeltaTable(spark, tmp_path / "t")
    table.insert(1, 2, 3)
    zone = Zone(tmp_path / "zone", table, changes="full", target_file_size=4096)
    zone.publish()
    table.sql("UPDATE {} SET id = id + 1")
    table.sql("UPDATE {} SET v = 'later' WHERE id = 3")
    table.sql("INSERT INTO {} SELECT id + 5, repeat(uuid(), 4) FROM range(300)")
    assert zone.publish().files > 1
    rows = [row for part in zone.files for row in part.to_pylist() if "__rowMarker__" in row]
    assert [(row["id"], row["v"], row["__rowMarker__"]) for row in rows[:5]] == [
        (1, None, 2),
        (2, "v1", 4),
        (3, "v2", 4),
        (4, "v3", 4),
        (3, "later", 4),
    ]
    assert zone.mirrors_the_table()


def test_invalid_rows_are_refused_and_leave_no_files(
    spark: SparkSession, tmp_path: Path, staging_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = DeltaTable(spark, tmp_path / "t")
    table.sql("INSERT INTO {} VALUES (1, 'v1'), (2, 'v2'), (1, 'again'), (NULL, 'no key')")
    zone = Zone(tmp_path / "zone", table)

    def refused(words: str) -> None:
        with pytest.raises(RowsRefusedError, match=words):
            published(zone)
        assert zone.files == left_in(staging_root) == []
        assert list(zone.folder.rglob("*.parquet")) == []

    refused(r"a key is NULL \(id = NULL\)")
    table.sql("DELETE FROM {} WHERE id IS NULL")
    for limit in ("", "MAX_DRIVER_KEYS", "MAX_COLLECTED_HASHES"):  # compared as numbers, by hashes, in Spark
        if limit:
            monkeypatch.setattr(duplicate_keys, limit, 0)
        refused(r"a key is not unique \(id = 1\)")


@pytest.mark.slow  # only saves time
def test_single_integer_keys_are_compared_without_a_query(
    orders: Zone, staging_root: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    queried_keys: list[Sequence[str]] = []
    hashes = duplicate_keys.key_hashes

    def counted(rows: DataFrame, keys: Sequence[str]) -> DataFrame:
        queried_keys.append(keys)
        return hashes(rows, keys)

    monkeypatch.setattr(duplicate_keys, "key_hashes", counted)
    for keys, queries in ((("id",), 0), (("id", "v"), 1)):
        zone = Zone(tmp_path / keys[-1], orders.table, keys)
        published(zone)
        assert len(queried_keys) == queries
        assert zone.mirrors_the_table()


def test_leftovers_of_a_dead_run_are_removed_only_for_its_table(
    spark: SparkSession, orders: Zone, staging_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def die(_job: StagingJob, files: SparkFiles) -> Staged:
        shutil.copytree(files.folder, files.folder[:-32] + "0" * 32)
        raise Crash

    with monkeypatch.context() as dying:
        dying.setattr(spark_files, "upload_files", die)
        with pytest.raises(Crash):
            published(orders)
    (leftover,) = {path.parent for path in staging_root.rglob("*.parquet")}
    foreign_folder = staging_root / f"{'0' * 20}-a-00000000000000000001-a/part.parquet"
    foreign_folder.parent.mkdir(parents=True)
    foreign_folder.write_bytes(b"")

    monkeypatch.setattr(row_staging, "SMALL_BATCH_ROWS", 20_000)  # a small batch removes it as well
    published(orders)

    assert not leftover.exists()
    assert foreign_folder.exists()
    assert orders.mirrors_the_table()


Meddle = Callable[[Path], object]


def one_goes(folder: Path) -> None:
    next(folder.glob("part-00000*")).unlink()


def one_is_cut(folder: Path) -> None:
    path = next(folder.glob("part-00000*"))
    path.write_bytes(path.read_bytes()[:-100])


def one_is_another(folder: Path) -> None:
    path = next(folder.glob("part-00000*"))
    pq.write_table(pq.read_table(path).slice(1), path)


def one_is_added(folder: Path) -> None:
    path = next(folder.glob("part-00000*"))
    shutil.copy(path, path.with_name(f"part-00009-x-c000{''.join(path.suffixes)}"))


MEDDLED: dict[Meddle, str] = {
    shutil.rmtree: "before they were uploaded: ",
    one_goes: "before they were uploaded: No such file or directory",
    one_is_cut: "before they were uploaded: Parquet magic bytes not found in footer",
    one_is_another: r"before they were uploaded: 2,999 rows of 3,000 rows are left",
    one_is_added: r"before they were uploaded: 6,000 rows of 3,000 rows are left",
}


def test_lost_or_changed_staging_files_publish_nothing_until_the_next_run(
    spark: SparkSession, orders: Zone, tmp_path: Path, staging_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent = spark_files.upload_files

    def meddled(job: StagingJob, files: SparkFiles) -> Staged:
        shutil.copytree(files.folder, tmp_path / "written")
        for meddle, words in MEDDLED.items():
            shutil.rmtree(files.folder, ignore_errors=True)
            shutil.copytree(tmp_path / "written", files.folder)
            meddle(Path(files.folder))
            paths = files.paths
            if meddle is one_is_added:
                paths = files.area.file_paths(files.folder, again(spark, files))
            with pytest.raises(StagingFilesLostError, match=words) as lost:
                sent(job, replace(files, paths=paths))
            assert isinstance(lost.value, TransientError)
        raise lost.value

    with monkeypatch.context() as patch:
        patch.setattr(spark_files, "upload_files", meddled)
        with pytest.raises(StagingFilesLostError, match=[*MEDDLED.values()][-1]):
            published(orders)
    assert orders.files == []
    published(orders)
    assert orders.mirrors_the_table()


def again(spark: SparkSession, files: SparkFiles) -> DataFrame:
    return files.area.read(spark, files.folder, files.written.schema)


def test_file_of_another_publication_is_named(tmp_path: Path) -> None:
    written: Any = SimpleNamespace(inputFiles=lambda: ["dbfs:/Volumes/a/b/c/notes%20of%20others.parquet"])
    with pytest.raises(
        StagingFilesLostError, match=r"notes of others\.parquet in it does not belong to this publication"
    ):
        StagingArea(str(tmp_path)).file_paths("/Volumes/a/b/c", written)


@pytest.mark.parametrize(
    ("uris", "names"),
    [
        (
            ["file:/a/part-00010-x-c000.zstd.parquet", "file:/a/part-00002-x-c001.zstd.parquet",
             "file:/a/part-00002-x-c000.zstd.parquet"],
            ["part-00002-x-c000.zstd.parquet", "part-00002-x-c001.zstd.parquet", "part-00010-x-c000.zstd.parquet"],
        ),
        (
            ["dbfs:/Volumes/a/part-100000-tid-77-x-3-1-c000.snappy.parquet",
             "dbfs:/Volumes/a/part-00007-tid-9-x-2-1-c010.snappy.parquet",
             "dbfs:/Volumes/a/part-00007-tid-9-x-2-1-c009.snappy.parquet"],
            ["part-00007-tid-9-x-2-1-c009.snappy.parquet", "part-00007-tid-9-x-2-1-c010.snappy.parquet",
             "part-100000-tid-77-x-3-1-c000.snappy.parquet"],
        ),
        (["file:/a/part-00000-x.parquet"], ["part-00000-x.parquet"]),
        ([], []),
    ],
)  # fmt: skip
def test_files_are_ordered_by_partition_and_file_number(uris: list[str], names: list[str]) -> None:
    written: Any = SimpleNamespace(inputFiles=lambda: uris)
    assert StagingArea("/a").file_paths("/a", written) == [f"/a/{name}" for name in names]


def test_leftovers_of_failed_tasks_are_not_uploaded(
    spark: SparkSession, orders: Zone, staging_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark's reader ignores folders whose names start with `_`."""
    in_order = StagingArea.file_paths

    def with_leftovers(self: StagingArea, folder: str, written: DataFrame) -> list[str]:
        other = Path(folder, "_temporary/0/part-00000-x-c000.parquet")
        other.parent.mkdir(parents=True)
        other.write_bytes(b"half of it")
        return in_order(self, folder, self.read(spark, folder, written.schema))

    monkeypatch.setattr(StagingArea, "file_paths", with_leftovers)
    assert published(orders).rows == {"insert": 3000}
    assert orders.mirrors_the_table()


def test_missing_source_file_is_reported_as_a_gap(spark: SparkSession, orders: Zone, staging_root: Path) -> None:
    published(orders)
    orders.table.insert(5000)
    newest = max(orders.table.path.glob("*.parquet"), key=os.path.getmtime)
    newest.unlink()
    with pytest.raises(FeedGapError, match="a file is missing"):
        published(orders)


def test_unwritable_staging_path_is_refused(spark: SparkSession, orders: Zone, staging_root: Path) -> None:
    staging_root.write_text("no folder")
    with pytest.raises(StagingUnusableError) as unusable:
        published(orders)
    assert unusable.value.root == str(staging_root)
    assert unusable.value.reason.startswith("Spark cannot write files: ")


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount a file system that is full")
def test_full_staging_path_publishes_nothing_and_is_reported(
    spark: SparkSession, tmp_path: Path, staging_root: Path
) -> None:
    table = DeltaTable(spark, tmp_path / "orders")
    for first in (0, 3000):
        rows = {
            "id": pa.array(range(first, first + 3000), pa.int32()),
            "v": [os.urandom(360).hex() for _ in range(3000)],
        }
        write_deltalake(table.path, pa.table(rows), mode="append")
    zone = Zone(tmp_path / "zone", table)
    staging_root.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "none", str(staging_root)], check=True)
    try:
        with pytest.raises(StagingFilesLostError, match="No space left on device"):
            published(zone, compression="none")
        assert zone.files == []
        assert not list(staging_root.rglob("*.parquet"))
    finally:
        subprocess.run(["umount", "--lazy", str(staging_root)], check=True)


VOLUME = "/Volumes/main/mirrorfeed/handover"


@pytest.fixture
def volume(monkeypatch: pytest.MonkeyPatch) -> Iterator[FilesApi]:
    """A volume that only Spark can access, even if this machine has a folder with its path."""
    monkeypatch.setattr(StagingArea, "is_visible", lambda _: False)
    with files_api() as api:
        yield api


def write_files(api: FilesApi, *paths: str) -> None:
    for path in paths:
        root, _, below = path.partition(f"{api.volume}/")
        VolumeStore(f"{root}{api.volume}", api.workspace).create(below, b"content")


def test_volume_is_read_and_cleaned_through_the_workspace_api(volume: FilesApi) -> None:
    write_files(volume, f"{volume.volume}/a/1/part", f"{volume.volume}/b/1/part")
    between = StagingArea(volume.volume, workspace=volume.workspace)
    with between.open(f"{volume.volume}/a/1/part") as file:
        file.seek(3)
        assert file.read() == b"tent"
    with pytest.raises(StagingFilesLostError, match=r"before they were uploaded: .*/none does not exist"):
        between.open(f"{volume.volume}/a/1/none")
    between.remove(f"{volume.volume}/a")
    assert list(volume.files) == [f"{volume.volume}/b/1/part"]


def test_unreadable_volume_is_reported_with_the_missing_privilege(volume: FilesApi) -> None:
    volume.refuse = lambda _method, _path: (403, "PERMISSION_DENIED")
    with pytest.raises(StagingUnusableError) as unreadable:
        StagingArea(volume.volume, workspace=volume.workspace).open(f"{volume.volume}/a")
    assert unreadable.value.root == volume.volume
    assert unreadable.value.reason.startswith("this process cannot read its files: refused with PERMISSION_DENIED")


def test_folder_visible_only_to_spark_is_refused() -> None:
    with raises(staging_not_visible) as unseen:
        StagingArea("/data/of/the/cluster").open("/data/of/the/cluster/a")
    assert unseen.value.facts == {"root": "/data/of/the/cluster"}


def test_large_batch_requires_a_staging_path_over_connect(
    spark: SparkSession, orders: Zone, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mirrorfeed.publish.change_sources.delta_feed.staging_area_for", lambda *_: None)
    with raises(staging_path_required) as caught:
        published(orders)
    assert caught.value.facts == {"table": f"{orders.root}/sales.schema/orders"}
    assert orders.files == []
    monkeypatch.setattr(row_staging, "SMALL_BATCH_ROWS", 20_000)
    published(orders)
    assert orders.mirrors_the_table()


def job_of(store: Any, log: str = "a" * 32, number: int = 3, batch: str = "b" * 32) -> StagingJob:
    folder = f"sales.schema/orders/_mirrorfeed/{log}"
    return StagingJob(store, folder, number, batch, (Column("id", "int"),), ("id",), True)


def filled(folder: str) -> Path:
    Path(folder).mkdir(parents=True)
    Path(folder, "part-00000-x.parquet").write_bytes(b"rows")
    return Path(folder)


AREAS: dict[str, Callable[[Path], StagingArea]] = {
    "zone": lambda folder: StagingArea(f"{folder}/{staging_area.IN_ZONE}", in_zone=True),
    "handover": lambda folder: StagingArea(f"{folder}/handover"),
}


@pytest.mark.parametrize("area", AREAS)
def test_clearing_removes_only_unpublishable_folders_of_the_table(tmp_path: Path, area: str) -> None:
    between, store = AREAS[area](tmp_path), FolderStore(str(tmp_path))
    job = job_of(store)
    removed_folders = [
        filled(f"{between.folder(each)}{part}")
        for each in (job, job_of(store, number=2), job_of(store, "c" * 32, 9))
        for part in ("", "-2", "-probe", "-2-probe")
    ]
    root = Path(between.root)
    leftover = [filled(between.folder(job_of(store, number=4)))]
    leftover += [filled(str(root / name)) for name in (".ssh", "+a", "00000000000000000001", between.folder(job)[-20:])]
    leftover += [filled(between.folder(replace(job, folder="other/_mirrorfeed/a")))]
    foreign_folder = filled(str(tmp_path / "elsewhere"))
    Path(f"{between.folder(job_of(store, number=1))}").symlink_to(foreign_folder)
    between.clear(job)
    assert [each for each in removed_folders if each.exists()] == []
    assert [each for each in [*leftover, foreign_folder] if not left_in(each)] == []
    between.clear_table(job.table)
    assert [each.name for each in leftover if not each.exists()] == [leftover[0].name]
    assert left_in(foreign_folder)


@pytest.mark.parametrize("level", ["area", "folder"])
def test_nothing_is_removed_or_written_through_a_symlink(tmp_path: Path, level: str) -> None:
    zone, foreign_folder = tmp_path / "zone", tmp_path / "elsewhere"
    store = FolderStore(str(zone))
    between, job = StagingArea(f"{zone}/{staging_area.IN_ZONE}", in_zone=True), job_of(store)
    folders = filled(str(foreign_folder / Path(between.folder(job)).name))
    zone.mkdir()
    link = Path(between.root if level == "area" else between.folder(job))
    link.parent.mkdir(exist_ok=True)
    link.symlink_to(foreign_folder if level == "area" else folders)
    between.clear(job)
    between.clear_table(job.table)
    between.remove(between.folder(job))
    with pytest.raises(SymbolicLinkError):
        between.check(between.folder(job))
    with pytest.raises(SymbolicLinkError):
        between.open(f"{between.folder(job)}/part-00000-x.parquet")
    assert left_in(folders)


def test_clearing_a_volume_uses_the_same_names(volume: FilesApi) -> None:
    between = StagingArea(volume.volume, workspace=volume.workspace)
    job = job_of(Elsewhere())
    old, new = (f"{between.folder(job_of(Elsewhere(), *each))}/part" for each in (("c" * 32, 9), ("a" * 32, 4)))
    notes = f"{volume.volume}/notes/part"
    write_files(volume, old, new, notes)
    between.clear(job, may_request=False)
    assert list(volume.files) == [old, new, notes]
    between.clear(job)
    assert list(volume.files) == [new, notes]
    between.clear_table(job.table)
    assert list(volume.files) == [notes]


def test_files_of_a_table_are_cleared_in_every_staging_area(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    store = FolderStore(str(tmp_path / "zone"))
    areas = [
        AREAS["zone"](tmp_path / "zone"),
        StagingArea(f"{tmp_path}/between"),
        StagingArea(staging_area._temporary_folder()),
    ]
    folders = [filled(area.folder(job_of(store))) for area in areas]
    clear_staging(f"{tmp_path}/between", store, job_of(store).table)
    assert [each for each in folders if each.exists()] == []


DATABRICKS = {"DATABRICKS_RUNTIME_VERSION": "client.4.9"}


class Elsewhere:
    """A landing zone that is not a local folder."""

    def address(self, path: str) -> str:
        return f"https://onelake/{path}"


@pytest.mark.parametrize(
    ("zone", "staging_path", "environment", "root", "in_zone"),
    [
        ("/zone", None, {}, f"/zone/{staging_area.IN_ZONE}", True),
        ("/zone", "/between", {}, f"/zone/{staging_area.IN_ZONE}", True),
        (None, "/between", {}, "/between", False),
        (None, VOLUME, DATABRICKS, VOLUME, False),
        ("/zone", VOLUME, DATABRICKS, VOLUME, False),
        ("/Volumes/main/m/landing", VOLUME, DATABRICKS, f"/Volumes/main/m/landing/{staging_area.IN_ZONE}", True),
    ],
)
def test_staging_area_is_chosen_by_store_and_environment(
    spark: SparkSession,
    zone: str | None,
    staging_path: str | None,
    environment: dict[str, str],
    root: str,
    in_zone: bool,
) -> None:
    store: Any = FolderStore(zone) if zone else Elsewhere()
    found = staging_area_for(spark, staging_path, store, environment)
    assert found is not None
    assert (found.root, found.in_zone) == (root, in_zone)


def test_local_run_uses_a_temporary_folder_and_databricks_has_none(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    found = staging_area_for(spark, None, Elsewhere(), {})  # type: ignore[arg-type]
    assert found is not None
    assert Path(found.root).parent == tmp_path
    assert Path(found.root).stat().st_mode & 0o777 == 0o700
    assert staging_area_for(spark, None, Elsewhere(), DATABRICKS) is None  # type: ignore[arg-type]


@pytest.mark.parametrize(("zone", "staging_path"), [("/Volumes/main/m/landing", None), ("https://onelake", VOLUME)])
def test_spark_on_this_machine_never_writes_to_the_path_of_a_volume(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, zone: str, staging_path: str | None
) -> None:
    """The path would be a folder on the disk of a laptop."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    found = staging_area_for(spark, staging_path, VolumeStore(zone), {})
    assert found is not None
    assert (Path(found.root).parent, found.in_zone) == (tmp_path, False)


def test_temporary_folder_depends_on_the_process_user_not_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setenv("LOGNAME", "alice")
    mine = staging_area._temporary_folder()
    monkeypatch.setenv("LOGNAME", "bob")
    assert staging_area._temporary_folder() == mine


@pytest.mark.parametrize("mode", [0o770, 0o702, 0o777])
def test_temporary_folder_writable_by_others_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: int
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    Path(staging_area._temporary_folder()).chmod(mode)
    with pytest.raises(StagingUnusableError, match="other users can write to it"):
        staging_area._temporary_folder()


def test_staging_path_outside_the_catalog_is_refused_on_databricks(spark: SparkSession, tmp_path: Path) -> None:
    with raises(staging_not_visible) as caught:
        staging_area_for(spark, "/tmp/handover", FolderStore(str(tmp_path)), DATABRICKS)
    assert caught.value.facts == {"root": "/tmp/handover"}
