"""Links, special files and foreign files at every level of a landing zone: no command changes them.

The tables share one source and one copy of a published table. Each has a link or a FIFO in another place."""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession

from mirrorfeed.cli import main
from mirrorfeed.landing.names import data_name, staged_name
from mirrorfeed.publish.files import row_staging
from mirrorfeed.publish.files.staging_area import IN_ZONE
from mirrorfeed.storage import local_folder
from tests.e2e.test_cli import Project
from tests.support.delta import DeltaTable

LINKED = {
    "folder": "",
    "logs": "_mirrorfeed",
    "log": "_mirrorfeed/{log}",
    "log_id": "_mirrorfeed/log.json",
    "record": "_mirrorfeed/{log}/{record}",
    "metadata": "_metadata.json",
    "processed": "_ProcessedFiles",
    "data": data_name(1),
}
FIFOS = {name: LINKED[name] for name in ("log_id", "record")}
READING = (
    *("status", "tables", "lint landing", "log sales.fine", "changes sales.fine --from 0"),
    *("doctor sales.fine sales.link_logs sales.fifo_record", "verify sales.fine --mirror mirror"),
)
HEX = "0123456789abcdef" * 2


class World:
    """Foreign files: everything outside the landing zone and the mirror, and the files that others put into them."""

    def __init__(self, root: Path) -> None:
        self.outside = root / "outside"
        self.planted: list[Path] = []

    def link(self, place: Path) -> None:
        """Move an existing file or folder outside, or create a folder there, and replace it with a link."""
        target = self.outside / "-".join(place.parts[-3:])
        target.parent.mkdir(exist_ok=True)
        if place.exists():
            place.rename(target)
        else:
            self._foreign(target, ".ssh", "+a", "orders", f".unfinished-{HEX}")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.symlink_to(target)
        self.planted.append(place)

    def put(self, place: Path, *names: str) -> None:
        self._foreign(place, *names)
        self.planted += [place / name for name in names]

    def fifo(self, place: Path) -> None:
        place.unlink(missing_ok=True)
        os.mkfifo(place)
        self.planted.append(place)

    @staticmethod
    def _foreign(place: Path, *names: str) -> None:
        for name in names:
            (place / name / "below").mkdir(parents=True)
            (place / name / "below/file").write_bytes(b"another's")
            (place / f"{name}.txt").write_bytes(b"another's")

    def state(self, *without: Path) -> dict[str, object]:
        """By path: the content of a file, the target of a link, or the type of anything else."""
        found = [path for each in [self.outside, *self.planted] for path in (each, *_below(each))]
        return {str(path): _shown(path) for path in found if not any(path.is_relative_to(each) for each in without)}


def _below(path: Path) -> Iterator[Path]:
    return iter(()) if path.is_symlink() else path.rglob("*")


def _shown(path: Path) -> object:
    if path.is_symlink():
        return path.readlink()
    return path.read_bytes() if path.is_file() else (path.exists(), path.is_dir())


@pytest.fixture
def orders(spark: SparkSession, tmp_path: Path) -> DeltaTable:
    table = DeltaTable(spark, tmp_path / "orders")
    table.insert(1, 2)
    return table


@pytest.fixture
def project(orders: DeltaTable, tmp_path: Path) -> Project:
    found = Project(tmp_path)
    names = ["fine", *(f"link_{name}" for name in LINKED), *(f"fifo_{name}" for name in FIFOS)]
    entries = [f"  - {{source: ./orders, target: sales.{name}, keys: [id]}}" for name in names]
    entries.append("  - {source: ./orders, target: linked.orders, keys: [id]}")
    found.configure(*entries, options=("partner: {name: us, source_type: Delta, source_version: '1'}",))
    return found


@pytest.fixture
def world(project: Project, monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.chdir(project.folder)
    project.run("publish", "sales.fine")
    project.run("replicate", "landing", "mirror")
    fine = project.landing / "sales.schema/fine"
    (log,) = (path.name for path in (fine / "_mirrorfeed").iterdir() if path.is_dir())
    places = {"log": log, "record": data_name(1, "json")}
    old = staged_name(1, "a" * 32, "left")
    (fine / "_mirrorfeed" / log / old).write_bytes(b"rows")
    (fine / "_ProcessedFiles").mkdir()
    found = World(project.folder)
    shutil.copytree(fine, project.landing / "linked.schema/orders")
    for kind, levels in (("link", LINKED), ("fifo", FIFOS)):
        for name, level in levels.items():
            table = project.landing / f"sales.schema/{kind}_{name}"
            shutil.copytree(fine, table)
            (found.link if kind == "link" else found.fifo)(table / level.format(**places))
    found.link(project.landing / "linked.schema")
    found.fifo(project.landing / "_partnerEvents.json")
    for place in (project.landing, fine.parent):
        found.put(place, "_notes", ".unfinished-thoughts")
        found.link(place / f".unfinished-{HEX}")
    for place in (fine, fine / "_mirrorfeed", fine / "_mirrorfeed" / log):
        found.put(place, "_notes")
        found.link(place / f".unfinished-{HEX}")
    found.put(fine / "_mirrorfeed", "notes")  # a valid log name
    found.put(project.mirror / "_dropped", "notes")
    found.link(project.mirror / f"_dropped/{HEX}")
    monkeypatch.setattr(local_folder, "_LEFTOVER_SECONDS", -1)
    return found


@pytest.fixture(autouse=True)
def ends() -> Iterator[None]:
    """A command that waits for a FIFO fails the test instead of blocking the suite."""
    signal.alarm(120)
    yield
    signal.alarm(0)


def run(project: Project, command: str) -> str:
    result = CliRunner().invoke(main, [*command.split(), "--config", str(project.config)], env={"COLUMNS": "400"})
    assert isinstance(result.exception, SystemExit | None), result.output
    assert "Traceback" not in result.output
    return " ".join(result.output.split())


def left_in_staging(project: Project) -> Path:
    """Rows of a deleted log of `sales.fine`, with a very high record number."""
    table = hashlib.sha256(str(project.landing / "sales.schema/fine").encode()).hexdigest()[:20]
    leftover = project.landing / IN_ZONE / f"{table}-{HEX}-{99:020d}-{HEX}"
    leftover.mkdir()
    (leftover / "part-00000.parquet").write_bytes(b"rows")
    return leftover


@pytest.mark.slow
def test_no_command_changes_foreign_files(
    orders: DeltaTable, project: Project, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(row_staging, "SMALL_BATCH_ROWS", 0)
    area = project.landing / IN_ZONE
    world.put(area, ".ssh", "+a", "00000000000000000000", f"{'0' * 20}-notes")
    before, landing = world.state(), project.content()
    for command in READING:
        run(project, command)
        assert world.state() == before, command
        assert project.content() == landing, command
    orders.insert(3)
    for command in ("publish", "replicate landing mirror", "repair sales.fine --mirror mirror", "setup check"):
        run(project, command)
        assert world.state() == before, command
    leftover = left_in_staging(project)
    for name in ("fine", "link_folder", "link_logs"):
        table = project.landing / f"sales.schema/{name}"
        before = world.state(table)  # a rebuild deletes everything in the table's own folder
        run(project, f"rebuild sales.{name} --yes")
        assert world.state(table) == before, name
        assert table.is_symlink() == (name == "link_folder")
    assert not leftover.exists()
    run(project, "rebuild linked.orders --yes")
    project.configure("  - {source: ./orders, target: other, keys: [id]}")
    assert "sales.fine" in run(project, "status")
    leftover = left_in_staging(project)
    for name in ("sales.fine", "sales.link_folder", "sales.link_log", "sales.link_record", "linked.orders"):
        run(project, f"drop {name} --yes")
    assert not leftover.exists()
    assert (project.landing / "sales.schema/link_folder").is_symlink()
    before = {place: shown for place, shown in before.items() if os.path.lexists(place)}
    assert {place: shown for place, shown in world.state().items() if place in before} == before
    assert world.state(*world.planted) == {
        place: shown for place, shown in before.items() if Path(place).is_relative_to(world.outside)
    }


def test_symlinked_staging_area_is_neither_written_nor_cleared(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    DeltaTable(spark, tmp_path / "orders").insert(1, 2)
    project, world = Project(tmp_path), World(tmp_path)
    world.link(project.landing / IN_ZONE)
    before = world.state()
    monkeypatch.setattr(row_staging, "SMALL_BATCH_ROWS", 0)
    assert "MF4006" in run(project, "publish")
    assert world.state() == before
    monkeypatch.setattr(row_staging, "SMALL_BATCH_ROWS", 20_000)
    assert "snapshot to 1" in run(project, "publish")
    run(project, "rebuild sales.orders --yes")
    assert world.state() == before
