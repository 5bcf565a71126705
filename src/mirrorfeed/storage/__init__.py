"""File storage: the protocol `Store`, opening the store of a folder, and a cache of connections per process.

The docstring of each method of `Store` is the contract that every store is tested against.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from datetime import datetime
from types import ModuleType
from typing import Any, BinaryIO, Protocol, TypeVar, cast

READ_LIMIT = 32 * 2**20
"""Maximum size in bytes of a file that `Store.read` returns. The record of a publication of 100,000 files is
smaller."""
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
    """Tag that changes when the file is replaced, or when the file or folder is deleted and created again. Empty if
    unknown."""


class Store(Protocol):
    """Storage of files below one root folder. Paths are relative to the root. The empty path is the root.

    Stores can be pickled: executors receive stores and open their own connections. A folder exists as soon as it
    contains a file.

    Every method raises `StoreUnavailable` if the storage fails temporarily. The request may then have taken effect. If
    the storage refuses the request, methods raise a `Terminal` error.
    """

    def list(self, folder: str) -> list[Entry]:
        """Return the direct children of a folder, sorted by name, or an empty list if the folder does not exist.

        A listing is not a snapshot: a file that is created, deleted or renamed during the listing may be included or
        not. Files that exist during the whole listing are included.
        """
        ...

    def read(self, path: str) -> bytes:
        """Return the whole content of a file. Raises `NotThere`, or `UnreadableFile` if the path is not a regular file
        or the file is larger than `READ_LIMIT`."""
        ...

    def open_read(self, path: str) -> BinaryIO:
        """Return a seekable reader of a file. Raises `NotThere`, or `UnreadableFile` if the path is not a regular
        file."""
        ...

    def create(self, path: str, data: bytes) -> str | None:
        """Create a file with the content `data`, completely or not at all.

        Returns the ETag that listings show for the file, or None if the ETag is unknown. Raises `AlreadyThere` and
        changes nothing if the file exists.
        """
        ...

    def create_once(self, path: str, data: bytes) -> None:
        """Create a file like `create`, but without retries: only one request can create the file.

        After `StoreUnavailable`, this request may still take effect at any time, but only once.
        """
        ...

    def replace(self, path: str, data: bytes, etag: str | None = None) -> None:
        """Create a file, or replace its content in one step. Readers never find the file missing or incomplete.

        With an `etag` from a listing, replace the file only if its ETag is still the same. Raises `AlreadyThere` if the
        ETag differs, and `NotThere` or `StoreUnavailable` if the file does not exist. `FolderStore` and `VolumeStore`
        check the ETag just before they replace the file, so two concurrent writers can both succeed.
        """
        ...

    def open_write(self, path: str) -> BinaryIO:
        """Return a writer of a new file, which uses little memory. The file is complete after `close`.

        `path` must be a name that no earlier request used. Exactly one request can create the file. A request with a
        rejected login creates nothing and is sent again. Any other failure raises `AlreadyThere` or `StoreUnavailable`.
        After a failure, the request may still take effect, so never use the name again: see `open_new`.
        """
        ...

    def rename(self, path: str, new_path: str) -> None:
        """Rename a file, also into another folder. Raises `NotThere`, or `AlreadyThere` if `new_path` exists.

        Atomic except on volumes, where a file may have both names until the next listing of its folder.
        """
        ...

    def remove(self, path: str) -> None:
        """Delete a file if it exists."""
        ...

    def remove_folder(self, folder: str) -> None:
        """Delete a folder with all its content if it exists. Atomic except on volumes. Raises `PathOutside` for the
        root."""
        ...

    def address(self, path: str) -> str:
        """Return the full path or URL of a file or folder, for messages."""
        ...


def open_folder(path: str) -> Store:
    """Return the store whose root is a local folder, or a folder of a volume if the path starts with `/Volumes/`."""
    if path.startswith(VOLUMES):
        from mirrorfeed.storage.databricks_volume import VolumeStore

        return VolumeStore(path.rstrip("/"))
    from mirrorfeed.storage.local_folder import FolderStore

    return FolderStore(path)


def is_inside(path: str) -> bool:
    """Return whether a relative path is valid in a store.

    Empty parts, `.`, `..`, backslashes and null characters are not valid. The empty path is valid.
    """
    if not path:
        return True
    return not _INVALID_CHARACTERS.search(path) and all(part not in ("", ".", "..") for part in path.split("/"))


T = TypeVar("T")


def per_process(key: Hashable, create: Callable[[], T]) -> T:
    """Return the value that this process caches under `key`. The first call creates the value with `create`.

    A forked process creates its own value.
    """
    # Not a global of this module: if the code is sent with each task, globals are pickled and new in every task.
    name = "_mirrorfeed_process"
    values: dict[Any, Any] = sys.modules.setdefault(name, ModuleType(name)).__dict__
    process_key = (os.getpid(), key)
    if process_key not in values:
        # If two threads create a value at the same time, both use the first one.
        values.setdefault(process_key, create())
    return cast(T, values[process_key])
