"""One thing that was looked at."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from mirrorfeed.display.redact import redact
from mirrorfeed.errors import MirrorfeedError


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
    code: str | None = None
    """Of the error that showed what is missing, where it is one with a name."""


def missing(what: str, error: Exception) -> Check:
    """What an attempt failed with, in its words; of a failed task those that its Python process ended with."""
    if isinstance(error, MirrorfeedError):
        return Check(what, State.MISSING, str(error), error.code)
    lines = [line.strip() for line in redact(str(error)).splitlines() if line.strip()]
    own = [line.partition(": ")[2] for line in lines if line.startswith("mirrorfeed.")]
    return Check(what, State.MISSING, (own or lines or [type(error).__name__])[0][:500])
