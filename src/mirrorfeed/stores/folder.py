"""A folder on a file system: for development, tests and the demo, and for Databricks volumes with one publisher."""

from __future__ import annotations

import ctypes
import errno
import io
import os
import shutil
import sys
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, BinaryIO, cast

from mirrorfeed.stores.base import (
    AlreadyThere,
    Entry,
    NotThere,
    PathOutside,
    PlaceUnusable,
    StoreUnavailable,
    is_inside,
)

_UNFINISHED = ".unfinished-"
"""What did not get its name yet, or has lost it; listings leave it out."""
_LEFT_SECONDS = 7 * 24 * 3600
"""No run is as long as this: what did not get its name by then was left by one that was killed."""
_UNUSABLE = (
    errno.EACCES,
    errno.EPERM,
    errno.EROFS,
    errno.ENOTDIR,
    errno.EISDIR,
    errno.ELOOP,
    errno.ENAMETOOLONG,
)
_NOT_SUPPORTED = (errno.EPERM, errno.EINVAL, errno.ENOTSUP, errno.ENOSYS)


class SymbolicLink(PlaceUnusable):
    """A symbolic link stands in the way to a place that is to be changed. Links are not followed, for they may lead
    anywhere."""

    code = "MF4006"

    def next(self) -> str:
        return (
            "Put the folder or file itself in its place, or let `landing_zone` in the configuration name the place that"
            " it leads to."
        )


@dataclass(frozen=True)
class FolderStore:
    """What it has written and named outlives a power cut, where the file system can promise that."""

    root: str

    def list(self, folder: str) -> list[Entry]:
        with self._faults("list", folder):
            try:
                found = list(os.scandir(self._at(folder)))
            except FileNotFoundError:
                return []
            _remove_left(item for item in found if item.name.startswith(_UNFINISHED))
            entries = [self._entry(item) for item in found if not item.name.startswith(_UNFINISHED)]
        return sorted((entry for entry in entries if entry), key=lambda entry: entry.name)

    def read(self, path: str) -> bytes:
        with self._faults("read", path):
            return self._at(path).read_bytes()

    def open_read(self, path: str) -> BinaryIO:
        with self._faults("read", path):
            return self._at(path).open("rb")

    def create(self, path: str, data: bytes) -> str | None:
        return self._finish("create", path, data, _take_name)

    def create_once(self, path: str, data: bytes) -> None:
        self.create(path, data)

    def replace(self, path: str, data: bytes, etag: str | None = None) -> None:
        def give_name(unfinished: Path, target: Path) -> None:
            if etag is not None and etag != _etag((found := target.lstat()).st_ino, found.st_mtime_ns):
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(target))
            os.replace(unfinished, target)

        self._finish("replace", path, data, give_name)

    def _finish(self, action: str, path: str, data: bytes, give_name: Callable[[Path, Path], None]) -> str:
        """Writes the content under another name first: under its own it is there whole or not at all."""
        target = self._change(action, path)
        unfinished = target.with_name(f"{_UNFINISHED}{uuid.uuid4().hex}")
        with self._faults(action, path):
            _make_folders(target.parent)
            try:
                with unfinished.open("xb") as file:
                    file.write(data)
                    file.flush()
                    os.fsync(file.fileno())
                written = unfinished.stat()
                give_name(unfinished, target)
            finally:
                with suppress(FileNotFoundError):
                    unfinished.unlink()
            _sync(target.parent)
        return _etag(written.st_ino, written.st_mtime_ns)

    def open_write(self, path: str) -> BinaryIO:
        target = self._change("write", path)
        with self._faults("write", path):
            _make_folders(target.parent)
            try:
                return cast(BinaryIO, _Writer(self, path, target.open("xb")))
            except FileNotFoundError as error:
                raise StoreUnavailable("write", self.address(path), "its folder was removed meanwhile") from error

    def rename(self, path: str, new_path: str) -> None:
        source, target = self._change("rename", path), self._change("rename", new_path)
        with self._faults("rename", path):
            # A link and an unlink would refuse a taken name for certain, but for a moment the file would have two
            # names, and a reader that consumed the new one in that moment would be given it twice.
            if os.path.lexists(target):
                raise AlreadyThere(self.address(new_path))
            source.lstat()  # before a folder is made for what is not there
            _make_folders(target.parent)
            os.rename(source, target)
            for folder in {source.parent, target.parent}:
                _sync(folder)

    def remove(self, path: str) -> None:
        self._change("remove", path.rpartition("/")[0])  # a link itself may go
        with self._faults("remove", path), suppress(FileNotFoundError):
            self._at(path).unlink()

    def remove_folder(self, folder: str) -> None:
        place = self._change("remove", folder)
        gone = place.with_name(f"{_UNFINISHED}{uuid.uuid4().hex}")
        with self._faults("remove", folder), suppress(FileNotFoundError):
            os.rename(place, gone)  # nobody may take what a killed deletion leaves for a whole folder
            _sync(place.parent)
            shutil.rmtree(gone)

    def address(self, path: str) -> str:
        return str(Path(self.root, path))

    def _at(self, path: str) -> Path:
        if not is_inside(path):
            raise PathOutside(path, self.root)
        return Path(self.root, path)

    def _change(self, action: str, path: str) -> Path:
        """Where to change something. The root may be a link: it is what the configuration names."""
        target = self._at(path)
        place = Path(self.root)
        for part in Path(path).parts:
            place /= part
            with self._faults(action, path):
                is_link = place.is_symlink()
            if is_link:
                reason = f"{place} is a symbolic link, and what it leads to may be another's"
                raise SymbolicLink(action, self.address(path), reason)
        return target

    @contextmanager
    def _faults(self, action: str, path: str) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError as error:
            raise NotThere(self.address(path)) from error
        except FileExistsError as error:
            if self._at(path).parent.is_dir():
                raise AlreadyThere(self.address(path)) from error
            raise PlaceUnusable(action, self.address(path), "a folder above it is a file") from error
        except OSError as error:
            refusal = PlaceUnusable if error.errno in _UNUSABLE else StoreUnavailable
            raise refusal(action, self.address(path), error.strerror or str(error)) from error

    @staticmethod
    def _entry(item: os.DirEntry[str]) -> Entry | None:
        try:
            stat = item.stat(follow_symlinks=False)
            is_folder = item.is_dir(follow_symlinks=False)
            # A file's time changes with each that is written under its name; a folder's with each that is put into it.
            made = _birth(item.path) if is_folder else stat.st_mtime_ns
        except FileNotFoundError:  # gone since the listing began
            return None
        modified = datetime.fromtimestamp(stat.st_mtime, UTC)
        return Entry(item.name, is_folder, 0 if is_folder else stat.st_size, modified, _etag(stat.st_ino, made))


class _Writer(io.RawIOBase):
    """A file whose faults are the store's: a full disk shows while writing. After one it stays unfinished."""

    def __init__(self, store: FolderStore, path: str, file: BinaryIO) -> None:
        self._store, self._path, self._file, self._failed = store, path, file, False

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        with self._store._faults("write", self._path):
            try:
                return self._file.write(data)
            except OSError:
                self._failed = True
                raise

    def close(self) -> None:
        if self.closed:
            return
        super().close()
        if self._failed:
            with suppress(OSError):
                self._file.close()
            return
        with self._store._faults("write", self._path):
            try:
                self._file.flush()
                os.fsync(self._file.fileno())
            finally:
                self._file.close()


def _etag(inode: int, nanoseconds: int) -> str:
    return f"{inode}-{nanoseconds}"


def _make_folders(folder: Path) -> None:
    if not folder.is_dir():
        _make_folders(folder.parent)
        folder.mkdir(exist_ok=True)
        _sync(folder.parent)


def _sync(folder: Path) -> None:
    """Makes the names in it outlive a power cut; where the file system cannot, it has another way or none."""
    if sys.platform == "win32":  # it opens no folder
        return
    with suppress(FileNotFoundError):  # removed meanwhile, with all names in it
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        except OSError as error:
            if error.errno not in _NOT_SUPPORTED:
                raise
        finally:
            os.close(handle)


def _remove_left(items: Iterable[os.DirEntry[str]]) -> None:
    """Those that the killed left. What cannot be removed is in nobody's way."""
    for item in items:
        with suppress(OSError):
            stat = item.stat(follow_symlinks=False)
            if max(stat.st_ctime, stat.st_mtime) > time.time() - _LEFT_SECONDS:  # a folder keeps its time when renamed
                continue
            if item.is_dir(follow_symlinks=False):
                shutil.rmtree(item.path)
            else:
                os.unlink(item.path)


def _take_name(unfinished: Path, target: Path) -> None:
    """Gives a finished file its name if nothing has it, in one step where the file system can."""
    try:
        os.link(unfinished, target)
    except OSError as error:
        if error.errno not in _NOT_SUPPORTED:
            raise
        if os.path.lexists(target):  # no hard links here (a Databricks volume): good for one publisher
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(target)) from error
        os.rename(unfinished, target)


_AT_FDCWD, _STATX_BTIME, _BTIME_OFFSET = -100, 0x800, 80


def _birth(path: str) -> int:
    """When the thing was made, in nanoseconds; inode numbers alone are given out again at once. 0 if not known."""
    if sys.platform != "linux":
        return int(getattr(os.stat(path), "st_birthtime", 0) * 1e9)
    libc = ctypes.CDLL(None)
    buffer = ctypes.create_string_buffer(256)
    if not hasattr(libc, "statx") or libc.statx(_AT_FDCWD, os.fsencode(path), 0, _STATX_BTIME, buffer):
        return 0
    raw = buffer.raw
    seconds = int.from_bytes(raw[_BTIME_OFFSET : _BTIME_OFFSET + 8], sys.byteorder, signed=True)
    nanoseconds = int.from_bytes(raw[_BTIME_OFFSET + 8 : _BTIME_OFFSET + 12], sys.byteorder)
    return seconds * 1_000_000_000 + nanoseconds
