"""Rules for folders outside of tables, for the names of tables, and for `_partnerEvents.json`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from mirrorfeed.landing.errors import BadTarget
from mirrorfeed.landing.limits import MAX_TABLES, WARN_TABLES
from mirrorfeed.landing.names import Target, fold
from mirrorfeed.lint.facts import Folder, Zone
from mirrorfeed.lint.findings import Finding, advice, error, warning
from mirrorfeed.lint.metadata_file import describe, load_object
from mirrorfeed.lint.specification import METADATA, PARTNER_EVENTS, SCHEMA_SUFFIX, is_ignored

LOOSE = warning(
    "MF101",
    "A file is outside of the folders of tables, so Fabric does not read it.",
    "Move the file into the folder of its table, or delete it.",
)
SCHEMA_NAME = error(
    "MF102",
    "The name of a folder with tables does not end in `.schema`, so Fabric reads the folder as a table.",
    "Rename the folder to <schema>.schema before mirroring starts.",
)
NO_TABLES = warning("MF103", "The folder of a schema has no table.", "Delete the folder, or create its tables.")
BAD_NAME = warning(
    "MF104",
    "The name of a folder may not be valid as a table name in Fabric.",
    "Change the name of the table. A renamed folder is a new table and needs all data again.",
)
SAME_NAME = error(
    "MF105",
    "The names of two folders differ in case only.",
    "Rename one of them. Fabric may treat them as one table.",
)
MISPLACED = warning(
    "MF106",
    "The file with the partner events is in the wrong folder, or has another name.",
    f"Name the file {PARTNER_EVENTS}, and move it to the top of the landing zone.",
)
_MISPLACED = "Fabric does not find the partner events here under this name."
_SPREAD = "Publish some of the tables to another database before mirroring of this one stops."
NEARLY_FULL = advice(
    "MF151", f"The number of tables is close to the limit of a mirrored database, {MAX_TABLES}.", _SPREAD
)
TOO_MANY = error("MF109", f"The number of tables is above the limit of a mirrored database, {MAX_TABLES}.", _SPREAD)
UNREADABLE = error(
    "MF107", "The file with the partner events is not JSON.", "Write the file again as one JSON object, or delete it."
)
SHAPE = warning(
    "MF108",
    "A property of the partner events is missing or has the wrong type.",
    'Give `{"partnerName": "…", "sourceInfo": {"sourceType": "…", "sourceVersion": "…",'
    ' "additionalInformation": {…}}}`.',
)


@dataclass(frozen=True, slots=True)
class TableFolder:
    schema: str | None
    table: str
    path: str


def find_tables(zone: Zone) -> list[TableFolder]:
    """The folders of tables, also those in the folder of a schema whose name is wrong."""
    found = []
    for folder in zone.folders:
        if _is_schema(folder):
            schema = folder.path[: -len(SCHEMA_SUFFIX)] if _has_suffix(folder.path) else folder.path
            found += [TableFolder(schema, inner.path.rpartition("/")[2], inner.path) for inner in folder.folders]
        else:
            found.append(TableFolder(None, folder.path, folder.path))
    return found


def check_folders(zone: Zone) -> Iterator[Finding]:
    yield from _check_loose("", zone.files)
    for folder in zone.folders:
        inner = folder.folders if _is_schema(folder) else (folder,)
        if _is_schema(folder):
            if not folder.path.endswith(SCHEMA_SUFFIX):
                how = "ends in another case than" if _has_suffix(folder.path) else "does not end in"
                what = f"The folder holds tables, and its name {how} '.schema'."
                yield SCHEMA_NAME.finding(folder.path, what)
            yield from _check_loose(folder.path, folder.files)
            if not inner:
                yield NO_TABLES.finding(folder.path, "The schema's folder holds no table.")
        for table in inner:
            for name in filter(_is_partner_events, table.files):
                yield MISPLACED.finding(f"{table.path}/{name}", _MISPLACED)
    seen: dict[tuple[str, str], str] = {}
    for found in find_tables(zone):
        try:
            Target(found.schema, found.table)
        except BadTarget as fault:
            yield BAD_NAME.finding(found.path, f"The table's name {fault.reason}.")
        other = seen.setdefault((fold(found.schema or ""), fold(found.table)), found.path)
        if other != found.path:
            yield SAME_NAME.finding(found.path, f"The folder differs from {other!r} only in case.")
    if len(seen) >= WARN_TABLES:
        rule = TOO_MANY if len(seen) > MAX_TABLES else NEARLY_FULL
        yield rule.finding("", f"The landing zone holds {len(seen)} tables, and a database takes {MAX_TABLES}.")


def _has_suffix(name: str) -> bool:
    return name.lower().endswith(SCHEMA_SUFFIX)


def _is_schema(folder: Folder) -> bool:
    """Whether the name is that of a schema, or the folder contains tables and nothing of a table."""
    has_tables = not folder.files and any(METADATA in inner.files for inner in folder.folders)
    return _has_suffix(folder.path) or has_tables


def _check_loose(path: str, files: tuple[str, ...]) -> Iterator[Finding]:
    for name in files:
        where = f"{path}/{name}" if path else name
        if _is_partner_events(name):
            if where != PARTNER_EVENTS:
                yield MISPLACED.finding(where, _MISPLACED)
        elif name == METADATA or not is_ignored(name):
            yield LOOSE.finding(where, "The file is in no table's folder.")


def _is_partner_events(name: str) -> bool:
    return name.lower().removeprefix("_") == PARTNER_EVENTS.lower().removeprefix("_")


def check_partner_events(data: bytes | None) -> list[Finding]:
    if data is None:
        return []
    try:
        content = load_object(data)
    except ValueError as fault:
        return [UNREADABLE.finding(PARTNER_EVENTS, f"It cannot be read: {fault}.")]
    return [SHAPE.finding(PARTNER_EVENTS, what) for what in _faults(content)]


def _faults(content: dict[str, Any]) -> Iterator[str]:
    yield from _text(content, "partnerName", "")
    source = content.get("sourceInfo")
    if not isinstance(source, dict):
        yield "sourceInfo is missing." if source is None else f"sourceInfo is {describe(source)}, not an object."
        return
    yield from _text(source, "sourceType", "sourceInfo.")
    yield from _text(source, "sourceVersion", "sourceInfo.")
    more = source.get("additionalInformation", {})
    if not isinstance(more, dict):
        yield f"sourceInfo.additionalInformation is {describe(more)}, not an object."


def _text(content: dict[str, Any], name: str, where: str) -> Iterator[str]:
    value = content.get(name)
    if value is None:
        near = [other for other in content if other.lower() == name.lower() and other != name]
        yield f"{where}{name} is spelled {near[0]!r}." if near else f"{where}{name} is missing."
    elif not isinstance(value, str) or not value.strip():
        yield f"{where}{name} is {describe(value)}, not a text with something in it."
