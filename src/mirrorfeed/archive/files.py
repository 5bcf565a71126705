"""Which archived files a question needs: asked of Databricks, or answered here from the log and Delta's own skipping.

Whether a file counts as archived is a matter of its age alone, whatever tier it is in. On any doubt it does: a file
without a known age is as old as can be.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Protocol

from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession

from mirrorfeed.archive import classic, place, skipping
from mirrorfeed.archive.classic import CannotBeJudged, Scan
from mirrorfeed.archive.engine import is_databricks
from mirrorfeed.archive.interval import counts_as_archived
from mirrorfeed.archive.log import DeltaLog, LogFile, column_names, log_of, plain
from mirrorfeed.archive.owner import Tables
from mirrorfeed.archive.policy import Policy, understood
from mirrorfeed.archive.predicate import BadPredicate, filtered
from mirrorfeed.archive.skipping import Doubt
from mirrorfeed.errors import Terminal
from mirrorfeed.feed import history, read
from mirrorfeed.feed.faults import LOG_GONE, first_of
from mirrorfeed.feed.source import Source

if TYPE_CHECKING:
    from mirrorfeed.stores.tiers import TierStore


@dataclass(frozen=True, slots=True)
class Answer:
    """What a question needs of a table at a version."""

    archived: tuple[LogFile, ...]
    hot: int | None
    """How many other files it needs; None where only Databricks knows, and for several reads of the table."""
    version: int


@dataclass(frozen=True, slots=True)
class Facts:
    """Of the newest version of a table."""

    table_id: str
    columns: tuple[str, ...]
    properties: Mapping[str, str]


class FileIndex(Protocol):
    def facts(self) -> Facts: ...

    def needed(self, predicate: str | None, policy: Policy | None, now: datetime, version: int | None) -> Answer:
        """The archived files that must be read to know which rows match; too many rather than too few. Without a
        version: the newest. Reads no data file. Without a policy, no file is archived."""
        ...


def index_of(spark: SparkSession, source: Source) -> LocalIndex | NativeIndex:
    return NativeIndex(spark, source) if is_databricks(spark) else LocalIndex(spark, source)


@dataclass(frozen=True)
class LocalIndex:
    """For open source Delta on classic Spark."""

    spark: SparkSession
    source: Source

    def facts(self) -> Facts:
        try:
            with place.columns(self.spark, self.source, None) as (_, log):
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
        with place.columns(self.spark, self.source, version) as (at, log):
            table = log.described()
            asked = []
            if predicate is not None:
                try:
                    rows = classic.like(self.spark, table.schema)
                    asked = classic.comparisons(filtered(rows, str(self.source), predicate))
                except (BadPredicate, PySparkException) as error:
                    raise Doubt("a condition that only Delta may take") from error
            until = None if policy is None else created_until(policy, now)
            found = log.files(table, skipping.rules(asked, table.schema, table.partitions, table.properties), until)
        archived = archived_among(sorted(found.files, key=lambda file: file.uri), policy, now) if policy else []
        return Answer(tuple(archived), found.count - len(archived), at)

    def planned(self, predicate: str | None, policy: Policy | None, now: datetime, version: int | None) -> Answer:
        """As Delta plans it."""
        whole = self.whole(version)
        if predicate is None:
            return answer_of(self.spark, [whole], policy, now)
        found = classic.planned(filtered(self.at(whole.version), str(self.source), predicate))
        return answer_of(self.spark, found.scans, policy, now) if found.scans else Answer((), 0, whole.version)

    def whole(self, version: int | None = None) -> Scan:
        """All files of a version; without one, of the newest."""
        newest = self.newest()
        if version is None or version == newest.version:
            return newest
        found = classic.whole(self.at(version))
        assert found is not None, "the newest version was looked at in the same way"
        return found

    def newest(self) -> Scan:
        """All files of the newest version."""
        try:
            found = classic.whole(self.spark.table(self.source.sql))
        except AnalysisException:
            found = None
        if found is None:
            what = history.detail(self.spark, self.source)  # which says what is there instead
            raise history.NotDelta(str(self.source), f"a table at {what.location} whose log cannot be found")
        return found

    def log(self) -> DeltaLog:
        return log_of(self.spark, self.source, history.detail(self.spark, self.source))

    def at(self, version: int) -> DataFrame:
        try:
            if version >= 0:
                return read.snapshot(self.spark, self.source, version)
        except Exception as error:
            if first_of(error, LOG_GONE) is None:
                raise
        raise NoSuchVersion(str(self.source), version, self.newest().version)


_NEVER = -1
"""No file was made by then."""


def created_until(policy: Policy, now: datetime) -> int:
    """Files that were made later cannot count as archived. In milliseconds, which is as far as the log tells."""
    return int((now - timedelta(days=policy.days)).timestamp() * 1000) + 1


def answer_of(spark: SparkSession, scans: Sequence[Scan], policy: Policy | None, now: datetime) -> Answer:
    """For scans of one table at one version, of which there are some."""
    first, *others = scans
    archived = sorted(
        (file for files in archived_in(spark, scans, policy, now).values() for file in files), key=lambda file: file.uri
    )
    hot = None if others else first.count - len(archived)  # several may share files
    return Answer(tuple(archived), hot, first.version)


def archived_in(
    spark: SparkSession, scans: Sequence[Scan], policy: Policy | None, now: datetime
) -> dict[str, list[LogFile]]:
    """What counts as archived of the files of one table with this policy, by the table in whose folder it lies."""
    until = _NEVER if policy is None else created_until(policy, now)
    files = {file.uri: file for scan in scans for file in scan.files(until)}
    return archived_by_owner(spark, scans[0].name, scans[0].location, list(files.values()), policy, now)


def archived_by_owner(
    spark: SparkSession, name: str, location: str, files: Iterable[LogFile], policy: Policy | None, now: datetime
) -> dict[str, list[LogFile]]:
    """Which files of a table count as archived, each by the interval of the table in whose folder it lies: the cloud
    goes by folders, and a clone has files in that of its original. `CannotBeJudged` where there is no table any more.
    """
    tables, found, policies = Tables(spark), dict[str, list[LogFile]](), {location: policy}
    for file in files:
        owner = location if file.uri.startswith(f"{location.rstrip('/')}/") else tables.holding(file.uri)
        if owner is None:
            raise CannotBeJudged(f"a file of {name} that lies in no table's folder, {file.uri}")
        found.setdefault(owner, []).append(file)
    for owner in found.keys() - policies.keys():
        policies[owner] = policy_at(spark, owner)
    archived = {owner: archived_among(listed, policies[owner], now) for owner, listed in found.items()}
    return {owner: listed for owner, listed in archived.items() if listed}


def archived_of(
    spark: SparkSession, name: str, location: str, files: Iterable[LogFile], policy: Policy | None, now: datetime
) -> list[LogFile]:
    """The same in one list."""
    found = archived_by_owner(spark, name, plain(location), files, policy, now)
    return [file for listed in found.values() for file in listed]


def policy_at(spark: SparkSession, location: str) -> Policy | None:
    """What the newest version of the table in a folder says."""
    source = Source(path=location)
    newest = classic.whole(spark.table(source.sql))
    return understood(str(source), newest.properties) if newest else None


def files_of(frame: DataFrame) -> list[str]:
    """The data files that a query on Delta opens, after Delta's skipping by partition and statistics."""
    return sorted({file.uri for scan in classic.planned(frame).scans for file in scan.files()})


def archived_among(files: Iterable[LogFile], policy: Policy | None, now: datetime) -> list[LogFile]:
    """Without a policy, none."""
    if policy is None:
        return []
    return [file for file in files if file.created is None or counts_as_archived(file.created, policy.days, now)]


@dataclass(frozen=True)
class NativeIndex:
    """For Databricks, which knows its archived files itself."""

    spark: SparkSession
    source: Source

    def facts(self) -> Facts:
        found = history.detail(self.spark, self.source)
        return Facts(found.table_id, tuple(self.spark.table(self.source.sql).columns), found.properties)

    def needed(self, predicate: str | None, policy: Policy | None, now: datetime, version: int | None) -> Answer:
        at = history.newest_version(self.spark, self.source)
        if version not in (None, at):
            raise OnlyNewestVersion(str(self.source), version or 0, at)
        filtered(self.spark.table(self.source.sql), str(self.source), predicate)
        if policy is None:
            return Answer((), None, at)
        # The line break ends a comment that the predicate may end with.
        where = "" if predicate is None else f" WHERE ({predicate}\n)"
        rows = self.spark.sql(f"SHOW ARCHIVED FILES FOR {self.source.sql}{where}").collect()
        return Answer(tuple(LogFile(plain(str(row[0]))) for row in rows), None, at)


def check_columns(spark: SparkSession, source: Source, names: Sequence[str]) -> None:
    if names:
        named(str(source), spark.table(source.sql).columns, names)


def named(what: str, there: Sequence[str], names: Sequence[str]) -> list[str]:
    """Columns as they are spelled where they are, or `NoSuchColumn`."""
    known = {name.lower(): name for name in there}
    if unknown := [name for name in names if name.lower() not in known]:
        raise NoSuchColumn(what, unknown[0], there)
    return [known[name.lower()] for name in names]


DESCRIBED = (
    "uri string, bytes bigint, rows bigint, age_days int, partition map<string, string>, deletion_vector string,"
    " why string, tier string"
)


def described(
    files: Sequence[LogFile], predicate: str | None, now: datetime, tiers: TierStore | None = None
) -> list[dict[str, Any]]:
    """What people and programs want to know of archived files that are needed, in the columns of `DESCRIBED`."""
    seen = tiers.look([file.uri for file in files]) if tiers else {}
    return [
        {
            "uri": file.uri,
            "bytes": file.size,
            "rows": file.rows,
            "age_days": (now - file.created).days if file.created else None,
            "partition": dict(file.partition) if file.partition is not None else None,
            "deletion_vector": file.vector,
            "why": why(file, predicate),
            "tier": seen[file.uri].value if seen else None,
        }
        for file in files
    ]


def why(file: LogFile, predicate: str | None) -> str:
    """Why an archived file is needed, for people."""
    if predicate is None:
        needed = "all rows are asked for"
    elif file.rows is None:
        needed = "it has no statistics, or they are not known here"
    else:
        needed = "neither its partition nor its statistics rule out a match"
    return needed if file.created else f"{needed}; its age is not known"


class NoSuchColumn(Terminal):
    def __init__(self, table: str, column: str, columns: Sequence[str]) -> None:
        self.table, self.column, self.columns = table, column, tuple(columns)

    def what(self) -> str:
        return f"{self.table} has no column {self.column!r}."

    def next(self) -> str:
        return f"Its columns are {', '.join(self.columns)}."


class OnlyNewestVersion(Terminal):
    def __init__(self, table: str, version: int, newest: int) -> None:
        self.table, self.version, self.newest = table, version, newest

    def what(self) -> str:
        return (
            f"Databricks names the archived files of the newest version of {self.table} only, which is {self.newest},"
            f" and {self.version} was asked for."
        )

    def next(self) -> str:
        return "Ask for the newest version, or read the older one with a plain query: Databricks guards it itself."


class NoSuchVersion(Terminal):
    def __init__(self, table: str, version: int, newest: int) -> None:
        self.table, self.version, self.newest = table, version, newest

    def what(self) -> str:
        return f"{self.table} cannot be read at version {self.version}: its newest is {self.newest}."

    def next(self) -> str:
        return "Name a version that DESCRIBE HISTORY still shows; very old ones lose their log."
