"""A process that publishes to a volume is killed at each of its changes, and the next run makes the mirror equal.

The stand-in of the Files API kills the process with SIGKILL, before or after the change takes effect."""

from __future__ import annotations

import itertools
import multiprocessing
import os
import random
import re
import signal
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from databricks.sdk import WorkspaceClient

from fixtures.files_api import FilesApi, files_api
from fixtures.mirror import Mirror, canonical
from fixtures.volume_mount import VOLUME, mounted, needs_fuse
from mirrorfeed.config.model import Table as ConfigTable
from mirrorfeed.publish.files import staging_area
from mirrorfeed.publish.files.spark_files import SparkFiles, upload_files
from mirrorfeed.publish.files.staging_area import IN_ZONE, StagingArea
from mirrorfeed.publish.files.staging_job import Staged, StagingJob, arrow_schema, count_markers
from mirrorfeed.publish.table_publisher import publish
from mirrorfeed.storage.databricks_volume import VolumeStore
from tests.publish.scenarios import orders, plan
from tests.support.entries import FOLDER
from tests.support.tables import Row, Table, TableFeed

pytestmark = pytest.mark.proof

SEED = int(os.environ.get("MIRRORFEED_SEED", "20261125"))
_PROCESSES = multiprocessing.get_context("forkserver")
_PROCESSES.set_forkserver_preload([__name__, "pandas"])  # pyarrow imports it, which takes seconds
_DATA = re.compile(rf"{FOLDER}/([0-9]{{20}}\.parquet)")


@pytest.fixture
def api() -> Iterator[FilesApi]:
    with files_api() as api:
        yield api


@dataclass(frozen=True)
class Kill:
    change: int
    """Number of the change at which the publisher is killed, from 0."""
    takes_effect: bool


@dataclass
class Volume:
    """A volume with one table, and processes that publish to it."""

    api: FilesApi
    table: Table
    config: ConfigTable
    partitions: int
    folder: Path | None = None
    """What the volume contains, if the publisher has a mount of it."""

    def __post_init__(self) -> None:
        self.store = VolumeStore(self.api.volume, self.api.workspace)
        self.mirror = Consumer(self.store, FOLDER)

    def publish(self, kill: Kill | None = None) -> int | None:
        """Publish in another process. Returns the number of its changes, or None if it was killed."""
        arguments = (self.api.address, self.api.volume, self.table, self.config, self.partitions, self.folder)
        process = _PROCESSES.Process(target=_publish, args=arguments)
        changes = itertools.count()
        is_now = False

        def before(method: str, _path: str) -> tuple[int, str] | None:
            nonlocal is_now
            if is_now:  # killed, and this request was on its way
                return 400, "KILLED"
            is_now = method != "GET" and method != "HEAD" and kill is not None and next(changes) == kill.change
            if is_now and kill and not kill.takes_effect:
                os.kill(process.pid or 0, signal.SIGKILL)
                return 400, "KILLED"
            return None

        def after(_method: str, _path: str) -> bool:
            if is_now and kill and kill.takes_effect:
                os.kill(process.pid or 0, signal.SIGKILL)
            return is_now

        self.api.refuse, self.api.lose = before, after
        sent_before = len(self.api.requests)
        process.start()
        process.join()
        self.api.refuse, self.api.lose = (lambda *_: None), (lambda *_: False)
        assert process.exitcode == (-signal.SIGKILL if is_now else 0)
        return None if is_now else sum(method not in ("GET", "HEAD") for method, _ in self.api.requests[sent_before:])

    @property
    def is_equal(self) -> bool:
        return canonical(self.mirror.rows) == canonical(self.table.at(self.table.latest))


class Consumer(Mirror):
    """Applies every file that it finds, also one that it has applied before, and moves it away."""

    def __init__(self, zone: VolumeStore, folder: str) -> None:
        super().__init__(zone, folder)
        self.applied: Counter[str] = Counter()

    def take(self, most: int = 1_000_000) -> int:
        found = [
            entry.name for entry in self._zone.list(self._folder) if _DATA.fullmatch(f"{self._folder}/{entry.name}")
        ]
        for name in found:
            self.applied[name] += 1
            self._apply(name)
            self._zone.remove(f"{self._folder}/_ProcessedFiles/{name}")
            self._zone.rename(f"{self._folder}/{name}", f"{self._folder}/_ProcessedFiles/{name}")
        return len(found)


class SparkWriter(TableFeed):
    """Writes the files of large batches where the mount shows them, as Spark does on a cluster."""

    folder = Path()

    def _run(self, parts: list[list[Row]], job: StagingJob) -> Staged:
        store: Any = job.store
        area = StagingArea(f"{store.root}/{IN_ZONE}", in_zone=True, workspace=store.workspace)
        place = self.folder / area.folder(job)[len(store.root) + 1 :]
        place.mkdir(parents=True)
        rows = Counter[str]()
        for number, part in enumerate(each for each in parts if each):
            table = pa.Table.from_pylist(part, arrow_schema(job.columns, with_marker=job.with_marker))
            pq.write_table(table, place / f"part-{number:05d}-c000.parquet")
            rows.update(job.by_marker(count_markers(table)))
        try:
            paths = sorted(f"{area.folder(job)}/{each.name}" for each in place.iterdir())
            return upload_files(job, SparkFiles(area, area.folder(job), cast(Any, None), paths, dict(rows)))
        finally:
            area.remove(area.folder(job))
            area.clear(job)


def _publish(
    address: str, volume: str, table: Table, config: ConfigTable, partitions: int, folder: Path | None
) -> None:
    store = VolumeStore(volume, partial(WorkspaceClient, host=address, token="t", auth_type="pat"))
    feed = TableFeed(table, partitions)
    if folder is not None:
        staging_area.VOLUMES = volume  # type: ignore[attr-defined]
        SparkWriter.folder, feed = folder, SparkWriter(table, partitions)
        assert StagingArea(f"{volume}/{IN_ZONE}")._is_volume
    publish(feed, store, config)


def _change(table: Table, choose: random.Random) -> None:
    for _ in range(choose.randint(1, 3)):
        ids = [row["id"] for row in table.rows]
        new = choose.randrange(100, 10_000)
        if not table.keys:
            table.insert({"id": new, "status": "new"})
            continue
        match choose.choice(["insert", "merge", "update", "delete"]):
            case "insert":
                table.insert({"id": new + 10_000, "status": "new"})
            case "merge":
                table.merge({"id": choose.choice([*ids, new]), "status": f"at {table.latest}"})
            case "update" if ids:
                table.update(choose.choice(ids), status=f"at {table.latest}")
            case "delete" if ids:
                table.delete(choose.choice(ids))


def _volumes(
    api: FilesApi, seed: int, most: int, folder: Path | None = None, **options: object
) -> Iterator[tuple[Volume, Kill]]:
    """Yield a volume with unpublished changes for kills of the run that publishes them: for each, or for `most`."""
    choose = random.Random(seed)
    config = plan(**options)
    table = orders((1, "new"), (2, "new"), (3, "new"), keys=config.keys or ())
    first = Volume(api, table, config, choose.randint(1, 3), folder)
    first.publish()
    _change(table, choose)
    files, folders = dict(api.files), set(api.folders)
    changes = first.publish()
    assert changes is not None
    assert changes >= 6
    kills = [Kill(number, takes_effect) for number in range(changes) for takes_effect in (False, True)]
    for kill in choose.sample(kills, min(most, len(kills))):
        api.restore(files, folders)
        yield Volume(api, table, config, first.partitions, folder), kill


ALL = 1_000
KILLS = [
    pytest.param(SEED, 3, id="some"),
    *(pytest.param(SEED + n, ALL, id=f"all-{n}", marks=pytest.mark.soak) for n in range(5)),
]
"""A seed, and the number of kills."""
OPTIONS = {
    "net": {},
    "full": {"changes": "full"},
    "exact": {"changes": "full", "row_markers": "exact"},
    "without keys": {"keys": ()},
}


@pytest.mark.parametrize(
    "options", ["net", *(pytest.param(each, marks=pytest.mark.soak) for each in list(OPTIONS)[1:])]
)
@pytest.mark.parametrize(("seed", "most"), KILLS)
def test_next_run_completes_a_killed_publication(
    api: FilesApi, seed: int, most: int, options: str, counted: Counter[str]
) -> None:
    choose = random.Random(seed)
    for volume, kill in _volumes(api, seed, most, **OPTIONS[options]):
        assert volume.publish(kill) is None
        killed = 1
        while choose.random() < 0.3:  # the run that recovers is killed, too
            killed += volume.publish(Kill(choose.randrange(6), choose.random() < 0.5)) is None
        volume.publish()
        assert volume.mirror.take()
        assert volume.is_equal, kill
        assert set(volume.mirror.applied.values()) == {1}, kill
        counted["publishers to a volume killed"] += killed


@pytest.mark.parametrize("options", [pytest.param("full", marks=pytest.mark.soak), "net", "exact", "without keys"])
@pytest.mark.parametrize(("seed", "most"), KILLS)
def test_file_consumed_before_the_next_run_is_published_twice_only_between_copy_and_deletion(
    api: FilesApi, seed: int, most: int, options: str, counted: Counter[str]
) -> None:
    twice = 0
    for volume, kill in _volumes(api, seed, most, **OPTIONS[options]):
        volume.mirror.take()
        assert volume.publish(kill) is None
        between = _is_between_copy_and_deletion(api)
        volume.mirror.take()
        volume.publish()
        volume.mirror.take()
        counts = Counter(volume.mirror.applied.values())
        assert counts[2] == between, kill
        assert set(counts) <= {1, 2}, kill
        # A file with inserts that is applied twice duplicates rows.
        assert volume.is_equal or (between and options in ("exact", "without keys")), kill
        assert not volume.is_equal or not between or options != "without keys", kill
        twice += between
        counted["publishers to a volume killed, with a consumer before the next run"] += 1
        counted["files on a volume consumed twice"] += between
    assert twice or most < ALL


@needs_fuse
@pytest.mark.parametrize("is_seen", [True, False], ids=["mounted", "not mounted"])
@pytest.mark.parametrize(("seed", "most"), KILLS)
def test_files_of_spark_on_a_mount_that_refuses_everything_are_published_once(
    tmp_path: Path, seed: int, most: int, is_seen: bool, counted: Counter[str]
) -> None:
    """Over Connect the publisher has no mount, and reads the files of Spark through the Files API, too."""
    choose, folder, mount = random.Random(seed), tmp_path / "folder", tmp_path / "mount"
    folder.mkdir()
    with ExitStack() as stack:
        api = stack.enter_context(files_api(folder, str(mount)))
        if is_seen:
            stack.enter_context(mounted(folder, mount, VOLUME))
        for volume, kill in _volumes(api, seed, most, folder):
            assert volume.publish(kill) is None
            killed = 1
            while choose.random() < 0.3:
                killed += volume.publish(Kill(choose.randrange(6), choose.random() < 0.5)) is None
            volume.publish()
            assert volume.mirror.take()
            assert volume.is_equal, kill
            assert set(volume.mirror.applied.values()) == {1}, kill
            assert not list((folder / IN_ZONE).rglob("*")), kill
            counted[f"publishers with files of Spark on a volume killed, {'' if is_seen else 'not '}mounted"] += killed


def _is_between_copy_and_deletion(api: FilesApi) -> bool:
    """Whether a file has both its names."""
    for path, (content, _) in api.files.items():
        folder, _, name = path.rpartition("/")
        if name.startswith(".renaming-") and f"{folder}/{name.removeprefix('.renaming-')}" in api.files:
            return f"{api.volume}/{content.decode()}" in api.files
    return False
