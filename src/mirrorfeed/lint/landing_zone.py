"""Facts about a landing zone. The linter reads the facts, and the rules check them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from mirrorfeed.landing.log_record import Record
from mirrorfeed.lint.delimited_text import TextFault
from mirrorfeed.lint.specification import Broken, Column, Finding, Settings

TYPELESS = "null"
"""Type of a Parquet column without values from which its writer could infer a type."""


@dataclass(frozen=True, slots=True)
class Unreadable:
    why: Broken
    reason: str
    """Details. For `CODEC`, the name of the compression."""


@dataclass(frozen=True, slots=True)
class Contents:
    columns: tuple[Column, ...]
    """Columns including the row marker, in the order of the file."""
    rows: int = 0
    codecs: frozenset[str] = frozenset()
    """Compressions in a Parquet file."""
    markers: Mapping[str, int] = field(default_factory=dict)
    """Number of rows by value of the row marker, as text or `NULL`."""
    first_unknown_marker: int = 0
    """First row with an unknown marker, or 0. Rows start at 1."""
    null_keys: Mapping[str, int] = field(default_factory=dict)
    """Number of rows with NULL, by key column."""
    widest_keys: Mapping[str, int] = field(default_factory=dict)
    """Length of the longest text or binary value in bytes, by key column."""
    faults: tuple[TextFault, ...] = ()
    """First fault of each kind. Rows after a structural fault are not read."""
    invalid_texts: Mapping[str, int] = field(default_factory=dict)
    """First row with text that is not valid UTF-8, by column of a Parquet file. Rows start at 1."""
    missing_values: Mapping[str, int] = field(default_factory=dict)
    """Number of rows with NULL that are not deletes, by column of a Parquet file that must have values."""


@dataclass(frozen=True, slots=True)
class Duplicates:
    """Rows of a file that insert a key that the table already has."""

    rows: int
    first: int
    """First such row. Rows start at 1."""


@dataclass(frozen=True, slots=True)
class DataFile:
    """A file in the folder of a table whose name Fabric does not ignore."""

    name: str
    size: int
    modified: datetime
    content: Contents | Unreadable | None = None
    """Contents of the file, or the reason why it cannot be read. None if the file was not opened, or was consumed in
    the meantime."""


@dataclass(frozen=True, slots=True)
class Log:
    """Content of the folder `_mirrorfeed`."""

    id: str | None
    """Id in `log.json`."""
    finding: Finding | None = None
    """Reason why `log.json` or the newest record cannot be read."""
    newest: Record | None = None
    staged: tuple[str, ...] = ()
    """Names in the log's folder that are not records. Listed after the newest record was read."""
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
    """Data files in the order in which Fabric applies them."""
    folders: tuple[str, ...] = ()
    """Subfolders that Fabric does not ignore."""
    ignored: tuple[str, ...] = ()
    """Files and folders whose names start with `_`."""
    in_place: tuple[str, ...] = ()
    """Data files in a second listing, made after the log was read and before `processed`."""
    processed: Mapping[str, str] = field(default_factory=dict)
    """Folder of each consumed file, by file name."""
    scratch: tuple[str, ...] = ()
    """Files in `_scratchPad`."""
    log: Log | None = None
    duplicates: Mapping[str, Duplicates] = field(default_factory=dict)
    """Duplicate keys by name of the data file."""
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
    """Files in the root folder, including ignored files."""
    folders: tuple[Folder, ...] = ()
    partner_events: bytes | None = None
    scratch: tuple[str, ...] = ()
    """Files in the root folder's `_scratchPad`."""
