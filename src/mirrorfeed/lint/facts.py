"""Facts about a landing zone, which the linter reads and the rules check."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from mirrorfeed.landing.record import Record
from mirrorfeed.lint.delimited_text import TextFault
from mirrorfeed.lint.specification import METADATA

TYPELESS = "null"
"""The type of a Parquet column whose writer found no value to infer a type from."""


@dataclass(frozen=True, slots=True)
class Column:
    name: str
    type: str | None
    """The name of the type in Delta, or in Parquet if Delta has none; None if text declares none."""
    nullable: bool = True


class Broken(StrEnum):
    """Why the content of a file is unknown."""

    TRUNCATED = "truncated"
    FOREIGN = "foreign"
    ENCRYPTED = "encrypted"
    CODEC = "codec"
    UNSAFE = "unsafe"


@dataclass(frozen=True, slots=True)
class Unreadable:
    why: Broken
    reason: str
    """A phrase; for `CODEC` the name of the compression."""


@dataclass(frozen=True, slots=True)
class Contents:
    columns: tuple[Column, ...]
    """In the order of the file, with the marker."""
    rows: int = 0
    codecs: frozenset[str] = frozenset()
    """Compressions of the columns of a Parquet file; none for text."""
    markers: Mapping[str, int] = field(default_factory=dict)
    """Rows by the value of the marker as text; `NULL` if it is NULL."""
    null_keys: Mapping[str, int] = field(default_factory=dict)
    """Rows with NULL, by key column; only columns with such rows."""
    widest_keys: Mapping[str, int] = field(default_factory=dict)
    """The bytes of the longest text or binary value, by key column."""
    faults: tuple[TextFault, ...] = ()
    """The first of each kind. Rows after a structural fault are not read."""
    invalid_texts: Mapping[str, int] = field(default_factory=dict)
    """The first row, from 1, whose text is not valid UTF-8, by column; only of Parquet."""


@dataclass(frozen=True, slots=True)
class DataFile:
    """A file in the folder of a table whose name Fabric does not ignore."""

    name: str
    size: int
    modified: datetime
    content: Contents | Unreadable | None = None
    """None if the file was not opened, or was consumed meanwhile."""


@dataclass(frozen=True, slots=True)
class Log:
    """The folder `_mirrorfeed`."""

    id: str | None
    """The id in `log.json`."""
    fault: str | None = None
    """The path of `log.json` or of the newest record, and why it cannot be read."""
    too_new: str | None = None
    """The path of the newest record and its format, if only a newer version can read it."""
    newest: Record | None = None
    staged: tuple[str, ...] = ()
    """Names in the log's folder that are not records, from a listing made after the newest record was read."""
    others: tuple[str, ...] = ()
    """Folders of other logs."""


@dataclass(frozen=True, slots=True)
class Table:
    folder: str
    """Its path below the landing zone."""
    metadata: bytes | None
    metadata_name: str = METADATA
    """The name of the metadata file."""
    files: tuple[DataFile, ...] = ()
    folders: tuple[str, ...] = ()
    """Subfolders that Fabric does not ignore."""
    ignored: tuple[str, ...] = ()
    """Files and folders whose names start with `_`."""
    in_place: tuple[str, ...] = ()
    """Names of the data files in a second listing, made after the log was read and before `processed`."""
    processed: Mapping[str, str] = field(default_factory=dict)
    """Consumed files, and the folder that each is in."""
    scratch: tuple[str, ...] = ()
    """Files in `_scratchPad`."""
    log: Log | None = None


@dataclass(frozen=True, slots=True)
class Folder:
    """A folder that Fabric does not ignore, at the top or in another one, with its content."""

    path: str
    files: tuple[str, ...] = ()
    folders: tuple[Folder, ...] = ()
    """Down to one level below tables."""


@dataclass(frozen=True, slots=True)
class Zone:
    files: tuple[str, ...] = ()
    """At the top, with ignored names."""
    folders: tuple[Folder, ...] = ()
    partner_events: bytes | None = None
    scratch: tuple[str, ...] = ()
    """Files in `_scratchPad` at the top."""
