"""The root of all errors: each says what happened, to which object, with which values, and what to do next.

A constructor takes facts and keeps them as attributes; the sentences are built from them, and both survive pickling.
`Terminal` means that a person must act, `Transient` that the same call may succeed later; whoever retries asks the
type and nothing else.
"""

from __future__ import annotations

from typing import Any


class MirrorfeedError(Exception):
    """Subclasses say `what` happened, to which object, and what to do `next`."""

    def what(self) -> str:
        raise NotImplementedError

    def next(self) -> str:
        raise NotImplementedError

    def __str__(self) -> str:
        return f"{self.what()} {self.next()}".strip()

    def __reduce__(self) -> tuple[Any, ...]:
        return _restore, (type(self), self.__dict__)


class Terminal(MirrorfeedError):
    """Repeating the call cannot help: a person must act."""


class Transient(MirrorfeedError):
    """The same call may succeed later."""


def _restore(kind: type[MirrorfeedError], facts: dict[str, Any]) -> MirrorfeedError:
    error = kind.__new__(kind)
    error.__dict__.update(facts)
    return error
