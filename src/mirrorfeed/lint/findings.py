"""A finding: which rule a file breaks, with which values, and what to do. Codes are stable; programs may rely on them.

The first digit after MF is the matter: 1 folders, 2 `_metadata.json`, 3 files, 4 columns and keys, 5 the row marker,
6 delimited text, 7 leftovers. `mirrorfeed.errors` says what the others are.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum


class Severity(StrEnum):
    ERROR = "error"
    """Replication stops, or the mirror comes out wrong."""
    WARNING = "warning"
    """Against the specification or left behind; nothing is wrong in the mirror for that alone."""
    ADVICE = "advice"
    """Allowed, and better otherwise."""


@dataclass(frozen=True, slots=True)
class Finding:
    code: str
    severity: Severity
    file: str
    """Its path, or that of the folder, below the landing zone."""
    what: str
    next: str

    @property
    def counts(self) -> bool:
        """Whether a landing zone with this does not conform."""
        return self.severity is not Severity.ADVICE


@dataclass(frozen=True, slots=True)
class Rule:
    code: str
    severity: Severity
    means: str
    next: str

    def broken(self, file: str, what: str) -> Finding:
        return Finding(self.code, self.severity, file, what, self.next)


def error(code: str, means: str, next: str) -> Rule:
    return Rule(code, Severity.ERROR, means, next)


def warning(code: str, means: str, next: str) -> Rule:
    return Rule(code, Severity.WARNING, means, next)


def advice(code: str, means: str, next: str) -> Rule:
    return Rule(code, Severity.ADVICE, means, next)


REBUILD = (
    "delete the table's folder, wait until the table is gone from the mirrored database, and publish all of it again"
)
"""The words for the only way in which a table is dropped and made anew."""


def listed(names: Iterable[object], most: int = 5) -> str:
    """Names in words, the first few of many."""
    shown = [repr(name) for name in names]
    more = f" and {len(shown) - most} more" if len(shown) > most else ""
    return ", ".join(shown[:most]) + more
