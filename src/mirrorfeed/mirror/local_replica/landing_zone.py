"""Find the tables and the next data files of a landing zone, and move or delete applied files, as Fabric does."""

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
from mirrorfeed.mirror.errors import file_breaks_rule
from mirrorfeed.storage import Entry, Store
from mirrorfeed.storage.errors import PathExistsError, PathMissingError
from mirrorfeed.storage.local_folder import FolderStore

_NUMBERED = re.compile(r"(\d{20})\..+", re.ASCII)
_RETENTION = timedelta(days=7)
"""Time after which an applied file is deleted."""
_PROCESSED_TIMES = "_replica/processed.json"
"""File in the folder of the Delta table with the time when each processed file was first found."""


@dataclass(frozen=True, slots=True)
class TableFolder:
    schema: str | None
    name: str
    etag: str
    """Version of the folder, which changes if the folder is deleted and created again."""

    @property
    def parent(self) -> str:
        return f"{self.schema}{SCHEMA_SUFFIX}" if self.schema else ""

    @property
    def path(self) -> str:
        return f"{self.parent}/{self.name}" if self.parent else self.name

    @property
    def table(self) -> str:
        return f"{self.schema}.{self.name}" if self.schema else self.name


def find_table_folders(zone: Store) -> list[TableFolder]:
    root = zone.list("")
    names = [entry.name for entry in root if is_visible_folder(entry) and entry.name.endswith(SCHEMA_SUFFIX)]
    folders = tables_in(root, None)
    for name in names:
        if schema := name.removesuffix(SCHEMA_SUFFIX):
            folders += tables_in(zone.list(name), schema)
    return folders


def tables_in(entries: Iterable[Entry], schema: str | None) -> list[TableFolder]:
    """Return the table folders among the entries of a schema folder, or of the root folder if `schema` is None."""
    return [
        TableFolder(schema, entry.name, entry.etag)
        for entry in entries
        if is_visible_folder(entry) and not (schema is None and entry.name.endswith(SCHEMA_SUFFIX))
    ]


@dataclass(frozen=True, slots=True)
class Queue:
    """Data files of a table, in the order in which Fabric applies them."""

    done: list[Entry]
    """Files that were already applied."""
    ready: list[Entry]
    """Files to apply now."""
    waiting: str = ""
    """Text with the first missing file number and the files that wait for it. Empty if no file waits."""


def read_settings(zone: Store, folder: str) -> Settings:
    """Return the settings in `_metadata.json` of a table folder, or the defaults if the file is missing.

    Accepts a mistake in the file if the intended value is clear. Raises `file_breaks_rule` for any other mistake.
    """
    path = f"{folder}/{METADATA}"
    try:
        return parse_settings(zone.read(path), zone.address(path))
    except PathMissingError:
        return Settings()  # the file may be added at any time


def parse_settings(content: bytes, address: str) -> Settings:
    """Return the settings in `content`, the content of `_metadata.json`. Errors show the file's `address`.

    Accepts a mistake in the file if the intended value is clear. Raises `file_breaks_rule` for any other mistake.
    """
    settings, deviations = read_metadata(content, address)
    if unclear := next((deviation for deviation in deviations if not deviation.is_clear), None):
        raise file_breaks_rule(finding=unclear.finding)
    return settings


def data_files(entries: Iterable[Entry]) -> list[Entry]:
    return [entry for entry in entries if not entry.is_folder and not is_ignored(entry.name)]


def number_of(name: str) -> int:
    """Return the number in a file name of 20 digits and an extension, or 0 for any other name."""
    match = _NUMBERED.fullmatch(name)
    return int(match[1]) if match else 0


def queue_by_number(files: Iterable[Entry], applied: int, folder: str) -> Queue:
    """Divide the data files of a table into applied files and files to apply now, in the order of their numbers.

    Files after a missing number must wait: `Queue.waiting` describes them. Ignores files without a number. `applied` is
    the last applied number, or 0. Raises `file_breaks_rule` with the address `folder` if two files have the same
    number.
    """
    numbered = sorted((file for file in files if number_of(file.name)), key=lambda file: file.name)
    for file, next_file in pairwise(numbered):
        if (number := number_of(file.name)) == number_of(next_file.name):
            path = f"{folder}/{next_file.name}"
            raise file_breaks_rule(finding=NUMBER_TWICE.finding(path, number=number, other=file.name))
    done = [file for file in numbered if number_of(file.name) <= applied]
    later = numbered[len(done) :]
    ready = [file for number, file in enumerate(later, applied + 1) if number_of(file.name) == number]
    if not (waiting := later[len(ready) :]):
        return Queue(done, ready)
    first, count = waiting[0].name, len(waiting)
    text = f"{first} waits" if count == 1 else f"{count} files wait, the first is {first}"
    return Queue(done, ready, f"File {applied + len(ready) + 1:020} is missing; {text}.")


def queue_by_time(files: Iterable[Entry], processed: frozenset[str]) -> Queue:
    """Divide the data files of a table into applied files and files to apply now, in order of modification times.

    `processed` contains the names of the applied files.
    """
    # The specification does not define the order of files with equal times. Sorting by name makes runs repeatable.
    ordered = sorted(files, key=lambda file: (file.modified, file.name))
    done = [file for file in ordered if file.name in processed]
    return Queue(done, [file for file in ordered if file.name not in processed])


def move_processed(store: Store, folder: str, done: Sequence[Entry]) -> list[str]:
    """Move the files of `done`, except the last, to the subfolder `_ProcessedFiles`.

    Returns the names of files that are not moved, because the subfolder already has a file with this name.
    """
    repeated = []
    for file in done[:-1]:
        try:
            store.rename(f"{folder}/{file.name}", f"{folder}/{PROCESSED[0]}/{file.name}")
        except PathMissingError:
            continue  # its publisher deleted the file
        except PathExistsError:
            repeated.append(file.name)
    return repeated


def delete_processed(store: Store, folder: str, mirror: Path, now: datetime) -> None:
    """Delete applied files from the subfolders of `folder`, seven days after this function first found them there.

    Writes a JSON file into `mirror`, the folder of the Delta table, with the time when each file was first found.
    """
    table = FolderStore(str(mirror))
    before = dict[str, str]()
    with suppress(PathMissingError, ValueError):  # without the stored times, files are deleted up to a week later
        before = dict(json.loads(table.read(_PROCESSED_TIMES)))
    times = dict[str, str]()
    for subfolder in PROCESSED:
        for entry in store.list(f"{folder}/{subfolder}"):
            if entry.is_folder:
                continue
            path = f"{subfolder}/{entry.name}"
            # The modification time is the time of publication: the move to the subfolder does not change it.
            first_found = before.get(path, now.isoformat())
            if now - datetime.fromisoformat(first_found) >= _RETENTION:
                store.remove(f"{folder}/{path}")
            else:
                times[path] = first_found
    if times != before:
        table.replace(_PROCESSED_TIMES, json.dumps(times).encode())


def is_visible_folder(entry: Entry) -> bool:
    return entry.is_folder and not is_ignored(entry.name)
