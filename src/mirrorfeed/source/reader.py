"""Reads of a Delta table: a snapshot, or the change feed of a range; both pinned, so that a repetition is the same."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StringType

from mirrorfeed.errors import MirrorfeedError, Terminal, innermost_cause
from mirrorfeed.runtime.spark_errors import (
    EXPIRED,
    FEED_OFF,
    FILES_GONE,
    LARGE_VECTOR,
    LOG_GONE,
    SCHEMA_DIFFERS,
    SOURCE_FAULTS,
    UNREADABLE,
    first_of,
    parameter,
    unreadable_file,
)
from mirrorfeed.source import errors, ranges
from mirrorfeed.source.errors import FeedUnreadable, FileDamaged, FilesArchived, Finding, Gap, SnapshotGone
from mirrorfeed.source.identifier import Source, quote
from mirrorfeed.source.ranges import Range

_ARCHIVED = "BlobArchived"
"""What the storage answers for a blob in the archive tier; Spark passes it on as text alone."""
TASKS_PER_CORE = 4
_GUESSED_CORES = 32


def at(spark: SparkSession, source: Source, version: int) -> DataFrame:
    """The table at a version, as any query reads it."""
    return spark.read.option("versionAsOf", version).table(source.sql)


def snapshot(spark: SparkSession, source: Source, version: int) -> DataFrame:
    return as_written(at(spark, source, version))


def changes(spark: SparkSession, source: Source, range_: Range) -> DataFrame:
    """To be asked for rows within `faithful`."""
    feed = (
        spark.read.option("readChangeFeed", "true")
        .option("startingVersion", range_.from_version_exclusive + 1)
        .option("endingVersion", range_.to_version_inclusive)
        .table(source.sql)
    )
    return as_written(_in_few_tasks(spark, feed, range_.versions))


def _in_few_tasks(spark: SparkSession, feed: DataFrame, versions: int) -> DataFrame:
    """The same rows, read by no more tasks than keep all cores busy. With deletion vectors Spark makes two and more for
    each version, and every one of them is sent the plans of all versions: 40 versions of one row took 20 seconds of
    CPU, and 7 so."""
    most = (_cores(spark) or 0) * TASKS_PER_CORE
    return feed.coalesce(most) if most and versions > most // 2 else feed


def cores(spark: SparkSession) -> int:
    """How many tasks run at a time, or a fair guess."""
    return _cores(spark) or _GUESSED_CORES


def _cores(spark: SparkSession) -> int | None:
    try:
        return int(spark.sparkContext.defaultParallelism)
    except Exception:  # over Connect, as on serverless compute, nobody says how many cores there are
        return None


def as_written(rows: DataFrame) -> DataFrame:
    """The same rows, with texts that are equal only where they are written alike, whatever the collations of their
    columns say: the service compares keys so, and other spelling is another value."""
    texts = [field for field in rows.schema if isinstance(field.dataType, StringType)]
    collated = [field.name for field in texts if field.dataType != StringType()]
    if not collated:  # over Connect, no columns are refused
        return rows
    return rows.withColumns({name: F.collate(F.col(quote(name)), "UTF8_BINARY") for name in collated})


@contextmanager
def read_faults(table: str, what: Range | int) -> Iterator[None]:
    """Turns Delta's refusals into findings: of a range, or of a snapshot's version."""
    try:
        yield
    except MirrorfeedError:
        raise
    except Exception as error:
        if fault := _fault(table, what, error):
            raise fault from error
        raise


def _fault(table: str, what: Range | int, error: Exception) -> Terminal | None:
    if _ARCHIVED in str(error):
        return FilesArchived(table=table, range=what)
    found = first_of(error, SOURCE_FAULTS) or ""
    gone = found.startswith((*FILES_GONE, *LOG_GONE))
    if found.startswith(UNREADABLE) and not gone:
        uri = unreadable_file(error)
        return FileDamaged(table=table, uri=uri, cause=innermost_cause(error).replace(f"{uri} ", ""))
    if isinstance(what, int):
        return SnapshotGone(table=table, version=what) if gone or found == EXPIRED else None
    after = what.from_version_exclusive
    if found == EXPIRED:
        return Gap(table=table, published=after, where=after + 1, reason=errors.EXPIRED)
    if gone:
        return Gap(
            table=table,
            published=after,
            where=what,
            reason="a file is gone" if found.startswith(FILES_GONE) else "the log has a hole",
        )
    if found == FEED_OFF:
        return Gap(
            table=table,
            published=after,
            where=int(parameter(error, "version") or after + 1),
            reason="the change data feed is off",
        )
    if found.startswith(SCHEMA_DIFFERS):
        return FeedUnreadable(
            table=table,
            range=what,
            version=parameter(error, "incompatibleVersion"),
            read_version=parameter(error, "readVersion"),
        )
    return Gap(table=table, published=after, where=what, reason=ranges.LARGE_VECTOR) if found == LARGE_VECTOR else None


def leaves_snapshots(error: Finding) -> bool:
    """Whether only the feed of a range cannot be read, and the versions at its two ends may be.

    Columns that were lost within the range are not such a case: they stop the table at the next version anyway.
    """
    if isinstance(error, FeedUnreadable):
        return not error.lost
    return isinstance(error, Gap) and error.reason == ranges.LARGE_VECTOR
