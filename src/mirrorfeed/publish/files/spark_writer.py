"""Spark makes the files: landing rows, finished in SQL, through its own Parquet writer, with no function of ours."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F

from mirrorfeed.errors import innermost_cause
from mirrorfeed.landing.row_markers import Marker, Problem
from mirrorfeed.landing.schema import MARKER
from mirrorfeed.publish.files.rolling_writer import ROW_GROUP_BYTES
from mirrorfeed.publish.files.staging_area import StagingArea, StagingFilesLost
from mirrorfeed.publish.files.staging_job import PROBLEMS_SHOWN, BadRow, StagingJob, bad_rows
from mirrorfeed.publish.translate.landing_rows import PROBLEM
from mirrorfeed.runtime.spark_errors import SOURCE_FAULTS, first_of
from mirrorfeed.source.identifier import quote

_FORM = {
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.parquet.writeLegacyFormat": "true",  # decimals as bytes of a fixed length, whatever their width
    "parquet.block.size": str(ROW_GROUP_BYTES),
    "parquet.summary.metadata.level": "NONE",  # or there are files besides those with rows
    "maxRecordsPerFile": "0",  # no limit
}
"""As files that are written here; what an engine makes of these options is looked at, file by file. Spark 4.0 takes the
first two from the session alone. That one is the user's, and in a new one what was set in it would be missing."""


@dataclass(frozen=True)
class SparkFiles:
    """What stands in the folder of a publication."""

    place: StagingArea
    folder: str
    written: DataFrame
    """The files as Spark reads them."""
    names: Sequence[str]
    """Of the files that count, in the order in which they are to be applied."""
    rows: dict[str, int]
    """By marker, as observed when they were written."""
    replaced: int = 0
    """How many rows have a text in which the change feed may have replaced invalid bytes."""
    bad: Sequence[BadRow] = ()
    """Where there are any, the files are worth nothing."""


@contextmanager
def made(
    rows: DataFrame, place: StagingArea, job: StagingJob, rows_per_file: int | None = None, part: str = ""
) -> Iterator[SparkFiles]:
    """Writes landing rows, whose last column is their problem, into a folder that is gone afterwards."""
    folder, seen = place.folder(job) + part, Observation()
    finished = rows.observe(seen, *_counts(job)).selectExpr(*_optional(rows))
    text = job.output.delimited is not None
    options = _FORM | {"compression": "zstd" if text else job.compression}
    if rows_per_file is not None:
        options["maxRecordsPerFile"] = str(rows_per_file)
    place.check(folder)
    try:
        try:
            finished.write.options(**options).parquet(folder)
        except Exception as error:
            # What the source is to blame for has names of its own, which whoever reads it knows.
            if first_of(error, SOURCE_FAULTS) or place.root not in str(error):
                raise
            raise place.trouble(rows.sparkSession, folder, error) from error
        yield _found(rows, finished, place, folder, job, dict(seen.get))
    except BaseException:
        place.remove(folder)
        raise
    place.clear(job)


def _found(
    rows: DataFrame, finished: DataFrame, place: StagingArea, folder: str, job: StagingJob, counts: dict[str, int]
) -> SparkFiles:
    if counts.pop("bad"):
        wrong = rows.where(f"{PROBLEM} <> {Problem.REPLACED_TEXT.value}").limit(PROBLEMS_SHOWN)
        return SparkFiles(place, folder, finished, (), {}, bad=bad_rows(wrong.toArrow(), PROBLEM, job.keys))
    replaced = counts.pop("replaced")
    try:
        written = place.read(rows.sparkSession, folder, finished.schema)
        names = place.in_order(folder, written)
    except StagingFilesLost:
        raise
    except Exception as error:
        raise StagingFilesLost(folder, innermost_cause(error)) from error
    by_marker = {None if name == "rows" else int(name): count for name, count in counts.items() if count}
    return SparkFiles(place, folder, written, names, job.by_marker(by_marker), replaced)


def _counts(job: StagingJob) -> Iterator[SparkColumn]:
    yield F.expr(f"count_if({PROBLEM} <> {Problem.REPLACED_TEXT.value}) AS bad")
    yield F.expr(f"count_if({PROBLEM} = {Problem.REPLACED_TEXT.value}) AS replaced")
    if not job.with_marker:
        yield F.expr("count(*) AS rows")
        return
    for marker in Marker:
        yield F.expr(f"count_if({MARKER} = {marker.value}) AS `{marker.value}`")


def _optional(rows: DataFrame) -> Iterator[str]:
    """All columns but the problem, none of them such that Spark writes it as one that is never NULL: a delete leaves
    all but the keys empty, so files of one table would differ. What Spark knows of a condition it takes for granted, so
    this is one that it cannot know."""
    for field in rows.schema.fields:
        name = quote(field.name)
        if field.name != PROBLEM:
            yield name if field.nullable else f"CASE WHEN monotonically_increasing_id() >= 0 THEN {name} END AS {name}"
