"""The root of all errors: each says what happened, to which object, with which values, and what to do next.

A constructor takes facts and keeps them as attributes; the sentences are built from them, and both survive pickling.
`Terminal` means that a person must act, `Transient` that the same call may succeed later; whoever retries asks the
type and nothing else.
"""

from __future__ import annotations

import logging
from typing import Any

_log = logging.getLogger(__name__)


class MirrorfeedError(Exception):
    """Subclasses say `what` happened, to which object, and what to do `next`."""

    def what(self) -> str:
        raise NotImplementedError

    def next(self) -> str:
        raise NotImplementedError

    def __str__(self) -> str:
        return visible(f"{self.what()} {self.next()}".strip())

    def __reduce__(self) -> tuple[Any, ...]:
        return _restore, (type(self), self.__dict__)


class Terminal(MirrorfeedError):
    """Repeating the call cannot help: a person must act."""


class Transient(MirrorfeedError):
    """The same call may succeed later."""


class Unexpected(MirrorfeedError):
    """A failure that has no name of its own here: of Spark, of the network, or a defect."""

    def __init__(self, doing: str, cause: Exception, helps: str = "") -> None:
        self.doing, self.kind, self.reason, self.helps = doing, type(cause).__name__, _first_lines(str(cause)), helps

    def what(self) -> str:
        return f"{self.doing} failed with {self.kind}: {self.reason}"

    def next(self) -> str:
        words = "Nothing is lost or doubled by it. Try again; if it repeats, look at the whole message in the log."
        return f"{words} {self.helps}".strip()


def visible(text: str) -> str:
    """With carriage returns as `\\r`: a terminal would write the rest of the line over its beginning."""
    return text.replace("\r", "\\r")


def named(doing: str, error: Exception, helps: str = "") -> MirrorfeedError:
    """The error, if it is one of ours; else `Unexpected`, with what `helps` if trying again does not; all that there is
    to know of it goes to the log."""
    if isinstance(error, MirrorfeedError):
        return error
    _log.error("%s failed", doing, exc_info=error)
    return Unexpected(doing, error, helps)


def first_line(text: str) -> str:
    """Of what another library says; without its full stop, for a sentence of ours."""
    return next((line.strip().rstrip(".") for line in text.splitlines() if line.strip()), "no reason was given")[:300]


def _first_lines(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return " ".join(lines[:3])[:500]


def _restore(kind: type[MirrorfeedError], facts: dict[str, Any]) -> MirrorfeedError:
    error = kind.__new__(kind)
    error.__dict__.update(facts)
    return error
