"""Reads of a Delta table: a snapshot, or the change feed of a range; both pinned, so that a repetition is the same."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from mirrorfeed.errors import Terminal
from mirrorfeed.feed.ranges import Finding, Gap, Range
from mirrorfeed.feed.source import Source

_FILES_GONE = (
    "FAILED_READ_FILE.FILE_NOT_EXIST",
    "FAILED_READ_FILE.DBR_FILE_NOT_EXIST",
    "DELTA_FILE_NOT_FOUND",
    "DELTA_CHANGE_DATA_FILE_NOT_FOUND",
    "PATH_NOT_FOUND",
)
_LOG_GONE = ("DELTA_VERSIONS_NOT_CONTIGUOUS", "DELTA_LOG_FILE_NOT_FOUND", "DELTA_TRUNCATED_TRANSACTION_LOG")
_SCHEMA = "DELTA_CHANGE_DATA_FEED_INCOMPATIBLE"


class FeedUnreadable(Finding):
    """Delta refuses to read the range across a change of the schema."""

    def __init__(self, table: str, range_: Range, reason: str) -> None:
        super().__init__(table)
        self.range, self.reason = range_, reason

    def what(self) -> str:
        return f"Delta cannot read the changes of {self.table} in {self.range} with today's schema: {self.reason}."

    def next(self) -> str:
        return (
            "Start again: delete the table's folder in the landing zone, wait until the table is gone from the mirrored"
            " database, then publish."
        )


class SnapshotGone(Terminal):
    def __init__(self, table: str, version: int) -> None:
        self.table, self.version = table, version

    def what(self) -> str:
        return f"Files of {self.table} at version {self.version} are gone while they are being read."

    def next(self) -> str:
        return "Publish again. If that repeats, the table is damaged: check it with FSCK REPAIR TABLE or restore it."


def snapshot(spark: SparkSession, source: Source, version: int) -> DataFrame:
    return spark.read.option("versionAsOf", version).table(source.sql)


def changes(spark: SparkSession, source: Source, range_: Range) -> DataFrame:
    return (
        spark.read.option("readChangeFeed", "true")
        .option("startingVersion", range_.from_version_exclusive + 1)
        .option("endingVersion", range_.to_version_inclusive)
        .table(source.sql)
    )


@contextmanager
def read_faults(table: str, what: Range | int) -> Iterator[None]:
    """Turns Delta's refusals into findings: of a range, or of a snapshot's version."""
    try:
        yield
    except PySparkException as error:
        condition = _condition(error)
        if condition.startswith((*_FILES_GONE, *_LOG_GONE)):
            if isinstance(what, int):
                raise SnapshotGone(table, what) from error
            reason = "a file is gone" if condition.startswith(_FILES_GONE) else "the log has a hole"
            raise Gap(table, what.from_version_exclusive, what.from_version_exclusive + 1, reason) from error
        if isinstance(what, Range) and condition == "DELTA_MISSING_CHANGE_DATA":
            version = int((error.getMessageParameters() or {}).get("version", what.from_version_exclusive + 1))
            raise Gap(table, what.from_version_exclusive, version, "the change data feed is off") from error
        if isinstance(what, Range) and condition.startswith(_SCHEMA):
            changed = (error.getMessageParameters() or {}).get("incompatibleVersion", "?")
            raise FeedUnreadable(table, what, f"it changed incompatibly at version {changed}") from error
        raise


def _condition(error: PySparkException) -> str:
    """The error's condition, or that of the failure in a task which it reports."""
    found = error.getCondition() or ""
    if found:
        return found
    text = str(error)
    return next((name for name in _FILES_GONE if f"[{name}" in text), "")
