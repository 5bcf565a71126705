"""Tables and data files of a landing zone: find the next files, and set aside or delete processed files."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path

from mirrorfeed.lint.file_rules import NUMBER_TWICE
from mirrorfeed.lint.metadata_file import read_metadata
from mirrorfeed.lint.specification import METADATA, PROCESSED, SCHEMA_SUFFIX, Settings, is_ignored
from mirrorfeed.mirror.errors import FileRefused
from mirrorfeed.storage import Entry, Store
from mirrorfeed.storage.errors import AlreadyThere, NotThere
from mirrorfeed.storage.local_folder import FolderStore

_NUMBERED = re.compile(r"(\d{20})\..+", re.ASCII)
_KEPT_FOR = timedelta(days=7)
_NOTES = "_replica/processed.json"
"""File in the folder of the Delta table, which ignores names that start with `_`. It is deleted with the table."""


@dataclass(frozen=True, slots=True)
class TableFolder:
    schema: str | None
    name: str
    etag: str

    @property
    def parent(self) -> str:
        return f"{self.schema}{SCHEMA_SUFFIX}" if self.schema else ""

    @property
    def path(self) -> str:
        return f"{self.parent}/{self.name}" if self.parent else self.name

    @property
    def table(self) -> str:
        return f"{self.schema}.{self.name}" if self.schema else self.name


def schemas_in(root: Iterable[Entry]) -> list[str]:
    """Return the names of the schemas with a folder in the root of the landing zone."""
    names = (entry.name for entry in root if _is_folder(entry) and entry.name.endswith(SCHEMA_SUFFIX))
    return [name.removesuffix(SCHEMA_SUFFIX) for name in names if name != SCHEMA_SUFFIX]


def tables_in(entries: Iterable[Entry], schema: str | None) -> list[TableFolder]:
    """Return the table folders in the root of the landing zone, or in the folder of a schema."""
    return [
        TableFolder(schema, entry.name, entry.etag)
        for entry in entries
        if _is_folder(entry) and not (schema is None and entry.name.endswith(SCHEMA_SUFFIX))
    ]


@dataclass(frozen=True, slots=True)
class Queue:
    """Data files of a table folder in order: `done`, `ready`, and `waiting` for a missing number."""

    done: list[Entry]
    ready: list[Entry]
    missing: int | None = None
    """Number that must be applied before the `waiting` files."""
    waiting: Sequence[Entry] = ()


def read_settings(zone: Store, folder: str) -> Settings:
    path = f"{folder}/{METADATA}"
    try:
        return parse_settings(zone.read(path), zone.address(path))
    except NotThere:
        return Settings()  # the file may be added at any time


def parse_settings(content: bytes, address: str) -> Settings:
    """Parse `_metadata.json`. Ignores unknown properties. Raises `FileRefused` if the meaning is not clear."""
    settings, deviations = read_metadata(content, address)
    if unclear := next((deviation for deviation in deviations if not deviation.is_clear), None):
        raise FileRefused(finding=unclear.finding)
    return settings


def data_files(entries: Iterable[Entry]) -> list[Entry]:
    """Return the files of a table folder that Fabric does not ignore."""
    return [entry for entry in entries if not entry.is_folder and not is_ignored(entry.name)]


def number_of(name: str) -> int:
    """Return the number in a name with 20 digits and an extension, or 0."""
    match = _NUMBERED.fullmatch(name)
    return int(match[1]) if match else 0


def by_number(files: Iterable[Entry], applied: int, folder: str) -> Queue:
    """Order files by number, from 1 without gaps. Ignores files without a number."""
    numbered = sorted((file for file in files if number_of(file.name)), key=lambda file: file.name)
    for one, other in pairwise(numbered):
        if (number := number_of(one.name)) == number_of(other.name):
            path = f"{folder}/{other.name}"
            raise FileRefused(finding=NUMBER_TWICE.finding(path, number=number, other=one.name))
    done = [file for file in numbered if number_of(file.name) <= applied]
    later = numbered[len(done) :]
    ready = [file for number, file in enumerate(later, applied + 1) if number_of(file.name) == number]
    waiting = later[len(ready) :]
    return Queue(done, ready, applied + len(ready) + 1 if waiting else None, waiting)


def by_time(files: Iterable[Entry], processed: frozenset[str]) -> Queue:
    """Order files of any name by storage time. A processed path is never read again."""
    # The specification does not define the order of files with equal times. Sorting by name makes runs repeatable.
    ordered = sorted(files, key=lambda file: (file.modified, file.name))
    done = [file for file in ordered if file.name in processed]
    return Queue(done, [file for file in ordered if file.name not in processed])


def set_aside(store: Store, folder: str, done: Sequence[Entry]) -> list[str]:
    """Move processed files to a subfolder, except the last. Returns names that were set aside before.

    Such a name was published twice. The second file stays and is never read.
    """
    repeated = []
    for file in done[:-1]:
        try:
            store.rename(f"{folder}/{file.name}", f"{folder}/{PROCESSED[0]}/{file.name}")
        except NotThere:
            continue  # its publisher deleted the file
        except AlreadyThere:
            repeated.append(file.name)
    return repeated


def delete_old(store: Store, folder: str, mirror: Path, now: datetime) -> None:
    """Delete files seven days after they were set aside. The time starts when the replica first finds them there.

    Storage times cannot be used, because a rename keeps the time of the last write.
    """
    notes = FolderStore(str(mirror))
    before = _load(notes)
    seen: dict[str, str] = {}
    for processed in PROCESSED:
        for entry in store.list(f"{folder}/{processed}"):
            if entry.is_folder:
                continue
            path = f"{processed}/{entry.name}"
            since = before.get(path, now.isoformat())
            if now - datetime.fromisoformat(since) >= _KEPT_FOR:
                store.remove(f"{folder}/{path}")
            else:
                seen[path] = since
    if seen != before:
        notes.replace(_NOTES, json.dumps(seen).encode())


def _load(notes: FolderStore) -> dict[str, str]:
    with suppress(NotThere, ValueError):  # without the notes, files are deleted a week later
        return dict(json.loads(notes.read(_NOTES)))
    return {}


def _is_folder(entry: Entry) -> bool:
    return entry.is_folder and not is_ignored(entry.name)
