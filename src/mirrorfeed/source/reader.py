"""Read a source: a version, the changes of a range, or a source without versions; and select rows and columns."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, DecimalType, DoubleType, FloatType, StringType, TimestampType

from mirrorfeed.errors import MirrorfeedError, Terminal, first_line, innermost_cause
from mirrorfeed.landing.selection import BadCondition, Cast, Selection, asked
from mirrorfeed.runtime.spark_errors import (
    EXPIRED,
    FEED_OFF,
    FILES_GONE,
    LARGE_VECTOR,
    LOG_GONE,
    NOT_IN_CATALOG,
    SCHEMA_DIFFERS,
    SOURCE_FAULTS,
    UNREADABLE,
    first_of,
    parameter,
    unreadable_file,
)
from mirrorfeed.runtime.spark_session import looked_at
from mirrorfeed.source import errors, ranges
from mirrorfeed.source.errors import (
    FeedUnreadable,
    FileDamaged,
    FilesArchived,
    Finding,
    Gap,
    NothingToRead,
    SnapshotGone,
    SourceMissing,
)
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


_NO_FILES = ("PATH_NOT_FOUND", "UNABLE_TO_INFER_SCHEMA", "FAILED_READ_FILE", "CANNOT_READ_FILE_FOOTER")
_NOT_DELTA = ("DELTA_MISSING_DELTA_TABLE", "DELTA_TABLE_NOT_FOUND", "DELTA_PATH_DOES_NOT_EXIST", "PATH_NOT_FOUND")


def whole(spark: SparkSession, source: Source) -> DataFrame:
    """All rows as they are when they are asked for: twice asked, they may be others."""
    if source.path is not None:
        return as_written(_folder(spark, source.path))
    try:
        spark.sql(f"REFRESH TABLE {source.sql}")  # or Spark reads the files that it remembers
        found = spark.read.table(source.sql)
        _ = found.schema  # over Connect, only now anything is looked up
    except Exception as error:
        if first_of(error, NOT_IN_CATALOG):
            raise SourceMissing(table=str(source)) from error
        raise
    return as_written(found)


def schema_of(rows: DataFrame) -> dict[str, Any]:
    """As Spark spells it in JSON."""
    found: dict[str, Any] = json.loads(rows.schema.json())
    return found


def _folder(spark: SparkSession, path: str) -> DataFrame:
    try:
        found = spark.read.table(f"delta.{quote(path)}")
        _ = found.schema
        return found
    except Exception as error:
        if not first_of(error, _NOT_DELTA):
            raise
    try:
        found = spark.read.parquet(path)
        _ = found.schema
    except Exception as error:
        if first_of(error, _NO_FILES):
            raise NothingToRead(path=path) from error
        raise
    return found


_IN_UTC = "timestampadd(MICROSECOND, unix_micros({}), TIMESTAMP_NTZ '1970-01-01 00:00:00')"
"""An instant as the time without a zone that it is in UTC, whatever the session's zone is."""
_FLOATS = (FloatType, DoubleType)
_FLOATING = "nanvl({0}, {0})"
"""The same value, of which readers of files know nothing: by a file's dictionary they take -0.0 for less than 0.0, and
leave out rows that Spark would find."""


def selected(table: str, rows: DataFrame, selection: Selection | None, beside: Sequence[str] = ()) -> DataFrame:
    """The rows and columns that a target gets, and those columns `beside` them that are not the source's own; or
    `BadCondition`."""
    if selection is None:
        return rows
    types = {field.name: field.dataType for field in rows.schema if field.name not in beside}
    values = [
        _cast(F.col(quote(name)), type_, selection.cast_of(name)).alias(selection.name_of(name))
        for name, type_ in types.items()
        if selection.takes(name)
    ]
    return _fulfilling(table, rows, selection, types).select(*values, *beside)


def _fulfilling(table: str, rows: DataFrame, selection: Selection, types: dict[str, DataType]) -> DataFrame:
    condition = selection.condition
    if condition is None or selection.where is None:
        return rows
    names = asked(selection, {name: type_.typeName() for name, type_ in types.items()})

    def column(name: str) -> str:
        type_ = types.get(names.get(name, ""))
        form = _IN_UTC if isinstance(type_, TimestampType) else _FLOATING if isinstance(type_, _FLOATS) else "{0}"
        return form.format(quote(names.get(name, name)))

    try:
        return looked_at(rows.where(f"({condition.sql(column)})"))
    except (AnalysisException, ParseException) as error:
        reason = first_line(str(error).strip()).partition(" SQLSTATE")[0].rstrip(".")
        raise BadCondition(table, selection.where, reason) from error


def _cast(value: Column, type_: DataType, cast: Cast | None) -> Column:
    if cast is None:
        return value
    if cast.length is not None:
        return F.substring(value, 1, cast.length)
    if cast.type == "string" and isinstance(type_, DecimalType):
        # A session decides whether a small one is cast to digits or to a power of ten.
        return F.replace(F.format_number(value, type_.scale), F.lit(","))
    return value if isinstance(type_, StringType) else value.cast(cast.type)
