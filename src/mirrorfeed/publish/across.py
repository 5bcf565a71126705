"""Across a gap in a feed without a new snapshot: the published version and the newest are held against each other."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from pyspark.sql import DataFrame

from mirrorfeed.archive.guard import feed as archive
from mirrorfeed.errors import Transient
from mirrorfeed.feed import history, read
from mirrorfeed.feed.detail import detail_of
from mirrorfeed.feed.faults import EXPIRED, FILES_GONE, LOG_GONE, first_of
from mirrorfeed.feed.ranges import Commit, Facts, Gap, Range
from mirrorfeed.files.job import StagingJob
from mirrorfeed.files.stage import Staged
from mirrorfeed.publish.plan import Plan
from mirrorfeed.publish.port import COMPARISON, Feed
from mirrorfeed.publish.source import DeltaFeed


@dataclass(frozen=True)
class AcrossGap(DeltaFeed):
    """All versions after the published one are one range, whose rows are what differs between its two ends. Both are
    pinned, so that nothing is to be kept."""

    def facts(self, after: int | None, limit: int) -> Facts:
        if after is None:
            return super().facts(after, limit)
        self._schemas.clear()
        table, known = detail_of(self.spark, self.source, counted=True), history.commits(self.spark, self.source, after)
        times = {commit.version: commit.timestamp for commit in known}
        commits = tuple(
            Commit(version, times.get(version, known[0].timestamp), COMPARISON)
            for version in range(after + 1, known[-1].version + 1)
        )
        self._last[:] = [
            Facts(
                *(table.table_id, known[-1].version, commits),
                properties=table.properties,
                partitions=table.partition_columns,
                bytes=table.bytes,
            )
        ]
        return self._last[0]

    def check(self, what: Range | int, facts: Facts) -> None:
        if isinstance(what, int):
            super().check(what, facts)
            return
        with self._readable(what):
            for version in (what.from_version_exclusive, what.to_version_inclusive):
                archive.check(self.spark, self.source, version, facts.properties)
                _ = self._rows_at(version).schema

    def _changed_rows(self, range_: Range, plan: Plan, job: StagingJob) -> DataFrame:
        return self._differing_rows(range_, plan, job)

    def stage(self, what: Range | int, plan: Plan, job: StagingJob) -> Staged:
        if isinstance(what, int):
            return super().stage(what, plan, job)
        with self._readable(what):
            return super().stage(what, plan, job)

    @contextmanager
    def _readable(self, what: Range) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            if isinstance(error, Gap | read.SnapshotGone) or first_of(error, (*FILES_GONE, *LOG_GONE, EXPIRED)):
                raise NotComparable(str(self.source), what.from_version_exclusive) from error
            raise


def spanning(plan: Plan, feed: Feed) -> Plan:
    """The same; for a comparison in one range, however many versions there are."""
    return replace(plan, versions_per_range=sys.maxsize) if isinstance(feed, AcrossGap) else plan


class ByComparison(Transient):
    """A note beside a publication that went well: the feed had lost changes, and what differs was found by comparing
    the published version with the newest one."""

    code = "MF3508"

    def __init__(self, gap: Gap) -> None:
        self.gap = gap

    def what(self) -> str:
        return f"{self.gap.problem} What differs was found by a comparison with version {self.gap.published}."

    def next(self) -> str:
        return "Nothing is lost. Publish oftener, or let the source keep its changes for longer."


class NotComparable(Gap):
    """The feed has lost changes, and the version that is published cannot be read any more either, so that what differs
    from it cannot be found. The mirror stays as it is, and behind."""

    code = "MF3509"

    def __init__(self, table: str, published: int) -> None:
        super().__init__(table, published, published, "its files or its log are gone")

    def what(self) -> str:
        return f"The feed of {self.table} has a gap, and version {self.published}, which is published, is gone as well."

    def next(self) -> str:
        return "Only a new snapshot helps: start the table again with `mirrorfeed rebuild`."
