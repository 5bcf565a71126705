"""Names of source tables: `Source` is a single table, and `Pattern` selects several tables."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import PurePath

from mirrorfeed.landing.names import fold, join_name, part_fault, split_name
from mirrorfeed.source.errors import SourceNameError

URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/")
MAX_PARTS = 3
_PATTERN_PARTS = 2
"""Number of last parts in which `*` is allowed: schema and table, or the last two folders."""
_OTHER_CATALOGS = frozenset({"hive_metastore", "spark_catalog"})
_QUOTED = re.compile(r"`(?:[^`]|``)*`")


def quote(identifier: str) -> str:
    """Return a column name, or one part of a table name, in backticks for SQL."""
    return "`" + identifier.replace("`", "``") + "`"


def hide_query(text: str) -> str:
    """Replace the part of a path or URI after '?' by '…', because it may be a secret. Return other text unchanged."""
    address, mark, _ = text.partition("?")
    return f"{address}?…" if mark and "/" in address else text


@dataclass(frozen=True, slots=True)
class Source:
    """Name of a source table: the parts of its catalog name without backticks, or the path or URI of its folder.

    Raises `SourceNameError` if the name is not valid.
    """

    parts: tuple[str, ...] = ()
    path: str | None = None

    def __post_init__(self) -> None:
        if fault := _fault(self.parts, self.path):
            raise SourceNameError(text=hide_query(str(self)), reason=fault)

    @classmethod
    def parse(cls, text: str) -> Source:
        """Return the source for a table name of one to three parts, or for a path. A text with `/` is a path.

        Raises `SourceNameError` if the text is not valid.
        """
        if "/" in _QUOTED.sub("", text):
            return cls(path=text)
        try:
            parts = split_name(text)
            fault = "has '/' inside backticks" if "/" in text else _fault(parts)
        except ValueError as error:
            fault = str(error)
        if fault:
            raise SourceNameError(text=hide_query(text), reason=fault)
        return cls(parts)

    @classmethod
    def parse_argument(cls, text: str) -> Source:
        """Return the source for a table name or path on the command line. A relative path becomes absolute.

        Raises `SourceNameError` if the text is not valid.
        """
        source = cls.parse(text)
        if source.path is None or URI.match(source.path):
            return source
        return cls(path=os.path.abspath(source.path))

    @property
    def sql(self) -> str:
        return ".".join(quote(part) for part in (self.parts if self.path is None else ("delta", self.path)))

    @property
    def is_in_unity_catalog(self) -> bool:
        """True if the name has three parts and the catalog is not `hive_metastore` or `spark_catalog`."""
        return len(self.parts) == MAX_PARTS and self.parts[0].casefold() not in _OTHER_CATALOGS

    def fold(self) -> tuple[str, ...]:
        """Return a key that is equal for all spellings of a name. Catalog names ignore case, but paths do not."""
        return tuple(fold(part) for part in self.parts) if self.path is None else ("/", self.path)

    def __str__(self) -> str:
        return join_name(self.parts) if self.path is None else self.path


@dataclass(frozen=True, slots=True)
class FoundTable:
    """Table, view or other object that was found in a catalog or folder."""

    source: Source
    unsupported: str = ""
    """Kind of an object without a change data feed, such as "a view". Empty for a supported table."""
    columns: tuple[str, ...] | None = ()
    """Column names. Empty if they were not needed, and None if they could not be read."""
    tags: frozenset[tuple[str, str]] = frozenset()
    """Name and value of each tag in Unity Catalog. Empty if tags were not read."""


@dataclass(frozen=True, slots=True)
class Pattern:
    """Name or path with `*` for any characters. Only its last two parts can have `*`: schema and table, or folders."""

    parts: tuple[str, ...] = ()
    path: str | None = None

    @classmethod
    def parse(cls, text: str) -> Pattern:
        """Return the pattern for a table name of two or three parts, or for the path of a local folder.

        Raises `ValueError` with the reason if `text` is not a valid pattern or has no `*`.
        """
        if "*" not in text:
            raise ValueError(f"{text!r} contains no '*'. Name a single table with `source`")
        if "/" in text:
            return cls._parse_path(text)
        try:
            parts = split_name(text)
        except ValueError as error:
            raise ValueError(f"{text!r} {error}") from None
        if not 2 <= len(parts) <= MAX_PARTS:
            raise ValueError(f"{text!r} is not a schema and a table, with or without a catalog")
        if fault := next(filter(None, map(part_fault, parts)), None):
            raise ValueError(f"{text!r} {fault}")
        if any("*" in part for part in parts[:-_PATTERN_PARTS]):
            raise ValueError(f"{text!r} matches several catalogs. Write one entry for each catalog")
        return cls(parts)

    @classmethod
    def _parse_path(cls, text: str) -> Pattern:
        if URI.match(text):
            raise ValueError(f"{text!r} is a URI, and only local folders can be listed. Name tables in a catalog")
        if "?" in text or text.startswith("~"):
            raise ValueError(f"{text!r} is not a folder path")
        if any("*" in part for part in text.rstrip("/").split("/")[:-_PATTERN_PARTS]):
            raise ValueError(f"{text!r} has '*' in a folder other than the last two")
        return cls(path=text.rstrip("/"))

    @property
    def part_names(self) -> tuple[str, ...]:
        """Names of the placeholders that a target can contain. The target `{schema}.{table}` contains two placeholders.

        Always contains "table" and "schema", and also "catalog" if the pattern has a catalog.
        """
        return ("table", "schema", "catalog")[: len(self.parts) or _PATTERN_PARTS]

    def matches(self, source: Source) -> bool:
        parts = _parts(self)
        return len(parts) == len(_parts(source)) and matches_end(source, parts)

    def __str__(self) -> str:
        plain = ".".join(part if "*" in part else join_name((part,)) for part in self.parts)
        return plain if self.path is None else self.path


def matches_end(source: Source, ending: tuple[str, ...]) -> bool:
    """Return whether the last parts of a table name or path match `ending`, one pattern (`tmp_*`) for each part."""
    parts, form = _parts(source), fold if source.path is None else str
    pairs = zip(reversed(ending), reversed(parts), strict=False)
    return len(ending) <= len(parts) and all(matches(form(pattern), form(name)) for pattern, name in pairs)


def parts_by_name(source: Source) -> dict[str, str]:
    """Return "catalog", "schema" and "table": the last three parts of a name or path. A missing part has no entry."""
    return dict(zip(("table", "schema", "catalog"), reversed(_parts(source)), strict=False))


def matches(pattern: str, name: str) -> bool:
    """Return whether `name` matches `pattern`, in which `*` matches any characters. Case-sensitive."""
    return re.fullmatch(".*".join(map(re.escape, pattern.split("*"))), name, re.DOTALL) is not None


def _fault(parts: tuple[str, ...], path: str | None = None) -> str | None:
    if path is not None:
        if "?" in path:
            return "has a query, which may contain a secret that would be shown with the table: remove the '?'"
        return "is both a name and a path" if parts else part_fault(path)
    if not 1 <= len(parts) <= MAX_PARTS:
        return f"has {len(parts)} parts, and a name has at most {MAX_PARTS}: catalog, schema and table"
    return next(filter(None, map(part_fault, parts)), None)


def _parts(of: Pattern | Source) -> tuple[str, ...]:
    return of.parts if of.path is None else PurePath(of.path).parts
