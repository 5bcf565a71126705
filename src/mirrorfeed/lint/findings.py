"""Rules and findings of lint. Codes are stable.

The first digit after MF is the subject: 1 folders, 2 `_metadata.json`, 3 files, 4 columns and keys, 5 the row marker,
6 delimited text, 7 leftovers. `mirrorfeed.errors` lists the others.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from mirrorfeed.display.rows import Row, row, shown


class Severity(StrEnum):
    ERROR = "error"
    """Replication stops, or the mirror is wrong."""
    WARNING = "warning"
    """Deviates from the specification or was left behind. The mirror is still correct."""
    ADVICE = "advice"
    """Allowed, but not recommended."""


@row
class Finding(Row):
    """A file or folder in the landing zone that breaks a rule."""

    code: str = shown("code")
    severity: Severity = shown("severity")
    """`error`, `warning` or `advice`."""
    file: str = shown("file")
    """The path of the file or folder below the landing zone."""
    what: str = shown("problem")
    next: str = shown("fix")

    @property
    def ok(self) -> bool:
        """Whether it is only advice."""
        return self.severity is Severity.ADVICE


@dataclass(frozen=True, slots=True)
class Rule:
    code: str
    severity: Severity
    means: str
    next: str

    def finding(self, file: str, what: str) -> Finding:
        return Finding(self.code, self.severity, file, what, self.next)


def error(code: str, means: str, next: str) -> Rule:
    return Rule(code, Severity.ERROR, means, next)


def warning(code: str, means: str, next: str) -> Rule:
    return Rule(code, Severity.WARNING, means, next)


def advice(code: str, means: str, next: str) -> Rule:
    return Rule(code, Severity.ADVICE, means, next)


REBUILD = (
    "delete the folder of the table, wait until the table is gone from the mirrored database, and publish all data"
    " again"
)


def listed(names: Iterable[object], most: int = 5) -> str:
    """Return the first names, separated by commas, and the number of other names."""
    shown = [repr(name) for name in names]
    more = f" and {len(shown) - most} more" if len(shown) > most else ""
    return ", ".join(shown[:most]) + more
