"""Each file is applied once, no matter how often the replica crashes."""

from __future__ import annotations

import itertools
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa
import pytest

from mirrorfeed.mirror.local_replica import Replica, State
from mirrorfeed.storage import Entry
from mirrorfeed.storage.local_folder import FolderStore
from tests.mirror.local_replica.conftest import World, marked, plain

pytestmark = pytest.mark.proof


class Killed(BaseException):
    """Ends the process. Must not be handled as an error."""


@dataclass(frozen=True)
class DyingStore(FolderStore):
    """A store that ends the process before its n-th call, or after the call took effect."""

    calls: itertools.count[int] = field(default_factory=itertools.count)
    dies_at: int = -1
    after: bool = False

    def list(self, folder: str) -> list[Entry]:
        return self._counted(super().list, folder)

    def read(self, path: str) -> bytes:
        return self._counted(super().read, path)

    def open_read(self, path: str) -> BinaryIO:
        return self._counted(super().open_read, path)

    def rename(self, path: str, new_path: str) -> None:
        return self._counted(super().rename, path, new_path)

    def remove(self, path: str) -> None:
        return self._counted(super().remove, path)

    def _counted(self, verb, *arguments):  # type: ignore[no-untyped-def]
        dies = next(self.calls) == self.dies_at
        if dies and not self.after:
            raise Killed
        result = verb(*arguments)
        if dies:
            raise Killed
        return result


def publish(world: World) -> None:
    world.put("orders", 1, plain((1, "a"), (2, "b")))
    world.put("orders", 2, marked((1, "c", 0), (2, None, 2)))
    world.put("orders", 3, marked((1, "d", 4), (3, "e", 0)).add_column(2, "x", pa.array([1, 2])))


def put_by_time(world: World) -> None:
    world.metadata(keyColumns=["id"], fileDetectionStrategy="LastUpdateTimeFileDetection")
    publish(world)
    for number in (1, 2, 3):
        os.utime(world.zone / f"orders/{number:020}.parquet", (number, number))


EXPECTED = [(1, "d", 1), (1, "d", 1), (3, "e", 2)]


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("prepare", [publish, put_by_time])
def test_crash_at_any_store_call_neither_loses_nor_duplicates_rows(tmp_path: Path, prepare, after: bool) -> None:  # type: ignore[no-untyped-def]
    for number in itertools.count():
        world = World(tmp_path / str(number))
        world.metadata(keyColumns=["id"])
        prepare(world)
        store = DyingStore(str(world.zone), dies_at=number, after=after)
        try:
            Replica(store, str(world.target)).run_pass()
        except Killed:
            pass
        else:
            break  # the pass has fewer calls
        report = world.step()
        assert report.state is State.REPLICATING
        assert world.rows() == EXPECTED
        assert world.names() == [f"{3:020}.parquet", "_metadata.json"]
        assert len(world.names("orders/_ProcessedFiles")) == 2
    assert number > 10


def test_crash_between_adding_a_column_and_applying_a_file_is_repaired(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(world)
    with monkeypatch.context() as patch:
        patch.setattr("mirrorfeed.mirror.local_replica.mirrored_table.Mirror.apply", _dies_at(3))
        with pytest.raises(Killed):
            world.step()
    world.step()
    assert world.rows() == EXPECTED


def test_crash_between_creating_a_table_and_its_first_rows_is_repaired(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(world)
    with monkeypatch.context() as patch:
        patch.setattr("mirrorfeed.mirror.local_replica.mirrored_table.Mirror.apply", _dies_at(1))
        with pytest.raises(Killed):
            world.step()
    assert world.rows() == []
    world.step()
    assert world.rows() == EXPECTED


def test_crash_while_dropping_a_table_leaves_no_partial_table(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    publish(world)
    world.step()
    world.recreate(keyColumns=["id"])
    world.put("orders", 1, plain((9, "new")))
    with monkeypatch.context() as patch:
        patch.setattr("shutil.rmtree", _dies_at(1))
        with pytest.raises(Killed):
            world.step()
    assert not (world.target / "dbo/orders").exists()
    world.step()
    assert world.rows() == [(9, "new")]
    assert [place.name for place in (world.target / "dbo").iterdir()] == ["orders"]
    assert list((world.target / "_dropped").iterdir()) == []


def test_applied_files_are_remembered_after_a_checkpoint(world: World) -> None:
    world.metadata(keyColumns=["id"], fileDetectionStrategy="LastUpdateTimeFileDetection")
    world.put("orders", "first.parquet", plain((0, "a")))
    world.step()
    world.delta().create_checkpoint()
    (world.target / f"dbo/orders/_delta_log/{0:020}.json").unlink()
    world.put("orders", "second.parquet", plain((1, "b")))
    assert world.step().files == 1
    world.put("orders", "first.parquet", plain((2, "c")))
    assert world.step().files == 0
    assert world.rows() == [(0, "a"), (1, "b")]


def _dies_at(number: int):  # type: ignore[no-untyped-def]
    """The process ends before this call."""
    calls = itertools.count(1)

    def call(*_: object, **__: object) -> None:
        if next(calls) >= number:
            raise Killed

    return call
