"""One thing that was looked at."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class State(Enum):
    OK = "ok"
    MISSING = "missing"
    NOT_CHECKED = "not checked"
    """It does not apply here, or cannot be asked."""


@dataclass(frozen=True, slots=True)
class Check:
    what: str
    state: State
    detail: str = ""
    """What was found; where something is missing, what to do."""
