"""OneLake, the place from which Fabric replicates: `Files/LandingZone` of an open mirrored database."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, BinaryIO, cast
from urllib.parse import quote, urlsplit

from azure.core import MatchConditions
from azure.core.exceptions import AzureError, HttpResponseError
from azure.storage.blob import ContainerClient
from azure.storage.filedatalake import DataLakeFileClient, FileSystemClient, PathProperties

from mirrorfeed.errors import first_line
from mirrorfeed.runtime.credentials import Credential, Default, token_credential
from mirrorfeed.storage.azure_retries import API_VERSION, Retries, transport
from mirrorfeed.storage.base import READ_LIMIT, TOO_LARGE, Entry, is_inside
from mirrorfeed.storage.errors import (
    AlreadyThere,
    DatabaseMissing,
    NotAnOpenMirror,
    NotThere,
    PathOutside,
    StoreUnavailable,
    UnreadableFile,
    WorkspaceMissing,
)
from mirrorfeed.storage.onelake_errors import Answer, meaning
from mirrorfeed.storage.process_cache import keep
from mirrorfeed.storage.retry_budget import Patience, retry_after

ENDPOINT = "https://onelake.dfs.fabric.microsoft.com"
_CONNECTION = re.compile(r"^\(<[^>]*>, '(.*)'\)$", re.DOTALL)
_READ_AHEAD = 2**20
_ONCE: dict[str, Any] = {"retry_total": 0, "permit_redirects": False}
"""Of a call that is sent once, whatever it is answered."""
_NO_PARENT = "RenameDestinationParentPathNotFound"


def blob_endpoint(endpoint: str) -> str:
    """The one beside an endpoint of the `dfs` kind. Where its name holds `.dfs.`, that has `.blob.` in its place."""
    place = urlsplit(endpoint)
    return place._replace(netloc=place.netloc.replace(".dfs.", ".blob.", 1)).geturl()


@dataclass(frozen=True)
class OneLakeStore:
    """Addressed by ids. Holds no secret and no connection; every process opens its own, once."""

    workspace: str
    item: str
    credential: Credential = field(default_factory=Default)
    endpoint: str = ENDPOINT
    """Of the `dfs` kind."""
    ca_bundle: str | None = None
    """The certificates to trust, for endpoints with a certificate authority of their own."""
    patience: Patience = field(default_factory=Patience)
    part_bytes: int = 8 * 2**20
    """How much of a file that is being written is held before it is sent."""
    below: str = "Files/LandingZone"
    """The folder of the item that is the root."""

    def list(self, folder: str) -> list[Entry]:
        path = self._at(folder)
        try:
            with self._faults("list", folder):
                found = [_entry(each) for each in self._clients.files.get_paths(path, recursive=False)]
        except NotThere:
            self._expect_landing_zone()
            return []
        return sorted(found, key=lambda entry: entry.name)

    def read(self, path: str) -> bytes:
        file = self._file(self._at(path))
        with self._missing_place(), self._faults("read", path):
            content = file.download_file()  # the first answer has at most 32 MiB
            if content.size > READ_LIMIT:
                raise UnreadableFile(address=self.address(path), reason=TOO_LARGE)
            return content.readall()

    def open_read(self, path: str) -> BinaryIO:
        file = self._file(self._at(path))
        with self._missing_place(), self._faults("read", path):
            properties = file.get_file_properties()
        if properties.size is None or not properties.etag:
            raise StoreUnavailable(
                action="read", address=self.address(path), reason="the response with its size is incomplete"
            )
        return io.BufferedReader(_Reader(self, path, file, properties.size, properties.etag), _READ_AHEAD)

    def create(self, path: str, data: bytes) -> str | None:
        # Put Blob, in one call. Through the dfs endpoint it would be three (create, append, flush), and a crash between
        # them would leave an empty file under the name: then the name is taken, and its record can never be written.
        # To stage and rename instead would rest on the condition of the rename, which a server may ignore; that of
        # Put Blob is what Delta's own commits rest on, on OneLake too.
        blob = self._clients.blobs.get_blob_client(self._change(path))
        self._expect_landing_zone()
        with self._faults("create", path, path):
            answer = blob.upload_blob(data, overwrite=False, length=len(data))
        return str(answer["etag"]).strip('"') if answer.get("etag") else None

    def replace(self, path: str, data: bytes, etag: str | None = None) -> None:
        blob = self._clients.blobs.get_blob_client(self._change(path))
        self._expect_landing_zone()
        same: dict[str, Any] = (
            {} if etag is None else {"etag": f'"{etag}"', "match_condition": MatchConditions.IfNotModified}
        )
        with self._faults("replace", path, None if etag is None else path):
            blob.upload_blob(data, overwrite=True, length=len(data), **same)

    def open_write(self, path: str) -> BinaryIO:
        file = self._file(self._change(path))
        self._expect_landing_zone()
        # One that is answered 401 was not let in. The library sends it again then, with a login of now.
        with self._faults("write", path, path):
            file.create_file(match_condition=MatchConditions.IfMissing, **_ONCE)
        return cast(BinaryIO, _Writer(self, path, file))

    def create_once(self, path: str, data: bytes) -> None:
        blob = self._clients.blobs.get_blob_client(self._change(path))
        self._expect_landing_zone()
        with self._faults("write", path, path):
            blob.upload_blob(data, overwrite=False, length=len(data), **_ONCE)

    def rename(self, path: str, new_path: str) -> None:
        source, target = self._change(path), self._change(new_path)
        # The library takes the escapes out of the name of a source, and sets them again: one more layer keeps it.
        file = self._file(quote(source))
        # A server may ignore the condition and overwrite: so look first. The condition closes the gap after the look.
        # The library's own question whether a file exists takes every conflict for a yes.
        if self._is_there(new_path):
            raise AlreadyThere(address=self.address(new_path))
        with self._missing_place(), self._faults("rename", path, new_path):
            try:
                file.rename_file(f"{self.workspace}/{target}", match_condition=MatchConditions.IfMissing)
            except HttpResponseError as error:
                if _answer(error).code != _NO_PARENT:
                    raise
                self._make_folder(target.rpartition("/")[0])
                file.rename_file(f"{self.workspace}/{target}", match_condition=MatchConditions.IfMissing)

    def remove(self, path: str) -> None:
        file = self._file(self._change(path))
        with suppress(NotThere), self._faults("remove", path):
            file.delete_file()

    def remove_folder(self, folder: str) -> None:
        directory = self._clients.files.get_directory_client(self._change(folder))
        with suppress(NotThere), self._faults("remove", folder):
            directory.delete_directory()

    def address(self, path: str) -> str:
        return f"{self.endpoint}/{self.workspace}/{self._root}{f'/{path}' if path else ''}"

    @property
    def _root(self) -> str:
        return f"{self.item}/{self.below}"

    @property
    def _clients(self) -> _Clients:
        return keep(self, lambda: _Clients.open(self))

    def _file(self, path: str) -> DataLakeFileClient:
        return self._clients.files.get_file_client(path)

    def _at(self, path: str) -> str:
        if not is_inside(path):
            raise PathOutside(path=path, address=self.address(""))
        return f"{self._root}/{path}" if path else self._root

    def _change(self, path: str) -> str:
        """The landing zone itself is the service's."""
        if not path:
            raise PathOutside(path=path, address=self.address(""))
        return self._at(path)

    def _is_there(self, path: str) -> bool:
        try:
            with self._faults("check", path):
                self._file(self._at(path)).get_file_properties()
        except NotThere:
            return False
        return True

    def _make_folder(self, path: str) -> None:
        """Only if absent: a folder that is made anew has a new ETag, and the service drops its table."""
        folder = self._clients.files.get_directory_client(path)
        try:
            folder.create_directory(match_condition=MatchConditions.IfMissing)
        except HttpResponseError as error:
            if error.status_code not in (409, 412):
                raise

    def _expect_landing_zone(self) -> None:
        """Raises what is wrong with the address; asks once a process. A folder that is missing is no news, a landing
        zone that is missing is: without this, wrong ids would look like a table that was never published."""
        clients = self._clients
        if clients.seen:
            return
        # By listings, which OneLake answers at every level: of a workspace it allows HEAD, where the library sends GET.
        levels = ((self._root, None), (self.item, NotAnOpenMirror), ("", DatabaseMissing))
        for path, missing in levels:
            with suppress(NotThere), self._faults("check", ""):
                next(iter(clients.files.get_paths(path or None, recursive=False, max_results=1)), None)
                clients.seen = missing is None
                if missing is None:
                    return
                raise missing(address=self.address(""))
        raise WorkspaceMissing(address=self.address(""))

    @contextmanager
    def _missing_place(self) -> Iterator[None]:
        try:
            yield
        except NotThere:
            self._expect_landing_zone()
            raise

    @contextmanager
    def _faults(self, action: str, path: str, taking: str | None = None) -> Iterator[None]:
        """`taking` is the name that the call gives to something."""
        try:
            yield
        except HttpResponseError as error:
            new_address, answer = None if taking is None else self.address(taking), _answer(error)
            found = meaning(action, self.address(path), answer, new_address)
            if taking is not None and isinstance(found, AlreadyThere) and not self._is_there(taking):
                said = f"{answer}. The response says that the name exists, but it does not"
                found = StoreUnavailable(action=action, address=found.address, reason=said, retry_after=answer.asked)
            raise found from error
        except AzureError as error:
            raise StoreUnavailable(action=action, address=self.address(path), reason=_reason(error)) from error


@dataclass
class _Clients:
    """The connections of one process to one store."""

    files: FileSystemClient
    blobs: ContainerClient
    seen: bool = field(default=False)
    """Whether the landing zone was seen to be there."""

    @classmethod
    def open(cls, store: OneLakeStore) -> _Clients:
        options: dict[str, Any] = {
            "credential": token_credential(store.credential, store.ca_bundle),
            "retry_policy": Retries(store.patience),
            "transport": transport(store.patience, store.ca_bundle),
            "api_version": API_VERSION,
        }
        return cls(
            FileSystemClient(store.endpoint, store.workspace, **options),
            # Whatever `create` is given goes in one call; in more than one it would no longer be whole or not at all.
            ContainerClient(blob_endpoint(store.endpoint), store.workspace, max_single_put_size=2**31, **options),
        )


class _Writer:
    """Sends a part whenever one is full, the rest when it is closed. After a failure the file stays unfinished."""

    closed = False

    def __init__(self, store: OneLakeStore, path: str, file: DataLakeFileClient) -> None:
        self._store, self._path, self._file = store, path, file
        self._part, self._sent, self._failed = bytearray(), 0, False

    def write(self, data: Any) -> int:
        if self.closed:
            raise ValueError("write to a closed file")
        left = view = memoryview(data).cast("B")
        while left:
            room = self._store.part_bytes - len(self._part)
            self._part += left[:room]
            left = left[room:]
            if len(self._part) == self._store.part_bytes:
                self._send()
        return len(view)

    def flush(self) -> None:
        """Parts go when they are full: what a file holds before it is closed is of no use to anybody."""

    def close(self) -> None:
        if self.closed:
            return
        self.closed = True
        if self._failed:
            return
        if self._part:
            self._send()
        if self._sent:
            with self._faults():
                self._file.flush_data(self._sent)

    def __enter__(self) -> _Writer:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self._failed = self._failed or kind is not None
        self.close()

    def _send(self) -> None:
        with self._faults():
            self._file.append_data(bytes(self._part), self._sent, len(self._part))
        self._sent += len(self._part)
        self._part.clear()

    @contextmanager
    def _faults(self) -> Iterator[None]:
        try:
            with self._store._faults("write", self._path):
                yield
        except NotThere as error:
            self._failed = True
            raise StoreUnavailable(
                action="write", address=error.address, reason="it was deleted while it was written"
            ) from error
        except BaseException:
            self._failed = True
            raise


class _Reader(io.RawIOBase):
    """Ranges of one state of a file: if another took its name meanwhile, reading ends with an error."""

    def __init__(self, store: OneLakeStore, path: str, file: DataLakeFileClient, size: int, etag: str) -> None:
        self._store, self._path, self._file, self._size, self._etag = store, path, file, size, etag
        self._place = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._place, io.SEEK_END: self._size}[whence]
        self._place = max(0, start + offset)
        return self._place

    def tell(self) -> int:
        return self._place

    def readall(self) -> bytes:
        return self._take(self._size - self._place)

    def readinto(self, buffer: Any) -> int:
        data = self._take(min(len(buffer), self._size - self._place))
        buffer[: len(data)] = data
        return len(data)

    def _take(self, length: int) -> bytes:
        if length <= 0:
            return b""
        same = MatchConditions.IfNotModified
        with self._store._faults("read", self._path):
            data = self._file.download_file(self._place, length, etag=self._etag, match_condition=same).readall()
        self._place += len(data)
        return data


def _entry(found: PathProperties) -> Entry:
    modified = found.last_modified or datetime.fromtimestamp(0)
    return Entry(
        # Only the last part: whether the service spells the item by id or by name does not matter then.
        name=found.name.rpartition("/")[2],
        is_folder=found.is_directory,
        size=0 if found.is_directory else found.content_length or 0,
        modified=modified.replace(tzinfo=UTC),  # the library reads GMT and drops it
        etag=found.etag or "",
    )


def _reason(error: AzureError) -> str:
    """Of a call that got no answer. The library may put the connection, as Python shows it, before the words."""
    return first_line(_CONNECTION.sub(r"\1", str(error.message)))


def _answer(error: HttpResponseError) -> Answer:
    headers = getattr(error.response, "headers", {})
    code = getattr(error, "error_code", None) or headers.get("x-ms-error-code") or ""
    code = getattr(code, "value", str(code))
    message = first_line(str(error.message)).removeprefix(f"({code})").strip()
    said = {str(name).lower(): value for name, value in (getattr(error, "additional_info", None) or {}).items()}
    refused = ", ".join(
        f"{what} {said[f'{part}name']} = {said.get(f'{part}value') or ''}".removesuffix(" = ")
        for part, what in (("header", "header"), ("queryparameter", "query parameter"))
        if said.get(f"{part}name")
    )
    asked = retry_after(headers, datetime.now(UTC)) or 0.0
    return Answer(error.status_code or 0, code, message, headers.get("Retry-After") or "", asked, refused)
