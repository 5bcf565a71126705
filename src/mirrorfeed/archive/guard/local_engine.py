"""For open source Delta on classic Spark: Delta's own plans say what is needed, and the log how old it is."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar

from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession

from mirrorfeed.archive import plan_comparisons, planned_commands
from mirrorfeed.archive import spark_scans as scan
from mirrorfeed.archive.errors import BadPredicate, BadStatement, CannotBePlanned, NoQuery, NoSuchVersion
from mirrorfeed.archive.file_index import data_skipping, log_location
from mirrorfeed.archive.file_index.archived_files import archived_among, archived_by_owner, created_until
from mirrorfeed.archive.file_index.data_skipping import Doubt
from mirrorfeed.archive.file_index.log_file import LogFile, column_names
from mirrorfeed.archive.file_index.spark_log import DeltaLog, log_of
from mirrorfeed.archive.guard import active_copy as hot
from mirrorfeed.archive.guard.engine import Answer, Facts, Judged, Need
from mirrorfeed.archive.guard.predicate import filtered
from mirrorfeed.archive.interval_policy import Policy, understood
from mirrorfeed.archive.planned_files import planned
from mirrorfeed.archive.spark_scans import Scan
from mirrorfeed.errors import first_line
from mirrorfeed.runtime.session_settings import PASS_OVER
from mirrorfeed.runtime.spark_errors import EXPIRED, LOG_GONE, first_of
from mirrorfeed.runtime.spark_session import unlogged
from mirrorfeed.source import reader, versions
from mirrorfeed.source.errors import NotDelta, VersionExpired
from mirrorfeed.source.identifier import Source
from mirrorfeed.source.table_info import detail_of


@dataclass(frozen=True)
class Here:
    spark: SparkSession
    guards_itself: ClassVar[bool] = False

    def table(self, source: Source) -> LocalIndex:
        return LocalIndex(self.spark, source)

    def judges(self, statement: str) -> bool:
        with unlogged():
            kind = planned_commands.kind(self.spark, statement)
        if kind is not None and not planned_commands.reads_no_rows(kind):
            raise NoQuery(statement=statement, kind=kind)
        return kind is None

    def query(self, statement: str) -> DataFrame:
        return query(self.spark, statement)

    def judged(self, frame: DataFrame, now: datetime) -> Judged:
        _check_settings(self.spark)
        found = planned(frame)
        return Judged(found.rows, self._needs(found.scans, now))

    def looked_into(self, source: Source, statement: str, now: datetime) -> Sequence[Need]:
        _check_settings(self.spark)
        whole = LocalIndex(self.spark, source).newest()
        return self._needs([planned_commands.candidates(self.spark, statement, whole)], now)

    def _needs(self, scans: Sequence[Scan], now: datetime) -> Sequence[Need]:
        """By table and version. The interval of the newest version holds for all."""
        grouped: dict[tuple[str, int], list[Scan]] = {}
        for each in scans:
            grouped.setdefault((each.location, each.version), []).append(each)
        found = []
        for (location, version), same in sorted(grouped.items(), key=lambda each: each[0]):
            newest = scan.whole(self.spark.table(Source(path=location).sql)) or same[0]
            archived = archived_in(self.spark, same, understood(same[0].name, newest.properties), now)
            if archived:
                found.append(Need(same[0].name, same[0].table_id, location, version, archived))
        return found


def _check_settings(spark: SparkSession) -> None:
    """A file that the cloud moves after it was looked at must make a query fail."""
    for name in PASS_OVER:
        if str(spark.conf.get(name)).lower() == "true":
            raise CannotBePlanned(reason=f"{name} is true, so that rows of files that cannot be read would be missing")


def query(spark: SparkSession, statement: str) -> DataFrame:
    """A query that is understood and not run; nothing else is carried out."""
    try:
        with unlogged():
            kind = planned_commands.kind(spark, statement)
            if kind is not None:
                raise NoQuery(statement=statement, kind=kind)
            return spark.sql(statement)
    except AnalysisException as error:
        raise BadStatement(statement=statement, reason=first_line(str(error))) from error


@dataclass(frozen=True)
class LocalIndex:
    """For open source Delta on classic Spark."""

    spark: SparkSession
    source: Source
    guards_itself: ClassVar[bool] = False

    def facts(self) -> Facts:
        try:
            with log_location.columns(self.spark, self.source, None) as (_, log):
                found = log.described()
            return Facts(found.table_id, tuple(column_names(found.schema).values()), found.properties)
        except Doubt:
            newest = self.newest()
            return Facts(newest.table_id, tuple(self.spark.table(self.source.sql).columns), newest.properties)

    def needed(self, predicate: str | None, policy: Policy | None, now: datetime, version: int | None) -> Answer:
        try:
            return self.compared(predicate, policy, now, version)
        except Doubt:
            return self.planned(predicate, policy, now, version)

    def compared(self, predicate: str | None, policy: Policy | None, now: datetime, version: int | None) -> Answer:
        """From the log's columns, where that is beyond doubt what Delta would plan: for comparisons alone."""
        with log_location.columns(self.spark, self.source, version) as (at, log):
            table = log.described()
            asked = []
            if predicate is not None:
                try:
                    rows = plan_comparisons.like(self.spark, table.schema)
                    asked = plan_comparisons.of(filtered(rows, str(self.source), predicate))
                except (BadPredicate, PySparkException) as error:
                    raise Doubt("a condition that only Delta may take") from error
            until = None if policy is None else created_until(policy, now)
            found = log.files(
                table, data_skipping.rules(asked, table.schema, table.partitions, table.properties), until
            )
        archived = archived_among(sorted(found.files, key=lambda file: file.uri), policy, now) if policy else []
        return Answer(tuple(archived), found.count - len(archived), at)

    def planned(self, predicate: str | None, policy: Policy | None, now: datetime, version: int | None) -> Answer:
        """As Delta plans it."""
        whole = self.whole(version)
        if predicate is None:
            return answer_of(self.spark, [whole], policy, now)
        found = planned(filtered(self.rows(whole.version), str(self.source), predicate))
        return answer_of(self.spark, found.scans, policy, now) if found.scans else Answer((), 0, whole.version)

    def whole(self, version: int | None = None) -> Scan:
        """All files of a version; without one, of the newest."""
        newest = self.newest()
        if version is None or version == newest.version:
            return newest
        found = scan.whole(self.rows(version))
        assert found is not None, "the newest version was looked at in the same way"
        return found

    def newest(self) -> Scan:
        """All files of the newest version."""
        try:
            found = scan.whole(self.spark.table(self.source.sql))
        except AnalysisException:
            found = None
        if found is None:
            what = detail_of(self.spark, self.source)  # which says what is there instead
            raise NotDelta(table=str(self.source), found=f"a table at {what.location} whose log cannot be found")
        return found

    def location(self) -> str:
        return self.newest().location

    def newest_version(self) -> int:
        return self.newest().version

    def partitions(self, version: int | None) -> list[dict[str, str | None]]:
        return sorted(self.whole(version).partitions(), key=str)

    def changed(self, first: int) -> Sequence[LogFile]:
        newest = versions.newest_version(self.spark, self.source)
        return self.log().changed_files(first, newest) if first <= newest else ()

    def without(self, left_out: Collection[str], version: int) -> DataFrame:
        if left_out:
            rows = hot.without(self.spark, self.source, self.newest().table_id, version, left_out)
        else:
            rows = reader.at(self.spark, self.source, version)
        return planned(rows).rows

    def log(self) -> DeltaLog:
        return log_of(self.spark, self.source, detail_of(self.spark, self.source))

    def rows(self, version: int) -> DataFrame:
        try:
            if version >= 0:
                return reader.at(self.spark, self.source, version)
        except Exception as error:
            if first_of(error, (EXPIRED,)):
                raise VersionExpired(table=str(self.source), version=version) from error
            if first_of(error, LOG_GONE) is None:
                raise
        raise NoSuchVersion(table=str(self.source), version=version, newest=self.newest().version)


def answer_of(spark: SparkSession, scans: Sequence[Scan], policy: Policy | None, now: datetime) -> Answer:
    """For scans of one table at one version, of which there are some."""
    first, *others = scans
    archived = sorted(
        (file for files in archived_in(spark, scans, policy, now).values() for file in files), key=lambda file: file.uri
    )
    hot = None if others else first.count - len(archived)  # several may share files
    return Answer(tuple(archived), hot, first.version)


_NEVER = -1
"""No file was made by then."""


def archived_in(
    spark: SparkSession, scans: Sequence[Scan], policy: Policy | None, now: datetime
) -> dict[str, list[LogFile]]:
    """What counts as archived of the files of one table with this policy, by the table in whose folder it lies."""
    until = _NEVER if policy is None else created_until(policy, now)
    files = {file.uri: file for scan in scans for file in scan.files(until)}
    return archived_by_owner(spark, scans[0].name, scans[0].location, list(files.values()), policy, now)


def files_of(frame: DataFrame) -> list[str]:
    """The data files that a query on Delta opens, after Delta's skipping by partition and statistics."""
    return sorted({file.uri for scan in planned(frame).scans for file in scan.files()})
