"""Where a mirror is, at which version it stands, and whether it equals its source there."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from urllib.parse import unquote

from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import DataFrame, SparkSession

from mirrorfeed.errors import MirrorfeedError, first_line
from mirrorfeed.landing.names import Target
from mirrorfeed.landing.output_format import PARQUET
from mirrorfeed.landing.record import Record
from mirrorfeed.landing.selection import BadCondition, Selection
from mirrorfeed.mirror.verify.errors import (
    ConditionUnreadable,
    MirrorColumns,
    MirrorMissing,
    MirrorUnreadable,
    NothingTaken,
    VersionGone,
)
from mirrorfeed.mirror.verify.expected_selection import selected
from mirrorfeed.mirror.verify.row_comparison import SHOWN, Comparison, compare_rows, differing_keys
from mirrorfeed.runtime.session_settings import faithful
from mirrorfeed.runtime.spark_errors import EXPIRED, FILES_GONE, LOG_GONE, first_of
from mirrorfeed.runtime.spark_session import looked_at
from mirrorfeed.source.identifier import Source
from mirrorfeed.source.reader import read_full
from mirrorfeed.source.table_info import read_table_info


@contextmanager
def readable(spark: SparkSession, source: Source, version: int, mirror: Source | None = None) -> Iterator[None]:
    """What is read of a source at a version within this fails in words where the version or the source is gone."""
    try:
        yield
    except MirrorfeedError:
        raise
    except Exception as error:
        of_mirror = mirror is not None and str(mirror.path) in unquote(str(error))
        if not of_mirror and first_of(error, (*FILES_GONE, *LOG_GONE, EXPIRED)):
            raise VersionGone(table=str(source), version=version) from error
        read_table_info(spark, source)  # refuses one that is not there
        raise


def mirror_of(folder: str, target: Target) -> Source:
    """The mirror of a table below a folder of replicated tables; a folder that is a Delta table is the mirror."""
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
    """The comparison at the version at which the mirror stands, which is that of one of these publications, with what
    the configuration selects of the source."""
    if not records:
        raise NothingTaken(table=str(source))
    if of_now := records[0].read is not None:  # a source without versions is only as it is now
        records = records[:1]

    def compare_at(record: Record) -> Comparison:
        as_text, version = record.extension != PARQUET, record.to_version_inclusive
        return compare(
            spark, source, version, mirror, record.keys, shown, as_text=as_text, selection=selection, of_now=of_now
        )

    return first_equal(compare_at, records)


def first_equal(compare_at: Callable[[Record], Comparison], records: Sequence[Record]) -> Comparison:
    """The first comparison that finds the mirror equal; if none does, the one with the fewest differences."""
    found: list[Comparison] = []
    trouble: MirrorColumns | None = None
    compared: set[tuple[int, tuple[str, ...]]] = set()
    for record in records:
        if (at := (record.to_version_inclusive, record.keys)) in compared:
            continue  # a repair is at the version of the publication before it
        compared.add(at)
        try:
            found.append(compare_at(record))
        except MirrorColumns as error:  # of a publication that the mirror may not have come to
            trouble = trouble or error
            continue
        if found[-1].equal:
            return found[-1]
    if trouble is not None and not found:
        raise trouble
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
    """The source's rows at a version against the mirror's, by key where there are keys; `as_text`, of a table whose
    files are text; `of_now`, of a source without versions, as it is now."""
    gone = nullcontext() if of_now else readable(spark, source, version, mirror)
    with gone, faithful(spark):
        expected, found = _both(spark, source, None if of_now else version, mirror, selection)
        there = compare_rows(str(source), version, expected, str(mirror), found, keys, shown, as_text=as_text)
    return replace(there, of_now=of_now)


def differing(
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
    """The keys of the rows that differ, or, with a condition, of those that fulfil it on either side."""
    expected, found = _both(spark, source, version, mirror, selection)
    try:
        return looked_at(differing_keys(str(source), expected, str(mirror), found, keys, where, as_text=as_text))
    except (AnalysisException, ParseException) as error:
        if where is None:
            raise
        raise ConditionUnreadable(table=str(source), condition=where, reason=first_line(str(error))) from error


def _both(
    spark: SparkSession, source: Source, version: int | None, mirror: Source, selection: Selection | None
) -> tuple[DataFrame, DataFrame]:
    expected = read_full(spark, source) if version is None else _at(spark, source, version)
    try:
        expected = selected(expected, selection)
        _ = expected.schema
    except (AnalysisException, ParseException) as error:
        if selection is None or selection.where is None:
            raise
        raise BadCondition(str(source), selection.where, first_line(str(error).strip())) from error
    try:
        found = spark.read.table(mirror.sql)
        _ = found.schema  # only now the storage is asked, over Connect
    except AnalysisException as error:
        raise MirrorMissing(table=str(source), path=str(mirror)) from error
    except Exception as error:  # of a file system or a session, by whatever class
        raise MirrorUnreadable(table=str(source), path=str(mirror), reason=_cause(error)) from error
    return expected, found


def _at(spark: SparkSession, source: Source, version: int) -> DataFrame:
    return spark.read.option("versionAsOf", version).table(source.sql)


def _cause(error: Exception) -> str:
    """The first line of an error that says more than where it was met."""
    lines = [line.strip().rstrip(".") for line in str(error).splitlines() if line.strip()]
    return next((line.removeprefix(": ") for line in lines if line.startswith(": ")), lines[0] if lines else "")[:300]
