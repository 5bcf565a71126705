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
    """The rules are there and do nothing, so that restored files stay where they are."""
    GONE = "gone"


@dataclass(frozen=True, slots=True)
class Finding:
    rule: str
    problem: str

    def __str__(self) -> str:
        return f"{self.rule}: {self.problem}" if self.rule else self.problem


def starts(partition_columns: Sequence[str], random_names: bool) -> list[str]:
    """What the names of all files of a table begin with in its folder, but those of its log. With random names (column
    mapping, or Delta's own setting) a file's folder begins with any letter or digit."""
    if random_names:
        return [*string.ascii_letters, *string.digits, "_change_data/"]
    return [f"{partition_columns[0]}=" if partition_columns else "part-", "deletion_vector_", "_change_data/"]


def meet(prefix: str, folder: str) -> bool:
    """Whether something in this folder may begin so."""
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
    """Those of one table, in a policy that it shares with all others of its account or bucket."""

    def apply(self, policy: Any, exported: Any = None) -> str:
        """How a policy is applied, for people; one without rules is taken by no cloud."""
        ...

    def policy(self, days: int, wanted: Wanted = Wanted.ON, exported: Any = None, take_over: bool = False) -> Any:
        """What is to be applied: what was exported, with this table's rules in it; what others wrote is kept, or those
        of it are taken over that `of_others` names."""
        ...

    def of_others(self, exported: Any) -> list[str]:
        """The rules in it that others wrote and that archive this table's files alone, as ours do."""
        ...

    def check(self, policy: Any, days: int) -> list[Finding]:
        """What in it does not fit this table; empty if it fits."""
        ...
