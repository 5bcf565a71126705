"""Names of source tables: one table, or a pattern that selects several."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import PurePath

from mirrorfeed.landing.names import fold, join_name, part_fault, split_name
from mirrorfeed.source.errors import BadSource

MOST_PARTS = 3
URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/")
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


_OPEN = 2
"""So many parts at the end may hold `*`: schema and table, or a folder and the one above it."""


@dataclass(frozen=True, slots=True)
class Found:
    """A table, or what looks like one, as a catalog or a folder shows it."""

    source: Source
    unfit: str = ""
    """What it is, where that is nothing with a change data feed."""
    columns: tuple[str, ...] = ()
    """Only where they were asked for."""


@dataclass(frozen=True, slots=True)
class Pattern:
    """The raw parts of names in a catalog, or a path."""

    parts: tuple[str, ...] = ()
    path: str | None = None

    @classmethod
    def parse(cls, text: str) -> Pattern:
        """From a name of two or three parts, or from a path; a ValueError says what is wrong with it."""
        if "*" not in text:
            raise ValueError(f"{text!r} holds no '*': one table is named by `source`")
        if "/" in text:
            return cls._of_path(text)
        try:
            parts = split_name(text)
        except ValueError as error:
            raise ValueError(f"{text!r} {error}") from None
        if not 2 <= len(parts) <= MOST_PARTS:
            raise ValueError(f"{text!r} is no schema and table, with or without a catalog before them")
        if fault := next(filter(None, map(part_fault, parts)), None):
            raise ValueError(f"{text!r} {fault}")
        if any("*" in part for part in parts[:-_OPEN]):
            raise ValueError(f"{text!r} stands for several catalogs: name one, and write an entry for each")
        return cls(parts)

    @classmethod
    def _of_path(cls, text: str) -> Pattern:
        if URI.match(text):
            raise ValueError(f"{text!r} is an address, in which no folders are listed here: name tables in a catalog")
        if "?" in text or text.startswith("~"):
            raise ValueError(f"{text!r} is no path of folders")
        if any("*" in part for part in text.rstrip("/").split("/")[:-_OPEN]):
            raise ValueError(f"{text!r} has '*' in another than the last two folders")
        return cls(path=text.rstrip("/"))

    @property
    def names(self) -> tuple[str, ...]:
        """What its parts are called from the end: table, schema, catalog."""
        return ("table", "schema", "catalog")[: len(self.parts) or _OPEN]

    def matches(self, source: Source) -> bool:
        mine, theirs = _parts(self), _parts(source)
        return len(mine) == len(theirs) and _alike(mine, theirs, source)

    def __str__(self) -> str:
        plain = ".".join(part if "*" in part else join_name((part,)) for part in self.parts)
        return plain if self.path is None else self.path


def is_left_out(source: Source, ending: tuple[str, ...]) -> bool:
    """Whether the name of a table ends as these parts say."""
    theirs = _parts(source)
    return len(ending) <= len(theirs) and _alike(ending, theirs[len(theirs) - len(ending) :], source)


def named_parts(source: Source) -> dict[str, str]:
    """What the parts of a table's name are called."""
    return dict(zip(("table", "schema", "catalog"), reversed(_parts(source)), strict=False))


def like(pattern: str, name: str) -> bool:
    """Whether a name is as the pattern says, with regard to case."""
    return re.fullmatch(".*".join(map(re.escape, pattern.split("*"))), name, re.DOTALL) is not None


def _parts(of: Pattern | Source) -> tuple[str, ...]:
    return of.parts if of.path is None else PurePath(of.path).parts


def _alike(patterns: tuple[str, ...], names: tuple[str, ...], source: Source) -> bool:
    """Catalogs have no regard to case, paths have."""
    told = fold if source.path is None else str
    return all(like(told(pattern), told(name)) for pattern, name in zip(patterns, names, strict=True))
