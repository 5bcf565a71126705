"""The specification of the landing zone for readers: names, values, rules and findings.

Independent of the publisher's definitions in `landing`, so that lint and the replica find mistakes there.

Codes are stable. The first digit after MF is the subject: 1 folders, 2 `_metadata.json`, 3 files, 4 columns and keys, 5
the row marker, 6 delimited text, 7 leftovers. `mirrorfeed.errors` lists the others.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from functools import partial

from mirrorfeed.display.rows import Row, row, shown
from mirrorfeed.errors import fill

METADATA = "_metadata.json"
PARTNER_EVENTS = "_partnerEvents.json"
SCHEMA_SUFFIX = ".schema"
"""Suffix of a schema folder."""
SCRATCH = "_scratchPad"
"""Folder for files that are not published yet."""
PROCESSED = ("_ProcessedFiles", "_FilesReadyToDelete")
"""Subfolders of a table for files that Fabric has consumed."""
MARKER = "__rowMarker__"
INSERT, UPDATE, DELETE, UPSERT = MARKERS = (0, 1, 2, 4)
MARKER_TEXTS = frozenset(map(str, MARKERS))
DATA_TYPES = (
    *("Double", "Single", "Int16", "Int32", "Int64", "DateTime"),
    *("IDate", "ITime", "String", "Boolean", "ByteArray"),
)
"""Types in SchemaDefinition."""


def is_ignored(name: str) -> bool:
    """Return whether Fabric ignores a file or folder with this name."""
    return name.startswith("_")


class Severity(StrEnum):
    ERROR = "error"
    """Replication stops, or the mirror is wrong."""
    WARNING = "warning"
    """Deviates from the specification, or is left over. The mirror is still correct."""
    ADVICE = "advice"
    """Allowed, but not recommended."""


@row
class Finding(Row):
    """A file or folder in the landing zone that breaks a rule."""

    code: str = shown("code")
    severity: Severity = shown("severity")
    """`error`, `warning` or `advice`."""
    file: str = shown("file")
    """Path of the file or folder below the landing zone."""
    what: str = shown("problem")
    next: str = shown("fix")

    @property
    def ok(self) -> bool:
        """True if the finding is only advice."""
        return self.severity is Severity.ADVICE


class Broken(StrEnum):
    """Reason why a file cannot be read."""

    TRUNCATED = "truncated"
    FOREIGN = "foreign"
    ENCRYPTED = "encrypted"
    CODEC = "codec"
    UNSAFE = "unsafe"


@dataclass(frozen=True, slots=True)
class Rule:
    severity: Severity
    code: str
    what: str
    """Template of the problem, in the syntax of `mirrorfeed.errors`."""
    fix: str
    means: str = ""
    """Text for the reference, if `what` alone does not explain the finding."""

    def finding(self, file: str, **values: object) -> Finding:
        return Finding(self.code, self.severity, file, fill(self.what, values), self.fix)


error, warning, advice = (partial(Rule, severity) for severity in Severity)


REBUILD = (
    "delete the folder of the table, wait until the table is gone from the mirrored database, and publish all data"
    " again"
)
