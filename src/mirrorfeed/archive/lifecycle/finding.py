"""What is said of a table's rules in every cloud: what is wanted of them, where they reach, and what does not fit."""

from __future__ import annotations

import string
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum


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
