"""Archived files with open source Delta on classic Spark, found in the Delta log or in query plans."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import groupby
from operator import attrgetter
from typing import ClassVar

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession

from mirrorfeed.archive import delta_log_reader, spark_plans
from mirrorfeed.archive.archive_interval import Policy, parse_policy
from mirrorfeed.archive.archived_files import find_archived, select_archived
from mirrorfeed.archive.data_files import DataFile, NeededFiles
from mirrorfeed.archive.data_skipping import UncertainFiles, apply_condition, find_comparisons
from mirrorfeed.archive.errors import InvalidQueryError, VersionMissingError, not_a_query, query_not_plannable
from mirrorfeed.archive.spark_plans import Scan, plan_frame
from mirrorfeed.errors import first_line
from mirrorfeed.runtime.spark_errors import EXPIRED, LOG_GONE, find_condition, silence_spark_logs
from mirrorfeed.runtime.spark_session import IGNORE_FILE_SETTINGS, setting
from mirrorfeed.source import reader
from mirrorfeed.source.errors import NotDeltaError, VersionExpiredError
from mirrorfeed.source.identifier import Source
from mirrorfeed.source.table_info import TableInfo, read_table_info

_AUTO_COMPACTION = "spark.databricks.delta.autoCompact.enabled"
"""Setting that overrides the table property `delta.autoOptimize.autoCompact`."""


@dataclass(frozen=True)
class OpenSourceEngine:
    """Implementation of `Engine` that finds archived files in the Delta log or in query plans."""

    spark: SparkSession
    guards_itself: ClassVar[bool] = False

    def must_check(self, statement: str) -> bool:
        with silence_spark_logs():
            kind = spark_plans.command_kind(self.spark, statement)
        if kind is not None and not spark_plans.READS_NO_ROWS.match(kind):
            raise not_a_query(statement=statement, kind=kind)
        return kind is None

    def query(self, statement: str) -> DataFrame:
        try:
            with silence_spark_logs():
                if kind := spark_plans.command_kind(self.spark, statement):
                    raise not_a_query(statement=statement, kind=kind)
                return self.spark.sql(statement)
        except AnalysisException as error:
            raise InvalidQueryError(statement=statement, reason=first_line(str(error))) from error

    def plan_query(self, frame: DataFrame, now: datetime) -> tuple[DataFrame, Sequence[NeededFiles]]:
        self._check_settings()
        rows, scans = plan_frame(frame)
        return rows, self._needed_by(scans, now)

    def needed_by_change(self, source: Source, statement: str, now: datetime) -> Sequence[NeededFiles]:
        self._check_settings()
        return self._needed_by([spark_plans.scan_for_change(self.spark, statement, self.newest(source))], now)

    def without_compaction(self) -> AbstractContextManager[object]:
        return setting(self.spark, _AUTO_COMPACTION, "false")

    def _check_settings(self) -> None:
        """Raise `query_not_plannable` if a session setting makes Spark skip unreadable files."""
        for name in IGNORE_FILE_SETTINGS:
            if str(self.spark.conf.get(name)).lower() == "true":
                raise query_not_plannable(reason=f"{name} is true, so rows of unreadable files would be missing")

    def _needed_by(self, scans: Sequence[Scan], now: datetime) -> Sequence[NeededFiles]:
        """Return the archived files that a query needs. The result has one item for each table and version.

        `scans` has all files that the query reads. Tables without archived files are left out. The archive interval in
        the newest version of a table applies to all its versions.
        """
        by_version = attrgetter("location", "version")
        all_needed = []
        for _, group in groupby(sorted(scans, key=by_version), by_version):
            first, *others = group
            newest = spark_plans.scan_all(self.spark.table(Source(path=first.location).sql)) or first
            policy = parse_policy(first.name, newest.metadata.properties)
            all_needed.append(self._needed_of(first, [first, *others], policy, now))
        return [needed for needed in all_needed if needed.files]

    def _needed_of(self, table: Scan, scans: Sequence[Scan], policy: Policy | None, now: datetime) -> NeededFiles:
        """Return the archived files in `scans`.

        All `scans` read the same version of one table. The result has the name and location of `table`, any such scan.
        """
        until = created_until(policy, now)
        files = {file.uri: file for scan in scans for file in scan.files(until)}
        archived = find_archived(self.spark, table.name, table.location, files.values(), policy, now)
        active = None if len(scans) > 1 else sum(scan.count for scan in scans) - len(archived)  # scans may share files
        listed = tuple(sorted(archived, key=lambda file: file.uri))
        return NeededFiles(table.name, table.metadata.table_id, table.location, table.version, listed, active)

    def needed(self, source: Source, where: str | None, now: datetime, version: int | None = None) -> NeededFiles:
        try:
            return self.find_in_log(source, where, now, version)
        except UncertainFiles:
            return self.find_in_plan(source, where, now, version)

    def find_in_log(self, source: Source, where: str | None, now: datetime, version: int | None = None) -> NeededFiles:
        """Return the archived files in which rows may match `where`, from the Delta log alone.

        Raises `UncertainFiles` if Delta itself might find different files. Then use `find_in_plan`.
        """
        with delta_log_reader.open_log(self.spark, source) as newest:
            policy = parse_policy(str(source), newest.metadata.properties)
            log = newest.at(version)
            table = log.metadata
            comparisons = [] if where is None else find_comparisons(self.spark, str(source), table, where)
            count, files = log.files(comparisons, created_until(policy, now))
        archived = select_archived(sorted(files, key=lambda file: file.uri), policy, now)
        return NeededFiles(
            str(source), table.table_id, log.location, log.version, tuple(archived), count - len(archived)
        )

    def find_in_plan(self, source: Source, where: str | None, now: datetime, version: int | None = None) -> NeededFiles:
        """Return the archived files in which rows may match `where`, from Delta's plan of a query with `where`."""
        policy = parse_policy(str(source), self.newest(source).metadata.properties)
        all_files = self.scan_all(source, version)
        scans: Sequence[Scan] = [all_files]
        if where is not None:
            _, scans = plan_frame(apply_condition(self.read(source, all_files.version), str(source), where))
        return replace(self._needed_of(all_files, scans, policy, now), table=str(source))

    def scan_all(self, source: Source, version: int | None = None) -> Scan:
        """Return all files of a version as a `Scan`. The default version is the newest.

        Raises `NotDeltaError` if `source` is not a Delta table.
        """
        newest = self.newest(source)
        if version is None or version == newest.version:
            return newest
        scan = spark_plans.scan_all(self.read(source, version))
        assert scan is not None, "the newest version was read in the same way"
        return scan

    def newest(self, source: Source) -> Scan:
        with suppress(AnalysisException):
            if scan := spark_plans.scan_all(self.spark.table(source.sql)):
                return scan
        table = read_table_info(self.spark, source)  # raises a more specific error, for example for a view
        raise NotDeltaError(table=str(source), found=f"a table at {table.location} whose log cannot be found")

    def partitions(self, source: Source, version: int | None) -> list[dict[str, str | None]]:
        return sorted(self.scan_all(source, version).partitions(), key=str)

    def rows_without(self, source: Source, left_out: Collection[str], version: int) -> DataFrame:
        if left_out:
            return self.scan_all(source, version).rows_without(left_out)
        return plan_frame(reader.read_version(self.spark, source, version))[0]

    def files(self, source: Source, version: int | None = None, table: TableInfo | None = None) -> dict[str, DataFile]:
        """Return all files of a version, by URI. The default version is the newest.

        Raises `commits_outside_log` if the newest commits can be outside the Delta log, for example in a catalog.
        """
        table = table or read_table_info(self.spark, source)
        delta_log_reader.require_own_commits(str(source), table.features)
        try:
            with delta_log_reader.open_log(self.spark, source) as log:
                files: Sequence[DataFile] = log.at(version).files()[1]
        except UncertainFiles:
            files = self.scan_all(source, version).files()
        return {file.uri: file for file in files}

    def read(self, source: Source, version: int | None) -> DataFrame:
        """Return the rows of a version. The default version is the newest.

        Raises `VersionExpiredError` if the version is older than `delta.deletedFileRetentionDuration`, and
        `VersionMissingError` if the Delta log lacks the version.
        """
        at = self.newest(source).version if version is None else version
        try:
            if at >= 0:
                return reader.read_version(self.spark, source, at)
        except Exception as error:
            if find_condition(error, (EXPIRED,)):
                raise VersionExpiredError(table=str(source), version=at) from error
            if find_condition(error, LOG_GONE) is None:
                raise
        raise VersionMissingError(table=str(source), versions=f"version {at}", newest=self.newest(source).version)


def created_until(policy: Policy | None, now: datetime) -> int:
    """Return a time in milliseconds since the epoch. Files created after this time do not count as archived.

    Returns -1 if `policy` is None, because then no file counts as archived.
    """
    return -1 if policy is None else int((now - timedelta(days=policy.days)).timestamp() * 1000) + 1


def all_and_archived(
    spark: SparkSession, source: Source, now: datetime, table: TableInfo | None = None
) -> tuple[list[DataFile], list[DataFile]]:
    """Return all files of the newest version, and the files among them that count as archived."""
    table = table or read_table_info(spark, source)
    files = list(OpenSourceEngine(spark).files(source, table=table).values())
    policy = parse_policy(str(source), table.properties)
    return files, find_archived(spark, str(source), table.location, files, policy, now)


def files_of(frame: DataFrame) -> list[str]:
    """Return the URIs of the files that a query reads. Raises `unknown_files` if its plan does not show all files."""
    _, scans = plan_frame(frame)
    return sorted({file.uri for scan in scans for file in scan.files()})
