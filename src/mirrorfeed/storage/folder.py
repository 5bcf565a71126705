"""A folder on a file system: for development, tests and the demo, and for Databricks volumes with one publisher.

All that mirrorfeed removes from folders that others can write to is removed here. No call follows a symbolic link below
the root, and nothing but a regular file is read.
"""

from __future__ import annotations

import ctypes
import errno
import io
import os
import re
import shutil
import stat
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, BinaryIO, cast

from mirrorfeed.storage.base import READ_LIMIT, TOO_LARGE, Entry, is_inside
from mirrorfeed.storage.errors import (
    AlreadyThere,
    NotThere,
    PathOutside,
    PlaceUnusable,
    StoreUnavailable,
    SymbolicLink,
    UnreadableFile,
)

_UNFINISHED = ".unfinished-"
"""What did not get its name yet, or has lost it; listings leave it out."""
_LEFT = re.compile(rf"{re.escape(_UNFINISHED)}[0-9a-f]{{32}}")
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
    errno.ENXIO,  # a socket
)
_NOT_SUPPORTED = (errno.EPERM, errno.EINVAL, errno.ENOTSUP, errno.ENOSYS)


def resolve(action: str, root: str, path: str) -> Path:
    """Return the place of a relative path. Raises `SymbolicLink` if a part of the path is a link.

    The root may be a link: it is what the configuration names.
    """
    if not is_inside(path):
        raise PathOutside(path=path, address=root)
    place = Path(root)
    for part in Path(path).parts:
        place /= part
        if place.is_symlink():
            reason = f"{place} is a symbolic link, and links are not followed"
            raise SymbolicLink(action=action, address=str(Path(root, path)), reason=reason)
    return place


def open_regular(place: Path) -> BinaryIO:
    """Open a regular file to read. Raises `UnreadableFile` for any other, without waiting for one that writes to it."""
    flags = os.O_NONBLOCK | os.O_NOFOLLOW
    file = open(place, "rb", opener=lambda path, mode: os.open(path, mode | flags))  # noqa: SIM115 - the caller closes it
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise UnreadableFile(address=str(place), reason="it is not a regular file")
    return file


@dataclass(frozen=True)
class FolderStore:
    """What it has written and named outlives a power cut, where the file system can promise that."""

    root: str

    def list(self, folder: str) -> list[Entry]:
        with self._faults("list", folder):
            try:
                found = list(os.scandir(self._at("list", folder)))
            except FileNotFoundError:
                return []
            entries = [self._entry(item) for item in found if not item.name.startswith(_UNFINISHED)]
        return sorted((entry for entry in entries if entry), key=lambda entry: entry.name)

    def read(self, path: str) -> bytes:
        with self._faults("read", path), open_regular(self._at("read", path)) as file:
            data = file.read(READ_LIMIT + 1)
        if len(data) > READ_LIMIT:
            raise UnreadableFile(address=self.address(path), reason=TOO_LARGE)
        return data

    def open_read(self, path: str) -> BinaryIO:
        with self._faults("read", path):
            return open_regular(self._at("read", path))

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
        target = self._at(action, path)
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
        _remove_left(target.parent)
        return _etag(written.st_ino, written.st_mtime_ns)

    def open_write(self, path: str) -> BinaryIO:
        target = self._at("write", path)
        with self._faults("write", path):
            _make_folders(target.parent)
            try:
                return cast(BinaryIO, _Writer(self, path, target.open("xb")))
            except FileNotFoundError as error:
                raise StoreUnavailable(
                    action="write", address=self.address(path), reason="its folder was deleted in the meantime"
                ) from error

    def rename(self, path: str, new_path: str) -> None:
        source, target = self._at("rename", path), self._at("rename", new_path)
        with self._faults("rename", path):
            # A link and an unlink would refuse a taken name for certain, but for a moment the file would have two
            # names, and a reader that consumed the new one in that moment would be given it twice.
            if os.path.lexists(target):
                raise AlreadyThere(address=self.address(new_path))
            source.lstat()  # before a folder is made for what is not there
            _make_folders(target.parent)
            os.rename(source, target)
            for folder in {source.parent, target.parent}:
                _sync(folder)

    def remove(self, path: str) -> None:
        place = self._at("remove", path)
        with self._faults("remove", path), suppress(FileNotFoundError):
            place.unlink()

    def remove_folder(self, folder: str) -> None:
        if not folder:  # the root is not ours
            raise PathOutside(path=folder, address=self.root)
        place = self._at("remove", folder)
        gone = place.with_name(f"{_UNFINISHED}{uuid.uuid4().hex}")
        with self._faults("remove", folder), suppress(FileNotFoundError):
            if not stat.S_ISDIR(place.lstat().st_mode):
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
            os.rename(place, gone)  # nobody may take what a killed deletion leaves for a whole folder
            _sync(place.parent)
            shutil.rmtree(gone)
        _remove_left(place.parent)

    def address(self, path: str) -> str:
        return str(Path(self.root, path))

    def _at(self, action: str, path: str) -> Path:
        with self._faults(action, path):
            return resolve(action, self.root, path)

    @contextmanager
    def _faults(self, action: str, path: str) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError as error:
            raise NotThere(address=self.address(path)) from error
        except FileExistsError as error:
            if Path(self.root, path).parent.is_dir():
                raise AlreadyThere(address=self.address(path)) from error
            raise PlaceUnusable(
                action=action, address=self.address(path), reason="a folder above it is a file"
            ) from error
        except OSError as error:
            refusal = PlaceUnusable if error.errno in _UNUSABLE else StoreUnavailable
            raise refusal(action=action, address=self.address(path), reason=error.strerror or str(error)) from error

    @staticmethod
    def _entry(item: os.DirEntry[str]) -> Entry | None:
        try:
            found = item.stat(follow_symlinks=False)
            is_folder = item.is_dir(follow_symlinks=False)
            # A file's time changes with each that is written under its name; a folder's with each that is put into it.
            made = _birth(item.path) if is_folder else found.st_mtime_ns
        except FileNotFoundError:  # gone since the listing began
            return None
        modified = datetime.fromtimestamp(found.st_mtime, UTC)
        return Entry(item.name, is_folder, 0 if is_folder else found.st_size, modified, _etag(found.st_ino, made))


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
    with suppress(FileNotFoundError):  # removed meanwhile, with all names in it
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        except OSError as error:
            if error.errno not in _NOT_SUPPORTED:
                raise
        finally:
            os.close(handle)


def _remove_left(folder: Path) -> None:
    """Removes what killed processes left in a folder. What cannot be removed is in nobody's way."""
    with suppress(OSError):
        for item in list(os.scandir(folder)):
            if not _LEFT.fullmatch(item.name):
                continue
            found = item.stat(follow_symlinks=False)
            if max(found.st_ctime, found.st_mtime) > time.time() - _LEFT_SECONDS:
                continue  # a folder keeps its time of modification when it is renamed
            if stat.S_ISDIR(found.st_mode):
                shutil.rmtree(item.path)
            elif stat.S_ISREG(found.st_mode):
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
