"""Lint rules for folders, table names, `_partnerEvents.json`, staged files, and the log of mirrorfeed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated, Any

from pydantic import BaseModel, StringConstraints, ValidationError

from mirrorfeed.landing.errors import TargetNameError
from mirrorfeed.landing.log_record import Record
from mirrorfeed.landing.names import LOG, TABLE_LIMITS, WARN_TABLES, Target, data_name, fold, log_folder
from mirrorfeed.lint.file_rules import number_of
from mirrorfeed.lint.landing_zone import Contents, Folder, LandingTable
from mirrorfeed.lint.specification import (
    METADATA,
    PARTNER_EVENTS,
    REBUILD,
    SCHEMA_SUFFIX,
    SCRATCH,
    LintFinding,
    advice,
    describe,
    error,
    is_ignored,
    load_object,
    warning,
)

LOOSE = warning(
    "MF101",
    "The file is not in the folder of a table, so Fabric does not read it.",
    "Move the file into the folder of its table, or delete it.",
)
SCHEMA_NAME = error(
    "MF102",
    "The folder contains tables, but its name does not end in '.schema', so Fabric reads the folder as a table.",
    "Rename the folder to <schema>.schema before mirroring starts.",
)
NO_TABLES = warning("MF103", "The schema folder contains no tables.", "Delete the folder, or create its tables.")
BAD_NAME = warning(
    "MF104",
    "The name of the table {reason}. Such a name might be invalid in Fabric.",
    "Choose another name. For Fabric, a renamed folder is a new table, so publish all data again.",
)
SAME_NAME = error(
    "MF105",
    "The names of this folder and of {other!r} differ only in case, so Fabric may treat both as one table.",
    "Rename one of the folders. For Fabric, a renamed folder is a new table, so publish all data again.",
)
MISSING = error(
    "MF201",
    "The folder of the table has no _metadata.json, so the table has no keys.",
    'Add the file: `{"keyColumns": ["…"]}`, or `{}` for a table without keys.',
)
MISNAMED = error(
    "MF202",
    "The file is named {name!r}, but Fabric reads only _metadata.json.",
    f"Rename the file to {METADATA}.",
)
MISPLACED = warning(
    "MF106",
    "The file with the partner events has the wrong name or is in the wrong folder, so Fabric does not find it.",
    f"Move the file to {PARTNER_EVENTS} in the top folder of the landing zone.",
)
NEARLY_FULL = advice(
    "MF151",
    f"The landing zone has {{tables:,}} tables. {TABLE_LIMITS}",
    "Publish some of the tables to another database before Fabric leaves tables out.",
)
UNREADABLE = error(
    "MF107",
    "It cannot be read: {reason}.",
    "Write the file again as one JSON object, or delete it.",
    "The file with the partner events is not one JSON object.",
)
SHAPE = warning(
    "MF108",
    "{property} is {found}.",
    'Write `{"partnerName": "…", "sourceInfo": {"sourceType": "…", "sourceVersion": "…",'
    ' "additionalInformation": {…}}}`.',
    "A property of the partner events is missing or has the wrong type.",
)


STAGED = warning(
    "MF701",
    "The file was staged, but never published.",
    "If no publisher is running, delete the file. Fabric ignores it.",
)
NEVER_PUBLISHED = warning(
    "MF704",
    "mirrorfeed staged the file, but no record of the log publishes it.",
    "Run `mirrorfeed publish`. It deletes the file, unless another publisher is running.",
)
UNFINISHED = warning(
    "MF705",
    "Record {record} of the log publishes the file, but the file does not have its final name yet.",
    "Run `mirrorfeed publish` to finish the publication.",
)
OLD_LOG = warning(
    "MF706",
    "The folder belongs to a log that is no longer in use.",
    "Run `mirrorfeed publish` to delete the folder.",
)
LOG_FAULT = error(
    "MF707",
    "mirrorfeed's log of the table cannot be read: {reason}.",
    f"If the file was changed or removed, restore it. Otherwise, {REBUILD}.",
)
OTHER_CONTENT = error(
    "MF708",
    "The file has {bytes:count byte}, but record {record} published {published:,} under this name.",
    f"Find out who changed the file: published files must not change. To be safe, {REBUILD}.",
)
FOREIGN = error(
    "MF709",
    "mirrorfeed did not publish this file. The last file in the log of the table is {last}.",
    f"Find out who wrote the file: only one publisher may write to a table. To be safe, {REBUILD}.",
)
TOO_NEW = warning(
    "MF710",
    "The record has format {format}: a newer release of mirrorfeed wrote it.",
    "Install that release and check again. This release did not check the log of the table.",
)
KEYS_CHANGED = error(
    "MF220",
    "The keys are {now}, but mirrorfeed published the table with {before:names}.",
    f"The keys of a table cannot change. Restore the previous keys, or {REBUILD}.",
)
_Text = Annotated[str, StringConstraints(pattern=r"\S")]


def find_tables(root: Folder) -> list[Folder]:
    """Return the folders of all tables, also in schema folders whose name lacks the suffix `.schema`."""
    return [table for folder in root.folders for table in (folder.folders if _is_schema(folder) else (folder,))]


def check_folders(root: Folder) -> Iterator[LintFinding]:
    yield from _check_loose(root)
    for folder in root.folders:
        inner = folder.folders if _is_schema(folder) else (folder,)
        if _is_schema(folder):
            if not folder.path.endswith(SCHEMA_SUFFIX):
                yield SCHEMA_NAME.finding(folder.path)
            yield from _check_loose(folder)
            if not inner:
                yield NO_TABLES.finding(folder.path)
        for table in inner:
            for name in filter(_is_partner_events, table.files):
                yield MISPLACED.finding(f"{table.path}/{name}")
    paths: dict[tuple[str, str], str] = {}
    for table in find_tables(root):
        parent, separator, name = table.path.rpartition("/")
        schema = parent[: -len(SCHEMA_SUFFIX)] if _has_suffix(parent) else parent
        try:
            Target(schema if separator else None, name)
        except TargetNameError as fault:
            yield BAD_NAME.finding(table.path, reason=fault.reason)
        other = paths.setdefault((fold(schema), fold(name)), table.path)
        if other != table.path:
            yield SAME_NAME.finding(table.path, other=other)
    if len(paths) >= WARN_TABLES:
        yield NEARLY_FULL.finding("", tables=len(paths))


def _has_suffix(name: str) -> bool:
    return name.lower().endswith(SCHEMA_SUFFIX)


def _is_schema(folder: Folder) -> bool:
    """Return whether a folder is a schema folder.

    The name of a schema folder should end in `.schema`. Without this suffix, a folder without files counts as a schema
    folder if a subfolder has `_metadata.json`.
    """
    has_tables = not folder.files and any(METADATA in inner.files for inner in folder.folders)
    return _has_suffix(folder.path) or has_tables


def _check_loose(folder: Folder) -> Iterator[LintFinding]:
    for name in folder.files:
        path = f"{folder.path}/{name}" if folder.path else name
        if _is_partner_events(name):
            if path != PARTNER_EVENTS:
                yield MISPLACED.finding(path)
        elif name == METADATA or not is_ignored(name):
            yield LOOSE.finding(path)


def _is_partner_events(name: str) -> bool:
    return name.lower().removeprefix("_") == PARTNER_EVENTS.lower().removeprefix("_")


class _SourceInfo(BaseModel):
    sourceType: _Text
    sourceVersion: _Text
    additionalInformation: dict[str, Any] = {}


class _PartnerEvents(BaseModel):
    partnerName: _Text
    sourceInfo: _SourceInfo


def check_partner_events(data: bytes) -> Iterator[LintFinding]:
    try:
        content = load_object(data)
    except ValueError as fault:
        yield UNREADABLE.finding(PARTNER_EVENTS, reason=fault)
        return
    try:
        _PartnerEvents.model_validate(content, strict=True)
    except ValidationError as invalid:
        for each in invalid.errors(include_url=False, include_context=False):
            *_, name = path = [str(part) for part in each["loc"]]
            found = describe(each["input"])
            if each["type"] == "missing":
                near = [other for other in each["input"] if other.lower() == name.lower()]
                found = f"spelled {near[0]!r}" if near else "missing"
            yield SHAPE.finding(PARTNER_EVENTS, property=".".join(path), found=found)


def check_leftovers(table: LandingTable) -> Iterator[LintFinding]:
    """Yield findings for staged files, old logs, and keys or data files that the newest log record contradicts."""
    extensions = rf"parquet|csv|tsv|psv|txt|{re.escape(table.settings.extension)}"
    staged = re.compile(rf"_.*\.(?:{extensions})(?:\.\w+)?|_temporary", re.IGNORECASE)
    for name in filter(staged.fullmatch, table.ignored):
        yield STAGED.finding(f"{table.folder}/{name}")
    for name in table.scratch:
        yield STAGED.finding(f"{table.folder}/{SCRATCH}/{name}")
    log = table.log
    if log is None:
        return
    for name in log.others:
        yield OLD_LOG.finding(f"{table.folder}/{LOG}/{name}")
    published = {file.staged for file in log.newest.files} if log.newest else set()
    for name in log.staged:
        path = f"{table.folder}/{log_folder(log.id)}/{name}"
        if name in published and log.newest:
            yield UNFINISHED.finding(path, record=log.newest.number)
        else:
            yield NEVER_PUBLISHED.finding(path)
    if log.newest:
        yield from _check_against_record(table, log.newest)


def _check_against_record(table: LandingTable, record: Record) -> Iterator[LintFinding]:
    keys = record.delivery.keys(record.keys)
    if keys and keys != table.settings.keys:
        now = ", ".join(map(repr, table.settings.keys)) or "not set"
        yield KEYS_CHANGED.finding(f"{table.folder}/{METADATA}", now=now, before=keys)
    sizes = {file.number: file.bytes for file in record.files}
    for file in table.files:
        number, path = number_of(file.name), f"{table.folder}/{file.name}"
        if number is None:
            continue
        if number >= record.next_file_number:
            last = data_name(record.next_file_number - 1, record.extension) if record.next_file_number > 1 else "none"
            yield FOREIGN.finding(path, last=last)
        elif isinstance(file.content, Contents) and sizes.get(number, file.size) != file.size:
            yield OTHER_CONTENT.finding(path, bytes=file.size, record=record.number, published=sizes[number])
