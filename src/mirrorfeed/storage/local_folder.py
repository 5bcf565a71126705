"""`FolderStore`: files in a local folder, for development, tests and the demo.

`FolderStore` follows no symbolic links and reads only regular files, because other users may write to the folder.
"""

from __future__ import annotations

import ctypes
import errno
import logging
import os
import re
import shutil
import stat
import struct
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, BinaryIO

from mirrorfeed.storage import READ_LIMIT, TOO_LARGE, Entry, Writer, is_inside
from mirrorfeed.storage.errors import (
    LocationUnusableError,
    PathExistsError,
    PathMissingError,
    StorageUnavailableError,
    SymbolicLinkError,
    UnreadableFileError,
    path_outside_root,
)

_log = logging.getLogger(__name__)
_UNFINISHED = ".unfinished-"
"""Prefix of unfinished files and of folders that are being deleted. Listings exclude both."""
_LEFTOVER = re.compile(rf"{re.escape(_UNFINISHED)}[0-9a-f]{{32}}")
_LEFTOVER_SECONDS = 7 * 24 * 3600
"""Age in seconds at which unfinished files are deleted. No run takes this long, so their process was killed."""
_UNUSABLE = (
    *(errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EISDIR, errno.ELOOP, errno.ENAMETOOLONG),
    errno.ENXIO,  # a socket
    errno.ENOSYS,  # a rename on some mounts
    errno.ENOTSUP,
)
_NOT_SUPPORTED = (errno.EPERM, errno.EINVAL, errno.ENOTSUP, errno.ENOSYS)
_NO_CREATE = "the file system has neither hard links nor renames that never replace a file"
_AT_FDCWD, _RENAME_NOREPLACE = -100, 1


def resolve(action: str, root: str, path: str) -> Path:
    """Return the full path of `path` below `root`.

    Raises `path_outside_root` if `path` is not valid, and `SymbolicLinkError` if a part of `path` is a symbolic link.
    `action` is the verb for the message of `SymbolicLinkError`.
    """
    if not is_inside(path):
        raise path_outside_root(path=path, address=root)
    place = Path(root)
    for part in Path(path).parts:
        place /= part
        if place.is_symlink():
            reason = f"{place} is a symbolic link, and links are not followed"
            raise SymbolicLinkError(action=action, address=str(Path(root, path)), reason=reason)
    return place


def open_regular(place: Path) -> BinaryIO:
    """Return a reader of a regular file. Raises `UnreadableFileError` for other files, such as a named pipe."""
    flags = os.O_NONBLOCK | os.O_NOFOLLOW
    file = open(place, "rb", opener=lambda path, mode: os.open(path, mode | flags))  # noqa: SIM115 - the caller closes it
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise UnreadableFileError(address=str(place), reason="it is not a regular file")
    return file


def arrow_files(folder: str | Path) -> Any:
    """Return a PyArrow file system for the folder of a Delta table, to read rows with deltalake.

    With deltalake's own file system, a process of Python 3.12 often aborts when it ends.
    """
    from pyarrow.fs import LocalFileSystem, SubTreeFileSystem  # imported late: slow, and not needed for a store

    return SubTreeFileSystem(str(folder), LocalFileSystem())


def check_writable(store: object, folder: str) -> None:
    """Raise `LocationUnusableError` if this process certainly cannot create files in a folder of `store`. Writes
    nothing.

    Finds nothing in a store that is not a local folder, because only a write shows its permissions.
    """
    if not isinstance(store, FolderStore):
        return
    path = Path(store.root, folder)
    existing = next(each for each in (path, *path.parents) if each.exists())
    if not os.access(existing, os.W_OK | os.X_OK):
        reason = f"this process has no permission to write to {existing}"
        raise LocationUnusableError(action="create files in", address=store.address(folder), reason=reason)


@dataclass(frozen=True)
class FolderStore:
    """Implementation of `Store` for files in a local folder.

    Created or renamed files survive a power failure, if the file system supports that.
    """

    root: str

    def list(self, folder: str) -> list[Entry]:
        with self._call("list", folder) as place:
            try:
                items = os.scandir(place)
            except FileNotFoundError:
                return []
            with items:
                entries = [_entry(item) for item in items if not item.name.startswith(_UNFINISHED)]
        return sorted((entry for entry in entries if entry), key=lambda entry: entry.name)

    def read(self, path: str) -> bytes:
        with self._call("read", path) as place, open_regular(place) as file:
            data = file.read(READ_LIMIT + 1)
        if len(data) > READ_LIMIT:
            raise UnreadableFileError(address=self.address(path), reason=TOO_LARGE)
        return data

    def open_read(self, path: str) -> BinaryIO:
        with self._call("read", path) as place:
            return open_regular(place)

    def create(self, path: str, data: bytes) -> str | None:
        return self._finish("create", path, data, _take_name)

    def create_once(self, path: str, data: bytes) -> None:
        self.create(path, data)

    def replace(self, path: str, data: bytes, etag: str | None = None) -> None:
        def give_name(unfinished: Path, target: Path) -> None:
            if etag is not None and etag != _etag((status := target.lstat()).st_ino, status.st_mtime_ns):
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(target))
            os.replace(unfinished, target)

        self._finish("replace", path, data, give_name)

    def _finish(self, action: str, path: str, data: bytes, give_name: Callable[[Path, Path], None]) -> str:
        """Create or replace a file by renaming a temporary file with `give_name(temporary, final)`. Return its ETag."""
        with self._call(action, path) as target:
            unfinished = target.with_name(f"{_UNFINISHED}{uuid.uuid4().hex}")
            _make_folders(target.parent)
            try:
                with unfinished.open("xb") as file:
                    file.write(data)
                    file.flush()
                    flush_to_disk(file.fileno())
                written = unfinished.stat()
                give_name(unfinished, target)
            finally:
                with suppress(FileNotFoundError):
                    unfinished.unlink()
            _sync(target.parent)
        _remove_leftovers(target.parent)
        return _etag(written.st_ino, written.st_mtime_ns)

    def open_write(self, path: str) -> Writer:
        with self._call("write", path) as target:
            try:
                _make_folders(target.parent)
                return _Writer(self, path, target.open("xb"))
            except FileNotFoundError as error:
                raise StorageUnavailableError(
                    action="write", address=self.address(path), reason="its folder was deleted in the meantime"
                ) from error

    def rename(self, path: str, new_path: str) -> None:
        with self._call("rename", path) as source:
            with self._errors("rename", new_path):
                target = resolve("rename", self.root, new_path)
            # Linking and unlinking would never overwrite a file, but the file would briefly have two names, and a
            # reader that consumes the new name at that moment would read the file twice.
            if os.path.lexists(target):
                raise PathExistsError(address=self.address(new_path))
            source.lstat()  # raise before a folder is created for a missing file
            _make_folders(target.parent)
            os.rename(source, target)
            for folder in {source.parent, target.parent}:
                _sync(folder)

    def remove(self, path: str) -> None:
        with self._call("remove", path) as place, suppress(FileNotFoundError):
            place.unlink()

    def remove_folder(self, folder: str) -> None:
        if not folder:  # the root belongs to the user
            raise path_outside_root(path=folder, address=self.root)
        with self._call("remove", folder) as place, suppress(FileNotFoundError):
            renamed = place.with_name(f"{_UNFINISHED}{uuid.uuid4().hex}")
            if not stat.S_ISDIR(place.lstat().st_mode):
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
            os.rename(place, renamed)  # an interrupted deletion must not leave an incomplete folder
            _sync(place.parent)
            shutil.rmtree(renamed)
        _remove_leftovers(place.parent)

    def address(self, path: str) -> str:
        return str(Path(self.root, path))

    @contextmanager
    def _call(self, action: str, path: str) -> Iterator[Path]:
        """Context manager that yields the full path, and raises a storage error in place of any `OSError`."""
        _log.debug("%s %s", action, self.address(path))
        with self._errors(action, path):
            yield resolve(action, self.root, path)

    @contextmanager
    def _errors(self, action: str, path: str) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError as error:
            raise PathMissingError(address=self.address(path)) from error
        except FileExistsError as error:
            if Path(self.root, path).parent.is_dir():
                raise PathExistsError(address=self.address(path)) from error
            raise LocationUnusableError(
                action=action, address=self.address(path), reason="a folder above it is a file"
            ) from error
        except OSError as error:
            refusal = LocationUnusableError if error.errno in _UNUSABLE else StorageUnavailableError
            raise refusal(action=action, address=self.address(path), reason=error.strerror or str(error)) from error


class _Writer(Writer):
    def __init__(self, store: FolderStore, path: str, file: BinaryIO) -> None:
        self._store, self._path, self._file = store, path, file

    def send(self, data: memoryview) -> None:
        with self._store._errors("write", self._path):
            self._file.write(data)

    def finish(self) -> None:
        with self._store._errors("write", self._path), self._file:
            self._file.flush()
            flush_to_disk(self._file.fileno())

    def abandon(self) -> None:
        with suppress(OSError):
            self._file.close()


def _entry(item: os.DirEntry[str]) -> Entry | None:
    try:
        status = item.stat(follow_symlinks=False)
        is_folder = item.is_dir(follow_symlinks=False)
        # The modification time of a folder changes with each file in it.
        time_ns = _creation_time(item.path) if is_folder else status.st_mtime_ns
    except FileNotFoundError:  # deleted after the listing started
        return None
    modified = datetime.fromtimestamp(status.st_mtime, UTC)
    return Entry(item.name, is_folder, 0 if is_folder else status.st_size, modified, _etag(status.st_ino, time_ns))


def _etag(inode: int, nanoseconds: int) -> str:
    return f"{inode}-{nanoseconds}"


def _make_folders(folder: Path) -> None:
    if not folder.is_dir():
        _make_folders(folder.parent)
        folder.mkdir(exist_ok=True)
        _sync(folder.parent)


def _sync(folder: Path) -> None:
    """Flush a folder to disk, so that the names in the folder survive a power failure."""
    with suppress(FileNotFoundError):  # deleted in the meantime
        handle = os.open(folder, os.O_RDONLY)
        try:
            flush_to_disk(handle)
        finally:
            os.close(handle)


def flush_to_disk(handle: int) -> None:
    """Call `fsync` for a file descriptor. Does nothing if the file system does not support `fsync`."""
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in _NOT_SUPPORTED:
            raise


def _remove_leftovers(folder: Path) -> None:
    """Delete unfinished files and folders in `folder` that are at least 7 days old. Ignores errors."""
    with suppress(OSError):
        for item in list(os.scandir(folder)):
            if not _LEFTOVER.fullmatch(item.name):
                continue
            status = item.stat(follow_symlinks=False)
            if max(status.st_ctime, status.st_mtime) > time.time() - _LEFTOVER_SECONDS:
                continue  # use ctime, because a renamed folder keeps its mtime
            if stat.S_ISDIR(status.st_mode):
                shutil.rmtree(item.path)
            elif stat.S_ISREG(status.st_mode):
                os.unlink(item.path)


def _take_name(unfinished: Path, target: Path) -> None:
    """Give a file another name in one step. Raises `FileExistsError` if `target` exists.

    Raises an error if the file system has neither hard links nor renames that never replace a file. Looking first and
    renaming then would replace a file that another process creates in between, such as another publisher's record.
    """
    try:
        os.link(unfinished, target)
    except OSError as error:
        if error.errno not in _NOT_SUPPORTED:
            raise
        _rename_without_replacing(unfinished, target)


def _rename_without_replacing(source: Path, target: Path) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if not hasattr(libc, "renameat2"):  # not on Linux
        raise OSError(errno.ENOTSUP, _NO_CREATE)
    if libc.renameat2(_AT_FDCWD, os.fsencode(source), _AT_FDCWD, os.fsencode(target), _RENAME_NOREPLACE):
        number = ctypes.get_errno()
        if number in _NOT_SUPPORTED:
            raise OSError(errno.ENOTSUP, _NO_CREATE)
        raise OSError(number, os.strerror(number), str(target))


_STATX_BTIME, _BTIME_OFFSET = 0x800, 80


def _creation_time(path: str) -> int:
    """Return a folder's creation time in nanoseconds, or 0 if unknown. It is part of the folder's ETag."""
    if sys.platform != "linux":
        return int(getattr(os.stat(path), "st_birthtime", 0) * 1e9)
    libc = ctypes.CDLL(None)
    buffer = ctypes.create_string_buffer(256)
    if not hasattr(libc, "statx") or libc.statx(_AT_FDCWD, os.fsencode(path), 0, _STATX_BTIME, buffer):
        return 0
    seconds, nanoseconds = struct.unpack_from("=qI", buffer, _BTIME_OFFSET)
    return int(seconds * 1_000_000_000 + nanoseconds)
