"""The change data feed of a source between two versions."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from mirrorfeed.api.results.base import Result
from mirrorfeed.display.html import Chart
from mirrorfeed.display.humanize import counted
from mirrorfeed.display.rows import DataRow, Row, row, shown

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from mirrorfeed.source.change_feed import Changes as Preview

_KINDS = {"insert": "inserts", "update_postimage": "updates", "delete": "deletes"}
"""By change type. The row before an update is not counted."""


@row
class VersionChanges(Row):
    """The number of rows that a version of the source changed."""

    version: int = shown("version", str, right=True)
    inserts: int = shown("inserts")
    updates: int = shown("updates")
    deletes: int = shown("deletes")


@dataclass(frozen=True, repr=False)
class Changes:
    """The changes of a range of versions. Both ends are fixed, and the range can be empty."""

    table: str
    from_version_exclusive: int
    to_version_inclusive: int
    rows: DataFrame
    """Rows of the feed by version, with `_change_type`, `_commit_version` and `_commit_timestamp`.

    An update has two rows, before and after.
    """
    _found: Preview = field(repr=False)

    def first(self, count: int = 20) -> Result[DataRow]:
        """Return the first rows, with values as in JSON."""
        kinds = self._found.counts()
        counts = ", ".join(counted(kinds.get(kind, 0), name.removesuffix("s")) for kind, name in _KINDS.items())
        return Result(tuple(map(DataRow, self._found.first(count))), summary=f"{repr(self)[1:-1]}: {counts}")

    def counts(self) -> Result[VersionChanges]:
        """Return the number of rows that each version changed. Versions without changes are left out."""
        from mirrorfeed.runtime.spark_session import faithful

        found: dict[int, dict[str, int]] = {}
        with faithful(self.rows.sparkSession):
            for version, kind, count in self.rows.groupBy("_commit_version", "_change_type").count().collect():
                if kind in _KINDS:
                    found.setdefault(version, dict.fromkeys(_KINDS.values(), 0))[_KINDS[kind]] = count
        rows = tuple(VersionChanges(version, **found[version]) for version in sorted(found))
        return Result(rows, (repr(self)[1:-1],), "" if rows else "No row was changed.")

    def chart(self) -> Chart:
        """Draw the changed rows by version and operation, for the newest 60 versions with changes."""
        from mirrorfeed.display.svg_charts import bars

        kinds = tuple(_KINDS.values())
        columns = [(str(each.version), {kind: getattr(each, kind) for kind in kinds}) for each in self.counts()[-60:]]
        return Chart(f"Changes of {self.table}: rows by version", bars(columns, kinds, "rows", "version of the source"))

    def __repr__(self) -> str:
        first, last = self.from_version_exclusive + 1, self.to_version_inclusive
        return f"<changes of {self.table}, {f'versions {first} to {last}' if first <= last else 'no versions'}>"

    def _repr_html_(self) -> str:
        return self.counts()._repr_html_()
