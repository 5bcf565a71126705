"""Dataclasses for the content of a landing zone. `linter` creates the instances, and the rules check them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from mirrorfeed.landing.log_record import Record
from mirrorfeed.lint.specification import FileColumn, LintFinding, LintRule, Settings

TYPELESS = "null"
"""Type name of a Parquet column without a type. Some writers create such a column if all values are NULL."""


@dataclass(frozen=True, slots=True)
class Unreadable:
    """The reason why a data file cannot be read."""

    rule: LintRule
    reason: str
    """Reason as text for the finding. For the rule `CODEC`, the name of the compression."""


@dataclass(frozen=True, slots=True)
class Contents:
    """Columns of a data file, its number of rows, and properties of the rows that lint rules check."""

    columns: tuple[FileColumn, ...]
    """Columns including the row marker, in the order of the file."""
    rows: int = 0
    codecs: frozenset[str] = frozenset()
    """Compressions of a Parquet file."""
    markers: Mapping[str, int] = field(default_factory=dict)
    """Number of rows for each row marker. Markers are texts, and `NULL` means NULL. Empty if the file has no row
    marker column."""
    first_unknown_marker: int = 0
    """Row number, from 1, of the first row marker that is not valid. 0 if there is none."""
    null_keys: Mapping[str, int] = field(default_factory=dict)
    """Number of rows with NULL, for each key column."""
    widest_keys: Mapping[str, int] = field(default_factory=dict)
    """Length of the longest value in bytes, for each key column with text or binary values."""
    faults: tuple[LintFinding, ...] = ()
    """First violation of each rule for delimited text. Rows after text that cannot be split are not read."""
    invalid_texts: Mapping[str, int] = field(default_factory=dict)
    """Row number, from 1, of the first text that is not valid UTF-8, for each column with an invalid text."""
    missing_values: Mapping[str, int] = field(default_factory=dict)
    """Number of NULLs in rows other than deletes, for each Parquet column that is not nullable in the first file."""


@dataclass(frozen=True, slots=True)
class LandingFile:
    """A file in the folder of a table, except the metadata file and files that Fabric ignores."""

    name: str
    size: int
    content: Contents | Unreadable | None = None
    """Result of reading the file. None if the file is empty, is removed before the read, or is no data file."""


@dataclass(frozen=True, slots=True)
class Log:
    """The log of mirrorfeed in the folder `_mirrorfeed` of a table."""

    id: str
    newest: Record | None = None
    """Newest record. None if there is no record, or if it cannot be read."""
    staged: tuple[str, ...] = ()
    """Names of staged files, listed after `newest` was read. Empty if the newest record cannot be read."""
    others: tuple[str, ...] = ()
    """Names of the folders of logs that are no longer in use."""


@dataclass(frozen=True, slots=True)
class LandingTable:
    folder: str
    """Path below the landing zone."""
    settings: Settings
    findings: tuple[LintFinding, ...] = ()
    """Findings for the metadata file, the log and duplicate keys."""
    files: tuple[LandingFile, ...] = ()
    """Data files in the order in which Fabric applies them."""
    folders: tuple[str, ...] = ()
    """Subfolders that Fabric does not ignore."""
    ignored: tuple[str, ...] = ()
    """Names of files and folders that start with `_`."""
    in_place: tuple[str, ...] = ()
    """Names in a second listing of the folder, made between reading `log` and `processed`. Empty without a record."""
    processed: Mapping[str, str] = field(default_factory=dict)
    """Files that Fabric has consumed: name of the subfolder, by file name."""
    scratch: tuple[str, ...] = ()
    """Names of the files in the subfolder `_scratchPad`."""
    log: Log | None = None
    """None if the table has no log, or if `log.json` cannot be read."""
    is_unpublished: bool = False
    """True if the folder has only an empty log, which mirrorfeed creates before it writes files."""
    are_keys_checked: bool = True
    """False if duplicate keys were not searched, because the table is large and `--check-keys` is not set."""


@dataclass(frozen=True, slots=True)
class Folder:
    """The root folder of a landing zone, or a folder in it that Fabric does not ignore."""

    path: str
    """Path below the landing zone. Empty for the root folder."""
    files: tuple[str, ...] = ()
    """Names of files, including ignored files."""
    folders: tuple[Folder, ...] = ()
    """Subfolders that Fabric does not ignore. Empty at the second level below the root folder."""
