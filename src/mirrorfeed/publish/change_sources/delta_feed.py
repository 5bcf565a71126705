"""Read the snapshots and the change data feed of a Delta table with Spark, and stage the rows to publish."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from mirrorfeed import archive
from mirrorfeed.config.model import Table
from mirrorfeed.landing.load_part import LoadPart
from mirrorfeed.landing.schema import FEED_COLUMNS, Column, columns_of, lost_columns
from mirrorfeed.landing.selection import Selection, selected_columns, selected_schema
from mirrorfeed.publish import rows_and_markers
from mirrorfeed.publish.files import row_staging
from mirrorfeed.publish.files.rolling_writer import write_empty
from mirrorfeed.publish.files.staging_area import staging_area_for
from mirrorfeed.publish.files.staging_job import PROBLEMS_SHOWN, BadRow, Staged, StagingJob, bad_rows
from mirrorfeed.publish.rows_and_markers import PROBLEM
from mirrorfeed.runtime.spark_session import lossless_settings
from mirrorfeed.source import reader
from mirrorfeed.source.change_feed import is_same_table, read_facts
from mirrorfeed.source.errors import (
    FeedGapError,
    FeedUnreadableError,
    FilesArchivedError,
    GapReason,
    PublicationBlockedError,
    SnapshotFilesDeletedError,
)
from mirrorfeed.source.identifier import Source
from mirrorfeed.source.reader import apply_selection
from mirrorfeed.source.snapshot_or_range import Commit, Facts, KeyRepair, PublishedVersion, Range, Snapshot
from mirrorfeed.source.versions import SPARK_REQUIRED, read_schema

_SMALL_BYTES = 8 * 2**20
"""Maximum size in bytes of a source whose snapshot is expected to be a small batch."""
_DEFAULT_CORES = 32
"""Assumed number of cores if Spark does not report the number, for example on serverless compute."""
_MIN_TASK_BYTES = 16 * 2**20
"""Minimum size of a task that reads a snapshot, so that small source files do not become small row groups."""


@dataclass(frozen=True)
class DeltaFeed:
    """Implementation of `ChangeSource` that reads the snapshots and the change data feed of a Delta table."""

    spark: SparkSession
    source: Source
    staging_path: str | None = None
    """Folder for Spark's files, used if Spark and this process cannot both open the landing zone as a folder."""
    upload_from: Literal["driver", "executors"] = "driver"
    selection: Selection | None = None
    _commits: list[Commit] = field(default_factory=list, init=False, compare=False, repr=False)
    """Commits that `facts` returned. They never change, so that a backlog is read once, and not for each range."""

    def facts(self, published: PublishedVersion | None, limit: int) -> Facts:
        if self.spark is None and published and published.next_part:
            raise ValueError(SPARK_REQUIRED)  # otherwise no Spark is needed without a new version
        after = published.version if published else None
        facts = read_facts(self.spark, self.source, after, limit, earlier=self._commits)
        self._commits[:] = facts.commits
        return facts

    def is_unchanged(self, facts: Facts) -> bool:
        return is_same_table(facts, self.spark, self.source)

    def schema(self, version: int, facts: Facts) -> dict[str, Any]:
        return read_schema(self.spark, self.source, version, facts.schemas)

    def check(self, what: Range | Snapshot, facts: Facts) -> None:
        with reader.read_errors(str(self.source), what):
            if isinstance(what, Range) or self._where is None:
                archive.check(self.spark, self.source, what, facts.properties)
            if isinstance(what, Snapshot) and self.selection:
                self._readable_rows(what.version, facts)
            if isinstance(what, Range) and (self.selection or what.to_version_inclusive < facts.latest):
                schema = self.schema(what.to_version_inclusive, facts)
                columns = selected_columns(str(self.source), self.selection, schema)
                try:
                    with reader.read_errors(str(self.source), what):
                        self._feed(what, columns, facts)
                except PublicationBlockedError as error:
                    if not reader.is_only_feed_unreadable(error):
                        raise

    def stage(self, what: Range | Snapshot | KeyRepair, facts: Facts, table: Table, job: StagingJob) -> Staged:
        try:
            with reader.read_errors(str(self.source), what.reads), lossless_settings(self.spark):
                if isinstance(what, KeyRepair):
                    rows = self._readable_rows(what.version, facts)
                    return self._stage(_rows_of_keys(rows, what.keys, job), job)
                if isinstance(what, Snapshot):
                    return self._stage_snapshot(what, facts, table, job)
                if job.delivery.appends:
                    return self._stage_appended(what, facts, table, job)
                looks_up = job.keys and table.validate_keys == "source"
                existing = partial(self._existing_rows, what, facts, table, job) if looks_up else None
                rows, others = self._changed_rows(what, facts, table, job)
                return self._stage_range(what, facts, job, rows, other_rows=others, existing_rows=existing)
        except PublicationBlockedError as error:
            if not (isinstance(what, Range) and job.keys and reader.is_only_feed_unreadable(error)):
                raise
            return self._stage_difference(what, facts, table, job, error)
        except FilesArchivedError as error:
            archive.check(self.spark, self.source, error.range)
            raise

    def bad_keys(self, version: int, table: Table) -> list[BadRow]:
        with reader.read_errors(str(self.source), Snapshot(version)), lossless_settings(self.spark):
            return row_staging.bad_keys(self._rows_at(version), table.target_keys)

    def removes_rows(self, range_: Range, facts: Facts) -> bool:
        """Return whether a range updates or deletes a selected row. Reads its changes until one is found."""
        with reader.read_errors(str(self.source), range_), lossless_settings(self.spark):
            return not self._feed(range_, (), facts).where("_change_type <> 'insert'").isEmpty()

    def _stage(self, rows: DataFrame, job: StagingJob, **facts: Any) -> Staged:
        area = staging_area_for(self.spark, self.staging_path, job.store)
        return row_staging.stage(rows, job, area, self.upload_from, **facts)

    def _stage_range(self, range_: Range, facts: Facts, job: StagingJob, rows: DataFrame, **functions: Any) -> Staged:
        has_interval = archive.has_interval(facts.properties)
        return self._stage(
            rows,
            job,
            expect_small=_is_small(range_, facts),
            # With an archive interval, the search could need archived files.
            find_invalid_text=None if has_interval else partial(self._find_invalid_text, facts, job),
            **functions,
        )

    def _stage_appended(self, range_: Range, facts: Facts, table: Table, job: StagingJob) -> Staged:
        from mirrorfeed.publish.delivered_rows import appended_rows  # imported late: few tables append all changes

        rows = appended_rows(self._feed(range_, job.columns, facts), job.columns, job.keys, job.delivery)
        unique = job.delivery.keys(job.keys) if table.validate_keys != "none" else ()
        return self._stage_range(range_, facts, job, rows, unique_keys=unique)

    def _stage_difference(
        self, range_: Range, facts: Facts, table: Table, job: StagingJob, cause: PublicationBlockedError
    ) -> Staged:
        """Compare the snapshots at the start and the end of a range, and stage the rows that differ.
        `cause` is the error that made the change data feed unreadable. Raises `cause` if a snapshot is gone too."""
        from mirrorfeed.publish.change_sources.errors import (
            RangeComparedWarning,  # imported late: few ranges are compared
        )

        try:
            with reader.read_errors(str(self.source), range_), lossless_settings(self.spark):
                for version in (range_.from_version_exclusive, range_.to_version_inclusive):
                    archive.check(self.spark, self.source, Snapshot(version), facts.properties)
                staged = self._stage_range(range_, facts, job, self._differing_rows(range_, facts, table, job))
        except (FeedGapError, SnapshotFilesDeletedError) as error:
            raise cause from error
        return staged._replace(note=RangeComparedWarning(cause=cause, range=range_))

    def _stage_snapshot(self, what: Snapshot, facts: Facts, table: Table, job: StagingJob) -> Staged:
        if what.part is None and (facts.bytes or 0) > table.load_part_size:
            from mirrorfeed.publish.change_sources.load_division import divide_load  # few tables are large

            what = divide_load(self, what, facts, table)
        keys = job.keys if table.validate_keys != "none" else ()
        selected = self._readable_rows(what.version, facts, what.part)
        rows = rows_and_markers.snapshot_rows(selected, job.columns, keys)
        if job.delivery.columns:
            from mirrorfeed.publish import delivered_rows  # imported late: most tables add no columns

            at = what.committed or facts.commit_time(what.version)
            assert at is not None
            rows = delivered_rows.with_added_columns(rows, job.delivery, what.version, at)
        size = what.part.slice.bytes if what.part else facts.bytes
        if size is not None:
            least = min(reader.count_cores(self.spark) or _DEFAULT_CORES, -(-size // _MIN_TASK_BYTES))
            rows = rows.coalesce(max(1, least, -(-size // job.output.target_file_size)))
        staged = self._stage(rows, job, expect_small=(size or 0) <= _SMALL_BYTES, unique_keys=keys)
        if not (staged.files or what.continues):
            staged = Staged([write_empty(job)])
        return staged._replace(part=what.part)

    def _find_invalid_text(self, facts: Facts, job: StagingJob, keys: pa.Table) -> list[BadRow]:
        rows = self._rows_at(facts.latest)
        invalid = rows_and_markers.rows_with_invalid_text(rows, job.columns, keys, PROBLEMS_SHOWN).toArrow()
        return bad_rows(invalid, PROBLEM, job.keys)

    def _changed_rows(
        self, range_: Range, facts: Facts, table: Table, job: StagingJob
    ) -> tuple[DataFrame, Callable[[], DataFrame] | None]:
        """Return the rows to publish for a range, and a function that returns the rows to publish instead of those with
        NULL as row marker. The function is None if there are no such rows."""
        feed, keep = self._feed(range_, job.columns, facts), job.delivery.marks_deletes
        if not job.keys:
            return rows_and_markers.inserts(feed, job.columns), None
        if table.changes == "full":
            from mirrorfeed.publish import row_cancellation  # imported late: few tables publish all changes

            exact = table.row_markers == "exact"
            return _landing_rows(row_cancellation.full(feed, job.columns, job.keys, exact=exact, keep=keep), job), None
        in_one_task = _is_small(range_, facts)
        changes = rows_and_markers.net(feed, job.columns, job.keys, in_one_task=in_one_task, keep=keep)
        return _landing_rows(changes, job), partial(_net_of_other_keys, feed, job)

    def _differing_rows(self, range_: Range, facts: Facts, table: Table, job: StagingJob) -> DataFrame:
        """Return the rows to publish for keys whose rows at the end of a range are not the same as at its start."""
        from mirrorfeed.publish import row_diff  # imported late: few ranges are compared

        version = range_.to_version_inclusive
        at = facts.commit_time(version) or facts.commits[-1].timestamp
        now, before = self._rows_at(version), self.hashes_at(range_.from_version_exclusive, job)
        return row_diff.rows_to_publish(now, before, job, version, at, exact=table.row_markers == "exact")

    def hashes_at(self, version: int, job: StagingJob) -> DataFrame:
        """Return the keys and row hashes of a version, as `row_diff.hashes_of`."""
        from mirrorfeed.publish import row_diff  # imported late: few versions are compared

        return row_diff.hashes_of(self._rows_at(version), job)

    def _existing_rows(
        self,
        range_: Range,
        facts: Facts,
        table: Table,
        job: StagingJob,
        deleted: pa.Table | DataFrame,
        *,
        at_newest: bool = False,
    ) -> DataFrame | None:
        """Search the source at the end of a range for deleted keys. Return the rows to publish for keys that exist.

        Returns None if the source has none of the keys. If files at the end of the range are gone, searches the newest
        version (`at_newest`) or, with `row_markers: exact`, raises `FeedGapError`.
        """
        version = facts.latest if at_newest else range_.to_version_inclusive
        try:
            with reader.read_errors(str(self.source), Snapshot(version)):
                keys = self._existing_keys(version, facts, job, deleted)
                few_keys = row_staging.collect_small_batch(keys)
        except SnapshotFilesDeletedError as error:
            if facts.latest == version:
                raise
            if table.row_markers == "exact":  # the newest version can have rows that a later range inserts again
                after, reason = range_.from_version_exclusive, GapReason.FILE_MISSING
                raise FeedGapError(table=str(self.source), published=after, where=version, reason=reason) from error
            # The changes up to the newest version are published later, so the mirror becomes the same.
            return self._existing_rows(range_, facts, table, job, deleted, at_newest=True)
        if few_keys is not None and not few_keys.num_rows:
            return None
        wanted = keys if few_keys is None else few_keys
        return _rows_of_keys(self._rows_at(version), wanted, job)

    def _existing_keys(self, version: int, facts: Facts, job: StagingJob, deleted: pa.Table | DataFrame) -> DataFrame:
        """Return the keys in `deleted` that exist at `version`.
        Raises `lookup_needs_archived_files` if the search needs archived files."""
        keys = rows_and_markers.existing_keys(self._rows_at(version), job.columns, job.keys, deleted)
        checked = None if isinstance(deleted, pa.Table) else version  # many keys come from the feed, which has no plan
        return archive.readable_keys(self.spark, self.source, keys, checked, facts.properties)

    def _readable_rows(self, version: int, facts: Facts, part: LoadPart | None = None) -> DataFrame:
        """Return the selected rows of a version, or of one part of it.

        With a condition in `where`, the result reads only files in which rows may match. Raises
        `ArchivedFilesNeededError` if some of these files are not restored.
        """
        rows = self._rows_at(version, part)
        if self._where is None:
            return rows
        with lossless_settings(self.spark):
            return archive.readable_rows(self.spark, self.source, rows, self._where, facts.properties)

    @property
    def _where(self) -> str | None:
        return self.selection.where if self.selection else None

    def _rows_at(self, version: int, part: LoadPart | None = None) -> DataFrame:
        rows = reader.read_snapshot(self.spark, self.source, version)
        if part is not None:
            from mirrorfeed.source.load_plan import rows_of_part  # imported late: few tables are large

            rows = rows_of_part(rows, part)
        return apply_selection(str(self.source), rows, self.selection)

    def _feed(self, range_: Range, columns: Sequence[Column], facts: Facts) -> DataFrame:
        return apply_selection(str(self.source), self._changes(range_, columns, facts), self.selection, FEED_COLUMNS)

    def _changes(self, range_: Range, columns: Sequence[Column], facts: Facts) -> DataFrame:
        """Read the changes of a range.
        Raises `FeedUnreadableError` if one of `columns` is missing or has another type."""
        table, feed = str(self.source), reader.read_changes(self.spark, self.source, range_)
        names = {column.name for column in columns if not column.dropped}
        schema = selected_schema(table, self.selection, json.loads(feed.schema.json()))
        now = [field for field in schema["fields"] if field["name"] in names]
        if missing := lost_columns(columns, columns_of(table, {"fields": now})):
            version = str(range_.to_version_inclusive)
            raise FeedUnreadableError(table=table, range=range_, version=version, read_version=None, lost=missing)
        return feed


def _is_small(range_: Range, facts: Facts) -> bool:
    """Return whether a range has few changed rows. False if their number is unknown."""
    changed = facts.rows_in(range_)
    return changed is not None and changed <= row_staging.SMALL_BATCH_ROWS


def _net_of_other_keys(feed: DataFrame, job: StagingJob) -> DataFrame:
    from mirrorfeed.publish import row_cancellation  # imported late: few ranges have such keys

    keep = job.delivery.marks_deletes
    return _landing_rows(row_cancellation.net_of_other_keys(feed, job.columns, job.keys, keep=keep), job)


def _rows_of_keys(rows: DataFrame, wanted: pa.Table | DataFrame, job: StagingJob) -> DataFrame:
    keep = job.delivery.marks_deletes
    changes = rows_and_markers.rows_of_keys(rows, job.columns, job.keys, wanted, keep=keep)
    return _landing_rows(changes, job, of_keys=True)


def _landing_rows(changes: DataFrame, job: StagingJob, *, of_keys: bool = False) -> DataFrame:
    if job.delivery.marks_deletes:
        from mirrorfeed.publish import delivered_rows  # imported late: few tables mark deleted rows

        convert = delivered_rows.marked_rows_of_keys if of_keys else delivered_rows.soft_deletes
        return convert(changes, job.columns, job.keys, job.delivery)
    return rows_and_markers.landing_rows(changes, job.columns, job.keys)
