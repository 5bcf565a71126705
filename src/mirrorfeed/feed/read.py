"""Reads of a Delta table: a snapshot, or the change feed of a range; both pinned, so that a repetition is the same."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StringType

from mirrorfeed.display.humanize import a_few
from mirrorfeed.display.printable import shell_argument
from mirrorfeed.errors import MirrorfeedError, Terminal, innermost_cause
from mirrorfeed.feed import ranges
from mirrorfeed.feed.faults import (
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
from mirrorfeed.feed.ranges import Finding, Gap, Range
from mirrorfeed.feed.source import Source, quote

_ARCHIVED = "BlobArchived"
"""What the storage answers for a blob in the archive tier; Spark passes it on as text alone."""
TASKS_PER_CORE = 4
_GUESSED_CORES = 32


class FeedUnreadable(Finding):
    """The columns changed within the range in a way that Delta's change feed cannot follow, so the changes cannot be
    read."""

    code = "MF2105"

    def __init__(
        self, table: str, range_: Range, version: str | None, read_version: str | None, lost: Sequence[str] = ()
    ) -> None:
        super().__init__(table)
        self.range, self.version, self.read_version, self.lost = range_, version, read_version, tuple(lost)

    def what(self) -> str:
        if self.lost:
            return (
                f"Delta cannot read the changes of {self.table} in {self.range} any more: it reads them with the newest"
                f" columns, and of those of version {self.version or '?'} {'; '.join(self.lost)}."
            )
        return (
            f"Delta cannot read the changes of {self.table} in {self.range}: the columns of version"
            f" {self.version or '?'} do not fit those of version {self.read_version or '?'}, with which it reads them."
        )

    def next(self) -> str:
        return "Start the table again with `mirrorfeed rebuild`; `on_schema_change: reseed` does that by itself."


class SnapshotGone(Terminal):
    """Files of the version that was to be read were deleted while it was read, or the table is damaged."""

    code = "MF2106"

    def __init__(self, table: str, version: int, uris: Sequence[str] = ()) -> None:
        self.table, self.version, self.uris = table, version, tuple(uris)

    def what(self) -> str:
        names = f": {a_few(self.uris)}" if self.uris else ""
        return f"Files of {self.table} at version {self.version} are gone{names}."

    def next(self) -> str:
        return "Publish again. If that repeats, the table is damaged: check it with FSCK REPAIR TABLE or restore it."


class FileDamaged(Terminal):
    """A data file of the source is there and cannot be read: it is truncated or otherwise damaged, or the storage does
    not give it out. Nothing of the versions that need it is published."""

    code = "MF2109"

    def __init__(self, table: str, uri: str, cause: str) -> None:
        self.table, self.uri, self.cause = table, uri, cause.replace(f"{uri} ", "")

    def what(self) -> str:
        return f"A file of {self.table} cannot be read: {self.uri} ({self.cause})."

    def next(self) -> str:
        return (
            "Publish again. If the error repeats, replace the file with an intact copy, or restore the table to a"
            " version that does not need it."
        )


class FilesArchived(Terminal):
    """What was to be read lies in an archive tier and cannot be read from there, and nothing told so beforehand."""

    code = "MF2107"

    def __init__(self, table: str, what: Range | int) -> None:
        self.table, self.range = table, what

    def what(self) -> str:
        where = f"version {self.range}" if isinstance(self.range, int) else f"the changes in {self.range}"
        return f"{self.table} cannot be read: {where} needs files that are in the archive tier (409 BlobArchived)."

    def next(self) -> str:
        return (
            f"Let `mirrorfeed archive set {shell_argument(self.table)} 'X days'` say from when on the cloud moves"
            " files, so that this"
            " is known before anything is read; then plan and restore with `mirrorfeed archive`."
        )


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
        return FilesArchived(table, what)
    found = first_of(error, SOURCE_FAULTS) or ""
    gone = found.startswith((*FILES_GONE, *LOG_GONE))
    if found.startswith(UNREADABLE) and not gone:
        return FileDamaged(table, unreadable_file(error), innermost_cause(error))
    if isinstance(what, int):
        return SnapshotGone(table, what) if gone or found == EXPIRED else None
    after = what.from_version_exclusive
    if found == EXPIRED:
        return Gap(table, after, after + 1, ranges.EXPIRED)
    if gone:
        return Gap(table, after, what, "a file is gone" if found.startswith(FILES_GONE) else "the log has a hole")
    if found == FEED_OFF:
        return Gap(table, after, int(parameter(error, "version") or after + 1), "the change data feed is off")
    if found.startswith(SCHEMA_DIFFERS):
        return FeedUnreadable(table, what, parameter(error, "incompatibleVersion"), parameter(error, "readVersion"))
    return Gap(table, after, what, ranges.LARGE_VECTOR) if found == LARGE_VECTOR else None


def leaves_snapshots(error: Finding) -> bool:
    """Whether only the feed of a range cannot be read, and the versions at its two ends may be.

    Columns that were lost within the range are not such a case: they stop the table at the next version anyway.
    """
    if isinstance(error, FeedUnreadable):
        return not error.lost
    return isinstance(error, Gap) and error.reason == ranges.LARGE_VECTOR
