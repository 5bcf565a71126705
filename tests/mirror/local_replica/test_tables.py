"""Table folders that are created, deleted and recreated, and passes over many tables."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import deltalake
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from mirrorfeed.mirror.errors import (
    ForeignDeltaTableError,
    folder_replaced,
    mirror_unavailable,
    path_not_supported,
    two_folders_for_table,
)
from mirrorfeed.mirror.local_replica import Replica, State, TableReport, mirrored_table, run_passes
from mirrorfeed.mirror.local_replica.mirrored_table import Mirror
from mirrorfeed.storage import Entry
from mirrorfeed.storage.errors import StorageUnavailableError
from mirrorfeed.storage.local_folder import FolderStore
from tests.mirror.local_replica.conftest import World, is_error, marked, plain


def test_tables_in_schema_folders_and_at_the_top_are_mirrored(world: World) -> None:
    world.put("orders", 1, plain((1, "top")))
    world.put("sales.schema/orders", 1, plain((1, "sales")))
    world.put("hr.schema/people", 1, plain((1, "hr")))
    reports = world.replica.run_pass()
    assert [report.table for report in reports] == ["hr.people", "orders", "sales.orders"]
    assert world.rows("dbo/orders") == [(1, "top")]
    assert world.rows("sales/orders") == [(1, "sales")]
    assert world.rows("hr/people") == [(1, "hr")]


def test_deleted_folder_drops_the_table(world: World) -> None:
    world.put("sales.schema/orders", 1, plain((1, "a")))
    world.put("orders", 1, plain((1, "a")))
    world.replica.run_pass()
    shutil.rmtree(world.zone / "sales.schema")
    unchanged, dropped = world.replica.run_pass()
    assert (unchanged.table, unchanged.state) == ("orders", State.REPLICATING)
    assert dropped == TableReport("sales.orders", State.DROPPED, message="Its folder was deleted.")
    assert not (world.target / "sales/orders").exists()
    assert list((world.target / "sales").iterdir()) == []
    assert [report.table for report in world.replica.run_pass()] == ["orders"]


def test_recreated_folder_drops_the_table_and_starts_again(world: World) -> None:
    for number in (1, 2):
        world.put("orders", number, plain((number, "old")))
    world.step()
    world.recreate(keyColumns=["key"])
    world.put("orders", 1, pa.table({"key": ["new"]}))
    report = world.step()
    assert (report.state, report.files) == (State.REPLICATING, 1)
    assert report.message == "The folder was created again, so the mirrored table was dropped and is replicated again."
    assert world.rows() == [("new",)]


def test_recreated_folder_without_files_drops_the_table_at_once(world: World) -> None:
    world.put("orders", 1, plain((1, "old")))
    world.step()
    world.recreate(keyColumns=["id"])
    assert world.step().message.endswith("No file is published yet.")
    assert not (world.target / "dbo/orders").exists()


def test_failure_of_one_table_does_not_stop_the_others(world: World) -> None:
    world.put("a", 1, b"broken")
    world.put("b", 1, plain((1, "b")))
    world.put("c", "_metadata.json", b"broken")
    world.put("d", 1, plain((1, "d")))
    states = {report.table: report.state for report in world.replica.run_pass()}
    assert states == {
        "a": State.FAILED,
        "b": State.REPLICATING,
        "c": State.FAILED,
        "d": State.REPLICATING,
        "orders": State.REPLICATING,
    }


def test_two_folders_for_one_mirror_are_refused(world: World) -> None:
    world.put("orders", 1, plain((1, "a")))
    world.put("dbo.schema/orders", 1, plain((1, "b")))
    one, two = world.replica.run_pass()
    assert (one.table, one.state, two.table, two.state) == ("dbo.orders", State.FAILED, "orders", State.FAILED)
    assert is_error(two, two_folders_for_table, table="orders", place=str(world.target / "dbo/orders"))


def test_foreign_delta_table_is_not_changed(world: World) -> None:
    place = world.target / "dbo/orders"
    write_deltalake(place, plain((7, "theirs")))
    world.put("orders", 1, plain((1, "a")))
    assert is_error(world.step(), ForeignDeltaTableError, place=str(place))
    shutil.rmtree(world.zone / "orders")
    assert world.replica.run_pass() == []
    assert world.rows() == [(7, "theirs")]


def test_unreadable_folders_of_the_target_are_ignored(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.put("orders", 1, plain((1, "a")))
    world.step()
    (world.target / "lost+found").mkdir()

    def list_folder(path: Path) -> object:
        if path.name == "lost+found":
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return scan(path)

    scan = os.scandir
    monkeypatch.setattr("mirrorfeed.storage.local_folder.os.scandir", list_folder)
    assert world.step().state is State.REPLICATING


def test_unreadable_mirror_is_reported_and_retried(world: World) -> None:
    world.put("orders", 1, plain((1, "a")))
    world.step()
    world.put("orders", 2, marked((1, "b", 4)))
    log = world.target / "dbo/orders/_delta_log"
    commit = log / f"{0:020}.json"
    content = commit.read_bytes()
    commit.write_bytes(b"{")
    report = world.step()
    assert report.state is State.FAILED
    assert mirror_unavailable.matches(report.error)
    assert report.error.place == str(world.target / "dbo/orders")
    commit.write_bytes(content)
    assert world.step().files == 1


def test_error_of_the_engine_without_text_is_reported_with_its_type(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(place: str) -> None:
        raise TimeoutError

    world.put("orders", 1, plain((1, "a")))
    world.step()
    monkeypatch.setattr(DeltaTable, "is_deltatable", fails)
    assert is_error(world.step(), mirror_unavailable, place=str(world.target / "dbo/orders"), reason="TimeoutError")


def test_unexpected_error_stops_only_its_table(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(self: Mirror, *_: object) -> None:
        raise RuntimeError("of the engine")

    for table in ("others", "orders"):
        world.put(table, 1, plain((1, "a")))
    world.replica.run_pass()
    world.put("orders", 2, plain((2, "b")))
    monkeypatch.setattr(Mirror, "apply", fails)
    orders, others = world.replica.run_pass()
    assert (orders.state, others.state) == (State.FAILED, State.REPLICATING)
    assert orders.message.startswith("Replicating orders failed with RuntimeError: of the engine No data is lost")
    assert orders.error is not None
    assert orders.error.code == "MF1000"


@dataclass(frozen=True)
class RecreatedWhileRead(FolderStore):
    """The folder is deleted and recreated right after a file in it was read."""

    table: str = "orders"

    def open_read(self, path: str) -> BinaryIO:
        content = super().open_read(path)
        if path.endswith(".parquet"):
            shutil.rmtree(Path(self.root, self.table))
            Path(self.root, self.table).mkdir()
        return content


def test_file_of_a_deleted_folder_is_not_applied(world: World) -> None:
    path = world.put("orders", 1, plain((1, "old")))
    replica = Replica(RecreatedWhileRead(str(world.zone)), str(world.target))
    (report,) = replica.run_pass()
    assert (report.state, report.files) == (State.FAILED, 0)
    assert is_error(report, folder_replaced, table="orders", address=str(path.parent))
    assert not (world.target / "dbo/orders").exists()


def test_follow_repeats_passes_until_stopped(world: World) -> None:
    waits: list[float] = []
    seen: list[int] = []

    def wait(seconds: float) -> None:
        waits.append(seconds)
        world.put("orders", len(waits), plain((len(waits), "a")))

    for reports in run_passes(world.replica, 2.5, lambda: len(seen) == 4, wait):
        assert isinstance(reports, list)
        seen.append(reports[0].files)
    assert seen == [0, 1, 1, 1]
    assert waits == [2.5, 2.5, 2.5]


@dataclass(frozen=True)
class MissingAtFirst(FolderStore):
    calls: tuple[str, ...] = ()

    def list(self, folder: str) -> list[Entry]:
        if not Path(self.root, "listed before").exists():
            Path(self.root, "listed before").touch()
            raise StorageUnavailableError(action="list", address=self.address(folder), reason="it sleeps")
        return super().list(folder)


def test_follow_continues_after_an_unavailable_landing_zone(world: World) -> None:
    seen: list[str] = []
    replica = Replica(MissingAtFirst(str(world.zone)), str(world.target))
    for outcome in run_passes(replica, 1, lambda: len(seen) == 2, lambda _: None):
        seen.append(outcome[0].state if isinstance(outcome, list) else str(outcome))
    assert seen == [
        f"Cannot list {world.zone}: it sleeps. Check that the storage can be reached and that this identity can write"
        f" to it, then run the same command again.",
        "replicating",
    ]


ENCODED = ("two words", "größe", "a#b")


@pytest.mark.parametrize("name", ["a+b", "a=b", *ENCODED])
def test_table_names_may_contain_letters_and_signs_of_any_script(tmp_path: Path, name: str) -> None:
    if mirrored_table._ENCODES_PATHS and name in ENCODED:
        pytest.skip("deltalake before 1.3 writes the data to another folder")
    world = World(tmp_path)
    world.metadata(name, keyColumns=["id"])
    world.put(name, 1, marked((1, "a", 4)))
    world.put(name, 2, marked((1, "b", 4)))
    assert world.step().message == ""
    assert world.rows(f"dbo/{name}") == [(1, "b")]


@pytest.mark.parametrize(("name", "character"), list(zip(ENCODED, " ö#", strict=True)))
def test_names_that_an_old_deltalake_would_encode_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, character: str
) -> None:
    monkeypatch.setattr(mirrored_table, "_ENCODES_PATHS", True)
    world = World(tmp_path)
    world.put(name, 1, plain((1, "a")))
    place = str(world.target / "dbo" / name)
    assert is_error(world.step(), path_not_supported, version=deltalake.__version__, place=place, character=character)


_READ = """
import sys
from pathlib import Path
from mirrorfeed.mirror.local_replica.mirrored_table import open_mirror
assert open_mirror(Path(sys.argv[1])).read_columns(["id"]).num_rows == 1
"""


@pytest.mark.process
def test_process_that_read_a_mirror_ends_without_an_abort(world: World) -> None:
    """With the file system of deltalake, half of the processes of Python 3.12 aborted."""
    world.put("orders", 1, plain((1, "a")))
    world.step()
    command = [sys.executable, "-c", _READ, world.target / "dbo/orders"]
    assert [subprocess.run(command, check=False).returncode for _ in range(3)] == [0, 0, 0]
