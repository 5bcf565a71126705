"""The stand-in for the mount of a volume, and what the product does on it.

`test_contract.py` runs the contract of all stores on a mount. `test_databricks_volume.py` has publications to a volume.
"""

from __future__ import annotations

import errno
import os
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import fields
from pathlib import Path

import pytest

from fixtures.volume_mount import COPYING_VOLUME, VOLUME, Refusals, mounted, needs_fuse
from mirrorfeed.storage.errors import LocationUnusableError
from mirrorfeed.storage.local_folder import FolderStore

pytestmark = needs_fuse


def _append(file: Path) -> None:
    with file.open("ab") as opened:
        opened.write(b"more")


def _overwrite(file: Path) -> None:
    with file.open("r+b") as opened:
        opened.write(b"x")


def _write_with_a_hole(file: Path) -> None:
    with file.with_name("hole").open("wb") as opened:
        opened.seek(10)
        opened.write(b"x")


def _fsync(file: Path) -> None:
    with file.open("rb") as opened:
        os.fsync(opened.fileno())


ACTIONS: dict[str, tuple[Callable[[Path], object], str, int]] = {
    "fsync": (_fsync, "fsync", errno.EPERM),
    "link": (lambda file: os.link(file, f"{file}2"), "link", errno.EPERM),
    "append": (_append, "random_writes", errno.EOPNOTSUPP),
    "overwrite": (_overwrite, "random_writes", errno.EOPNOTSUPP),
    "hole": (_write_with_a_hole, "random_writes", errno.EOPNOTSUPP),
    "rename": (lambda file: os.rename(file, f"{file}2"), "rename", errno.ENOSYS),
}
"""Each action, what refuses it, and how."""


@pytest.mark.parametrize("refused", [each.name for each in fields(Refusals)])
def test_mount_refuses_only_what_it_is_set_to(tmp_path: Path, refused: str) -> None:
    found, expected = {}, {name: error for name, (_, by, error) in ACTIONS.items() if by == refused}
    with mounted(tmp_path / "folder", tmp_path / "mount", Refusals(**{refused: True})) as mount:
        for name, (action, *_) in ACTIONS.items():
            file = mount / name / "file"
            file.parent.mkdir()
            file.write_bytes(b"content")
            try:
                action(file)
            except OSError as error:
                found[name] = error.errno
            assert (tmp_path / "folder" / name).exists()
        inodes = {os.stat(mount / "append/file").st_ino for _ in range(3)}
        assert len(inodes) == (3 if refused == "inodes" else 1)
    assert found == expected


def test_copying_rename_shows_an_incomplete_file(tmp_path: Path) -> None:
    with mounted(tmp_path / "folder", tmp_path / "mount", COPYING_VOLUME) as mount:
        (mount / "file").write_bytes(b"x" * 20_000)
        with subprocess.Popen(["mv", mount / "file", mount / "new"]) as move:
            sizes = set()
            while move.poll() is None:
                sizes |= {each.stat().st_size for each in (tmp_path / "folder").glob("new")}
        assert any(size < 20_000 for size in sizes)
        assert (mount / "new").stat().st_size == 20_000
        assert not (mount / "file").exists()


@pytest.fixture
def volume(tmp_path: Path) -> Iterator[Path]:
    with mounted(tmp_path / "folder", tmp_path / "mount", VOLUME) as mount:
        yield mount


def test_folder_on_a_mount_without_rename_is_refused_at_once(volume: Path) -> None:
    store = FolderStore(str(volume))
    with pytest.raises(LocationUnusableError, match=r"neither hard links nor renames.*write and rename files"):
        store.create("t/log.json", b"{}")
    assert not list(volume.rglob("*.json"))
