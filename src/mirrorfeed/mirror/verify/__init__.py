"""Compare a table with its mirror, row by row, at the version that the mirror shows.

Shares no code with publishing, so that agreement is evidence.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from urllib.parse import unquote, urlsplit

from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import DataFrame, SparkSession

from mirrorfeed.config.model import Config
from mirrorfeed.errors import MirrorfeedError, first_line
from mirrorfeed.landing.errors import BadCondition
from mirrorfeed.landing.log_record import Record
from mirrorfeed.landing.names import Target
from mirrorfeed.landing.output_format import PARQUET
from mirrorfeed.landing.selection import Selection
from mirrorfeed.mirror.errors import (
    ConditionUnreadable,
    MirrorColumns,
    MirrorMissing,
    MirrorNotNamed,
    MirrorNotReached,
    MirrorUnreadable,
    VersionGone,
)
from mirrorfeed.mirror.verify.expected_rows import selected
from mirrorfeed.mirror.verify.row_comparison import SHOWN, Comparison, compare_rows, differing_keys
from mirrorfeed.runtime.spark_errors import EXPIRED, FILES_GONE, LOG_GONE, analyze, find_condition
from mirrorfeed.runtime.spark_session import lossless_settings
from mirrorfeed.source.identifier import Source
from mirrorfeed.source.reader import read_full
from mirrorfeed.source.table_info import read_table_info


@contextmanager
def version_gone_errors(
    spark: SparkSession, source: Source, version: int, mirror: Source | None = None
) -> Iterator[None]:
    """Raise `VersionGone` if a version is gone while the source is read, or an error for a missing source."""
    try:
        yield
    except MirrorfeedError:
        raise
    except Exception as error:
        of_mirror = mirror is not None and str(mirror.path) in unquote(str(error))
        if not of_mirror and find_condition(error, (*FILES_GONE, *LOG_GONE, EXPIRED)):
            raise VersionGone(table=str(source), version=version) from error
        read_table_info(spark, source)  # raises an error if the source does not exist
        raise


def folder_of(config: Config, mirror: str | None) -> str:
    """Return the folder of the mirrored tables: `mirror`, or that of the mirrored database in OneLake.

    Raises `MirrorNotNamed`.
    """
    if mirror:
        return mirror
    workspace, database = config.onelake or (None, None)
    if workspace is None or database is None:
        raise MirrorNotNamed(landing_zone=config.landing_zone)
    from mirrorfeed.storage.onelake import ENDPOINT  # imported late: slow to import

    return f"abfss://{workspace}@{urlsplit(config.files_endpoint or ENDPOINT).netloc}/{database}/Tables"


def mirror_of(folder: str, target: Target) -> Source:
    """Return the mirror of a table below the folder of mirrored tables, or the folder itself if it is a Delta table."""
    below = f"{target.schema or 'dbo'}/{target.table}"
    if "://" in folder:
        return Source(path=f"{folder.rstrip('/')}/{below}")
    place = Path(folder).resolve()
    return Source(path=str(place if (place / "_delta_log").is_dir() else place / below))


def verify_at(
    spark: SparkSession,
    source: Source,
    mirror: Source,
    records: Sequence[Record],
    shown: int = SHOWN,
    selection: Selection | None = None,
) -> Comparison:
    """Compare the mirror with the selected part of its source.

    The compared version is that of the publication in `records` that the mirror has reached.
    """
    if not records:
        raise MirrorNotReached(table=str(source))
    if of_now := records[0].read is not None:  # a source without versions can be read only in its current state
        records = records[:1]

    def compare_at(record: Record) -> Comparison:
        as_text, version = record.extension != PARQUET, record.to_version_inclusive
        return compare(
            spark, source, version, mirror, record.keys, shown, as_text=as_text, selection=selection, of_now=of_now
        )

    return first_equal(compare_at, records)


def first_equal(compare_at: Callable[[Record], Comparison], records: Sequence[Record]) -> Comparison:
    """Return the first comparison that finds the mirror equal, or else the one with the fewest differences."""
    found: list[Comparison] = []
    columns_differ: MirrorColumns | None = None
    compared: set[tuple[int, tuple[str, ...]]] = set()
    for record in records:
        if (at := (record.to_version_inclusive, record.keys)) in compared:
            continue  # a repair has the version of the publication before it
        compared.add(at)
        try:
            found.append(compare_at(record))
        except MirrorColumns as error:  # the mirror may not have reached this publication
            columns_differ = columns_differ or error
            continue
        if found[-1].equal:
            return found[-1]
    if columns_differ is not None and not found:
        raise columns_differ
    return min(found, key=lambda comparison: comparison.differing)


def compare(
    spark: SparkSession,
    source: Source,
    version: int,
    mirror: Source,
    keys: Sequence[str],
    shown: int = SHOWN,
    *,
    as_text: bool = False,
    selection: Selection | None = None,
    of_now: bool = False,
) -> Comparison:
    """Compare the rows of a source at a version with those of its mirror, by key if there are keys.

    Set `as_text` if the published files are text, and `of_now` if the source has no versions and is read in its current
    state.
    """
    version_errors = nullcontext() if of_now else version_gone_errors(spark, source, version, mirror)
    with version_errors, lossless_settings(spark):
        expected, found = _read_both(spark, source, None if of_now else version, mirror, selection)
        result = compare_rows(str(source), version, expected, str(mirror), found, keys, shown, as_text=as_text)
    return replace(result, of_now=of_now)


def find_differing_keys(
    spark: SparkSession,
    source: Source,
    version: int,
    mirror: Source,
    keys: Sequence[str],
    where: str | None = None,
    *,
    as_text: bool = False,
    selection: Selection | None = None,
) -> DataFrame:
    """Return the keys of the rows that differ, or that match the condition `where` on either side."""
    expected, found = _read_both(spark, source, version, mirror, selection)
    try:
        return analyze(differing_keys(str(source), expected, str(mirror), found, keys, where, as_text=as_text))
    except (AnalysisException, ParseException) as error:
        if where is None:
            raise
        raise ConditionUnreadable(table=str(source), condition=where, reason=first_line(str(error))) from error


def _read_both(
    spark: SparkSession, source: Source, version: int | None, mirror: Source, selection: Selection | None
) -> tuple[DataFrame, DataFrame]:
    expected = (
        read_full(spark, source) if version is None else spark.read.option("versionAsOf", version).table(source.sql)
    )
    try:
        expected = selected(expected, selection)
        _ = expected.schema
    except (AnalysisException, ParseException) as error:
        if selection is None or selection.where is None:
            raise
        raise BadCondition(
            table=str(source), condition=selection.where, reason=first_line(str(error).strip())
        ) from error
    try:
        found = spark.read.table(mirror.sql)
        _ = found.schema  # Spark Connect accesses the storage only here
    except AnalysisException as error:
        raise MirrorMissing(table=str(source), path=str(mirror)) from error
    except Exception as error:  # file systems and sessions raise many classes of errors
        raise MirrorUnreadable(table=str(source), path=str(mirror), reason=_cause(error)) from error
    return expected, found


def _cause(error: Exception) -> str:
    """Return the first line of an error that names the cause."""
    lines = [line.strip().rstrip(".") for line in str(error).splitlines() if line.strip()]
    return next((line.removeprefix(": ") for line in lines if line.startswith(": ")), lines[0] if lines else "")[:300]
