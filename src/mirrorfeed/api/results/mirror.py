"""Rows about mirrors and findings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from mirrorfeed.api.results.base import Chart, Result
from mirrorfeed.display.rows import Row, described, row, shown
from mirrorfeed.errors import MirrorfeedError


@row
class Difference(Row):
    """One value, or a whole row, that is not the same on both sides."""

    key: str = shown("key")
    column: str = shown("column", lambda name: name or "(whole row)")
    """Empty where a whole row is on one side alone."""
    source: str | None = shown("source")
    mirror: str | None = shown("mirror")


_EQUAL = {True: "equal", False: "DIFFERENT", None: "not compared"}


@row
class Comparison(Row):
    """A source, at the version at which its mirror stands, against the mirror."""

    table: str = shown("table")
    what: str
    """In words."""
    equal: bool | None = shown("mirror", _EQUAL.__getitem__)
    """None where they could not be compared."""
    version: int | None = shown("version")
    published_version: int | None
    """The newest that is published: the mirror may not have come to it yet."""
    source_rows: int | None = shown("source rows")
    mirror_rows: int | None = shown("mirror rows")
    differing: int | None = shown("differing")
    """Keys, or distinct rows of a table without keys, that are not the same on both sides."""
    differences: Result[Difference]
    """The first of them."""
    error: MirrorfeedError | None = None

    @property
    def ok(self) -> bool:
        """Whether they are equal."""
        return self.equal is True

    def chart(self) -> Chart:
        """The number of the first differences in each column."""
        from mirrorfeed.display.svg_charts import bars

        found = Counter(each.column or "(whole row)" for each in self.differences)
        columns = [(column, {"differences": count}) for column, count in found.most_common()]
        return Chart(
            f"{self.table}: the first differences, by column", bars(columns, ["differences"], "rows", "column")
        )

    def remarks(self) -> Sequence[str]:
        return [] if self.ok else [f"{self.table}: {described(self.error) if self.error else self.what}"]


@row
class Repair(Row):
    """What was published once more of a table whose mirror differs."""

    table: str = shown("table")
    what: str = shown("published once more")
    """In words."""
    upserts: int = shown("upserts")
    deletes: int = shown("deletes")
    published_version: int | None
    error: MirrorfeedError | None = None
    """Why it failed, or what this does not mend."""
