"""Names and values of the open mirroring specification, settings of a table, and the classes of rules and findings.

This module shares no definitions with the publisher (`landing`). So lint and the local replica find mistakes of the
publisher. A rule keeps its code, such as MF203. The first digit is the subject: 1 folders, 2 `_metadata.json`, 3 files,
4 columns and keys, 5 the row marker, 6 delimited text, 7 staged files and log. `mirrorfeed.errors` has all other codes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from typing import Any

from mirrorfeed.display.ci_formats import Annotation, Level
from mirrorfeed.display.rows import Row, row, shown
from mirrorfeed.errors import fill

METADATA = "_metadata.json"
PARTNER_EVENTS = "_partnerEvents.json"
SCHEMA_SUFFIX = ".schema"
"""Suffix of a schema folder."""
SCRATCH = "_scratchPad"
"""Subfolder for files that are not published yet."""
PROCESSED = ("_ProcessedFiles", "_FilesReadyToDelete")
"""Subfolders of a table for files that Fabric has consumed."""
MARKER = "__rowMarker__"
INSERT, UPDATE, DELETE, UPSERT = MARKERS = (0, 1, 2, 4)
MARKER_TEXTS = frozenset(map(str, MARKERS))
DATA_TYPES = (
    *("Double", "Single", "Int16", "Int32", "Int64", "DateTime"),
    *("IDate", "ITime", "String", "Boolean", "ByteArray"),
)
"""Allowed values of `DataType` in the SchemaDefinition of `_metadata.json`."""
ENCODING = "utf-8"


def is_ignored(name: str) -> bool:
    """Return whether Fabric ignores a file or folder with this name."""
    return name.startswith("_")


@dataclass(frozen=True, slots=True)
class FileColumn:
    name: str
    type: str | None
    """In a Parquet file: the type name in Delta or, if Delta lacks the type, in Parquet. In SchemaDefinition and in
    delimited text: the `DataType`, or None for a column of the text that is not in SchemaDefinition."""
    nullable: bool = True


@dataclass(frozen=True, slots=True)
class Dialect:
    """Options of delimited text. An empty `quote` or `escape` means that there is no such character."""

    row: str = "\r\n"
    """Row separator."""
    column: str = ","
    """Column separator."""
    quote: str = '"'
    escape: str = "\\"
    null: str = ""
    encoding: str = ENCODING


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of a table, from its `_metadata.json`."""

    keys: tuple[str, ...] = ()
    by_time: bool = False
    """True if Fabric applies files by modification time, False if by number."""
    upserts: bool = False
    """True if rows without a marker are upserts."""
    text: bool | None = None
    """True for delimited text, False for Parquet, None if FileFormat is not set."""
    extension: str = "csv"
    dialect: Dialect = field(default_factory=Dialect)
    declared: tuple[FileColumn, ...] | None = None
    """Columns of SchemaDefinition, including a declared row marker. None if SchemaDefinition is missing or invalid."""


def load_object(data: bytes) -> dict[str, Any]:
    """Return the JSON object in `data`. Raises `ValueError` for other data, or if a property occurs twice."""
    if not data.strip():
        raise ValueError("it is empty")
    try:
        content = json.loads(data, object_pairs_hook=_without_duplicates)
    except RecursionError as error:
        raise ValueError("it is not JSON (values are nested too deep)") from error
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"it is not JSON ({error})") from error
    if not isinstance(content, dict):
        raise ValueError(f"it holds {describe(content)}, not an object")
    return content


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise ValueError(f"it has the property {name!r} twice")
        found[name] = value
    return found


def describe(value: object) -> str:
    """Return a phrase for a JSON value in messages, such as `an object` or `the value 12`. Shortens long values."""
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, list):
        return "a list"
    text = json.dumps(value, ensure_ascii=False)
    return f"the {'text' if isinstance(value, str) else 'value'} {text if len(text) <= 60 else text[:57] + '…'}"


class LintSeverity(StrEnum):
    ERROR = "error"
    """Replication stops, or the mirror has wrong data."""
    WARNING = "warning"
    """A file or folder deviates from the specification or is left over, but the mirror is correct."""
    ADVICE = "advice"
    """Something that the specification allows, but that is not recommended."""


_LEVELS: Mapping[LintSeverity, Level] = {
    LintSeverity.ERROR: "error",
    LintSeverity.WARNING: "warning",
    LintSeverity.ADVICE: "notice",
}


@row
class LintFinding(Row):
    """A violation of a lint rule by a file or folder in the landing zone."""

    code: str = shown("code")
    severity: LintSeverity = shown("severity")
    """`error`, `warning` or `advice`."""
    file: str = shown("file")
    """Path of the file or folder below the landing zone. Empty for the landing zone itself."""
    what: str = shown("problem")
    next: str = shown("fix")

    @property
    def ok(self) -> bool:
        return self.severity is LintSeverity.ADVICE

    def annotation(self) -> Annotation:
        return Annotation(
            _LEVELS[self.severity], f"{self.code} {self.file}".rstrip(), f"{self.what} {self.next}", self.file
        )


@dataclass(frozen=True, slots=True)
class LintRule:
    severity: LintSeverity
    code: str
    what: str
    """Template of the problem's text, with names of values in braces."""
    fix: str
    means: str = ""
    """Explanation of the code for the documentation, if `what` is not clear without its values."""

    def finding(self, file: str, **values: object) -> LintFinding:
        return LintFinding(self.code, self.severity, file, fill(self.what, values), self.fix)


error, warning, advice = (partial(LintRule, severity) for severity in LintSeverity)

# Rules for files that the readers cannot read. They are here because readers do not import `file_rules`, which uses the
# publisher's log.
TRUNCATED = error(
    "MF306",
    "The file is truncated: {reason}. This stops replication of the table.",
    "Delete the file, and write the complete file under the same name.",
)
CODEC = error(
    "MF309",
    "The file is compressed with {codec}. Fabric cannot read this compression.",
    "Write the file without compression, or with Snappy, GZIP or ZSTD.",
)

REBUILD = (
    "delete the folder of the table, wait until the table is gone from the mirrored database, and publish all data"
    " again"
)
