"""Read a source: a version, the changes of a range, or a source without versions; and select rows and columns.

Reads of versions and ranges are pinned at both ends, so that repeating one returns the same rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, DecimalType, DoubleType, FloatType, StringType, TimestampType

from mirrorfeed.errors import MirrorfeedError, Terminal, first_line, innermost_cause
from mirrorfeed.landing.errors import BadCondition
from mirrorfeed.landing.selection import Cast, Selection, condition_columns
from mirrorfeed.runtime import spark_errors
from mirrorfeed.runtime.spark_errors import analyze, first_of, parameter
from mirrorfeed.source import errors
from mirrorfeed.source.errors import Finding, Gap, GapReason
from mirrorfeed.source.identifier import Source, quote
from mirrorfeed.source.next_step import Range

TASKS_PER_CORE = 4
_DEFAULT_CORES = 32
_ARCHIVED = "BlobArchived"
"""The response of the storage for a blob in the archive tier. Spark passes it on as text only."""
_NO_FILES = ("PATH_NOT_FOUND", "UNABLE_TO_INFER_SCHEMA", "FAILED_READ_FILE", "CANNOT_READ_FILE_FOOTER")
_NOT_DELTA = ("DELTA_MISSING_DELTA_TABLE", "DELTA_TABLE_NOT_FOUND", "DELTA_PATH_DOES_NOT_EXIST", "PATH_NOT_FOUND")
_IN_UTC = "timestampadd(MICROSECOND, unix_micros({}), TIMESTAMP_NTZ '1970-01-01 00:00:00')"
"""An instant as a time without a zone, in UTC, whatever the session's zone is."""
_NO_SKIPPING = "nanvl({0}, {0})"
"""The same value, but file readers cannot skip by it. With a file's dictionary they take -0.0 for less than 0.0, and
leave out rows that Spark would find."""


def at_version(spark: SparkSession, source: Source, version: int) -> DataFrame:
    """The table at a version, as any query reads it."""
    return spark.read.option("versionAsOf", version).table(source.sql)


def snapshot(spark: SparkSession, source: Source, version: int) -> DataFrame:
    """The table at a version, without collations."""
    return without_collations(at_version(spark, source, version))


def changes(spark: SparkSession, source: Source, range_: Range) -> DataFrame:
    """The change data feed of a range. Its rows must be requested within `faithful`."""
    feed = (
        spark.read.option("readChangeFeed", "true")
        .option("startingVersion", range_.from_version_exclusive + 1)
        .option("endingVersion", range_.to_version_inclusive)
        .table(source.sql)
    )
    # With deletion vectors, Spark makes two or more tasks for each version and sends the plans of all versions to every
    # task: 40 versions of one row took 20 seconds of CPU, and 7 with only as many tasks as keep all cores busy.
    most = (_known_cores(spark) or 0) * TASKS_PER_CORE
    return without_collations(feed.coalesce(most) if most and range_.versions > most // 2 else feed)


def read_full(spark: SparkSession, source: Source) -> DataFrame:
    """All rows of a source without versions: anything that Spark reads by name, or a folder of Delta or Parquet files.

    Another read may return other rows.
    """
    if source.path is not None:
        return without_collations(_read_folder(spark, source.path))
    try:
        spark.sql(f"REFRESH TABLE {source.sql}")  # otherwise Spark reads the files that it remembers
        found = spark.read.table(source.sql)
        _ = found.schema  # Spark Connect looks the table up only now
    except Exception as error:
        if first_of(error, spark_errors.NOT_IN_CATALOG):
            raise errors.SourceMissing(table=str(source)) from error
        raise
    return without_collations(found)


def cores(spark: SparkSession) -> int:
    """How many tasks run at a time, or a guess."""
    return _known_cores(spark) or _DEFAULT_CORES


def without_collations(rows: DataFrame) -> DataFrame:
    """The same rows, in which texts are equal only if they are spelled alike: Fabric compares keys that way, and
    another spelling is another value."""
    texts = [field for field in rows.schema if isinstance(field.dataType, StringType)]
    collated = [field.name for field in texts if field.dataType != StringType()]
    if not collated:  # Spark Connect rejects an empty dictionary
        return rows
    return rows.withColumns({name: F.collate(F.col(quote(name)), "UTF8_BINARY") for name in collated})


def apply_selection(table: str, rows: DataFrame, selection: Selection | None, extra: Sequence[str] = ()) -> DataFrame:
    """The rows and columns of a snapshot or feed that are published, and the columns `extra`, which are not the
    source's own. Raise `BadCondition`.

    Each image of a changed row is selected by itself, so the result is the feed of the selected rows: a row that no
    longer matches ends with a pre-image, which is a delete.
    """
    if selection is None:
        return rows
    types = {field.name: field.dataType for field in rows.schema if field.name not in extra}
    values = [
        _cast(F.col(quote(name)), type_, selection.cast_of(name)).alias(selection.name_of(name))
        for name, type_ in types.items()
        if selection.takes(name)
    ]
    return _filter(table, rows, selection, types).select(*values, *extra)


@contextmanager
def read_errors(table: str, what: Range | int) -> Iterator[None]:
    """Translate errors of Delta that occur while reading a range, or a snapshot's version."""
    try:
        yield
    except MirrorfeedError:
        raise
    except Exception as error:
        if found := _read_error(table, what, error):
            raise found from error
        raise


def is_only_feed_unreadable(error: Finding) -> bool:
    """Whether the feed of a range cannot be read, but the versions at its two ends may be.

    If columns were dropped within the range, False: they stop the table at the next version anyway.
    """
    if isinstance(error, errors.FeedUnreadable):
        return not error.lost
    return isinstance(error, Gap) and error.reason == GapReason.LARGE_VECTOR


def _known_cores(spark: SparkSession) -> int | None:
    try:
        return int(spark.sparkContext.defaultParallelism)
    except Exception:  # Spark Connect, as on serverless compute, does not report cores
        return None


def _read_folder(spark: SparkSession, path: str) -> DataFrame:
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
            raise errors.NothingToRead(path=path) from error
        raise
    return found


def _read_error(table: str, what: Range | int, error: Exception) -> Terminal | None:
    if _ARCHIVED in str(error):
        return errors.FilesArchived(table=table, range=what)
    found = first_of(error, spark_errors.SOURCE_FAULTS) or ""
    is_gone = found.startswith((*spark_errors.FILES_GONE, *spark_errors.LOG_GONE))
    if found.startswith(spark_errors.UNREADABLE) and not is_gone:
        uri = spark_errors.unreadable_file(error)
        return errors.FileDamaged(table=table, uri=uri, cause=innermost_cause(error).replace(f"{uri} ", ""))
    if isinstance(what, int):
        return errors.SnapshotGone(table=table, version=what) if is_gone or found == spark_errors.EXPIRED else None
    after = what.from_version_exclusive
    if found.startswith(spark_errors.SCHEMA_DIFFERS):
        version, read_version = parameter(error, "incompatibleVersion"), parameter(error, "readVersion")
        return errors.FeedUnreadable(table=table, range=what, version=version, read_version=read_version)
    if found == spark_errors.EXPIRED:
        return Gap(table=table, published=after, where=after + 1, reason=GapReason.EXPIRED)
    if found == spark_errors.FEED_OFF:
        off_at = int(parameter(error, "version") or after + 1)
        return Gap(table=table, published=after, where=off_at, reason=GapReason.FEED_OFF)
    if found == spark_errors.LARGE_VECTOR:
        return Gap(table=table, published=after, where=what, reason=GapReason.LARGE_VECTOR)
    if is_gone:
        reason = GapReason.FILE_MISSING if found.startswith(spark_errors.FILES_GONE) else GapReason.LOG_HOLE
        return Gap(table=table, published=after, where=what, reason=reason)
    return None


def _filter(table: str, rows: DataFrame, selection: Selection, types: dict[str, DataType]) -> DataFrame:
    condition = selection.condition
    if condition is None or selection.where is None:
        return rows
    names = condition_columns(selection, {name: type_.typeName() for name, type_ in types.items()})

    def column(name: str) -> str:
        spelled = quote(names.get(name, name))
        match types.get(names.get(name, "")):
            case TimestampType():
                return _IN_UTC.format(spelled)
            case FloatType() | DoubleType():
                return _NO_SKIPPING.format(spelled)
        return spelled

    try:
        return analyze(rows.where(f"({condition.sql(column)})"))
    except (AnalysisException, ParseException) as error:
        reason = first_line(str(error).strip()).partition(" SQLSTATE")[0].rstrip(".")
        raise BadCondition(table=table, condition=selection.where, reason=reason) from error


def _cast(value: Column, type_: DataType, cast: Cast | None) -> Column:
    if cast is None:
        return value
    if cast.length is not None:
        return F.substring(value, 1, cast.length)
    if cast.type == "string" and isinstance(type_, DecimalType):
        # Session settings decide whether a small decimal is cast to digits or to a power of ten.
        return F.replace(F.format_number(value, type_.scale), F.lit(","))
    return value if isinstance(type_, StringType) else value.cast(cast.type)
