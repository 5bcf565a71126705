"""`OneLakeStore`: files in OneLake, by default in the landing zone of a mirrored database."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import Any, BinaryIO
from urllib.parse import quote, urlsplit

from azure.core import MatchConditions
from azure.core.exceptions import AzureError, HttpResponseError
from azure.storage.blob import ContainerClient
from azure.storage.filedatalake import DataLakeFileClient, FileSystemClient, PathProperties

from mirrorfeed.runtime.credentials import Credential, Default
from mirrorfeed.runtime.errors import LoginUnavailableError
from mirrorfeed.storage import READ_LIMIT, TOO_LARGE, Entry, Writer, is_inside, per_process
from mirrorfeed.storage.errors import (
    PathExistsError,
    PathMissingError,
    StorageUnavailableError,
    UnreadableFileError,
    path_outside_root,
)
from mirrorfeed.storage.http import client_options, shorten_reason
from mirrorfeed.storage.onelake_errors import (
    convert_response,
    database_missing,
    no_landing_zone_in_item,
    parse_response,
    workspace_missing,
)
from mirrorfeed.storage.request_retries import RetryLimits

ENDPOINT = "https://onelake.dfs.fabric.microsoft.com"
_READ_AHEAD = 2**20
_ONCE: dict[str, Any] = {"retry_total": 0, "permit_redirects": False}
"""Options of a request that the Azure libraries must not repeat."""
_NO_PARENT = "RenameDestinationParentPathNotFound"


def blob_endpoint(endpoint: str) -> str:
    """Return the URL of OneLake's Blob endpoint that belongs to the URL of a DFS endpoint."""
    parts = urlsplit(endpoint)
    return parts._replace(netloc=parts.netloc.replace(".dfs.", ".blob.", 1)).geturl()


@dataclass(frozen=True)
class OneLakeStore:
    """Implementation of `Store` for files in a Fabric item in OneLake.

    Contains no secret. Every process opens its own connections.
    """

    workspace: str
    """Workspace id."""
    item: str
    """Id of the item, such as a mirrored database."""
    credential: Credential = field(default_factory=Default)
    endpoint: str = ENDPOINT
    """URL of the DFS endpoint."""
    ca_bundle: str | None = None
    """File with trusted certificates, for endpoints with their own certificate authority."""
    retry_limits: RetryLimits = field(default_factory=RetryLimits)
    part_bytes: int = 8 * 2**20
    """Size in bytes of the parts in which a file is sent. One part is in memory."""
    root_folder: str = "Files/LandingZone"
    """Folder of the item that is the root of the store."""

    def list(self, folder: str) -> list[Entry]:
        path = self._at(folder)
        with suppress(PathMissingError), self._errors("list", folder):
            entries = map(_entry, self._clients.files.get_paths(path, recursive=False))
            return sorted(entries, key=lambda entry: entry.name)
        return []

    def read(self, path: str) -> bytes:
        file = self._clients.files.get_file_client(self._at(path))
        with self._errors("read", path):
            content = file.download_file()  # the first response has at most 32 MiB
            if content.size > READ_LIMIT:
                raise UnreadableFileError(address=self.address(path), reason=TOO_LARGE)
            return content.readall()

    def open_read(self, path: str) -> BinaryIO:
        file = self._clients.files.get_file_client(self._at(path))
        with self._errors("read", path):
            properties = file.get_file_properties()
        if properties.size is None or not properties.etag:
            raise self._unavailable("read", path, "the response with its size is incomplete")
        return io.BufferedReader(_Reader(self, path, file, properties.size, properties.etag), _READ_AHEAD)

    def create(self, path: str, data: bytes) -> str | None:
        # Put Blob is one request. The dfs endpoint needs three (create, append, flush). A crash between them leaves an
        # empty file, and then the record with this name can never be written. Staging and renaming depends on the
        # condition of the rename, which a server may ignore. Delta commits also depend on the condition of Put Blob.
        return self._create("create", path, data)

    def create_once(self, path: str, data: bytes) -> None:
        self._create("write", path, data, **_ONCE)

    def _create(self, action: str, path: str, data: bytes, **options: Any) -> str | None:
        blob = self._clients.blobs.get_blob_client(self._changeable(path))
        self._expect_landing_zone()
        with self._errors(action, path, path):
            response = blob.upload_blob(data, overwrite=False, length=len(data), **options)
        return str(response["etag"]).strip('"') if response.get("etag") else None

    def replace(self, path: str, data: bytes, etag: str | None = None) -> None:
        blob = self._clients.blobs.get_blob_client(self._changeable(path))
        self._expect_landing_zone()
        same: dict[str, Any] = {"etag": f'"{etag}"', "match_condition": MatchConditions.IfNotModified}
        with self._errors("replace", path, None if etag is None else path):
            blob.upload_blob(data, overwrite=True, length=len(data), **({} if etag is None else same))

    def open_write(self, path: str) -> Writer:
        file = self._clients.files.get_file_client(self._changeable(path))
        self._expect_landing_zone()
        # After status 401, which creates nothing, the library sends the request again with a new token.
        with self._errors("write", path, path):
            file.create_file(match_condition=MatchConditions.IfMissing, **_ONCE)
        return _Writer(self, path, file)

    def rename(self, path: str, new_path: str) -> None:
        source, target = self._changeable(path), self._changeable(new_path)
        file = self._clients.files.get_file_client(quote(source))  # the library decodes the name of a source
        # A server may ignore the condition and overwrite, so check first. The condition closes the gap after the check.
        # The library's own check treats every conflict as an existing file.
        if self._exists(new_path):
            raise PathExistsError(address=self.address(new_path))
        rename = partial(file.rename_file, f"{self.workspace}/{target}", match_condition=MatchConditions.IfMissing)
        with self._errors("rename", path, new_path):
            try:
                rename()
            except HttpResponseError as error:
                if parse_response(error).code != _NO_PARENT:
                    raise
                self._make_folder(target.rpartition("/")[0])
                rename()

    def remove(self, path: str) -> None:
        file = self._clients.files.get_file_client(self._changeable(path))
        with suppress(PathMissingError), self._errors("remove", path):
            file.delete_file()

    def remove_folder(self, folder: str) -> None:
        directory = self._clients.files.get_directory_client(self._changeable(folder))
        with suppress(PathMissingError), self._errors("remove", folder):
            directory.delete_directory()

    def address(self, path: str) -> str:
        return f"{self.endpoint}/{self.workspace}/{self.item}/{self.root_folder}{f'/{path}' if path else ''}"

    @property
    def _clients(self) -> _Clients:
        return per_process(self, self._connect)

    def _connect(self) -> _Clients:
        options = client_options(self.credential, self.ca_bundle, self.retry_limits)
        return _Clients(
            FileSystemClient(self.endpoint, self.workspace, **options),
            # `create` must send all data in one request, because several requests could leave a part of the data.
            ContainerClient(blob_endpoint(self.endpoint), self.workspace, max_single_put_size=2**31, **options),
        )

    def _at(self, path: str) -> str:
        if not is_inside(path):
            raise path_outside_root(path=path, address=self.address(""))
        return f"{self.item}/{self.root_folder}/{path}".rstrip("/")

    def _changeable(self, path: str) -> str:
        """Return the path in the workspace. Raises `path_outside_root` for the store's root: only Fabric changes the
        root.
        """
        if not path:
            raise path_outside_root(path=path, address=self.address(""))
        return self._at(path)

    def _exists(self, path: str) -> bool:
        with suppress(PathMissingError), self._errors("check", path):
            self._clients.files.get_file_client(self._at(path)).get_file_properties()
            return True
        return False

    def _make_folder(self, path: str) -> None:
        """Create a folder if it does not exist."""
        # Without the condition, an existing folder would get a new ETag, and Fabric would drop the table.
        try:
            self._clients.files.get_directory_client(path).create_directory(match_condition=MatchConditions.IfMissing)
        except HttpResponseError as error:
            if error.status_code not in (409, 412):
                raise

    def _expect_landing_zone(self) -> None:
        """Check that the landing zone exists. With a wrong `workspace` or `item`, all tables would look unpublished.

        Raises `workspace_missing` if OneLake does not find `workspace`, `database_missing` if it does not find `item`,
        and `no_landing_zone_in_item` if the item has no landing zone. A successful check is not repeated.
        """
        clients = self._clients
        if clients.landing_zone_exists:
            return
        # Check with listings, which OneLake supports at every level. For a workspace OneLake needs HEAD, but the
        # library sends GET.
        levels = ((self._at(""), None), (self.item, no_landing_zone_in_item), ("", database_missing))
        for path, missing in levels:
            with suppress(PathMissingError), self._errors("check", ""):
                next(iter(clients.files.get_paths(path or None, recursive=False, max_results=1)), None)
                clients.landing_zone_exists = missing is None
                if missing is None:
                    return
                raise missing(address=self.address(""))
        raise workspace_missing(address=self.address(""))

    @contextmanager
    def _errors(self, action: str, path: str, new_path: str | None = None) -> Iterator[None]:
        """Context manager that converts Azure errors to storage errors. `new_path` is the path to create, or None."""
        try:
            yield
        except HttpResponseError as error:
            new_address, response = None if new_path is None else self.address(new_path), parse_response(error)
            failure = convert_response(action, self.address(path), response, new_address)
            if new_path is not None and isinstance(failure, PathExistsError) and not self._exists(new_path):
                reason = f"{response}. The response says that the name exists, but it does not"
                failure = self._unavailable(action, new_path, reason, response.retry_after)
            if isinstance(failure, PathMissingError) and action != "check":
                self._expect_landing_zone()
            raise failure from error
        except LoginUnavailableError as error:
            raise self._unavailable(action, path, error.reason) from error
        except AzureError as error:
            raise self._unavailable(action, path, shorten_reason(error)) from error

    def _unavailable(self, action: str, path: str, reason: str, retry_after: float = 0.0) -> StorageUnavailableError:
        return StorageUnavailableError(
            action=action, address=self.address(path), reason=reason, retry_after=retry_after
        )


@dataclass
class _Clients:
    """Connections of one process to one store."""

    files: FileSystemClient
    blobs: ContainerClient
    landing_zone_exists: bool = False


class _Writer(Writer):
    """Writer that sends data in parts of `part_bytes`."""

    def __init__(self, store: OneLakeStore, path: str, file: DataLakeFileClient) -> None:
        self._store, self._path, self._file = store, path, file
        self._part, self._sent = bytearray(), 0

    def send(self, data: memoryview) -> None:
        while data:
            room = self._store.part_bytes - len(self._part)
            self._part += data[:room]
            data = data[room:]
            if len(self._part) == self._store.part_bytes:
                self._send_part()

    def finish(self) -> None:
        if self._part:
            self._send_part()
        if self._sent:
            with self._errors():
                self._file.flush_data(self._sent)

    def _send_part(self) -> None:
        with self._errors():
            self._file.append_data(bytes(self._part), self._sent, len(self._part))
        self._sent += len(self._part)
        self._part.clear()

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            with self._store._errors("write", self._path):
                yield
        except PathMissingError as error:
            raise self._store._unavailable("write", self._path, "it was deleted while it was written") from error


class _Reader(io.RawIOBase):
    """Reader of a file. Raises `StorageUnavailableError` if the file was replaced after it was opened."""

    def __init__(self, store: OneLakeStore, path: str, file: DataLakeFileClient, size: int, etag: str) -> None:
        self._store, self._path, self._file, self._size, self._etag = store, path, file, size, etag
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        self._position = max(0, start + offset)
        return self._position

    def readall(self) -> bytes:
        return self._download(self._size)

    def readinto(self, buffer: Any) -> int:
        data = self._download(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def _download(self, length: int) -> bytes:
        length = min(length, self._size - self._position)
        if length <= 0:
            return b""
        same = MatchConditions.IfNotModified
        with self._store._errors("read", self._path):
            data = self._file.download_file(self._position, length, etag=self._etag, match_condition=same).readall()
        self._position += len(data)
        return data


def _entry(item: PathProperties) -> Entry:
    modified = item.last_modified or datetime.fromtimestamp(0)
    return Entry(
        # Use only the last part: the parts before contain the id or the name of the item, as the service chooses.
        name=item.name.rpartition("/")[2],
        is_folder=item.is_directory,
        size=0 if item.is_directory else item.content_length or 0,
        modified=modified.replace(tzinfo=UTC),  # the library drops the time zone, which is GMT
        etag=item.etag or "",
    )
