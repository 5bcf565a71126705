"""`VolumeStore`: files in a Unity Catalog volume, through the Files API of the workspace.

Only one publisher at a time can use a volume, because the Files API cannot rename: `rename` copies the file and then
deletes the original. The API creates a file completely or not at all, even if mirrorfeed runs outside Databricks.
`VolumeStore` does not use the mount below `/Volumes`, where creating a file can replace an existing file.
"""

from __future__ import annotations

import io
import logging
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, BinaryIO, cast
from urllib.parse import quote

from mirrorfeed.errors import MirrorfeedError, first_line
from mirrorfeed.runtime.credentials import default_workspace
from mirrorfeed.storage import READ_LIMIT, TOO_LARGE, Entry, Writer, is_inside, per_process
from mirrorfeed.storage.errors import (
    PathExistsError,
    PathMissingError,
    StorageUnavailableError,
    UnreadableFileError,
    VolumeUnusableError,
    path_outside_root,
)

_CHUNK = 2**20
_log = logging.getLogger(__name__)
_RENAMING = ".renaming-"
"""Prefix of the marker file that exists during `rename`. The marker contains the new path."""


@dataclass(frozen=True)
class VolumeStore:
    """Implementation of `Store` for files in a Unity Catalog volume. Contains no secret and no connection."""

    root: str
    """Path of the volume or of a folder in it, such as `/Volumes/catalog/schema/volume`."""
    workspace: Callable[[], Any] = default_workspace
    """Function that creates the workspace client. Each process calls it only one time."""

    def list(self, folder: str) -> list[Entry]:
        entries = {entry.name: entry for entry in self._entries(folder)}
        unfinished = [name for name in entries if f"{_RENAMING}{name}" in entries]
        renamed = {name for name in unfinished if self._is_renamed(f"{folder}/{name}" if folder else name)}
        return [entries[name] for name in sorted(entries) if name not in renamed and not name.startswith(_RENAMING)]

    def read(self, path: str) -> bytes:
        with self.open_read(path) as file:
            data = file.read(READ_LIMIT + 1)
        if len(data) > READ_LIMIT:
            raise UnreadableFileError(address=self.address(path), reason=TOO_LARGE)
        return data

    def open_read(self, path: str) -> BinaryIO:
        copy = tempfile.SpooledTemporaryFile(_CHUNK)  # noqa: SIM115 - the caller closes it
        with self._errors("read", path), self._files.download(self._at(path)).contents as content:
            shutil.copyfileobj(content, copy, _CHUNK)
        copy.seek(0)
        return cast(BinaryIO, copy)

    def create(self, path: str, data: bytes) -> str | None:
        self._upload("create", path, io.BytesIO(data))
        return None

    def create_once(self, path: str, data: bytes) -> None:
        self.create(path, data)

    def replace(self, path: str, data: bytes, etag: str | None = None) -> None:
        folder, _, name = path.rpartition("/")
        if etag is not None:
            etags = [entry.etag for entry in self.list(folder) if entry.name == name]
            if etags != [etag]:
                raise (PathExistsError if etags else PathMissingError)(address=self.address(path))
        self._upload("replace", path, io.BytesIO(data), overwrite=True)

    def open_write(self, path: str) -> Writer:
        if self._exists(path):
            raise PathExistsError(address=self.address(path))
        return _Writer(self, path)

    def rename(self, path: str, new_path: str) -> None:
        """Copy the file and delete the original. A marker file exists until both are done.

        If the process ends earlier, `list` finds the marker, and deletes the original if the complete copy exists.
        """
        marker = _marker(path)
        with self.open_read(path) as file:
            if self._exists(new_path):
                raise PathExistsError(address=self.address(new_path))
            self._upload("rename", marker, io.BytesIO(new_path.encode()), overwrite=True)
            self._upload("rename", new_path, file)
        self.remove(path)
        self.remove(marker)

    def remove(self, path: str) -> None:
        with suppress(PathMissingError), self._errors("remove", path):
            self._files.delete(self._at(path))

    def remove_folder(self, folder: str) -> None:
        """Delete the files of the folder one by one, then the folder. The API deletes only empty folders."""
        if not folder:  # the root belongs to the user
            raise path_outside_root(path=folder, address=self.root)
        for entry in self._entries(folder):
            (self.remove_folder if entry.is_folder else self.remove)(f"{folder}/{entry.name}")
        with suppress(PathMissingError), self._errors("remove", folder):
            self._files.delete_directory(self._at(folder))

    def address(self, path: str) -> str:
        return f"{self.root}/{path}" if path else self.root

    @property
    def _client(self) -> Any:
        return per_process(("workspace", self.workspace), self.workspace)

    @property
    def _files(self) -> Any:
        return self._client.files

    def _at(self, path: str) -> str:
        if not is_inside(path):
            raise path_outside_root(path=path, address=self.root)
        return self.address(path)

    def _upload(self, action: str, path: str, file: BinaryIO, *, overwrite: bool = False) -> None:
        try:
            self._put(action, path, file, overwrite)
        except PathMissingError:  # the folder does not exist; a refused request cannot take effect later
            self._create_folder(action, self._at(path).rpartition("/")[0])
            self._put(action, path, file, overwrite)

    def _put(self, action: str, path: str, file: BinaryIO, overwrite: bool) -> None:
        address, length = quote(self._at(path)), file.seek(0, io.SEEK_END)
        file.seek(0)
        with self._errors(action, path):
            self._client.api_client.do(
                "PUT",
                f"/api/2.0/fs/files{address}",
                query={"overwrite": str(overwrite).lower()},
                headers={"Content-Type": "application/octet-stream"},
                data=_OneRequest(file, length),
            )

    def _create_folder(self, action: str, folder: str) -> None:
        try:
            with self._errors(action, ""):
                self._files.create_directory(folder)
        except PathMissingError as error:
            raise VolumeUnusableError(action=action, address=self.root, reason="the volume does not exist") from error

    def _entries(self, folder: str) -> Sequence[Entry]:
        with suppress(PathMissingError), self._errors("list", folder):
            return [_entry(item) for item in self._files.list_directory_contents(self._at(folder))]
        return []

    def _exists(self, path: str) -> bool:
        with suppress(PathMissingError), self._errors("read", path):
            self._files.get_metadata(self._at(path))
            return True
        return False

    def _is_renamed(self, path: str) -> bool:
        """Return whether an unfinished `rename` of `path` has already copied the file to its new path.

        If so, this method also tries to delete the original file and the marker file of `rename`, if they still exist.
        """
        try:
            new_path = self.read(_marker(path)).decode()
        except PathMissingError:  # `rename` deletes the original file before the marker
            return True
        if not self._exists(new_path):
            return False
        with suppress(MirrorfeedError):  # a reader may lack the privilege
            self.remove(path)
            self.remove(_marker(path))
        return True

    @contextmanager
    def _errors(self, action: str, path: str) -> Iterator[None]:
        from databricks.sdk import errors  # imported late: takes seconds to import

        address = self.address(path)
        _log.debug("%s %s", action, address)
        try:
            yield
        except errors.NotFound as error:
            raise PathMissingError(address=address) from error
        except errors.ResourceConflict as error:
            raise PathExistsError(address=address) from error
        except (errors.PermissionDenied, errors.Unauthenticated, errors.BadRequest, ValueError) as error:
            raise VolumeUnusableError(action=action, address=address, reason=first_line(str(error))) from error
        except OSError as error:  # all other errors of the client and of requests
            raise StorageUnavailableError(action=action, address=address, reason=first_line(str(error))) from error


class _OneRequest:
    """Request body that cannot be read again, so that the workspace client never repeats the request."""

    def __init__(self, file: BinaryIO, length: int) -> None:
        self._file, self.len = file, length

    def read(self, size: int = -1) -> bytes:
        return self._file.read(size)

    def __iter__(self) -> Iterator[bytes]:
        return iter(lambda: self._file.read(_CHUNK), b"")


class _Writer(Writer):
    """Writer that buffers the content on the local disk and uploads the content on close."""

    def __init__(self, store: VolumeStore, path: str) -> None:
        self._store, self._path = store, path
        self._copy = tempfile.SpooledTemporaryFile(_CHUNK)  # noqa: SIM115 - `finish` and `abandon` close it

    def send(self, data: memoryview) -> None:
        self._copy.write(data)

    def finish(self) -> None:
        with self._copy as file:
            self._store._upload("write", self._path, cast(BinaryIO, file))

    def abandon(self) -> None:
        self._copy.close()


def _marker(path: str) -> str:
    folder, slash, name = path.rpartition("/")
    return f"{folder}{slash}{_RENAMING}{name}"


def _entry(item: Any) -> Entry:
    modified, size = item.last_modified or 0, item.file_size or 0
    etag = "" if item.is_directory else f"{modified}-{size}"
    return Entry(item.name, bool(item.is_directory), size, datetime.fromtimestamp(modified / 1000, UTC), etag)
