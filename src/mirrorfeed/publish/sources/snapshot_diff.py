"""Across a gap in a feed without a new snapshot: the published version and the newest are held against each other."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from pyspark.sql import DataFrame

from mirrorfeed.archive.guard import change_feed as archive
from mirrorfeed.publish.errors import NotComparable
from mirrorfeed.publish.files.staging import Staged
from mirrorfeed.publish.files.staging_job import StagingJob
from mirrorfeed.publish.plan import Plan
from mirrorfeed.publish.sources.base import COMPARISON, ChangeSource
from mirrorfeed.publish.sources.delta_feed import DeltaFeed
from mirrorfeed.runtime.spark_errors import EXPIRED, FILES_GONE, LOG_GONE, first_of
from mirrorfeed.source import versions
from mirrorfeed.source.errors import Gap, SnapshotGone
from mirrorfeed.source.ranges import Commit, Facts, Range
from mirrorfeed.source.table_info import read_table_info


@dataclass(frozen=True)
class SnapshotDiff(DeltaFeed):
    """All versions after the published one are one range, whose rows are what differs between its two ends. Both are
    pinned, so that nothing is to be kept."""

    def facts(self, after: int | None, limit: int) -> Facts:
        if after is None:
            return super().facts(after, limit)
        self._schemas.clear()
        table, known = (
            read_table_info(self.spark, self.source, counted=True),
            versions.commits(self.spark, self.source, after),
        )
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
            if isinstance(error, Gap | SnapshotGone) or first_of(error, (*FILES_GONE, *LOG_GONE, EXPIRED)):
                version = what.from_version_exclusive
                raise NotComparable(table=str(self.source), published=version, where=version) from error
            raise


def spanning(plan: Plan, feed: ChangeSource) -> Plan:
    """The same; for a comparison in one range, however many versions there are."""
    return replace(plan, max_versions_per_publication=sys.maxsize) if isinstance(feed, SnapshotDiff) else plan
