"""Rows about sources and the landing zone as a whole."""

from __future__ import annotations

from collections.abc import Sequence

from mirrorfeed.display.rows import Row, row, shown
from mirrorfeed.errors import MirrorfeedError, coded


@row
class Enabled(Row):
    """The change data feed of a source, after `enable-cdf`."""

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
        return () if self.error is None else (f"{self.source}: {coded(self.error)}",)


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
