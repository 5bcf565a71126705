"""The protocol `Store` for file storage, and a per-process cache, for example for connections.

The tests check every store against the docstrings in `Store`.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from datetime import datetime
from types import ModuleType
from typing import TYPE_CHECKING, Any, BinaryIO, Protocol, Self, TypeVar, cast

if TYPE_CHECKING:
    from mirrorfeed.storage.tier_store import TierStore

READ_LIMIT = 32 * 2**20
"""Maximum size in bytes of a file for `Store.read`. The record of a publication of 100,000 files is smaller."""
TOO_LARGE = f"it is larger than {READ_LIMIT // 2**20} MiB"
VOLUMES = "/Volumes/"
_INVALID_CHARACTERS = re.compile(r"[\\\x00]")


@dataclass(frozen=True, slots=True)
class Entry:
    """A file or folder in a listing."""

    name: str
    """Last part of the path."""
    is_folder: bool
    size: int
    """Size in bytes. 0 for folders."""
    modified: datetime
    """Modification time with a time zone. Not reliable for folders."""
    etag: str
    """Tag that changes when the file is replaced, or when the file or folder is created again. Empty if unknown."""


class Writer:
    """Writer of a new file. The file is complete after `close`.

    After an error in `write` or in the `with` block, the file remains incomplete. A closed file refuses writes.
    """

    closed = False

    def send(self, data: memoryview) -> None:
        """Send or buffer the next bytes of the file."""
        raise NotImplementedError

    def finish(self) -> None:
        """Send the buffered bytes and complete the file."""
        raise NotImplementedError

    def abandon(self) -> None:
        """Release the resources of the file without completing it. Does not delete an incomplete file."""

    def write(self, data: Any) -> int:
        if self.closed:
            raise ValueError("the file is closed")
        view = memoryview(data).cast("B")
        try:
            self.send(view)
        except BaseException as error:
            self.__exit__(type(error))
            raise
        return view.nbytes

    def flush(self) -> None:
        """Do nothing, because nobody reads the file before it is closed."""

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self.finish()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind and not self.closed:
            self.closed = True
            self.abandon()
        self.close()


class Store(Protocol):
    """Storage of files below one root folder. Paths are relative to the root. The empty path is the root.

    A `Store` can be pickled, so that executors open their own connections. A folder exists when it contains a file. If
    the storage fails temporarily, methods raise `StorageUnavailableError`, and the request can still take effect. If
    the storage refuses the request, methods raise a `TerminalError` error.
    """

    def list(self, folder: str) -> list[Entry]:
        """Return the files and subfolders of a folder, sorted by name. Empty if the folder does not exist.

        A listing is not a snapshot: it may include or miss a file that is created, deleted or renamed during the
        listing. It includes all other files.
        """

    def read(self, path: str) -> bytes:
        """Return the content of a file.

        Raises `PathMissingError` if the file does not exist, and `UnreadableFileError` if the path is not a regular
        file or the file is larger than `READ_LIMIT`.
        """

    def open_read(self, path: str) -> BinaryIO:
        """Return a seekable reader of a file of any size. Raises `PathMissingError` and `UnreadableFileError`, as
        `read` does.
        """

    def create(self, path: str, data: bytes) -> str | None:
        """Create a file completely or not at all. Return the same ETag as `list`, or None if the ETag is unknown.

        Raises `PathExistsError` and changes nothing if the file exists.
        """

    def create_once(self, path: str, data: bytes) -> None:
        """Create a file with a single request that is never repeated. Raises `PathExistsError` if the file exists.

        After `StorageUnavailableError`, the request can still take effect at any later time, but only one time.
        """

    def replace(self, path: str, data: bytes, etag: str | None = None) -> None:
        """Create a file, or replace its content in one step. Readers never find the file missing or incomplete.

        With an `etag` from a listing, only replaces an existing file that still has this ETag. Raises `PathExistsError`
        if it has another ETag, and `PathMissingError` or `StorageUnavailableError`, depending on the store, if it does
        not exist. `FolderStore` and `VolumeStore` check the ETag just before they replace the file, so two concurrent
        writers can both succeed.
        """

    def open_write(self, path: str) -> Writer:
        """Return a writer of a new file. The writer uses little memory.

        `path` must be a name that no earlier request used, because a failed request may still take effect. Only a
        rejected login is retried. Raises `PathExistsError` if the file exists, and `StorageUnavailableError` if the
        storage fails temporarily.
        """

    def rename(self, path: str, new_path: str) -> None:
        """Rename or move a file. Raises `PathMissingError` if it does not exist, and `PathExistsError` if `new_path`
        exists.

        Atomic except on volumes, where a file may have both names until the next listing of its folder.
        """

    def remove(self, path: str) -> None:
        """Delete a file if it exists."""

    def remove_folder(self, folder: str) -> None:
        """Delete a folder and its files if it exists. Atomic except on volumes. Raises `path_outside_root` for the
        root.
        """

    def address(self, path: str) -> str:
        """Return the full path or URL of a file or folder, for messages."""


def open_folder(path: str) -> Store:
    """Return the store of a local folder, or of a folder in a volume if the path starts with `/Volumes/`."""
    if path.startswith(VOLUMES):
        from mirrorfeed.storage.databricks_volume import VolumeStore

        return VolumeStore(path.rstrip("/"))
    from mirrorfeed.storage.local_folder import FolderStore

    return FolderStore(path)


def tiers_at(location: str) -> TierStore | None:
    """Return the `TierStore` for the URI of a table or file, or None if the URI is not in Azure storage or S3."""
    # Imported late: the cloud libraries are slow to import, and few runs need them.
    from mirrorfeed.storage.azure_and_s3_tiers import AzureTiers, S3Tiers

    return AzureTiers.at(location) or S3Tiers.at(location)


def is_inside(path: str) -> bool:
    """Return whether a path is valid and inside the root of a store. The empty path is the root. Any other path must
    have no backslash, no null byte, no empty part, and no part `.` or `..`."""
    if not path:
        return True
    return not _INVALID_CHARACTERS.search(path) and all(part not in ("", ".", "..") for part in path.split("/"))


T = TypeVar("T")


def per_process(key: Hashable, create: Callable[[], T]) -> T:
    """Return the value that this process caches under `key`. If there is none, cache the result of `create`."""
    values, process_key = _process_cache(), (os.getpid(), key)
    try:
        return cast(T, values[process_key])
    except KeyError:
        # If two threads create a value at the same time, both use the first one.
        return cast(T, values.setdefault(process_key, create()))


def forget(key: object) -> None:
    """Remove the value that this process caches under `key`, so that `per_process` creates a new one."""
    _process_cache().pop((os.getpid(), key), None)


def _process_cache() -> dict[Any, Any]:
    # Not a global of this module: if the code is sent with each task, globals are pickled and new in every task.
    name = "_mirrorfeed_process"
    return sys.modules.setdefault(name, ModuleType(name)).__dict__
