"""The port to where files live. The text of each verb is the contract that every store is tested against."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
from typing import BinaryIO, Protocol

READ_LIMIT = 32 * 2**20
"""The largest file, in bytes, that `Store.read` returns. The record of a publication of 100,000 files is smaller."""
TOO_LARGE = f"it is larger than {READ_LIMIT // 2**20} MiB"


@dataclass(frozen=True, slots=True)
class Entry:
    """A file or folder in a listing."""

    name: str
    """The last part of its path."""
    is_folder: bool
    size: int
    modified: datetime
    """With its zone. A folder's is not to be relied on."""
    etag: str
    """Differs between a thing and another that was made under its name after it was deleted."""


class Store(Protocol):
    """Files below one root, addressed by relative paths with `/`; the root itself is the empty path.

    Stores are values that can be pickled: executors receive them and open their own connections. Folders come into
    being with the first file in them. Every verb raises `StoreUnavailable` when it cannot tell what happened.
    """

    def list(self, folder: str) -> list[Entry]:
        """The direct children, sorted by name. A folder that is not there has none.

        A listing is not of one moment: what comes, goes or changes its name meanwhile is in it or not, each for itself.
        What was there before it began, and stays, is in it.
        """
        ...

    def read(self, path: str) -> bytes:
        """The whole content, `NotThere`, or `UnreadableFile` if there are more than `READ_LIMIT` bytes."""
        ...

    def open_read(self, path: str) -> BinaryIO:
        """A seekable reader of a regular file; `NotThere`, or `UnreadableFile`. Never waits for a writer."""
        ...

    def create(self, path: str, data: bytes) -> str | None:
        """Makes the file with this content, whole or not at all, or `AlreadyThere`, then without any change. What comes
        back is its ETag as listings show it, where the answer tells."""
        ...

    def create_once(self, path: str, data: bytes) -> None:
        """As `create`, by exactly one request, ever. Where the answer is `StoreUnavailable`, it may still take effect,
        at any time; once it did, never again."""
        ...

    def replace(self, path: str, data: bytes, etag: str | None = None) -> None:
        """Makes the file, or gives it this content in one step: no reader sees it missing or in part.

        With an ETag from a listing, replaces only the file that has it. Otherwise raises `AlreadyThere`, or, if the
        file is gone, `NotThere` or `StoreUnavailable`. In a folder the check comes just before the replacement, so two
        writers may both pass it.
        """
        ...

    def open_write(self, path: str) -> BinaryIO:
        """A writer in bounded memory for a name that was never used; the file is whole once it is closed.

        Exactly one request that may create the name is sent, ever; one that is not let in, for want of a login, may
        not, and is sent again. Any other answer to it but success raises `AlreadyThere` or `StoreUnavailable`; it may
        still take effect then, at any time, so the name is spoiled: see `open_anew`.
        """
        ...

    def rename(self, path: str, new_path: str) -> None:
        """Moves a file in one step. `NotThere` without a source, `AlreadyThere` if the new name is taken."""
        ...

    def remove(self, path: str) -> None:
        """Deletes a file; one that is not there is as good as deleted."""
        ...

    def remove_folder(self, folder: str) -> None:
        """Deletes a folder with all that is in it, in one step; one that is not there is as good as deleted."""
        ...

    def address(self, path: str) -> str:
        """The full address, for people."""
        ...


_ODD = re.compile(r"[\\\x00]")


def is_inside(path: str) -> bool:
    """Whether a relative path stays below its root; the empty path is the root."""
    if not path:
        return True
    return not _ODD.search(path) and all(part not in ("", ".", "..") for part in path.split("/"))
