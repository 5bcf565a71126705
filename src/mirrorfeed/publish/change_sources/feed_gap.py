"""Find the changes of a table whose change data feed has a gap, or that was replaced.

The changes come from the permanent history of the table, or from a comparison of two snapshots.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise

from pyspark.sql import DataFrame, SparkSession

from mirrorfeed import archive
from mirrorfeed.config.model import Table
from mirrorfeed.errors import MirrorfeedError, wrap_error
from mirrorfeed.history.history_record import Segment, find_segment
from mirrorfeed.history.history_table import HistoryTable, HistoryView
from mirrorfeed.landing.schema import Column
from mirrorfeed.publish.change_sources import ChangeSource
from mirrorfeed.publish.change_sources.delta_feed import DeltaFeed
from mirrorfeed.publish.change_sources.errors import (
    VersionNotComparableError,
    feed_off_after_replacement,
    history_unusable,
    read_from_history,
)
from mirrorfeed.publish.files.staging_job import Staged, StagingJob
from mirrorfeed.runtime.spark_errors import EXPIRED, FILES_GONE, LOG_GONE, find_condition
from mirrorfeed.source import versions
from mirrorfeed.source.errors import FeedGapError, Recreation, SnapshotFilesDeletedError, SourceRecreatedError
from mirrorfeed.source.feed_activation import FeedKind, feed_kind
from mirrorfeed.source.identifier import Source
from mirrorfeed.source.snapshot_or_range import (
    COMPARISON,
    Commit,
    Facts,
    KeyRepair,
    PublishedVersion,
    Range,
    Snapshot,
    is_published_version,
)
from mirrorfeed.source.table_info import local_table_info, open_local_table, read_table_info
from mirrorfeed.source.versions import only_adds_columns


@dataclass(frozen=True)
class SnapshotDiff(DeltaFeed):
    """Implementation of `ChangeSource` that finds changes with a comparison of two snapshots.
    Compares the published version with the newest version. All unpublished versions become one range."""

    cause: FeedGapError | SourceRecreatedError = field(kw_only=True)
    """Error because of which the change data feed cannot be used."""

    def facts(self, published: PublishedVersion | None, limit: int) -> Facts:
        if published is None:
            return super().facts(published, limit)
        info = read_table_info(self.spark, self.source, counted=True)
        history = versions.read_commits(self.spark, self.source, published.version - 1)
        remaining = {each.version: each.timestamp for each in history if each.version > published.version}
        since = min(remaining.values(), default=history[-1].timestamp)
        return Facts(
            info.table_id,
            history[-1].version,
            tuple(
                Commit(version, remaining.get(version, since), COMPARISON)
                for version in range(published.version + 1, history[-1].version + 1)
            ),
            properties=info.properties,
            partitions=info.partition_columns,
            bytes=info.bytes,
            recreation=self._recreation(published, info.table_id, history),
        )

    def _recreation(self, published: PublishedVersion, table_id: str, history: Sequence[Commit]) -> Recreation | None:
        """Return None if the log of the table contains the published version, otherwise the reason for the error."""
        if table_id == published.table_id:
            return None
        commit = next((each for each in history if each.version == published.version), None)
        if commit is None:
            return Recreation.UNREADABLE if history[-1].version > published.version else Recreation.UNPROVEN
        local = open_local_table(self.source, published.version)
        info = local_table_info(local, self.source) if local else None
        is_published = is_published_version(published, commit, info.table_id if info else None)
        return None if is_published else Recreation.UNPROVEN

    def check(self, what: Range | Snapshot, facts: Facts) -> None:
        if isinstance(what, Snapshot):
            super().check(what, facts)
            return
        with self.comparable(what):
            for version in (what.from_version_exclusive, what.to_version_inclusive):
                archive.check(self.spark, self.source, Snapshot(version), facts.properties)
                _ = self._rows_at(version).schema

    def stage(self, what: Range | Snapshot | KeyRepair, facts: Facts, table: Table, job: StagingJob) -> Staged:
        if not isinstance(what, Range):
            return super().stage(what, facts, table, job)
        with self.comparable(what):
            staged = self._stage_difference(what, facts, table, job, self.cause)
        if isinstance(self.cause, FeedGapError):
            return staged
        off = table.on_gap != "compare" and self._is_feed_off()
        return staged._replace(note=feed_off_after_replacement(table=str(self.source)) if off else None)

    def _is_feed_off(self) -> bool:
        return feed_kind(self.spark, self.source, read_table_info(self.spark, self.source)) is FeedKind.OFF

    @contextmanager
    def comparable(self, what: Range) -> Iterator[None]:
        """Context manager that converts errors about deleted source files or versions.
        Raises `VersionNotComparableError` after a gap, and `SourceRecreatedError` after a replacement."""
        try:
            yield
        except Exception as error:
            is_gone = isinstance(error, FeedGapError | SnapshotFilesDeletedError) or error is self.cause
            if not (is_gone or find_condition(error, (*FILES_GONE, *LOG_GONE, EXPIRED))):
                raise
            version = what.from_version_exclusive
            if isinstance(self.cause, FeedGapError):
                raise VersionNotComparableError(table=str(self.source), published=version, where=version) from error
            raise SourceRecreatedError(
                table=self.cause.table,
                published_id=self.cause.published_id,
                found_id=self.cause.found_id,
                published=self.cause.published,
                latest=self.cause.latest,
                reason=Recreation.UNREADABLE,
            ) from error


@dataclass(frozen=True, slots=True)
class HistoryFacts(Facts):
    """`Facts` of a table whose new commits are read from its permanent history, not from the Delta log."""

    history: HistoryView = field(kw_only=True)
    segment: Segment = field(kw_only=True)
    """Consecutive records of the history that include the published version."""

    def contains(self, what: Range | Snapshot) -> bool:
        """Return whether the history has all changes of the range `what`. Returns False for a snapshot."""
        if isinstance(what, Snapshot):
            return False
        first, last = self.segment[0].to_version_inclusive, self.segment[-1].to_version_inclusive
        return first <= what.from_version_exclusive and what.to_version_inclusive <= last


@dataclass(frozen=True)
class HistorySource(DeltaFeed):
    """Implementation of `ChangeSource` that reads ranges of versions from the permanent history.
    Snapshots, and ranges that the history does not contain, are read from the source."""

    gap: FeedGapError = field(kw_only=True)
    history: Source = field(kw_only=True)

    def facts(self, published: PublishedVersion | None, limit: int) -> Facts:
        live, after = super().facts(published, limit), published.version if published else None
        history_segment = segment_after(self.spark, self.history, after, live.table_id)
        if after is None or history_segment is None:
            return live
        (history, segment), schemas = history_segment, dict(live.schemas)
        for record in segment[1:]:
            schemas |= dict.fromkeys((commit.version for commit in record.commits), record.schema)
        return HistoryFacts(
            live.table_id,
            live.latest,
            tuple(commit for record in segment for commit in record.commits if commit.version > after),
            breaks=_schema_breaks(segment),
            properties=live.properties,
            partitions=segment[-1].partitions,
            bytes=live.bytes,
            schemas=schemas,
            history=history,
            segment=segment,
        )

    def is_unchanged(self, facts: Facts) -> bool:
        if not isinstance(facts, HistoryFacts):
            return super().is_unchanged(facts)
        return read_table_info(self.spark, self.source).table_id == facts.table_id  # the history does not change

    def check(self, what: Range | Snapshot, facts: Facts) -> None:
        if not (isinstance(facts, HistoryFacts) and facts.contains(what)):
            super().check(what, facts)

    def stage(self, what: Range | Snapshot | KeyRepair, facts: Facts, table: Table, job: StagingJob) -> Staged:
        staged = super().stage(what, facts, table, job)
        if isinstance(what, Range) and isinstance(facts, HistoryFacts) and facts.contains(what):
            return staged._replace(note=staged.note or read_from_history(gap=self.gap, history=str(self.history)))
        return staged

    def _changes(self, range_: Range, columns: Sequence[Column], facts: Facts) -> DataFrame:
        if not (isinstance(facts, HistoryFacts) and facts.contains(range_)):
            return super()._changes(range_, columns, facts)
        first, last = range_.from_version_exclusive, range_.to_version_inclusive
        return HistoryTable(self.spark, self.history).read_rows(facts.history, facts.segment, first, last)


def segment_after(
    spark: SparkSession, history: Source, after: int | None, table_id: str
) -> tuple[HistoryView, Segment] | None:
    """Return the state of a history, and its segment that contains version `after` and at least one later version.

    A segment is a series of records without a gap. It starts with a snapshot. Returns None if the history does not
    exist, belongs to a source with another id than `table_id`, or has no segment with these versions. Returns None also
    if `after` is None, or if the segment does not have the values of the source, which a publication transforms.
    """
    table = HistoryTable(spark, history)
    view = table.read_view()
    if after is None or view is None or view.newest is None or view.newest.source_id != table_id:
        return None
    segment = find_segment(table.read_records(view), after)
    if segment is None or any(record.hidden for record in segment):
        return None
    return (view, segment) if segment[-1].to_version_inclusive > after else None


def _schema_breaks(segment: Segment) -> tuple[int, ...]:
    """Return the versions that change columns, except versions that only add columns."""
    return tuple(
        record.commits[0].version
        for before, record in pairwise(segment)
        if record.commits and not only_adds_columns(before.schema, record.schema)
    )


def bridge_gap(
    source: ChangeSource,
    table: Table,
    finding: FeedGapError | SourceRecreatedError,
    on_problem: Callable[[MirrorfeedError], None] = lambda _: None,
) -> DeltaFeed | None:
    """Return a `ChangeSource` that finds the changes that the change data feed lacks, or None if none can.

    After a gap, returns a `HistorySource` if the permanent history contains the published version and a later version.
    Otherwise returns a `SnapshotDiff` if the table has keys and the option for `finding` is `compare`. The option is
    `on_gap` or, if the table was replaced, `on_replace`. `source` is the `ChangeSource` that found the problem. `table`
    is a result of `with_keys`, which reads the keys from Unity Catalog. If the history cannot be read, calls
    `on_problem` with `history_unusable`.
    """
    if not isinstance(source, DeltaFeed) or isinstance(source, SnapshotDiff | HistorySource):
        return None
    common = (source.spark, source.source, source.staging_path, source.upload_from, source.selection)
    if isinstance(finding, SourceRecreatedError):
        never = finding.case in (Recreation.RESTORED, Recreation.COMPARED)
        compares = table.on_replace == "compare" and not never
    else:
        compares = table.on_gap == "compare"
    if table.history and isinstance(finding, FeedGapError):
        history = table.history.table
        try:
            table_id = read_table_info(source.spark, source.source).table_id
            if segment_after(source.spark, history, finding.published, table_id):
                return HistorySource(*common, gap=finding, history=history)
        except Exception as error:
            cause = wrap_error(f"Reading the history {history}", error)
            on_problem(history_unusable(gap=finding, history=str(history), error=cause))
    return SnapshotDiff(*common, cause=finding) if compares and table.target_keys else None
