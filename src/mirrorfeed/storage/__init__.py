"""File storage: the protocol of a store, the store of a folder, and connections that are cached per process.

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
    modified: datetime
    """Modification time with a time zone. Not reliable for folders."""
    etag: str
    """Changes if the file or folder is deleted and created again under the same name."""


class Store(Protocol):
    """Files below one root, addressed by relative paths with `/`. The empty path is the root.

    Stores are values that can be pickled: executors receive stores and open their own connections. A folder exists as
    soon as it contains a file. Every method raises `StoreUnavailable` if the outcome is unknown.
    """

    def list(self, folder: str) -> list[Entry]:
        """Return the direct children, sorted by name. A missing folder has none.

        A listing is not a snapshot: a file that is created, deleted or renamed during the listing may be included or
        not. Files that exist during the whole listing are included.
        """
        ...

    def read(self, path: str) -> bytes:
        """Return the whole content of a file. Raises `NotThere`, or `UnreadableFile` if the file is larger than
        `READ_LIMIT`."""
        ...

    def open_read(self, path: str) -> BinaryIO:
        """Return a seekable reader of a regular file. Raises `NotThere` or `UnreadableFile`. Never waits for a
        writer."""
        ...

    def create(self, path: str, data: bytes) -> str | None:
        """Create a file with this content, completely or not at all. Returns its ETag as in listings, or None if
        unknown.

        Raises `AlreadyThere` and changes nothing if the file exists.
        """
        ...

    def create_once(self, path: str, data: bytes) -> None:
        """Create a file like `create`, but with exactly one request.

        After `StoreUnavailable`, this request may still take effect at any time, but only once.
        """
        ...

    def replace(self, path: str, data: bytes, etag: str | None = None) -> None:
        """Create the file or replace its content in one step. Readers never find the file missing or incomplete.

        With an ETag from a listing, replace the file only if its ETag is still the same. Raises `AlreadyThere` if the
        ETag differs, and `NotThere` or `StoreUnavailable` if the file does not exist. `FolderStore` and `VolumeStore`
        check the ETag just before they replace the file, so two concurrent writers can both succeed.
        """
        ...

    def open_write(self, path: str) -> BinaryIO:
        """Return a writer with bounded memory for a name that was never used. The file is complete after `close`.

        Sends exactly one request that can create the name. A request that is rejected because of the login creates
        nothing and is sent again. Any other failure raises `AlreadyThere` or `StoreUnavailable`. The request may still
        take effect later, so never use the name again: see `open_new`.
        """
        ...

    def rename(self, path: str, new_path: str) -> None:
        """Rename a file. Raises `NotThere`, or `AlreadyThere` if the new name exists.

        Atomic except on volumes, where a file may have both names until the next listing of its folder.
        """
        ...

    def remove(self, path: str) -> None:
        """Delete a file if it exists."""
        ...

    def remove_folder(self, folder: str) -> None:
        """Delete a folder with all its content if it exists. Atomic except on volumes."""
        ...

    def address(self, path: str) -> str:
        """Return the full address, for messages."""
        ...


def open_folder(path: str) -> Store:
    """Return the store of a folder, or of a folder in a volume."""
    if path.startswith(VOLUMES):
        from mirrorfeed.storage.databricks_volume import VolumeStore

        return VolumeStore(path.rstrip("/"))
    from mirrorfeed.storage.local_folder import FolderStore

    return FolderStore(path)


def is_inside(path: str) -> bool:
    """Return whether a relative path stays below its root. The empty path is the root."""
    if not path:
        return True
    return not _INVALID_CHARACTERS.search(path) and all(part not in ("", ".", "..") for part in path.split("/"))


T = TypeVar("T")


def per_process(key: Hashable, create: Callable[[], T]) -> T:
    """Return the value of this process for a key, created at the first call. A forked process creates its own value."""
    # Not a global of this module: if the code is sent with each task, globals are pickled and new in every task.
    name = "_mirrorfeed_process"
    values: dict[Any, Any] = sys.modules.setdefault(name, ModuleType(name)).__dict__
    process_key = (os.getpid(), key)
    if process_key not in values:
        # If two threads create a value at the same time, both use the first one.
        values.setdefault(process_key, create())
    return cast(T, values[process_key])
