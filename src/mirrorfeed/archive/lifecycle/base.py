"""Protocol of the lifecycle rules of a table, and what all clouds share."""

from __future__ import annotations

import json
import string
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, Protocol

from mirrorfeed.archive.errors import NoJson
from mirrorfeed.display.humanize import counted
from mirrorfeed.display.rows import Row, row, shown
from mirrorfeed.landing.strict_json import parse_json


class Wanted(Enum):
    ON = "on"
    PAUSED = "paused"
    """The rules are disabled, so that restored files stay."""
    GONE = "gone"


@dataclass(frozen=True, slots=True)
class Finding:
    rule: str
    problem: str

    def __str__(self) -> str:
        return f"{self.rule}: {self.problem}" if self.rule else self.problem


def starts(partition_columns: Sequence[str], random_names: bool) -> list[str]:
    """The prefixes of all files of a table in its folder, except its log. With random names (column mapping, or a Delta
    setting) they start with any letter or digit."""
    if random_names:
        return [*string.ascii_letters, *string.digits, "_change_data/"]
    return [f"{partition_columns[0]}=" if partition_columns else "part-", "deletion_vector_", "_change_data/"]


def meet(prefix: str, folder: str) -> bool:
    """Whether files in this folder may have this prefix."""
    return folder.startswith(prefix) or prefix.startswith(folder)


@row
class Lifecycle(Row):
    """A lifecycle policy compared with a table, and the policy with the rules of the table."""

    table: str = shown("table")
    days: int = shown("interval", lambda days: counted(days, "day"), right=True)
    problems: tuple[str, ...]
    """What does not fit the table."""
    policy: Any = None
    """The policy to apply."""
    apply: str = ""
    """How to apply it."""
    rules_of_others: tuple[str, ...] = ()
    """Rules that others wrote and that archive only files of this table."""

    @property
    def ok(self) -> bool:
        return not self.problems

    def remarks(self) -> Sequence[str]:
        return self.problems or ["The rules archive its files at the same age as its interval."]


def read_policy(path: str) -> Any:
    """Raises `NoJson`. PowerShell writes UTF-16, or UTF-8 with a byte order mark."""
    raw = Path(path).read_bytes()
    try:
        return parse_json(raw.decode(json.detect_encoding(raw)))
    except ValueError as error:
        raise NoJson(path=path, reason=str(error)) from error


class Rules(Protocol):
    """The rules of one table, in the policy of its account or bucket."""

    def apply(self, policy: Any, exported: Any = None) -> str:
        """How to apply a policy. No cloud accepts one without rules."""
        ...

    def policy(self, days: int, wanted: Wanted = Wanted.ON, exported: Any = None, take_over: bool = False) -> Any:
        """The exported policy with the rules of this table. Rules in `of_others` are kept or replaced."""
        ...

    def of_others(self, exported: Any) -> list[str]:
        """The rules that others wrote and that archive only files of this table."""
        ...

    def check(self, policy: Any, days: int) -> list[Finding]:
        """The problems of a policy for this table."""
        ...
