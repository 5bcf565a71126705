"""The root of all errors: each says what happened, to which object, with which values, and what to do next.

A constructor takes facts and keeps them as attributes; the sentences are built from them, and both survive pickling.
`Terminal` means that a person must act, `Transient` that the same call may succeed later; whoever retries asks the
type and nothing else.

Each kind has a code that never changes and is never used again, and a docstring that says what it means to whom it
happens; where `next` cannot say without facts what to do, it goes on with `To do:`. The catalogue of all codes is made
of these. The first digit is the matter: 1 the command and its surroundings, 2 the source and its feed, 3 publication, 4
storage, Fabric and credentials, 5 archive, 6 permanent history, 7 the mirror, 8 ledger and alerts. Codes of three
digits are findings: 8 of the doctor, the others of `mirrorfeed lint`.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from dataclasses import fields, is_dataclass
from datetime import date
from traceback import walk_tb
from typing import Any, ClassVar

from mirrorfeed.display.redact import redact

_log = logging.getLogger(__name__)
_LONGEST_LINE = 2000
"""Characters of third-party text that are searched for secrets."""


class MirrorfeedError(Exception):
    """Subclasses say `what` happened, to which object, and what to do `next`."""

    code: ClassVar[str]

    def what(self) -> str:
        raise NotImplementedError

    def next(self) -> str:
        raise NotImplementedError

    def to_dict(self) -> dict[str, Any]:
        """For programs: the facts are what it was made of. What others said is in them as far as it is in the words."""
        what, next_ = redact(self.what()), redact(self.next())
        return {"code": self.code, "what": what, "next": next_, "facts": plain(vars(self))}

    def __str__(self) -> str:
        return visible(redact(f"{self.what()} {self.next()}".strip()))

    def __reduce__(self) -> tuple[Any, ...]:
        return _restore, (type(self), self.__dict__)


class Terminal(MirrorfeedError):
    """Repeating the call cannot help: a person must act."""


class Transient(MirrorfeedError):
    """The same call may succeed later."""


class Unexpected(MirrorfeedError):
    """Something failed for which mirrorfeed has no name of its own: Spark, the network, a library, or a defect of
    mirrorfeed. Nothing is lost or doubled by it.

    To do: Try again. If it repeats, look at the whole message in the log, and report it.
    """

    code = "MF1000"

    def __init__(self, doing: str, cause: Exception, helps: str = "") -> None:
        self.doing, self.kind, self.reason, self.helps = doing, type(cause).__name__, _first_lines(str(cause)), helps

    def what(self) -> str:
        return f"{self.doing} failed with {self.kind}: {self.reason}"

    def next(self) -> str:
        words = "Nothing is lost or doubled by it. Try again; if it repeats, look at the whole message in the log."
        return f"{words} {self.helps}".strip()


class SessionLost(Transient):
    """Spark ended while it was needed: the cluster was stopped, or its process died."""

    code = "MF1202"

    def what(self) -> str:
        return "Spark ended while it was needed: its process died, or its cluster was stopped."

    def next(self) -> str:
        return (
            "Nothing is lost or doubled. Run the same command again: it continues where this run stopped. If Spark ran"
            " out of memory on this machine, set MIRRORFEED_DRIVER_MEMORY to a larger size."
        )


def plain(value: Any) -> Any:
    """As JSON can say it: errors, and values without words of their own, by their parts; times in ISO form; anything
    else in its words, which are made to be read by anybody."""
    match value:
        case None | bool() | int() | float():
            return value
        case str():
            return redact(value)
        case date():
            return value.isoformat()
        case MirrorfeedError():
            return value.to_dict()
        case Mapping():
            return {str(name): plain(each) for name, each in value.items()}
        case Collection() if not isinstance(value, bytes):
            return [plain(each) for each in value]
    if is_dataclass(value) and type(value).__str__ is object.__str__:
        return {each.name: plain(getattr(value, each.name)) for each in fields(value) if each.repr}
    return str(value)


def coded(error: MirrorfeedError) -> str:
    """As it is shown where it stands among other words."""
    return f"{error.code}: {error}"


def visible(text: str) -> str:
    """With carriage returns as `\\r`: a terminal would write the rest of the line over its beginning."""
    return text.replace("\r", "\\r")


def named(doing: str, error: Exception, helps: str = "") -> MirrorfeedError:
    """The error, if it is one of ours; `SessionLost` if Spark ended; else `Unexpected`, with what `helps` if trying
    again does not; all that there is to know of it goes to the log."""
    if isinstance(error, MirrorfeedError):
        return error
    if is_spark_gone(error):
        return SessionLost()
    _log.error("%s failed", doing, exc_info=error)
    return Unexpected(doing, error, helps)


def is_spark_gone(error: Exception) -> bool:
    """Whether a call of Spark on this machine failed because its process ended."""
    if not isinstance(error, ConnectionError) and type(error).__name__ != "Py4JNetworkError":
        return False
    callers = [frame.f_globals.get("__name__", "") for frame, _ in walk_tb(error.__traceback__)]
    return any(name.startswith(("py4j.", "pyspark.")) for name in callers)


def innermost_cause(error: Exception) -> str:
    """The last cause in a Java stack trace. The outer ones report tasks and stages."""
    causes = [line for line in str(error).splitlines() if line.startswith("Caused by: ")]
    return first_line(causes[-1].removeprefix("Caused by: ") if causes else str(error))


def first_line(text: str) -> str:
    """The first line of third-party text, without secrets and without its full stop, as a part of a sentence."""
    line = next((line.strip().rstrip(".;") for line in text.splitlines() if line.strip()), "no reason was given")
    return redact(line[:_LONGEST_LINE])[:300]


def _first_lines(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return redact(" ".join(line[:_LONGEST_LINE] for line in lines[:3]))[:500]


def _restore(kind: type[MirrorfeedError], facts: dict[str, Any]) -> MirrorfeedError:
    error = kind.__new__(kind)
    error.__dict__.update(facts)
    return error
