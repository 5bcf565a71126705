"""A source table as the user names it, and the only way in which its name reaches SQL."""

from __future__ import annotations

import re
from dataclasses import dataclass

from mirrorfeed.landing.names import fold, join_name, part_fault, split_name
from mirrorfeed.source.errors import BadSource

MOST_PARTS = 3
_QUOTED = re.compile(r"`(?:[^`]|``)*`")


def quote(identifier: str) -> str:
    """One raw identifier (a table's part or a column) as SQL takes it, whatever it holds."""
    return "`" + identifier.replace("`", "``") + "`"


def without_query(text: str) -> str:
    """For people: what follows a '?' in an address may be a secret."""
    address, mark, _ = text.partition("?")
    return f"{address}?…" if mark and "/" in address else text


@dataclass(frozen=True, slots=True)
class Source:
    """A Delta table: the raw parts of its name in a catalog, or the path (or URI) of its folder."""

    parts: tuple[str, ...] = ()
    path: str | None = None

    def __post_init__(self) -> None:
        if fault := self._fault():
            raise BadSource(text=without_query(without_query(without_query(without_query(str(self))))), reason=fault)

    @classmethod
    def parse(cls, text: str) -> Source:
        """From a name of one to three parts, or, with a `/` in it, from a path as it stands; or `BadSource`."""
        if "/" in _QUOTED.sub("", text):
            return cls(path=text)
        if "/" in text:
            raise BadSource(
                text=without_query(without_query(without_query(without_query(text)))), reason="has '/' inside backticks"
            )
        try:
            parts = split_name(text)
        except ValueError as error:
            raise BadSource(
                text=without_query(without_query(without_query(without_query(text)))), reason=str(error)
            ) from error
        try:
            return cls(parts)
        except BadSource as error:
            raise BadSource(
                text=without_query(without_query(without_query(without_query(text)))), reason=error.reason
            ) from None

    @property
    def sql(self) -> str:
        """How a statement names it."""
        return ".".join(quote(part) for part in (self.parts if self.path is None else ("delta", self.path)))

    def fold(self) -> tuple[str, ...]:
        """Equal for two names of one table: catalogs have no regard to case, paths have."""
        return tuple(fold(part) for part in self.parts) if self.path is None else ("/", self.path)

    def __str__(self) -> str:
        return join_name(self.parts) if self.path is None else self.path

    def _fault(self) -> str | None:
        if self.path is not None:
            if "?" in self.path:
                return (
                    "has a query, and what gives access would be shown wherever the table is named: leave out the '?'"
                )
            return "is both a name and a path" if self.parts else part_fault(self.path)
        if not 1 <= len(self.parts) <= MOST_PARTS:
            return f"has {len(self.parts)} parts, where catalog, schema and table are {MOST_PARTS}"
        return next(filter(None, map(part_fault, self.parts)), None)
