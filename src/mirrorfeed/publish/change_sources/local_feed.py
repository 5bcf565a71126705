"""Plan publications of a Delta table in a local folder without Spark."""

from __future__ import annotations

from dataclasses import dataclass

from mirrorfeed import archive
from mirrorfeed.publish.change_sources import NO_SPARK
from mirrorfeed.publish.change_sources.delta_feed import DeltaFeed
from mirrorfeed.source.change_feed import read_facts
from mirrorfeed.source.snapshot_or_range import Facts, PublishedVersion, Range, Snapshot
from mirrorfeed.source.versions import SPARK_REQUIRED


@dataclass(frozen=True)
class LocalFeed(DeltaFeed):
    """Implementation of `ChangeSource` that reads commits and schemas with delta-rs, and no rows.

    `spark` is `NO_SPARK`. The methods raise `ValueError` if the answer needs Spark. Use this class only to find the
    next step of a table.
    """

    def facts(self, published: PublishedVersion | None, limit: int) -> Facts:
        after = published.version if published else None
        return read_facts(NO_SPARK, self.source, after, limit, without_spark=True)

    def check(self, what: Range | Snapshot, facts: Facts) -> None:
        is_analyzed = self.selection or (isinstance(what, Range) and what.to_version_inclusive < facts.latest)
        if is_analyzed or archive.has_interval(facts.properties):
            raise ValueError(SPARK_REQUIRED)
