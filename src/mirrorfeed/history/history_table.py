"""The Delta table of a permanent history: read rows and records, append, and detect writes of other processes."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from mirrorfeed import archive
from mirrorfeed.display.rows import counted
from mirrorfeed.history import history_record as records
from mirrorfeed.history.errors import HistoryChangedError, not_a_history, reserved_history_names
from mirrorfeed.history.history_record import (
    HistoryColumn,
    HistoryRecord,
    Segment,
    Spans,
    may_widen,
    stored_columns,
)
from mirrorfeed.landing.names import fold
from mirrorfeed.source.errors import NoTableAtPathError, SourceMissingError
from mirrorfeed.source.identifier import Source, quote
from mirrorfeed.source.reader import read_version
from mirrorfeed.source.snapshot_or_range import Commit, Facts
from mirrorfeed.source.table_info import FEED, TableInfo, count_rows, open_local_table, read_table_info
from mirrorfeed.source.versions import read_history
from mirrorfeed.storage.local_folder import arrow_files

_log = logging.getLogger(__name__)
_OWN_COLUMNS = {
    "_commit_date": "date",
    "_change_type": "string",
    "_commit_version": "bigint",
    "_commit_timestamp": "timestamp",
    "_record_number": "bigint",
    "_record_time": "timestamp",
    "_record": "string",
}
"""Columns of a history in addition to those of its source. Rows with changes have values in the first four columns,
records in the last three. Records have no `_commit_date`, so they are in a separate partition.
"""
_RECORD_COLUMNS = ["_record_number", "_record"]
_APP_ID = "mirrorfeed.history"
"""Value of `txnAppId`. With this value, Delta ignores an append if an earlier commit has the same record number."""
_MAPPING = "delta.columnMapping.mode"
_MARGIN = 16
"""Number of commits of a history to read at once. Usually, one of them appended the newest record."""
_CHANGES_ROWS = (
    *("WRITE", "STREAMING UPDATE", "MERGE", "UPDATE", "DELETE", "TRUNCATE", "COPY INTO", "CLONE", "CONVERT"),
    *("CREATE TABLE AS SELECT", "REPLACE TABLE", "CREATE OR REPLACE TABLE", "RESTORE", "Manual Update"),
    *("RENAME COLUMN", "DROP COLUMNS", "REPLACE COLUMNS"),
)


@dataclass(frozen=True)
class HistoryView:
    """State of a permanent history at one version of its Delta table."""

    version: int
    records: tuple[HistoryRecord, ...]
    """Records in ascending order. Records in archived files are omitted, unless all records are in archived files."""
    columns: Mapping[str, str]
    """Types of the history's columns as Spark's JSON, by column name."""
    archive_days: int | None
    """Age in days from which files count as archived. None if files never count as archived."""
    maps_columns: bool
    """True if column mapping is on, so that columns can have any name."""

    @property
    def newest(self) -> HistoryRecord | None:
        return self.records[-1] if self.records else None


@dataclass(frozen=True)
class HistoryTable:
    spark: SparkSession
    table: Source

    def read_view(self) -> HistoryView | None:
        """Return the newest state of the history, or None if it does not exist.

        Raises `HistoryChangedError` if another process changed rows, and `not_a_history` if the table is not a history.
        """
        try:
            info = read_table_info(self.spark, self.table)
        except (SourceMissingError, NoTableAtPathError):
            return None
        commits = read_history(self.spark, self.table, _MARGIN)
        version = commits[-1]["version"]
        fields = json.loads(read_version(self.spark, self.table, version).schema.json())["fields"]
        columns = {each["name"]: json.dumps(each["type"], sort_keys=True) for each in fields}
        if missing := [name for name in _OWN_COLUMNS if name not in columns]:
            raise not_a_history(table=str(self.table), missing=missing[0])
        archive_days, is_mapped = archive.interval_days(self.table, info.properties), maps_columns(info)
        count, appended = self._count_and_records(version, archive_days, is_mapped=is_mapped)
        view = HistoryView(version, appended, columns, archive_days, is_mapped)
        expected = view.newest.total if view.newest else 0
        if count != expected:
            raise self._changed(f"it has {counted(count, 'row')}, and its records account for {expected:,}")
        if view.newest:
            self._check_commits(commits, version, view.newest)
        return view

    def create(self, *, mapped: bool) -> None:
        """Create an empty Delta table for the history if the table does not exist.

        If `mapped` is True, the table has column mapping, so that its columns can have any name.
        """
        columns = ", ".join(f"{name} {type_}" for name, type_ in _OWN_COLUMNS.items())
        # A session can turn on the change data feed of new tables, but the feed does not allow some of these columns.
        properties = {"delta.appendOnly": "true", FEED: "false", **({_MAPPING: "name"} if mapped else {})}
        listed = ", ".join(f"'{name}' = '{value}'" for name, value in properties.items())
        self.spark.sql(
            f"CREATE TABLE IF NOT EXISTS {self.table.sql} ({columns}) USING DELTA PARTITIONED BY (_commit_date)"
            f" TBLPROPERTIES ({listed})"
        )

    def map_columns(self) -> None:
        self.spark.sql(f"ALTER TABLE {self.table.sql} SET TBLPROPERTIES ('{_MAPPING}' = 'name')")

    def compact(self, view: HistoryView) -> None:
        """Merge small files, and delete files that have been unused for longer than the retention of the history.

        Errors are logged, not raised. Does nothing with an archive interval: merged files count as new, so old rows
        would become active again. Nothing reads an older version of a history for longer than one command.
        """
        if view.archive_days is not None:
            return
        try:
            for statement in ("OPTIMIZE", "VACUUM"):
                self.spark.sql(f"{statement} {self.table.sql}").collect()
        except Exception:
            _log.warning("Merging the files of the history %s failed", self.table, exc_info=True)

    def read_records(self, view: HistoryView) -> Sequence[HistoryRecord]:
        """Return all records, including archived ones.
        Raises `HistoryChangedError` if one is missing or inconsistent."""
        all_records = view.records if view.archive_days is None else self._records(view.version, None)
        if disorder := records.find_disorder(all_records):
            raise self._changed(disorder)
        return all_records

    def append(self, rows: DataFrame | None, record: HistoryRecord) -> None:
        """Append a record and its rows in one commit. `rows` have the history's columns. None means no rows.

        If an earlier commit has the same or a higher record number, appends nothing and raises no error.
        """
        record_row = self.spark.range(1).select(
            F.lit(record.number).cast("bigint").alias("_record_number"),
            _timestamp(record.time).alias("_record_time"),
            F.lit(record.to_json()).alias("_record"),
            F.lit(None).cast("date").alias("_commit_date"),
        )
        all_rows = record_row if rows is None else rows.unionByName(record_row, allowMissingColumns=True)
        writer = all_rows.writeTo(self.table.sql).option("mergeSchema", "true").option("userMetadata", record.batch)
        writer.option("txnAppId", _APP_ID).option("txnVersion", str(record.number)).append()

    def read_rows(self, view: HistoryView, segment: Segment, after: int, to: int) -> DataFrame:
        """Return the changes of the versions `after + 1` to `to` as a change data feed, with the columns at `to`.

        `segment` has the records for these versions, without a gap, and starts with a snapshot. Raises
        `HistoryChangedError` if records and rows do not match, and `ArchivedFilesNeededError` if files must be restored
        first.
        """
        needed = [
            each
            for each in segment
            if each.commits and each.commits[-1].version > after and each.commits[0].version <= to
        ]
        stored = self._stored_rows(view, needed)
        counts = stored.groupBy("_commit_version").count().collect()
        for record in needed:
            versions = {commit.version for commit in record.commits}
            count = sum(row["count"] for row in counts if row["_commit_version"] in versions)
            if count != record.rows:
                raise self._changed(f"record {record.number} has {counted(count, 'row')} instead of {record.rows:,}")
        values = [_as_type(_value(spans), column).alias(column.name) for column, spans in stored_columns(segment, to)]
        rows = stored.where(F.col("_commit_version").between(after + 1, to))
        return rows.select(*values, "_change_type", "_commit_version", "_commit_timestamp")

    def _stored_rows(self, view: HistoryView, records: Sequence[HistoryRecord]) -> DataFrame:
        """Return the rows that were appended with `records`.

        Raises `ArchivedFilesNeededError` if the rows are in archived files that must be restored first.
        """
        commits = [commit for record in records for commit in record.commits]
        # Rows are partitioned by the UTC date of their commit, independent of the session's time zone.
        days = [commit.timestamp.astimezone(UTC).date() for commit in commits] or [date.min]
        versions = [commit.version for commit in commits] or [-1]
        where = (
            f"_commit_date BETWEEN DATE'{min(days)}' AND DATE'{max(days)}'"
            f" AND _commit_version BETWEEN {min(versions)} AND {max(versions)}"
        )
        if view.archive_days is None:
            return read_version(self.spark, self.table, view.version).where(where)
        return archive.query(self.spark, self.table, where, view.version)

    def _count_and_records(
        self, version: int, archive_days: int | None, *, is_mapped: bool
    ) -> tuple[int, tuple[HistoryRecord, ...]]:
        """Return two values for the history at a version: the number of its rows, and the history records.

        Leaves out records in archived files, unless all records are in archived files.
        """
        local = None if is_mapped or archive_days is not None else open_local_table(self.table, version)
        if local is not None and (count := count_rows(local)) is not None:
            import pyarrow.dataset as ds

            with suppress(OSError):  # a file is missing, and Spark will report which one
                rows = local.to_pyarrow_dataset(filesystem=arrow_files(self.table.path or ""))
                texts = rows.to_table(_RECORD_COLUMNS, ds.field("_commit_date").is_null())
                return count, self._parse(zip(*(texts[name].to_pylist() for name in _RECORD_COLUMNS), strict=True))
        active: tuple[HistoryRecord, ...] = ()
        if archive_days is not None:  # try the active files first
            active = self._records(version, datetime.now(UTC) - timedelta(days=archive_days))
        return read_version(self.spark, self.table, version).count(), active or self._records(version, None)

    def _records(self, version: int, since: datetime | None) -> tuple[HistoryRecord, ...]:
        rows = read_version(self.spark, self.table, version).where("_commit_date IS NULL")
        if since is not None:
            rows = rows.where(F.col("_record_time") > _timestamp(since))
        return self._parse(rows.select(_RECORD_COLUMNS).collect())

    def _parse(self, numbered: Iterable[tuple[int, str]]) -> tuple[HistoryRecord, ...]:
        return tuple(records.parse_record(text, str(self.table)) for _, text in sorted(numbered))

    def _check_commits(self, commits: Sequence[Mapping[str, Any]], version: int, newest: HistoryRecord) -> None:
        """Raise `HistoryChangedError` if another process has changed rows since the record `newest` was appended.

        `commits` are the newest commits of the history, up to `version`.
        """
        if commits[0]["version"] > newest.base + 1:
            commits = read_history(self.spark, self.table, version - newest.base + _MARGIN)
        since = [commit for commit in commits if newest.base < commit["version"] <= version]
        if write := find_foreign_write(since, newest.batch):
            raise self._changed(f"another process committed its version {write['version']} ({write['operation']})")

    def _changed(self, reason: str) -> HistoryChangedError:
        return HistoryChangedError(history=str(self.table), reason=reason)


def find_foreign_write(commits: Sequence[Mapping[str, Any]], batch: str) -> Mapping[str, Any] | None:
    """Return the first commit that changed rows, except the append with the id `batch`, or None if there is none.

    `commits` are rows of DESCRIBE HISTORY in ascending order. Commits that a later RESTORE reverted do not count.
    None does not prove that no other process changed rows, because log cleanup removes commits from DESCRIBE HISTORY.
    """
    foreign: list[Mapping[str, Any]] = []
    for commit in commits:
        restored = (commit["operationParameters"] or {}).get("version", "")
        if commit["operation"] == "RESTORE" and restored.isdigit() and int(restored) >= commits[0]["version"] - 1:
            foreign = [each for each in foreign if each["version"] <= int(restored)]
        elif commit["operation"].startswith(_CHANGES_ROWS) and commit["userMetadata"] != batch:
            foreign.append(commit)
    return foreign[0] if foreign else None


def to_stored_rows(feed: DataFrame, columns: Sequence[HistoryColumn]) -> DataFrame:
    """Return rows of a change data feed with the columns of a history. `columns` are the columns of the source."""
    version, at = F.col("_commit_version").cast("bigint"), F.col("_commit_timestamp")
    day = F.date_from_unix_date(F.floor(F.unix_seconds(at) / 86_400).cast("int"))
    values = [_as_type(F.col(quote(each.name)), each).alias(each.stored_as, metadata={}) for each in columns]
    return feed.select(day.alias("_commit_date"), "_change_type", version.alias("_commit_version"), at, *values)


def as_inserts(snapshot: DataFrame, commit: Commit) -> DataFrame:
    """Return the rows of a snapshot in the form of a change data feed, as if `commit` had inserted all of them."""
    return snapshot.select(
        "*",
        F.lit("insert").alias("_change_type"),
        F.lit(commit.version).cast("bigint").alias("_commit_version"),
        _timestamp(commit.timestamp).alias("_commit_timestamp"),
    )


def maps_columns(table: TableInfo | Facts) -> bool:
    """Return whether the table has column mapping, so that its columns can have any name."""
    return table.properties.get(_MAPPING, "none") != "none"


def check_names(table: str, schema: Mapping[str, Any]) -> None:
    """Raise `reserved_history_names` if a source column has the name of one of the history's own columns."""
    reserved = {fold(name) for name in _OWN_COLUMNS}
    if conflicts := [field["name"] for field in schema["fields"] if fold(field["name"]) in reserved]:
        raise reserved_history_names(table=table, columns=conflicts)


def _timestamp(at: datetime) -> Column:
    micros = (at - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
    return F.timestamp_micros(F.lit(micros).cast("bigint"))


def _as_type(value: Column, column: HistoryColumn) -> Column:
    return value.cast(json.loads(column.type)) if may_widen(column.type) else value


def _value(spans: Spans) -> Column:
    """Return an expression for the value of one source column in a row of the history.

    For different versions, different columns of the history can contain the value. `spans` lists these columns. The
    expression takes the value from the column that applies to the version of the row.
    """
    *earlier, (_, value) = [(to, F.lit(None) if name is None else F.col(quote(name))) for to, name in spans]
    for to, earlier_value in reversed(earlier):
        value = F.when(F.col("_commit_version") <= to, earlier_value).otherwise(value)
    return value
