"""Result of `Feed.changes`: the changed rows of a table, the counts for each version, and a chart."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mirrorfeed.api.results import Result
from mirrorfeed.display.html import Chart, bars
from mirrorfeed.display.rows import DataRow, Row, counted, row, shown
from mirrorfeed.runtime.spark_session import lossless_settings
from mirrorfeed.source.change_preview import preview_errors, to_json_rows
from mirrorfeed.source.snapshot_or_range import Range

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_KINDS = {"insert": "inserts", "update_postimage": "updates", "delete": "deletes"}
"""Field of `VersionChanges` for each `_change_type`. `update_preimage`, the row before an update, has no field."""


@row
class VersionChanges(Row):
    """Numbers of rows that one version of a table inserted, updated and deleted."""

    version: int = shown("version", str, right=True)
    inserts: int = shown("inserts")
    updates: int = shown("updates")
    deletes: int = shown("deletes")


@dataclass(frozen=True, repr=False)
class Changes:
    """Changes of a table in the versions after `from_version_exclusive`, up to `to_version_inclusive`.

    Later commits do not change these bounds. If the bounds are equal, there are no changes.
    """

    table: str
    from_version_exclusive: int
    to_version_inclusive: int
    rows: DataFrame
    """Rows of the change data feed, sorted by version, with `_change_type`, `_commit_version` and `_commit_timestamp`.
    An update has two rows: the row before the update and the row after it. To look at values, use `first`: if you show
    these rows with Spark, the session's settings apply, and days in October 1582 can be shown as another day."""

    def first(self, count: int = 20) -> Result[DataRow]:
        """Return up to `count` changed rows as JSON values. The summary has the total number of changes of each type.

        Raises `MirrorfeedError` if the changes can no longer be read.
        """
        versions = self.counts()
        totals = [counted(sum(getattr(each, kind) for each in versions), kind[:-1]) for kind in _KINDS.values()]
        with self._read_errors():
            rows = to_json_rows(self.rows.limit(count)) if count else []
        return Result(tuple(map(DataRow, rows)), summary=f"{repr(self)[1:-1]}: {', '.join(totals)}")

    def counts(self) -> Result[VersionChanges]:
        """Return the number of changed rows for each version with changes, in ascending order of version.

        Raises `MirrorfeedError` if the changes can no longer be read.
        """
        counts: dict[int, dict[str, int]] = {}
        with self._read_errors():
            for version, kind, count in self.rows.groupBy("_commit_version", "_change_type").count().collect():
                if kind in _KINDS:
                    counts.setdefault(version, dict.fromkeys(_KINDS.values(), 0))[_KINDS[kind]] = count
        rows = tuple(VersionChanges(version, **counts[version]) for version in sorted(counts))
        return Result(rows, (repr(self)[1:-1],), "" if rows else "No rows were changed.")

    def chart(self) -> Chart:
        """Return a chart with the number of changed rows for each version and operation.

        The chart shows the newest 60 versions with changes.
        """
        kinds = tuple(_KINDS.values())
        columns = [(str(each.version), {kind: getattr(each, kind) for kind in kinds}) for each in self.counts()[-60:]]
        return Chart(f"Changes of {self.table}: rows by version", bars(columns, kinds, "rows", "version of the source"))

    def __repr__(self) -> str:
        first, last = self.from_version_exclusive + 1, self.to_version_inclusive
        return f"<changes of {self.table}, {f'versions {first} to {last}' if first <= last else 'no versions'}>"

    def _repr_html_(self) -> str:
        return self.counts()._repr_html_()

    @contextmanager
    def _read_errors(self) -> Iterator[None]:
        """Context manager in which Spark reads every value exactly. Raises `MirrorfeedError` if a read fails."""
        range_ = Range(self.from_version_exclusive, self.to_version_inclusive)
        with preview_errors(self.table, range_), lossless_settings(self.rows.sparkSession):
            yield
