"""Which archived files a question needs: asked of Databricks, or answered here from the log and Delta's own skipping.

Whether a file counts as archived is a matter of its age alone, whatever tier it is in. On any doubt it does: a file
without a known age is as old as can be.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

from pyspark.sql import DataFrame, SparkSession

from mirrorfeed.archive.engine import is_databricks
from mirrorfeed.archive.interval import counts_as_archived
from mirrorfeed.archive.log import DeltaLog, LogFile, plain
from mirrorfeed.archive.policy import Policy
from mirrorfeed.archive.predicate import filtered
from mirrorfeed.errors import Terminal
from mirrorfeed.feed import history, read
from mirrorfeed.feed.source import Source
from mirrorfeed.stores.tiers import TierStore


@dataclass(frozen=True, slots=True)
class Answer:
    """What a question needs of a table at a version."""

    archived: tuple[LogFile, ...]
    hot: int | None
    """How many other files it needs; None where only Databricks knows."""
    version: int


class FileIndex(Protocol):
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

    def needed(self, predicate: str | None, policy: Policy | None, now: datetime, version: int | None) -> Answer:
        at = history.newest_version(self.spark, self.source) if version is None else version
        frame = filtered(read.snapshot(self.spark, self.source, at), str(self.source), predicate)
        return self.of(frame, policy, now, at)

    def of(self, frame: DataFrame, policy: Policy | None, now: datetime, version: int) -> Answer:
        """For any DataFrame on the table at this version. Its plan is kept with it: what it says is what is read."""
        uris = files_of(frame)
        if policy is None or not uris:
            return Answer((), len(uris), version)
        known = self.log().files(version)
        files = [known.get(uri) or LogFile(uri) for uri in uris]
        archived = tuple(archived_among(files, policy, now))
        return Answer(archived, len(files) - len(archived), version)

    def log(self) -> DeltaLog:
        return DeltaLog(self.spark, str(self.source), history.detail(self.spark, self.source).location)


def files_of(frame: DataFrame) -> list[str]:
    """The data files that a query on Delta opens, after Delta's skipping by partition and statistics."""
    return sorted(plain(uri) for uri in frame.inputFiles())


def archived_among(files: Iterable[LogFile], policy: Policy, now: datetime) -> list[LogFile]:
    return [file for file in files if file.created is None or counts_as_archived(file.created, policy.days, now)]


@dataclass(frozen=True)
class NativeIndex:
    """For Databricks, which knows its archived files itself."""

    spark: SparkSession
    source: Source

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
