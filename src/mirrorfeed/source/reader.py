"""Read the rows of a source: one version, the changes of a range, or the current rows. Select rows and columns."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, DoubleType, FloatType, StringType, TimestampType

from mirrorfeed.errors import MirrorfeedError, TerminalError, first_line, innermost_cause
from mirrorfeed.landing.errors import invalid_condition
from mirrorfeed.landing.selection import Selection, condition_columns
from mirrorfeed.runtime import spark_errors
from mirrorfeed.runtime.spark_errors import analyze, find_condition, find_parameter
from mirrorfeed.source import errors
from mirrorfeed.source.cast_values import cast_value
from mirrorfeed.source.errors import FeedGapError, GapReason, PublicationBlockedError
from mirrorfeed.source.identifier import Source, quote
from mirrorfeed.source.snapshot_or_range import Range, Snapshot

TASKS_PER_CORE = 4
_ARCHIVED = re.compile(r"\b(BlobArchived|InvalidObjectState)\b")
"""Errors of Azure and S3 for a file in the archive tier. Spark reports these errors only as text."""
_NO_FILES = ("PATH_NOT_FOUND", "UNABLE_TO_INFER_SCHEMA", "FAILED_READ_FILE", "CANNOT_READ_FILE_FOOTER")
_NOT_DELTA = ("DELTA_MISSING_DELTA_TABLE", "DELTA_TABLE_NOT_FOUND", "DELTA_PATH_DOES_NOT_EXIST", "PATH_NOT_FOUND")
_IN_UTC = "timestampadd(MICROSECOND, unix_micros({}), TIMESTAMP_NTZ '1970-01-01 00:00:00')"
"""SQL expression for an instant as a time in UTC without time zone, independent of the session's time zone."""
_NO_SKIPPING = "nanvl({0}, {0})"
"""SQL expression that returns its argument, but prevents data skipping in a filter. Parquet readers that use
dictionaries treat -0.0 as less than 0.0, and would skip matching rows.
"""

_DECLARED_TYPE = "__CHAR_VARCHAR_TYPE_STRING"
"""Key in the metadata of a text column for its type in the table, such as `char(5)`."""
_NO_PADDING = "collate({}, 'UTF8_BINARY')"
"""SQL expression that returns the text of a CHAR column. Spark compares the column itself with padded texts."""


def read_version(spark: SparkSession, source: Source, version: int) -> DataFrame:
    """Return the rows of a table at a version. Text columns keep their collations."""
    return spark.read.option("versionAsOf", version).table(source.sql)


def read_snapshot(spark: SparkSession, source: Source, version: int) -> DataFrame:
    """Return the rows of a table at a version. Texts get binary collation: two texts are equal only if identical."""
    return without_collations(read_version(spark, source, version))


def read_changes(spark: SparkSession, source: Source, range_: Range) -> DataFrame:
    """Return the change data feed of a range. Texts get binary collation: two texts are equal only if identical.

    If you run a query on the feed, do it inside the context manager `lossless_settings`, so that Spark does not change
    values.
    """
    feed = (
        spark.read.option("readChangeFeed", "true")
        .option("startingVersion", range_.from_version_exclusive + 1)
        .option("endingVersion", range_.to_version_inclusive)
        .table(source.sql)
    )
    # With deletion vectors, Spark makes two or more tasks for each version and sends the plans of all versions to every
    # task: 40 versions of one row took 20 seconds of CPU, and 7 with only enough tasks to keep all cores busy.
    max_tasks = (count_cores(spark) or 0) * TASKS_PER_CORE
    return without_collations(feed.coalesce(max_tasks) if max_tasks and range_.versions > max_tasks // 2 else feed)


def read_full(spark: SparkSession, source: Source) -> DataFrame:
    """Return the current rows of a table or view, or of a folder with Delta or Parquet files.

    The rows can differ from query to query, because no version is set. Raises `SourceMissingError` if a name has no
    table, and `no_table_or_files` if a path has no files that can be read.
    """
    path = source.path
    try:
        if path is None:
            spark.sql(f"REFRESH TABLE {source.sql}")  # otherwise Spark reads the files from its cache
        return without_collations(spark.read.table(source.sql))
    except Exception as error:
        if path is None and find_condition(error, spark_errors.NOT_IN_CATALOG):
            raise errors.SourceMissingError(table=str(source)) from error
        if path is None or not find_condition(error, _NOT_DELTA):
            raise
    try:
        return without_collations(spark.read.parquet(path))
    except Exception as error:
        if find_condition(error, _NO_FILES):
            raise errors.no_table_or_files(path=path) from error
        raise


def without_collations(rows: DataFrame) -> DataFrame:
    """Return the rows with binary collation of texts: as in Fabric, two texts are equal only if identical."""
    texts = [field for field in rows.schema if isinstance(field.dataType, StringType)]
    collated = [field.name for field in texts if field.dataType != StringType()]
    if not collated:  # Spark Connect rejects an empty dictionary
        return rows
    return rows.withColumns({name: F.collate(F.col(quote(name)), "UTF8_BINARY") for name in collated})


def apply_selection(table: str, rows: DataFrame, selection: Selection | None, extra: Sequence[str] = ()) -> DataFrame:
    """Return the selected rows and columns of a snapshot or change data feed, followed by the columns `extra`.

    `extra` are columns of `rows` that are not from the source. In a feed, an update has an old row and a new row. If
    only the old row matches the filter, the update becomes a delete. If only the new row matches, it becomes an insert.

    Raises `invalid_condition` if Spark does not accept the filter, `column_tags_unknown` if columns are transformed by
    tag and the tags of a selected column were not read, and an error if the secret for hashes cannot be read.
    """
    if selection is None:
        return rows
    types = {field.name: field.dataType for field in rows.schema if field.name not in extra}
    values = {
        name: cast_value(F.col(quote(name)), type_, selection.cast_of(name))
        for name, type_ in types.items()
        if selection.includes(name)
    }
    if selection.tags:
        from mirrorfeed.landing.tag_rules import check_tags_known  # imported late: few tables need it

        check_tags_known(table, selection, values)
    rows = _filter(table, rows, selection, types)
    if selection.transform:
        from mirrorfeed.source.transformed_values import transform_values  # imported late: few tables need it

        rows, values = transform_values(rows, values, types, selection)
    return rows.select(*(value.alias(selection.name_of(name)) for name, value in values.items()), *extra)


def matching_rows(table: str, rows: DataFrame, selection: Selection) -> DataFrame:
    """Return the rows that match the filter of a selection, with all columns."""
    return _filter(table, rows, selection, {field.name: field.dataType for field in rows.schema})


@contextmanager
def read_errors(table: str, what: Range | Snapshot) -> Iterator[None]:
    """Context manager that converts errors of Spark and Delta about the source to errors of mirrorfeed.

    `what` is the range or the snapshot that is read. Raises `FeedGapError` or `FeedUnreadableError` for a range,
    `SnapshotFilesDeletedError` for a snapshot, and `source_file_damaged` or `FilesArchivedError` for both.
    """
    try:
        yield
    except MirrorfeedError:
        raise
    except Exception as error:
        if converted := _read_error(table, what, error):
            raise converted from error
        raise


def is_only_feed_unreadable(error: PublicationBlockedError) -> bool:
    """Return whether `error` means that only the change data feed of a range is unreadable.

    If True, the caller can try to read snapshots of the range's versions instead. Returns False if the feed lacks
    columns of the range's last version, or has them with another type.
    """
    if isinstance(error, errors.FeedUnreadableError):
        return not error.lost
    return isinstance(error, FeedGapError) and error.reason == GapReason.LARGE_VECTOR


def count_cores(spark: SparkSession) -> int | None:
    """Return the number of tasks that Spark runs in parallel, or None if unknown (Spark Connect)."""
    try:
        return int(spark.sparkContext.defaultParallelism)
    except Exception:  # Spark Connect, for example on serverless compute, does not report cores
        return None


def _read_error(table: str, what: Range | Snapshot, error: Exception) -> TerminalError | None:
    if _ARCHIVED.search(str(error)):
        return errors.FilesArchivedError(table=table, range=what)
    condition = find_condition(error, spark_errors.SOURCE_FAULTS) or ""
    is_missing = condition.startswith((*spark_errors.FILES_GONE, *spark_errors.LOG_GONE))
    is_expired = condition == spark_errors.EXPIRED
    if condition.startswith(spark_errors.UNREADABLE) and not is_missing:
        uri = spark_errors.unreadable_file(error)
        return errors.source_file_damaged(table=table, uri=uri, cause=innermost_cause(error).replace(f"{uri} ", ""))
    if isinstance(what, Snapshot):
        return errors.snapshot_unreadable(table=table, what=what) if is_missing or is_expired else None
    after = what.from_version_exclusive
    if condition.startswith(spark_errors.SCHEMA_DIFFERS):
        version, read_version = find_parameter(error, "incompatibleVersion"), find_parameter(error, "readVersion")
        return errors.FeedUnreadableError(table=table, range=what, version=version, read_version=read_version)
    if is_expired:
        return FeedGapError(table=table, published=after, where=after + 1, reason=GapReason.EXPIRED)
    if condition == spark_errors.FEED_OFF:
        off_at = int(find_parameter(error, "version") or after + 1)
        return FeedGapError(table=table, published=after, where=off_at, reason=GapReason.FEED_OFF)
    if condition == spark_errors.LARGE_VECTOR:
        return FeedGapError(table=table, published=after, where=what, reason=GapReason.LARGE_VECTOR)
    if is_missing:
        reason = GapReason.FILE_MISSING if condition.startswith(spark_errors.FILES_GONE) else GapReason.LOG_HOLE
        return FeedGapError(table=table, published=after, where=what, reason=reason)
    return None


def _filter(table: str, rows: DataFrame, selection: Selection, types: dict[str, DataType]) -> DataFrame:
    condition = selection.condition
    if condition is None or selection.where is None:
        return rows
    names = condition_columns(selection, {name: type_.typeName() for name, type_ in types.items()})
    chars = {field.name for field in rows.schema if str(field.metadata.get(_DECLARED_TYPE)).startswith("char")}

    def column(name: str) -> str:
        quoted = quote(names.get(name, name))
        match types.get(names.get(name, "")):
            case TimestampType():
                return _IN_UTC.format(quoted)
            case FloatType() | DoubleType():
                return _NO_SKIPPING.format(quoted)
        return _NO_PADDING.format(quoted) if names.get(name) in chars else quoted

    try:
        return analyze(rows.where(f"({condition.sql(column)})"))
    except (AnalysisException, ParseException) as error:
        reason = first_line(str(error).strip()).partition(" SQLSTATE")[0].rstrip(".")
        raise invalid_condition(table=table, condition=selection.where, reason=reason) from error
