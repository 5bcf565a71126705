"""What the rules judge: what somebody saw in a landing zone, gathered elsewhere and put down as it was found."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from mirrorfeed.landing.log import Record
from mirrorfeed.lint.delimited_text import TextFault
from mirrorfeed.lint.specification import METADATA

TYPELESS = "null"
"""The type of a Parquet column whose writer found no value to tell one from."""


@dataclass(frozen=True, slots=True)
class Column:
    name: str
    type: str | None
    """The type by the name that Delta gives it, or Parquet's where Delta has none; None where text declares none."""
    nullable: bool = True


class Broken(StrEnum):
    """Why there is nothing to say about what is in a file."""

    TRUNCATED = "truncated"
    FOREIGN = "foreign"
    ENCRYPTED = "encrypted"
    CODEC = "codec"
    UNSAFE = "unsafe"


@dataclass(frozen=True, slots=True)
class Unreadable:
    why: Broken
    reason: str
    """In words; for `CODEC` the name of the compression."""


@dataclass(frozen=True, slots=True)
class Contents:
    columns: tuple[Column, ...]
    """All of them, the marker too, in the file's order."""
    rows: int = 0
    codecs: frozenset[str] = frozenset()
    """Those that Parquet names beside its columns; none for text."""
    markers: Mapping[str, int] = field(default_factory=dict)
    """Rows by the value of the marker, in words; `NULL` where it is empty."""
    null_keys: Mapping[str, int] = field(default_factory=dict)
    """Rows without a value, by key column; only columns with such rows."""
    widest_keys: Mapping[str, int] = field(default_factory=dict)
    """The bytes of the longest text or binary value, by key column."""
    faults: tuple[TextFault, ...] = ()
    """One of each kind is enough; what follows a structural one was not read."""
    invalid_texts: Mapping[str, int] = field(default_factory=dict)
    """The first row, from 1, whose text is not valid UTF-8, by column; only of Parquet."""


@dataclass(frozen=True, slots=True)
class DataFile:
    """A file in a table's folder whose name the service does not ignore."""

    name: str
    size: int
    modified: datetime
    content: Contents | Unreadable | None = None
    """None: it was not opened, or was gone by then."""


@dataclass(frozen=True, slots=True)
class Log:
    """What lies in `_mirrorfeed`."""

    id: str | None
    """Of the log that `log.json` names."""
    fault: str | None = None
    """Why `log.json` or the newest record could not be read, after the path of the one that could not."""
    too_new: str | None = None
    """The format of a newest record that only a newer version knows, after the path of the record."""
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
    """The name under which it was found."""
    files: tuple[DataFile, ...] = ()
    folders: tuple[str, ...] = ()
    """Those in it that the service does not ignore."""
    ignored: tuple[str, ...] = ()
    """Files and folders whose names start with `_`."""
    in_place: tuple[str, ...] = ()
    """Names of the data files in a second listing, made after the log was read and before `processed`."""
    processed: Mapping[str, str] = field(default_factory=dict)
    """Files that the service is done with, and the folder each is in."""
    scratch: tuple[str, ...] = ()
    """What is in `_scratchPad`."""
    log: Log | None = None


@dataclass(frozen=True, slots=True)
class Folder:
    """A folder that the service does not ignore, at the top or below another, with what is directly in it."""

    path: str
    files: tuple[str, ...] = ()
    folders: tuple[Folder, ...] = ()
    """To the depth where a table can be, and one below."""


@dataclass(frozen=True, slots=True)
class Zone:
    files: tuple[str, ...] = ()
    """At its top, ignored names as well."""
    folders: tuple[Folder, ...] = ()
    partner_events: bytes | None = None
    scratch: tuple[str, ...] = ()
    """What is in `_scratchPad` at the top."""
