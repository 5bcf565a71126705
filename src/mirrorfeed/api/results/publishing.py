"""Rows about sources and the landing zone as a whole."""

from __future__ import annotations

from collections.abc import Sequence

from mirrorfeed.display.humanize import size
from mirrorfeed.display.rows import Row, described, nonzero, row, shown
from mirrorfeed.errors import MirrorfeedError


@row
class Enabled(Row):
    """The change data feed of a source, after `enable`."""

    table: str = shown("table")
    source: str = shown("source")
    feed: str | None = shown("change data feed")
    """In words."""
    error: MirrorfeedError | None = None


@row
class Listed(Row):
    """A table that the configuration names or that one of its patterns matches, and whether it is published."""

    table: str | None = shown("table")
    """The target; None if the table is left out."""
    source: str = shown("source")
    included: bool = shown("published")
    keys: tuple[str, ...] | None = shown("keys", default=None)
    """None if they are unknown."""
    takes: str | None = shown("takes", default=None)
    """The kinds of changes that can be published, in words."""
    part: str | None = shown("part", default=None)
    """The published part of the source, in short; None for all of it."""
    why: str = shown("why", default="")
    """The entry by which the table is included, or the reason for which it is left out."""
    error: MirrorfeedError | None = None

    def remarks(self) -> Sequence[str]:
        return () if self.error is None else (f"{self.source}: {described(self.error)}",)


@row
class PartnerFile(Row):
    """The file in the landing zone that names the publisher."""

    address: str
    written: bool
    """False if the file had the same content."""

    def remarks(self) -> Sequence[str]:
        return (f"{self.address} {'was written' if self.written else 'exists with the same content'}.",)


@row
class Configured(Row):
    """An entry of the configuration."""

    table: str = shown("table")
    source: str = shown("source")
    keys: tuple[str, ...] = shown("keys")


@row
class Publication(Row):
    """What a run did for a table."""

    table: str = shown("table")
    what: str = shown("published")
    """In words: a snapshot, versions, or that nothing was new."""
    from_version_exclusive: int | None
    """None for a snapshot, and where nothing was published."""
    to_version_inclusive: int | None
    published_version: int | None
    """Up to which the table is published now, by this run or one before."""
    inserts: int = shown("inserts", nonzero)
    updates: int = shown("updates", nonzero)
    upserts: int = shown("upserts", nonzero)
    deletes: int = shown("deletes", nonzero)
    files: int = shown("files")
    bytes: int = shown("size", size, right=True)
    seconds: float = shown("seconds")
    lag_versions: int | None = shown("versions behind")
    """Versions of the source that are not published yet."""
    tries: int
    reseeded: MirrorfeedError | None = None
    """Why the table was started again from a snapshot, if it was."""
    error: MirrorfeedError | None = None

    def remarks(self) -> Sequence[str]:
        again = [f"{self.table}: started again from a snapshot. {self.reseeded.problem}"] if self.reseeded else []
        return [*again, *Row.remarks(self)]


@row
class Decision(Row):
    """What publishing would do next for a table."""

    table: str = shown("table")
    next: str = shown("next")
    error: MirrorfeedError | None = None
    """Why it cannot go on."""
