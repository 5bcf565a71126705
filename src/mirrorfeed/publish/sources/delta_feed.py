"""A Delta table as the source of a publication: its history and feed, read by Spark."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from mirrorfeed.archive.guard import change_feed as archive
from mirrorfeed.archive.guard.archived_files_needed import ArchivedFilesNeeded
from mirrorfeed.archive.interval import understood
from mirrorfeed.errors import MirrorfeedError
from mirrorfeed.landing.schema import FEED_COLUMNS, Column, columns_of, lost
from mirrorfeed.landing.selection import Selection, applied, types_of
from mirrorfeed.publish.errors import RangeCompared
from mirrorfeed.publish.files import small_batch
from mirrorfeed.publish.files.rolling_writer import write_empty
from mirrorfeed.publish.files.staging import LookUp, Staged, StillThere, stage
from mirrorfeed.publish.files.staging_area import staging_area_for
from mirrorfeed.publish.files.staging_job import PROBLEMS_SHOWN, BadRow, StagingJob, bad_rows
from mirrorfeed.publish.plan import Plan
from mirrorfeed.publish.sources.base import Repair
from mirrorfeed.publish.translate import changes, landing_rows
from mirrorfeed.publish.translate.row_diff import (
    DIFFERS,
    HASH,
    differences,
    differing_rows,
    key_positions,
    one_per_key,
    with_hashes,
)
from mirrorfeed.runtime.session_settings import faithful
from mirrorfeed.source import reader
from mirrorfeed.source.change_feed import is_same_table, read_facts
from mirrorfeed.source.errors import FeedUnreadable, Finding, Gap, SnapshotGone
from mirrorfeed.source.identifier import Source
from mirrorfeed.source.ranges import Facts, Range
from mirrorfeed.source.reader import apply_selection
from mirrorfeed.source.versions import schema_at

if TYPE_CHECKING:
    from mirrorfeed.archive.guard.archived_files_needed import NeededFiles

_SMALL_BYTES = 8 * 2**20
"""Of a source whose rows may be few."""
_LEAST_BYTES = 16 * 2**20
"""A task reads as much of a snapshot at least, or many small files would become as many."""


@dataclass(frozen=True)
class DeltaFeed:
    spark: SparkSession
    source: Source
    staging_path: str | None = None
    """The folder for files on their way, where Spark and this process do not share the landing zone."""
    sender: Literal["driver", "executors"] = "driver"
    selection: Selection | None = None
    """What of the source is published; None: all."""
    on_note: Callable[[MirrorfeedError], None] = field(default=lambda _: None, repr=False, compare=False, kw_only=True)
    """Receives notes on publications that take another way."""
    _schemas: dict[int, dict[str, Any]] = field(default_factory=dict, init=False, repr=False, compare=False)
    """By version, as asked since the last facts: if another table took the name since, its id tells in the end."""
    _last: list[Facts] = field(default_factory=list, init=False, repr=False, compare=False)
    """The last facts, for what they tell of sizes."""
    _looked_up: list[float] = field(default_factory=list, init=False, repr=False, compare=False)
    """Seconds of the last `stage`."""

    def facts(self, after: int | None, limit: int) -> Facts:
        self._schemas.clear()
        self._last[:] = [read_facts(self.spark, self.source, after, limit, self._schema)]
        return self._last[0]

    def is_as(self, facts: Facts) -> bool:
        return is_same_table(facts, self.spark, self.source)

    def columns(self, version: int) -> tuple[Column, ...]:
        return columns_of(str(self.source), applied(str(self.source), self.selection, self._schema(version)))

    def source_columns(self, version: int) -> Mapping[str, str]:
        return types_of(self._schema(version))

    def check(self, what: Range | int, facts: Facts) -> None:
        with reader.read_errors(str(self.source), what):
            archive.check(self.spark, self.source, what, facts.properties)
            if isinstance(what, int) and self.selection:
                self._rows_at(what)
            if isinstance(what, Range) and (self.selection or what.to_version_inclusive < facts.latest):
                self._check_feed(what)

    def _check_feed(self, range_: Range) -> None:
        try:
            with reader.read_errors(str(self.source), range_):
                self._feed(range_, self.columns(range_.to_version_inclusive))
        except Finding as error:
            if not reader.is_only_feed_unreadable(error):
                raise

    def stage(self, what: Range | int, plan: Plan, job: StagingJob) -> Staged:
        self._looked_up.clear()
        if isinstance(what, int):
            with reader.read_errors(str(self.source), what), faithful(self.spark):
                return self._snapshot(what, plan, job)
        try:
            with reader.read_errors(str(self.source), what), faithful(self.spark):
                rows = self._changed_rows(what, plan, job)
                return self._stage_range(what, job, rows, self._still_there(what.to_version_inclusive, plan, job))
        except Finding as error:
            if not (plan.keys and reader.is_only_feed_unreadable(error)):
                raise
            return self._stage_differing(what, plan, job, error)

    def _stage_range(
        self, range_: Range, job: StagingJob, rows: DataFrame, still_there: StillThere | None = None
    ) -> Staged:
        changed = self._last[0].rows_in(range_) if self._last else None
        expect_few = changed is not None and changed <= small_batch.ROWS
        return self._stage(
            rows,
            job,
            expect_few=expect_few,
            rows_per_file=lambda: self._rows_per_file(job),
            look_up=self._look_up(job),
            still_there=still_there,
        )

    def _stage_differing(self, range_: Range, plan: Plan, job: StagingJob, cause: Finding) -> Staged:
        """Stage a range without the feed. Raises `cause` if one of its two ends cannot be read either."""
        ends, table = (range_.from_version_exclusive, range_.to_version_inclusive), str(self.source)
        properties = self._last[0].properties if self._last else {}
        try:
            with reader.read_errors(table, range_), faithful(self.spark):
                for version in ends:
                    archive.check(self.spark, self.source, version, properties)
                staged = self._stage_range(range_, job, self._differing_rows(range_, plan, job))
        except (Gap, SnapshotGone) as error:
            raise cause from error
        self.on_note(RangeCompared(cause=cause, range=range_))
        return staged

    def stage_again(self, what: Repair, plan: Plan, job: StagingJob) -> Staged:
        with reader.read_errors(str(self.source), what.version), faithful(self.spark):
            rows = landing_rows.rows_of_keys(self._rows_at(what.version), job.columns, plan.keys, what.keys)
            return self._stage(rows, job)

    def bad_keys(self, version: int, plan: Plan) -> list[BadRow]:
        with reader.read_errors(str(self.source), version), faithful(self.spark):
            found = landing_rows.key_problems(self._rows_at(version), plan.keys, PROBLEMS_SHOWN).toArrow()
        return bad_rows(found, landing_rows.PROBLEM, plan.keys)

    def rows_read(self) -> None:
        return None

    def look_up_seconds(self) -> float:
        return sum(self._looked_up)

    def _schema(self, version: int) -> dict[str, Any]:
        if version not in self._schemas:
            self._schemas[version] = schema_at(self.spark, self.source, version)
        return self._schemas[version]

    def _stage(self, rows: DataFrame, job: StagingJob, **facts: Any) -> Staged:
        return stage(rows, job, staging_area_for(self.spark, self.staging_path, job.store), self.sender, **facts)

    def _look_up(self, job: StagingJob) -> LookUp | None:
        """Searches the newest version for texts that are not valid UTF-8; None if the table has archived files, which
        such a search would read."""
        if not self._last or understood(str(self.source), self._last[0].properties):
            return None
        latest = self._last[0].latest

        def look_up(keys: pa.Table) -> list[BadRow]:
            rows = self._rows_at(latest)
            found = landing_rows.rows_with_invalid_text(rows, job.columns, keys, PROBLEMS_SHOWN).toArrow()
            return bad_rows(found, landing_rows.PROBLEM, job.keys)

        return look_up

    def _still_there(self, version: int, plan: Plan, job: StagingJob) -> StillThere | None:
        """Looks up deleted keys in the source: another row may have the same key, as after a new row was appended and
        the old one deleted."""
        if not plan.keys or plan.validate_keys != "source":
            return None

        def still_there(deleted: pa.Table | DataFrame) -> DataFrame | None:
            begun = time.monotonic()
            try:
                at, found = self._found_at(version, job, deleted)
            finally:
                self._looked_up.append(time.monotonic() - begun)
            if isinstance(found, pa.Table) and not found.num_rows:
                return None
            return landing_rows.rows_of_keys(self._rows_at(at), job.columns, job.keys, found)

        return still_there

    def _found_at(
        self, version: int, job: StagingJob, deleted: pa.Table | DataFrame
    ) -> tuple[int, pa.Table | DataFrame]:
        """Those of the deleted keys that the source has at a version. If its files are gone, at the newest version:
        the changes up to that are published later, and lead to the same rows."""
        try:
            with reader.read_errors(str(self.source), version):
                found = self._guarded(version, job, deleted)
                taken = small_batch.taken(found)
        except SnapshotGone:
            if not self._last or self._last[0].latest == version:
                raise
            return self._found_at(self._last[0].latest, job, deleted)
        return version, found if taken is None else taken

    def _guarded(self, version: int, job: StagingJob, deleted: pa.Table | DataFrame) -> DataFrame:
        """Refused if it would read archived files."""
        found = landing_rows.existing_keys(self._rows_at(version), job.columns, job.keys, deleted)
        facts = self._last[0] if self._last else None
        if facts is None or understood(str(self.source), facts.properties) is None:
            return found
        table = str(self.source)
        if isinstance(deleted, pa.Table):
            from mirrorfeed.archive.guard.query import guarded_rows
            from mirrorfeed.storage.tiers import tiers_at

            def refusal(away: Sequence[NeededFiles]) -> LookUpNeedsArchive:
                return LookUpNeedsArchive(
                    table=table, version=version, files=[file for each in away for file in each.files]
                )

            return guarded_rows(self.spark, found, tiers_at, datetime.now(UTC), refusal)
        try:
            archive.check(self.spark, self.source, version, facts.properties)
        except ArchivedFilesNeeded as error:
            raise LookUpNeedsArchive(table=table, version=version, files=error.files) from error
        return found

    def _snapshot(self, version: int, plan: Plan, job: StagingJob) -> Staged:
        keys = plan.keys if plan.validate_keys != "none" else ()
        rows = landing_rows.snapshot_rows(self._rows_at(version), job.columns, keys)
        size, per_file = self._sizes(version, job)
        if size is not None:
            least = min(reader.cores(self.spark), -(-size // _LEAST_BYTES))
            rows = rows.coalesce(max(1, least, -(-size // job.target_file_size)))
        receipts, bad = self._stage(
            rows,
            job,
            expect_few=(self._bytes or 0) <= _SMALL_BYTES,
            rows_per_file=lambda: per_file,
            unique_keys=keys,
        )
        return receipts if receipts or bad else [write_empty(job)], bad

    @property
    def _bytes(self) -> int | None:
        return self._last[0].bytes if self._last else None

    def _sizes(self, version: int, job: StagingJob) -> tuple[int | None, int | None]:
        """How large the files of a snapshot are together, and how many rows take the target size: as in the source or,
        where a part of its columns may be selected, as some of its rows tell."""
        size, per_file = self._bytes, self._rows_per_file(job)
        if size is None or per_file is None or self.selection is None:
            return size, per_file
        whole = replace(self.selection, where=None)
        some = apply_selection(str(self.source), reader.snapshot(self.spark, self.source, version), whole)
        each = small_batch.bytes_a_row(landing_rows.snapshot_rows(some, job.columns), job.compression)
        wanted = max(per_file, int(job.target_file_size / each)) if each else per_file
        return size * per_file // wanted, wanted

    def _rows_per_file(self, job: StagingJob) -> int | None:
        """How many rows of the source take the target size there, where all of it takes more."""
        size = self._bytes
        if size is None or size <= job.target_file_size:
            return None
        rows = reader.snapshot(self.spark, self.source, self._last[0].latest).count()  # Delta's log tells
        return max(1, rows * job.target_file_size // size)

    def _changed_rows(self, range_: Range, plan: Plan, job: StagingJob) -> DataFrame:
        feed = self._feed(range_, job.columns)
        if not plan.keys:
            return changes.inserts(feed, job.columns)
        if plan.changes == "full":
            return changes.full(feed, job.columns, plan.keys, exact=plan.row_markers == "exact")
        return changes.net(feed, job.columns, plan.keys)

    def _differing_rows(self, range_: Range, plan: Plan, job: StagingJob) -> DataFrame:
        """The landing rows of a range from its two ends: of each key that differs its row now, or a delete."""
        before, now = self._rows_at(range_.from_version_exclusive), self._rows_at(range_.to_version_inclusive)
        key, there = key_positions(job.columns, job.keys), set(before.columns)
        then = [column if column.name in there else replace(column, dropped=True) for column in job.columns]
        known = one_per_key(with_hashes(before, then, job.keys).select(*key, HASH), key)
        found = differences(with_hashes(now, job.columns, job.keys), known, key).where(DIFFERS)
        return differing_rows(found, job.columns, with_marker=True, exact=plan.row_markers == "exact")

    def _rows_at(self, version: int) -> DataFrame:
        """What is selected of a version."""
        return apply_selection(str(self.source), reader.snapshot(self.spark, self.source, version), self.selection)

    def _feed(self, range_: Range, columns: Sequence[Column]) -> DataFrame:
        """What is selected of a range's rows."""
        return apply_selection(str(self.source), self._images(range_, columns), self.selection, FEED_COLUMNS)

    def _images(self, range_: Range, columns: Sequence[Column]) -> DataFrame:
        """The rows of a range, or a finding where Delta reads them with columns that lack something of these."""
        table, feed = str(self.source), reader.changes(self.spark, self.source, range_)
        names = {column.name for column in columns if not column.dropped}
        schema = applied(table, self.selection, json.loads(feed.schema.json()))
        now = [field for field in schema["fields"] if field["name"] in names]
        if missing := lost(columns, columns_of(table, {"fields": now})):
            raise FeedUnreadable(
                table=str(self.source),
                range=range_,
                version=str(range_.to_version_inclusive),
                read_version=None,
                lost=missing,
            )
        return feed


class LookUpNeedsArchive(ArchivedFilesNeeded):
    code = "MF5015"
    fix = f"If its keys are always unique, set `validate_keys: range`. Otherwise: {ArchivedFilesNeeded.fix}"
    asked: str = "A lookup of deleted keys"
