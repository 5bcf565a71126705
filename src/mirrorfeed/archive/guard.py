"""Check queries, snapshots, and ranges of the change data feed for archived files, before anything is read.

On Databricks, this module checks nothing, because Databricks itself checks for archived files.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from mirrorfeed.archive.archive_interval import parse_policy
from mirrorfeed.archive.archived_files import (
    ArchivedFilesNeededError,
    TiersAt,
    find_archived,
    lookup_needs_archived_files,
    require_readable,
)
from mirrorfeed.archive.data_files import DataFile, NeededFiles, hadoop_path, to_data_file
from mirrorfeed.archive.data_skipping import UncertainFiles
from mirrorfeed.archive.delta_log_reader import local_log_files, require_own_commits
from mirrorfeed.archive.engines import engine_of
from mirrorfeed.archive.engines.open_source import OpenSourceEngine
from mirrorfeed.archive.errors import NeededFilesUnknownError, VersionMissingError
from mirrorfeed.archive.pinned_query import pin_query
from mirrorfeed.display.rows import first_names
from mirrorfeed.runtime.spark_session import is_databricks
from mirrorfeed.source.errors import FeedGapError, GapReason, VersionExpiredError, snapshot_unreadable
from mirrorfeed.source.identifier import Source
from mirrorfeed.source.snapshot_or_range import Range, Snapshot
from mirrorfeed.source.table_info import TableInfo, commit_name, read_table_info
from mirrorfeed.storage import tiers_at
from mirrorfeed.storage.tier_store import Tier, TiersOfTables, TierStore


def guarded_rows(
    spark: SparkSession,
    frame: DataFrame,
    tiers: TiersAt,
    now: datetime,
    operation: str = "The query",
    statement: str | None = None,
    arguments: Sequence[str] = (),
) -> DataFrame:
    """Return the rows of the query `frame`, after checking that all archived files that the query needs are restored.

    Raises `ArchivedFilesNeededError` if a file is not restored. `operation`, `statement` and `arguments` become fields
    of this error. `statement` is the query in SQL. A restore plan of the error contains this query if `pin_query` can
    pin its tables. The result runs exactly the query plan that was checked. On Databricks, returns `frame` without a
    check.
    """
    rows, needed = engine_of(spark).plan_query(frame, now)
    try:
        require_readable(needed, tiers, operation, arguments)
    except ArchivedFilesNeededError as error:
        error.statement = statement
        with suppress(Exception):  # then the plan restores the files alone
            error.query = pin_query(spark, statement, now) if statement else None
        raise
    return rows


def guarded(spark: SparkSession) -> Guarded:
    """Return an object that runs queries. A query fails early if it needs files that are still archived.

    A query that fails early reads nothing. Use `guarded(spark).sql` instead of `spark.sql`. A query can combine tables
    with and without archived files.
    """
    return Guarded(spark)


@dataclass(frozen=True)
class Guarded:
    """Runs queries. A query that needs archived files fails before it reads anything, unless they are all restored."""

    spark: SparkSession
    tiers: TiersAt = tiers_at
    now: Callable[[], datetime] = lambda: datetime.now(UTC)

    def sql(self, statement: str, args: Any = None) -> DataFrame:
        """Return the rows of a query. `args` are its parameters, as in `spark.sql`.

        Raises `ArchivedFilesNeededError` before anything is read if the query needs archived files that are not
        restored. The method `plan()` of this error returns a restore plan. The plan contains the query, unless the
        query has `args`, reads a view, or reads a source other than Delta tables. A command that reads no data file
        runs without a check. Raises `ArchiveError` for a command that can read data files. To change a table, use
        `ArchiveAwareTable`. On Databricks, all statements run unchecked, because Databricks itself checks queries.
        """
        must_check = engine_of(self.spark).must_check(statement)
        frame = self.spark.sql(statement) if args is None else self.spark.sql(statement, args)
        return self.frame(frame, statement if args is None else None) if must_check else frame

    def table(self, name: str) -> DataFrame:
        """Return the rows of a table or view by name, or of a table by path. Raises the same errors as `sql`."""
        return self.sql(f"SELECT * FROM {Source.parse(name).sql}")

    def frame(self, frame: DataFrame, statement: str | None = None) -> DataFrame:
        """Return the rows of `frame` after checking that its files are restored.

        `statement` is the SQL query of `frame`, if any. The restore plan of an error contains this query.
        """
        try:
            return guarded_rows(self.spark, frame, self.tiers, self.now(), statement=statement)
        except ArchivedFilesNeededError as error:
            if error.query is None:
                error.statement = None  # `archive plan --sql` would refuse it
            raise

    def needed(self, statement: str) -> list[NeededFiles]:
        """Return the archived files that a query needs, including restored files, without running the query."""
        engine = engine_of(self.spark)
        return list(engine.plan_query(engine.query(statement), self.now())[1])


def check(
    spark: SparkSession,
    source: Source,
    what: Range | Snapshot,
    tiers: TiersAt = tiers_at,
    now: datetime | None = None,
    operation: str | None = None,
) -> None:
    """Raise an error if a read needs files that do not exist, or archived files that are not restored.

    `what` is the snapshot, or the range whose changes are read. The errors are the same as in `archive.check`.
    `operation` is a name of the read for the error message. If `operation` is None, the name comes from `what`.
    """
    if is_databricks(spark):
        return
    table = read_table_info(spark, source)
    interval = parse_policy(str(source), table.properties)
    store = tiers(table.location)
    files = files_to_read(spark, source, table, what)
    last, read, arguments = what.to_version_inclusive, "A snapshot", [str(source)]
    if isinstance(what, Range):
        read = f"The change data feed ({what})"
        arguments += ["--feed-from", str(what.from_version_exclusive + 1), "--feed-to", str(last)]
    archived = find_archived(spark, str(source), table.location, files, interval, now or datetime.now(UTC))
    if interval is None and not archived:  # a clone without an interval can use archived files of another table
        return
    stores = TiersOfTables((), tiers) if store else None  # files of a clone can be in several buckets
    if missing := missing_among([file for file in files if store or file not in archived], stores):
        if isinstance(what, Snapshot):
            raise snapshot_unreadable(table=str(source), what=what, uris=missing)
        raise FeedGapError(
            table=str(source),
            published=what.from_version_exclusive,
            where=what,
            reason=f"files are gone, {first_names(missing)}",
        )
    needed = NeededFiles(str(source), table.table_id, table.location, last, tuple(archived))
    require_readable([needed], tiers, operation=operation or read, arguments=arguments)


def check_query(
    spark: SparkSession,
    rows: DataFrame,
    statement: str,
    operation: str,
    tiers: TiersAt = tiers_at,
    now: datetime | None = None,
) -> None:
    """See `archive.check_query`."""
    with suppress(NeededFilesUnknownError):
        guarded_rows(spark, rows, tiers, now or datetime.now(UTC), operation, statement)


def readable_keys(spark: SparkSession, source: Source, keys: DataFrame, version: int | None) -> DataFrame:
    """See `archive.readable_keys`."""
    try:
        if version is None:
            return guarded_rows(spark, keys, tiers_at, datetime.now(UTC))
        check(spark, source, Snapshot(version))
    except ArchivedFilesNeededError as error:
        raise lookup_needs_archived_files(needed=error.needed, arguments=(str(source),)) from error
    return keys


def files_to_read(spark: SparkSession, source: Source, table: TableInfo, what: Range | Snapshot) -> Sequence[DataFile]:
    """Return all files that Delta reads for `what`: a range of the change data feed, or a snapshot.

    Raises `FeedGapError` if commits of the range cannot be read, and `commits_outside_log` if commits can be outside
    the Delta log.
    """
    engine = OpenSourceEngine(spark)
    if isinstance(what, Snapshot):
        return list(engine.files(source, what.version).values())
    require_own_commits(str(source), table.features)
    try:
        before = engine.files(source, what.from_version_exclusive) if what.from_version_exclusive >= 0 else {}
    except (VersionMissingError, VersionExpiredError):
        before = {}
    try:
        return changed_files(spark, table.location, what, before)
    except (OSError, json.JSONDecodeError, UncertainFiles) as error:
        after = what.from_version_exclusive
        raise FeedGapError(table=str(source), published=after, where=what, reason=GapReason.LOG_HOLE) from error


def changed_files(spark: SparkSession, location: str, what: Range, before: Mapping[str, DataFile]) -> list[DataFile]:
    """Return the files that Delta reads for the change data feed of a range.

    For a commit, Delta reads its `_change_data` files. If there are none, Delta reads the added and removed files.
    `before` has the table's files before the range. The age of a removed file that is not in `before` can be unknown.
    """
    read: list[Mapping[str, Any]] = []
    first_added: dict[str, DataFile] = {}
    with local_log_files(spark, hadoop_path(spark, location)) as local_path:
        for version in range(what.from_version_exclusive + 1, what.to_version_inclusive + 1):
            actions = [json.loads(line) for line in local_path(commit_name(version)).read_bytes().splitlines() if line]
            added, removed, changes, commit = (
                [each[kind] for each in actions if each.get(kind)] for kind in ("add", "remove", "cdc", "commitInfo")
            )
            time = next((each.get("inCommitTimestamp") or each.get("timestamp") for each in commit), None)
            changes = [each | {"modificationTime": time} for each in changes]
            read += changes or [each for each in added + removed if each["dataChange"]]
            first_added = {file.uri: file for file in (to_data_file(location, each) for each in added)} | first_added
    known = {**before, **first_added}
    files: dict[Sequence[str], DataFile] = {}
    for file in (to_data_file(location, each) for each in read):
        if file.uri in known:
            file = replace(known[file.uri], deletion_vector=file.deletion_vector)
        files[file.uris] = file
    return list(files.values())


def missing_among(files: Sequence[DataFile], tiers: TierStore | None) -> list[str]:
    """Return the URIs of files and deletion vectors that do not exist. Without `tiers`, checks only local files."""
    uris = sorted({uri for file in files for uri in file.uris})
    if tiers is not None:
        return [uri for uri, tier in tiers.read_tiers(uris).items() if tier is Tier.MISSING]
    local = [uri for uri in uris if uri.startswith("file:")]
    return [uri for uri in local if not Path(uri.removeprefix("file:")).exists()]
