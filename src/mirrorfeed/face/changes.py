"""The change data feed of a table, as people look at it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pyspark.sql import DataFrame, SparkSession

from mirrorfeed.feed.days import all_days
from mirrorfeed.feed.preview import changes_between
from mirrorfeed.feed.source import Source
from mirrorfeed.feed.switch import first_with_feed
from mirrorfeed.results import Chart

_KINDS = {"insert": "inserts", "update_postimage": "updates", "delete": "deletes"}


@dataclass(frozen=True, repr=False)
class Changes:
    """The rows of a range of versions, pinned at both ends; none where the range is empty."""

    table: str
    from_version_exclusive: int
    to_version_inclusive: int
    rows: DataFrame
    """As the feed has them, by version: `_change_type`, `_commit_version` and `_commit_timestamp` beside the columns.
    An update has two rows, before and after."""

    def counts(self) -> list[dict[str, int]]:
        """A dictionary for each version that changed rows, ascending: `version`, `inserts`, `updates`, `deletes`."""
        found: dict[int, dict[str, int]] = {}
        with all_days(self.rows.sparkSession):
            for version, kind, count in self.rows.groupBy("_commit_version", "_change_type").count().collect():
                if kind in _KINDS:
                    found.setdefault(version, dict.fromkeys(_KINDS.values(), 0))[_KINDS[kind]] = count
        return [{"version": version, **found[version]} for version in sorted(found)]

    def chart(self) -> Chart:
        """Rows by version and what was done with them."""
        from mirrorfeed.report.pictures import change_chart

        names = {name: kind for kind, name in _KINDS.items()}
        counts = [(row["version"], names[name], row[name]) for row in self.counts() for name in names if row[name]]
        return Chart(f"Changes of {self.table}: rows by version", change_chart(counts))

    def __repr__(self) -> str:
        first, last = self.from_version_exclusive + 1, self.to_version_inclusive
        return f"<changes of {self.table}, {f'versions {first} to {last}' if first <= last else 'no versions'}>"

    def _repr_html_(self) -> str:
        from mirrorfeed.face.drawn import as_html

        return as_html(self.counts(), [], [repr(self)[1:-1]], "No row was changed.")


def changes(
    spark: SparkSession,
    source: Source,
    start: str | int | None,
    end: str | int | None,
    past_end: Literal["error", "empty"],
) -> Changes:
    begin = first_with_feed(spark, source) if start is None else start
    found = changes_between(spark, source, 0 if begin is None else begin, end, past_end)
    range_ = found.range
    rows = found.rows.orderBy("_commit_version")
    return Changes(found.table, range_.from_version_exclusive, range_.to_version_inclusive, rows)
