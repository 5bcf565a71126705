"""Publish a source without a change data feed: compare all rows with stored hashes of the published rows.

A Delta table, the table of row hashes, stores a hash for each key, and the values of changed rows. A comparison finds
the changed rows and writes them to the table of row hashes in one commit. The publication has the rows of this commit,
and its log record has the version of the commit. After a crash, the next comparison uses the hashes at the version in
the newest log record. If no row changed, a comparison commits only if it is the first one, or if an earlier commit was
not published.

A large first load has parts. All of them read the commit of the first comparison, which has the values of all rows.

If the newest publication is from the change data feed, its record has a version of the source. Then one commit stores
the hashes of this version, and a record without files replaces the version of the source with the one of the commit.
"""

from __future__ import annotations

import json
import logging
import os
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from mirrorfeed import archive
from mirrorfeed.config.model import Table
from mirrorfeed.errors import TerminalError
from mirrorfeed.landing.load_part import LoadPart
from mirrorfeed.landing.schema import columns_of, lost_columns
from mirrorfeed.publish.change_sources import errors
from mirrorfeed.publish.change_sources.errors import (
    GONE,
    NOT_DELTA,
    OTHER_TABLE,
    VersionNotComparableError,
    first_comparison_impossible,
)
from mirrorfeed.publish.errors import feed_required
from mirrorfeed.publish.files import row_staging
from mirrorfeed.publish.files.rolling_writer import write_empty
from mirrorfeed.publish.files.staging_area import staging_area_for
from mirrorfeed.publish.files.staging_job import PROBLEMS_SHOWN, BadRow, BadRows, Staged, StagingJob, bad_rows
from mirrorfeed.publish.row_diff import (
    CHANGED,
    DIFFERS,
    GAIN,
    HASH,
    ROW_PROBLEM,
    differences,
    differing_rows,
    kept_values,
    with_hashes,
)
from mirrorfeed.publish.rows_and_markers import PROBLEM, key_positions
from mirrorfeed.runtime.spark_errors import EXPIRED, FILES_GONE, LOG_GONE, find_condition
from mirrorfeed.runtime.spark_session import lossless_settings
from mirrorfeed.source.errors import FeedGapError, NoTableAtPathError, NotDeltaError, SourceMissingError
from mirrorfeed.source.identifier import Source
from mirrorfeed.source.reader import read_full
from mirrorfeed.source.snapshot_or_range import (
    COMPARISON,
    Commit,
    ComparisonStart,
    Facts,
    KeyRepair,
    PublishedVersion,
    Range,
    Snapshot,
    find_recreation,
)
from mirrorfeed.source.table_info import FILES, TableInfo, read_table_info, retention_seconds
from mirrorfeed.source.versions import newest_version, read_commits, read_history, read_newest_commit

if TYPE_CHECKING:
    from mirrorfeed.publish.change_sources.feed_gap import SnapshotDiff

_log = logging.getLogger(__name__)
_ID = "mirrorfeed.states"
"""Table property with a random id. Only tables of row hashes have it, so it shows that mirrorfeed created the table."""
_LANDING_ZONE = "mirrorfeed.landing_zone"
"""Table property with the landing zone to which the rows are published. Tables of earlier releases do not have it."""
_COMPARED_AT = "mirrorfeed.compared_at"
"""Table property that `RowHashTable.keep_readable` sets, so that Delta adds a commit."""
_STATE = "_state"
"""Column with the version of the commit that stored all values of the row. NULL if only key and hash are stored."""
_TASK = "_task"
"""Column with the number of the Spark task that wrote the row. It is the first column, so that Delta has its least and
greatest value for each file. These are usually the same, so that a first load can be divided by this column."""
_MAX_COMPLETE, _MAX_COMMITS = 0.5, 100
"""Maximum share of rows that store all values, and maximum number of commits that wrote these rows.
Above these limits, the table is rewritten."""
_MAINTENANCE = ("OPTIMIZE", "VACUUM START", "VACUUM END", "SET TBLPROPERTIES")
"""Operations of Delta commits that do not change rows."""
_KEEPS_FILES = "delta.deletedFileRetentionDuration", "interval 30 days"
"""Delta reads no version that is older than this. The version in the newest log record must stay readable."""
_MIN_RETENTION = 86_400
"""Shortest retention of deleted files, in seconds, with which this module runs VACUUM."""
_MAX_AGE = timedelta(days=7)
"""Maximum age of the newest commit. If it is older, a comparison without differences adds a commit without changes."""
_NTZ = "delta.feature.timestampNtz", "supported"
"""Table feature for columns of type timestamp_ntz, set at creation, because such a column could not be added later."""
_GONE = (*FILES_GONE, *LOG_GONE, EXPIRED)
_CONFLICTS = (
    *("DELTA_CONCURRENT", "CONCURRENT", "DELTA_METADATA_CHANGED"),
    *("TABLE_OR_VIEW_ALREADY_EXISTS", "DELTA_TABLE_ALREADY_EXISTS"),
)
COMPARED = "none: all of it is compared each time"
"""Text that commands show as the kind of change data feed if a source has none and is compared as a whole."""


@dataclass(frozen=True, slots=True)
class CompareFacts(Facts):
    """State of the table of row hashes (hashes of the published rows) before a comparison of all source rows.
    `table_id` and all versions belong to this table, not to the source. The comparison writes the version `latest`. If
    parts of a first load are missing, `latest` is the version that they read, because they come before a comparison."""

    before: int | None = None
    """Newest version of the table of row hashes, or None if the table does not exist."""
    published_at: int = 0
    """Version at which the hashes of the published rows are read."""
    folder: str = ""
    """Name of the folder of the table of row hashes. Errors about its files contain this name."""

    def commit_time(self, version: int) -> None:
        """Return None, because the versions do not belong to the source."""


class Written(NamedTuple):
    """Size of a commit to the table of row hashes."""

    rows: int
    bytes: int


@dataclass(frozen=True)
class RowHashTable:
    """Delta table that stores a hash of each published row of one source.
    The parameter `version` of its methods is a version of this table, not of the source."""

    spark: SparkSession
    location: Source
    table: str
    """Name of the source, for messages."""
    landing_zone: str = ""

    def info(self) -> TableInfo | None:
        """Return id, location and properties of the table, or None if it does not exist.
        Raises `foreign_row_hashes` if mirrorfeed did not create the table, and `row_hashes_of_other_zone` if it has the
        hashes of rows in another landing zone."""
        try:
            info = read_table_info(self.spark, self.location)
        except (SourceMissingError, NoTableAtPathError):
            return None
        if _ID not in info.properties:
            raise errors.foreign_row_hashes(states=str(self.location), table=self.table)
        if (other := info.properties.get(_LANDING_ZONE, self.landing_zone)) != self.landing_zone:
            raise errors.row_hashes_of_other_zone(states=str(self.location), table=self.table, other=other)
        return info

    def version_holding(self, version: int, newest: int) -> int:
        """Return the last version, at most `newest`, up to which no commit after `version` changed hashes."""
        if newest == version:
            return version
        later = read_commits(self.spark, self.location, version)
        maintenance = {each.version for each in later if each.operation in _MAINTENANCE}
        return next(each for each in range(version, newest + 1) if each == newest or each + 1 not in maintenance)

    def hashes_at(self, version: int, key: Sequence[str], values: Sequence[str] = ()) -> DataFrame:
        """Return the keys and row hashes that this table of row hashes has at its version `version`.
        Keys of deleted rows are left out. `key` has the names of the key columns. The result also has the columns
        `values`."""
        newest, names = Window.partitionBy(*key).orderBy(F.col(_STATE).desc_nulls_last()), (*key, *values, HASH)
        rows = self.rows_at(version).select(*names, F.row_number().over(newest).alias("__nth__"))
        return rows.where(f"__nth__ = 1 AND {HASH} IS NOT NULL").select(*names)

    def stored_values(self, version: int, names: Sequence[str]) -> list[str]:
        """Return those of the columns `names` that this table has at a version. Columns added later are missing."""
        stored = set(self.rows_at(version).columns) if names else set()
        return [name for name in names if name in stored]

    def write(
        self, rows: DataFrame, facts: CompareFacts, key: Sequence[str], *, all_hashes: bool, all_values: bool = False
    ) -> Written | None:
        """Commit changed rows and their hashes to the table of row hashes. Creates the table if it does not exist.

        `rows` has the current rows, compared with the stored hashes by `row_diff.differences`. With `all_hashes`,
        replaces the whole table, and also writes the hashes of unchanged rows, and with `all_values` their values.
        Returns the size of the commit. Returns None, without a commit, if no row changed and `all_hashes` is False.
        Raises `row_hashes_changed` if another process made a commit after `facts` were read.
        """
        batch = uuid.uuid4().hex
        stored = _to_stored_rows(rows, facts, key, all_hashes=all_hashes, all_values=all_values)
        if all_hashes:  # write one empty row, because Delta commits nothing without rows
            stored = stored.unionByName(self.spark.range(1).selectExpr(f"CAST(NULL AS bigint) AS {_STATE}"), True)
        writer = stored.writeTo(self.location.sql).option("userMetadata", batch)
        try:
            if facts.before is None:
                for name, value in ((_ID, facts.table_id), (_LANDING_ZONE, self.landing_zone), _NTZ, _KEEPS_FILES):
                    writer = writer.tableProperty(name, value)
                writer.using("delta").create()
            elif all_hashes:
                writer.option("overwriteSchema", "true").overwrite(F.lit(True))
            else:
                writer.option("mergeSchema", "true").append()
        except Exception as error:
            self._remove_empty_folders()
            if find_condition(error, _CONFLICTS):
                raise errors.row_hashes_changed(states=str(self.location), table=self.table) from error
            raise
        history = read_history(self.spark, self.location, 16)
        is_first = facts.before is None
        own_commits = [row for row in history if (row["version"] == 0 if is_first else row["userMetadata"] == batch)]
        if not own_commits and history[-1]["version"] == facts.before:
            return None
        if [row["version"] for row in own_commits] != [facts.latest]:
            raise errors.row_hashes_changed(states=str(self.location), table=self.table)
        metrics = own_commits[0]["operationMetrics"]
        return Written(int(metrics["numOutputRows"]) - all_hashes, int(metrics.get("numOutputBytes") or 0))

    def _remove_empty_folders(self) -> None:
        """Remove the empty folders that a failed creation leaves at a path. Otherwise the next creation fails, too."""
        if self.location.path is None:
            return
        for name in ("_delta_log/_staged_commits", "_delta_log", ""):
            with suppress(OSError):  # for example because it is not empty
                os.rmdir(os.path.join(self.location.path, name))

    def stores_other_types(self, rows: DataFrame, version: int) -> bool:
        """Return True if a column of `rows` has another type in version `version` of this table. Delta would cast its
        values to that type."""
        stored = {field.name: field.dataType for field in self.rows_at(version).schema}
        return any(stored.get(field.name, field.dataType) != field.dataType for field in rows.schema)

    def count_rows(self, version: int) -> int:
        """Return the number of rows that the source had when a comparison wrote version `version` of this table."""
        return int(self.rows_at(version).agg(F.sum(GAIN)).collect()[0][0] or 0)

    def needs_compaction(self, version: int) -> bool:
        """Return True if too many rows of this table store the values of all columns, and not only key and hash.
        Returns True also if too many commits wrote rows with all values. In both cases, the table must be rewritten."""
        counts = self.rows_at(version).agg(F.count(_STATE), F.count(HASH), F.size(F.collect_set(_STATE)))
        complete, hashes, commits = counts.collect()[0]
        return bool(complete > _MAX_COMPLETE * hashes or commits > _MAX_COMMITS)

    def changed_rows(self, version: int, job: StagingJob, at: datetime, part: LoadPart | None = None) -> DataFrame:
        """Return the changed rows that a comparison at the time `at` wrote to version `version` of this table.
        If `part` is not None, returns only the rows of this part."""
        rows = self.rows_at(version)
        if part is not None:
            from mirrorfeed.source.load_plan import rows_of_part  # imported late: few tables are large

            rows = rows_of_part(rows, part)
        rows = rows.where(F.col(_STATE) == version)
        added = job.delivery, version, at
        return differing_rows(rows, job.columns, with_marker=job.with_marker, added=added)

    def first_part(self, version: int, part_bytes: int) -> LoadPart | None:
        """Divide a first load of the rows that a comparison wrote to version `version` of this table. Return its first
        part, or None if the rows cannot be divided."""
        from mirrorfeed.source import load_plan  # imported late: few tables are large

        return load_plan.first_part(
            self.rows_at(version).where(F.col(_STATE) == version), {_TASK}, [_TASK], (), part_bytes
        )

    def commit_time(self, version: int) -> datetime:
        return read_commits(self.spark, self.location, version - 1)[0].timestamp

    def keep_readable(self) -> None:
        """Add a commit without changes if the newest commit is old. Errors are logged, not raised.
        Otherwise, the newest version would no longer be readable after a later run that is killed after its commit."""
        try:
            now = datetime.now(UTC)
            if now - read_newest_commit(self.spark, self.location).timestamp > _MAX_AGE:
                self.spark.sql(f"ALTER TABLE {self.location.sql} SET TBLPROPERTIES ('{_COMPARED_AT}' = '{now}')")
        except Exception:
            _log.warning("Adding a commit to %s failed", self.location, exc_info=True)

    def vacuum(self) -> None:
        """Delete old files of the table of row hashes with VACUUM. Errors are logged, not raised.
        Call this only if the last comparison used the hashes in the newest version of the table. If it used an older
        version, VACUUM could delete the files of that version, although the next comparison may need them. Does nothing
        if the table keeps deleted files for less than a day: until the next record, the newest one needs them."""
        try:
            info = self.info()
            if info is None or (retention_seconds(info.properties, FILES) or 0) < _MIN_RETENTION:
                return
            self.spark.sql(f"VACUUM {self.location.sql}").collect()
        except Exception:
            _log.warning("Running VACUUM on %s failed", self.location, exc_info=True)

    @contextmanager
    def lost_state_errors(self, version: int | None, folder: str = "") -> Iterator[None]:
        """Context manager that converts errors about deleted files and versions of this table to `row_hashes_lost`.

        Converts an error only if its text contains `folder`. `version` is the published version. If `version` is None,
        no error is converted.
        """
        try:
            yield
        except Exception as error:
            if version is not None and find_condition(error, _GONE) and folder in str(error):
                raise errors.row_hashes_lost(
                    table=self.table, states=str(self.location), published=version, where=version
                ) from error
            raise

    def rows_at(self, version: int) -> DataFrame:
        return self.spark.read.option("versionAsOf", version).table(self.location.sql)


def _to_stored_rows(
    rows: DataFrame, facts: CompareFacts, key: Sequence[str], *, all_hashes: bool, all_values: bool
) -> DataFrame:
    """Return compared rows as the table of row hashes stores them: without the values of rows that did not change,
    unless `all_values`."""
    payload = [name for name in rows.columns if name not in (*key, HASH, CHANGED, GAIN, ROW_PROBLEM)]
    return rows.where(f"{DIFFERS} OR {HASH} IS NOT NULL" if all_hashes else DIFFERS).selectExpr(
        f"spark_partition_id() AS {_TASK}",
        *key,
        *(name if all_values else f"IF({DIFFERS}, {name}, NULL) AS {name}" for name in payload),
        HASH,
        f"IF({DIFFERS}, {facts.latest}L, NULL) AS {_STATE}",
        f"IF({HASH} IS NULL, 0, 1) AS {GAIN}" if all_hashes else GAIN,
        ROW_PROBLEM,
    )


@dataclass(frozen=True)
class FullCompare:
    """Implementation of `ChangeSource` that compares all rows of the source with the hashes of the published rows.

    The hashes are in a Delta table, the table of row hashes. A comparison that finds a difference commits a new version
    of this table. All versions in arguments and results are versions of this table, not of the source.
    """

    spark: SparkSession
    source: Source
    hashes: RowHashTable
    staging_path: str | None = None
    upload_from: Literal["driver", "executors"] = "driver"

    def facts(self, published: PublishedVersion | None, limit: int) -> CompareFacts:
        info, after = self.hashes.info(), published.version if published else None
        before = newest_version(self.spark, self.hashes.location) if info else None
        is_other = info is not None and published is not None and info.properties[_ID] != published.table_id
        if after is not None and (before is None or before < after or is_other):
            states = str(self.hashes.location)
            raise errors.row_hashes_lost(table=str(self.source), states=states, published=after, where=after)
        table_id, latest, folder = uuid.uuid4().hex, 0, ""
        if info is not None and before is not None:
            table_id, latest, folder = info.properties[_ID], before + 1, info.location.rstrip("/").rpartition("/")[2]
        if published and published.next_part:  # which reads the version that the first part read
            return CompareFacts(table_id, published.version, (), before=before, folder=folder)
        at = latest if before is None or after is None else self.hashes.version_holding(after, before)
        first, now = latest if after is None else after + 1, datetime.now(UTC)
        commits = tuple(Commit(version, now, COMPARISON) for version in range(first, latest + 1))
        return CompareFacts(table_id, latest, commits, before=before, published_at=at, folder=folder)

    def is_unchanged(self, facts: Facts) -> bool:
        info = self.hashes.info()
        return info is not None and info.properties[_ID] == facts.table_id

    def schema(self, version: int, facts: Facts) -> dict[str, Any]:
        return dict(json.loads(read_full(self.spark, self.source).schema.json()))

    def check(self, what: Range | Snapshot, facts: Facts) -> None:
        if isinstance(what, Range):
            assert isinstance(facts, CompareFacts)
            with self.hashes.lost_state_errors(what.from_version_exclusive):
                _ = self.hashes.rows_at(facts.published_at).schema
        elif what.continues:  # the source is not read
            with self.hashes.lost_state_errors(what.version):
                _ = self.hashes.rows_at(what.version).schema
            return
        if self._may_need_archive():
            rows, statement = read_full(self.spark, self.source), f"SELECT * FROM {self.source.sql}"
            with lossless_settings(self.spark):
                archive.check_query(self.spark, rows, statement, "A comparison of all rows")

    def _may_need_archive(self) -> bool:
        """Return whether the source is a Delta table with an archive interval, or a view."""
        try:
            return archive.has_interval(read_table_info(self.spark, self.source).properties)
        except TerminalError:  # not a Delta table
            return self.source.path is None

    def stage(self, what: Range | Snapshot | KeyRepair, facts: Facts, table: Table, job: StagingJob) -> Staged | None:
        if isinstance(what, KeyRepair):
            raise feed_required(table=str(self.source), operation="Repairing a mirror")
        assert isinstance(facts, CompareFacts)
        if isinstance(what, Snapshot) and what.part:
            with self.hashes.lost_state_errors(what.version, facts.folder), lossless_settings(self.spark):
                return self._stage_part(what.version, what.part, job)
        published = what.from_version_exclusive
        is_newest = published is not None and facts.published_at == facts.before
        with lossless_settings(self.spark):
            with self.hashes.lost_state_errors(published, facts.folder):
                compacts = is_newest and self.hashes.needs_compaction(facts.published_at)
                written = self._compare(published, facts, job, all_hashes=compacts or not is_newest)
            if written is None:
                self.hashes.keep_readable()
                return None
            if published is None and (part := self._first_part(written, facts.latest, table, job)):
                return self._stage_part(facts.latest, part, job)
            rows_read = self.hashes.count_rows(facts.latest)
            if not written.rows:
                return Staged([write_empty(job)] if published is None else [], rows_read=rows_read)
            staged = row_staging.stage(
                self.hashes.changed_rows(facts.latest, job, facts.commits[-1].timestamp),
                job,
                staging_area_for(self.spark, self.staging_path, job.store),
                self.upload_from,
                expect_small=written.rows <= row_staging.SMALL_BATCH_ROWS,
            )
        if compacts:
            self.hashes.vacuum()
        return staged._replace(rows_read=rows_read)

    def _first_part(self, written: Written, version: int, table: Table, job: StagingJob) -> LoadPart | None:
        """Return the first part of a first load, whose rows a comparison wrote to `version` of the table of row hashes.
        Returns None if the load has one part. Otherwise raises `BadRows` if rows of any part cannot be published."""
        if written.bytes <= table.load_part_size:
            return None
        if (part := self.hashes.first_part(version, table.load_part_size)) is None:
            return None
        wrong = self._rows_of_load(version, job).where(f"{PROBLEM} IS NOT NULL").limit(PROBLEMS_SHOWN)
        if bad := bad_rows(wrong.toArrow(), PROBLEM, job.keys):
            raise BadRows(*bad)
        return part

    def _stage_part(self, version: int, part: LoadPart, job: StagingJob) -> Staged:
        """Stage a part of a first load. All parts are from the comparison that wrote `version`."""
        staged = row_staging.stage(
            self._rows_of_load(version, job, part),
            job,
            staging_area_for(self.spark, self.staging_path, job.store),
            self.upload_from,
            expect_small=part.slice.rows <= row_staging.SMALL_BATCH_ROWS,
        )
        return staged._replace(rows_read=sum(each.rows for each in part.slices), part=part)

    def _rows_of_load(self, version: int, job: StagingJob, part: LoadPart | None = None) -> DataFrame:
        at = self.hashes.commit_time(version) if job.delivery.columns else datetime.now(UTC)
        return self.hashes.changed_rows(version, job, at, part)

    def bad_keys(self, version: int, table: Table) -> list[BadRow]:
        with lossless_settings(self.spark):
            return row_staging.bad_keys(read_full(self.spark, self.source), table.target_keys)

    def check_start(self, start: ComparisonStart) -> None:
        with self._published_source(start.published):
            pass

    def store_hashes(self, start: ComparisonStart, facts: Facts, job: StagingJob) -> Staged:
        assert isinstance(facts, CompareFacts)
        published = start.published
        key = key_positions(job.columns, job.keys)
        unchanged = (*key, HASH, f"false AS {CHANGED}", f"0 AS {GAIN}", f"CAST(NULL AS int) AS {ROW_PROBLEM}")
        with lossless_settings(self.spark):
            with self._published_source(published) as source:
                hashes = source.hashes_at(published.version, job)
                values = kept_values(job.columns, key, job.delivery)
                stored = hashes.selectExpr(*unchanged, *values)
                self.hashes.write(stored, facts, key, all_hashes=True, all_values=bool(values))
            with self._published_source(published):  # another table may have replaced it before its rows were read
                return Staged([], rows_read=self.hashes.count_rows(facts.latest))

    @contextmanager
    def _published_source(self, published: PublishedVersion) -> Iterator[SnapshotDiff]:
        """Context manager for code that reads `published`, a version of the source that its change data feed published.

        Raises `first_comparison_impossible` if the version cannot be read, or if nothing proves that it is a version of
        the same table.
        """
        from mirrorfeed.publish.change_sources.feed_gap import SnapshotDiff  # imported late: a table needs it once

        version = published.version

        def problem(reason: str) -> FeedGapError:
            return first_comparison_impossible(table=str(self.source), published=version, where=version, reason=reason)

        diff = SnapshotDiff(self.spark, self.source, cause=problem(GONE))
        try:
            facts = diff.facts(published, 0)
            if find_recreation(str(self.source), published, facts.table_id, facts.latest, facts.recreation):
                raise problem(OTHER_TABLE)
            diff.check(Range(version, facts.latest), facts)
            with diff.comparable(Range(version, facts.latest)):
                yield diff
        except VersionNotComparableError as error:
            raise problem(GONE) from error
        except (NotDeltaError, NoTableAtPathError) as error:
            raise problem(NOT_DELTA) from error

    def _compare(
        self, published: int | None, facts: CompareFacts, job: StagingJob, *, all_hashes: bool
    ) -> Written | None:
        """Compare all rows of the source with the stored hashes, and commit changed rows to the table of row hashes.

        `published` is the published version, or None for the first publication. With `all_hashes`, the commit contains
        the hashes of all rows. Returns the size of the commit, or None if no commit was necessary.
        """
        now = read_full(self.spark, self.source)
        columns = columns_of(str(self.source), json.loads(now.schema.json()))
        if lost_columns(job.columns, columns):  # `job.columns` are from an earlier read
            raise errors.columns_changed_during_comparison(table=str(self.source))
        key = key_positions(job.columns, job.keys)
        rows = with_hashes(now, job.columns, job.keys)
        if published is None:
            no_hashes = self.spark.createDataFrame([], rows.select(*key, HASH).schema)
            return self.hashes.write(differences(rows, no_hashes, key), facts, key, all_hashes=True)
        assert facts.before is not None
        all_hashes = all_hashes or self.hashes.stores_other_types(rows, facts.before)
        values = self.hashes.stored_values(facts.published_at, kept_values(job.columns, key, job.delivery))
        compared = differences(rows, self.hashes.hashes_at(facts.published_at, key, values), key, values)
        if all_hashes and facts.published_at == facts.before and compared.where(DIFFERS).isEmpty():
            return None  # without differences, do not rewrite all hashes
        return self.hashes.write(compared, facts, key, all_hashes=all_hashes, all_values=bool(job.delivery.columns))
