"""Facts about a landing zone, which the linter reads and the rules check."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from mirrorfeed.landing.record import Record
from mirrorfeed.lint.delimited_text import TextFault
from mirrorfeed.lint.metadata_file import Column, Settings
from mirrorfeed.lint.specification import Broken, Finding

TYPELESS = "null"
"""Type of a Parquet column whose writer found no value to infer a type from."""


@dataclass(frozen=True, slots=True)
class Unreadable:
    why: Broken
    reason: str
    """For `CODEC`, the name of the compression."""


@dataclass(frozen=True, slots=True)
class Contents:
    columns: tuple[Column, ...]
    """With the row marker, in the order of the file."""
    rows: int = 0
    codecs: frozenset[str] = frozenset()
    """Compressions in a Parquet file."""
    markers: Mapping[str, int] = field(default_factory=dict)
    """Rows by value of the row marker, as text or `NULL`."""
    null_keys: Mapping[str, int] = field(default_factory=dict)
    """Number of rows with NULL, by key column."""
    widest_keys: Mapping[str, int] = field(default_factory=dict)
    """Length of the longest text or binary value in bytes, by key column."""
    faults: tuple[TextFault, ...] = ()
    """The first fault of each kind. Rows after a structural fault are not read."""
    invalid_texts: Mapping[str, int] = field(default_factory=dict)
    """First row whose text is not valid UTF-8, by column of a Parquet file. Rows start at 1."""
    missing_values: Mapping[str, int] = field(default_factory=dict)
    """Number of rows with NULL that are not deletes, by column of a Parquet file that must have values."""


@dataclass(frozen=True, slots=True)
class Duplicates:
    """Rows of a file that insert a key which the table already has."""

    rows: int
    first: int
    """The first such row. Rows start at 1."""


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
    finding: Finding | None = None
    """The reason why `log.json` or the newest record cannot be read."""
    newest: Record | None = None
    staged: tuple[str, ...] = ()
    """Names in the log's folder that are not records, from a listing made after the newest record was read."""
    others: tuple[str, ...] = ()
    """Folders of other logs."""


@dataclass(frozen=True, slots=True)
class Table:
    folder: str
    """Path below the landing zone."""
    settings: Settings
    metadata_findings: tuple[Finding, ...] = ()
    """Deviations of the metadata file from the specification."""
    files: tuple[DataFile, ...] = ()
    """In the order in which Fabric applies them."""
    folders: tuple[str, ...] = ()
    """Subfolders that Fabric does not ignore."""
    ignored: tuple[str, ...] = ()
    """Files and folders whose names start with `_`."""
    in_place: tuple[str, ...] = ()
    """Data files in a second listing, after the log was read and before `processed`."""
    processed: Mapping[str, str] = field(default_factory=dict)
    """Folder of each consumed file."""
    scratch: tuple[str, ...] = ()
    """Files in `_scratchPad`."""
    log: Log | None = None
    duplicates: Mapping[str, Duplicates] = field(default_factory=dict)
    """By the name of the data file."""
    are_keys_checked: bool = True


@dataclass(frozen=True, slots=True)
class Folder:
    """A folder that Fabric does not ignore, with its content."""

    path: str
    files: tuple[str, ...] = ()
    folders: tuple[Folder, ...] = ()
    """Subfolders, up to one level below tables."""


@dataclass(frozen=True, slots=True)
class Zone:
    files: tuple[str, ...] = ()
    """Files at the top, also ignored ones."""
    folders: tuple[Folder, ...] = ()
    partner_events: bytes | None = None
    scratch: tuple[str, ...] = ()
    """Files in `_scratchPad` at the top."""
