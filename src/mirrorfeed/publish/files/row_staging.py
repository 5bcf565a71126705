"""Stage the files of a publication: check the rows, and write them with Arrow (small batches) or with Spark."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Literal

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame

from mirrorfeed.landing.schema import MARKER, ROW_IS_WIDE, Problem
from mirrorfeed.publish import rows_and_markers
from mirrorfeed.publish.errors import staging_path_required
from mirrorfeed.publish.files.rolling_writer import write_files
from mirrorfeed.publish.files.staging_area import StagingArea
from mirrorfeed.publish.files.staging_job import (
    PROBLEMS_SHOWN,
    BadRow,
    BadRows,
    Staged,
    StagingJob,
    bad_rows,
    combine_staged,
    row_text,
)
from mirrorfeed.publish.rows_and_markers import MAX_FILTER_KEYS, PROBLEM
from mirrorfeed.source.identifier import quote
from mirrorfeed.storage.request_retries import retry_counter

if TYPE_CHECKING:
    from mirrorfeed.publish.files.spark_files import SparkFiles

SMALL_BATCH_ROWS = 20_000
"""Maximum number of rows that the driver collects and writes with Arrow.
Arrow needs less CPU time than Spark's writer for 50,000 rows, and more for 100,000 (`tests.bench.small_batch_limit`). A
higher limit needs more driver memory and saves little time."""
MAX_COLLECTED_KEYS = 2**18
"""Maximum number of deleted keys that the driver collects for the look-up. Spark sends them to every executor, so that
it need not shuffle the keys of the source."""
_WIDE_ROW_BYTES = 4096
"""If the text and binary values of any row exceed this total size in bytes, the driver collects no rows."""
_IS_WIDE = ROW_IS_WIDE
"""Helper column: true if a row exceeds `_WIDE_ROW_BYTES`.
No published table has this column, because the name is reserved."""
_RESULT_LIMIT = "spark.driver.maxResultSize"
"""Text by which Spark's error for a result that is too large is recognized."""
_TIME_STEP = 1.1
"""Seconds to wait so that the next file gets a later modification time.
Storage times have a precision of one second or better."""
FindInvalidText = Callable[[pa.Table], list[BadRow]]
"""Function that returns the source rows with invalid UTF-8. The argument contains the keys of the rows to search.
If the argument has no columns or more than `MAX_FILTER_KEYS` keys, the function searches all rows."""
ExistingRows = Callable[["pa.Table | DataFrame"], DataFrame | None]
"""Function that receives keys, and returns the rows to publish for the keys that exist at the end of the range.
Returns None if the source has none of the keys."""


def stage(
    rows: DataFrame,
    job: StagingJob,
    area: StagingArea | None,
    upload_from: Literal["driver", "executors"] = "driver",
    *,
    expect_small: bool = True,
    unique_keys: Sequence[str] = (),
    find_invalid_text: FindInvalidText | None = None,
    other_rows: Callable[[], DataFrame] | None = None,
    existing_rows: ExistingRows | None = None,
) -> Staged:
    """Check rows, and write them to staged files in the landing zone. Without rows, no file is staged.

    The driver writes small batches, Spark writes all others. Raises `BadRows` if rows cannot be published, and
    `staging_path_required` if Spark must write the files but `area` is None.

    - `upload_from`: whether the driver or the executors upload Spark's files.
    - `expect_small`: try to collect the rows first. If there are too many, Spark computes the rows a second time.
    - `unique_keys`: key columns whose combined values must be unique. Rows with a duplicate key cannot be published.
    - `find_invalid_text`: called if text has the replacement character for invalid UTF-8. Returns the invalid rows.
    - `other_rows`: called if a row has NULL instead of a row marker. Returns the rows to publish instead of these rows.
      Their keys must differ from the keys of all other rows.
    - `existing_rows`: called with the deleted keys. Returns the rows to publish for those keys that still exist in the
      source. These rows are staged in separate files, which Fabric must apply last.
    """
    with ExitStack() as folders:
        builder = _PartBuilder(job, area, upload_from, unique_keys, find_invalid_text, folders)
        parts = [builder.build(rows, collects=expect_small)]
        if other_rows and parts[0].without_marker:
            parts.append(builder.build(other_rows()))
        deleted = [keys for part in parts if existing_rows and (keys := part.deleted()) is not None]
        if existing_rows is None or not deleted:
            return combine_staged(part.write() for part in parts)
        return _write_with_corrections(builder, parts, deleted, existing_rows)


@dataclass
class _PartBuilder:
    """Checks rows, and collects them on the driver or lets Spark write them to the staging area."""

    job: StagingJob
    area: StagingArea | None
    upload_from: Literal["driver", "executors"]
    unique_keys: Sequence[str]
    find_invalid_text: FindInvalidText | None
    folders: ExitStack
    """Context in which Spark's files exist."""
    _names: Iterator[str] = field(default_factory=lambda: iter(("", "-2", "-3", "-4")))

    def build(self, rows: DataFrame, *, collects: bool = True, corrects: bool = False) -> _Part:
        """Check rows, and return them as a part. With `collects`, tries to collect the rows first. With `corrects`, the
        rows come from a snapshot of the source, and not from its change data feed."""
        job, area, find_text = self.job, self.area, None if corrects else self.find_invalid_text
        rows = rows_and_markers.check_text(rows, job.columns, from_feed=find_text is not None)
        if (collects or area is None) and (batch := collect_small_batch(rows)) is not None:
            if area is not None:
                self.folders.callback(area.clear, job, may_request=False)
            return small_part(batch, job, self.unique_keys, find_text)
        if area is None:
            raise staging_path_required(table=job.table)
        from mirrorfeed.publish.files.spark_files import write_with_spark  # most batches are small

        written = write_with_spark(rows, area, job, part=next(self._names))
        files = self.folders.enter_context(written)
        return _spark_part(rows, files, job, self.unique_keys, self.upload_from, find_text)


def _write_with_corrections(
    builder: _PartBuilder, parts: Sequence[_Part], deleted: Sequence[pa.Table | DataFrame], existing_rows: ExistingRows
) -> Staged:
    """Write parts, look up their deleted keys at the same time, and then write the rows that exist with these keys."""
    with ThreadPoolExecutor(1) as other_thread:
        # If Spark looks up keys in its files, the upload must not move them away.
        can_upload = all(isinstance(keys, pa.Table) for keys in deleted)
        upload = other_thread.submit(_write_and_count_retries, parts) if can_upload else None
        started = time.monotonic()
        found = [existing for keys in deleted if (existing := existing_rows(keys)) is not None]
        look_up_seconds = time.monotonic() - started
        corrections = [builder.build(existing, corrects=True) for existing in found]
        written = [upload.result() if upload else combine_staged(part.write() for part in parts)]
    for part in corrections:
        if builder.job.output.by_time:
            time.sleep(_TIME_STEP)
        written.append(part.write())
    correction_files = sum(len(staged.files) for staged in written[1:])
    return combine_staged(written)._replace(corrections=correction_files, look_up_seconds=look_up_seconds)


def _write_and_count_retries(parts: Sequence[_Part]) -> Staged:
    """Write parts in another thread than that of the publication."""
    before = retry_counter().of_thread
    staged = combine_staged(part.write() for part in parts)
    return staged._replace(retries=staged.retries + retry_counter().of_thread - before)


def collect_small_batch(rows: DataFrame) -> pa.Table | None:
    """Collect the rows on the driver and preserve their order. Returns None if there are more than 20,000 rows, if a
    row has more than 4 KiB of text and binary values, or if the result exceeds `spark.driver.maxResultSize`."""
    texts = [field.name for field in rows.schema.fields if field.dataType.typeName() in ("string", "binary")]
    if texts:
        # Measuring the sizes with an Observation would take a noticeable part of the time of a small publication.
        sizes = (f"coalesce(octet_length({quote(name)}), 0)" for name in texts)
        is_wide = f"{' + '.join(sizes)} > {_WIDE_ROW_BYTES}"
        values = {name: quote(name) for name in rows.columns}
        values |= {name: f"IF({is_wide}, NULL, {quote(name)})" for name in texts}
        columns = (f"{value} AS {quote(name)}" for name, value in values.items())
        rows = rows.selectExpr(*columns, f"{is_wide} AS {_IS_WIDE}")
    try:
        batch = rows.limit(SMALL_BATCH_ROWS + 1).toArrow()  # Spark sorts before it takes the first rows
    except Exception as error:
        if _RESULT_LIMIT in str(error):
            return None
        raise
    if batch.num_rows > SMALL_BATCH_ROWS or (texts and pc.any(batch.column(_IS_WIDE)).as_py()):
        return None
    return batch.drop_columns([_IS_WIDE]) if texts else batch


@dataclass(frozen=True)
class _Part:
    """Part of a publication: rows that passed the checks, and are staged in separate files."""

    deleted: Callable[[], pa.Table | DataFrame | None]
    """Function that returns the keys that the rows delete, or None if there are none."""
    write: Callable[[], Staged]
    """Function that writes and returns the staged files. Raises `BadRows` if the file format cannot store a value."""
    without_marker: int = 0
    """Number of rows with NULL as row marker, which `write` leaves out."""


def _spark_part(
    rows: DataFrame,
    files: SparkFiles,
    job: StagingJob,
    unique_keys: Sequence[str],
    upload_from: Literal["driver", "executors"],
    find_invalid_text: FindInvalidText | None,
) -> _Part:
    from mirrorfeed.publish.files.duplicate_keys import may_have_duplicates
    from mirrorfeed.publish.files.spark_files import upload_files, upload_from_executors

    keys = [quote(name) for name in job.keys]
    bad = bad_keys(files.written, unique_keys) if unique_keys and may_have_duplicates(files, job, unique_keys) else []
    if not bad and find_invalid_text and files.replaced:
        replaced = rows.where(f"{PROBLEM} = {Problem.REPLACED_TEXT.value}").select(*keys)
        bad = find_invalid_text(replaced.limit(MAX_FILTER_KEYS + 1).toArrow() if keys else pa.table({}))
    if bad:
        raise BadRows(*bad)

    def deleted() -> pa.Table | DataFrame | None:
        # With `changes: full`, a later row may add a deleted key again. Then this row is staged a second time, as an
        # existing row of the source.
        name, value = job.delivery.of_delete
        deleted = files.written.where(f"{quote(name)} = {value}").select(*keys)
        return deleted if files.deletes > MAX_COLLECTED_KEYS else deleted.toArrow() if files.deletes else None

    upload = upload_files if upload_from == "driver" else upload_from_executors
    return _Part(deleted, partial(upload, job, files), files.without_marker)


def small_part(
    batch: pa.Table,
    job: StagingJob,
    unique_keys: Sequence[str] = (),
    find_invalid_text: FindInvalidText | None = None,
) -> _Part:
    """Check rows that the driver collected. Returns functions to get deleted keys and write files. Raises `BadRows`."""
    bad = bad_rows(batch, PROBLEM, job.keys) or _duplicates_in_batch(batch, unique_keys)
    if not bad and find_invalid_text:
        replaced = batch.filter(pc.equal(batch.column(PROBLEM), Problem.REPLACED_TEXT.value))
        if replaced.num_rows:
            bad = find_invalid_text(replaced.select(job.keys))
    if bad:
        raise BadRows(*bad)
    rows, without_marker = batch.drop_columns([PROBLEM]), 0
    if MARKER in rows.column_names and (without_marker := rows.column(MARKER).null_count):
        rows = rows.filter(pc.is_valid(rows.column(MARKER)))
    return _Part(partial(_deleted_keys, rows, job), lambda: Staged(write_files(job, rows.to_batches())), without_marker)


def _deleted_keys(batch: pa.Table, job: StagingJob) -> pa.Table | None:
    """Return the keys whose last row in the batch is a delete, or None if there are none."""
    if MARKER not in batch.column_names:
        return None
    names, at = [str(at) for at in range(len(job.keys))], pa.array(range(batch.num_rows), pa.int64())
    keys = pa.table([*(batch.column(name) for name in job.keys), at], [*names, "at"])
    last_rows = batch.take(keys.group_by(names).aggregate([("at", "max")]).column("at_max"))
    name, value = job.delivery.of_delete
    deletes = last_rows.filter(pc.equal(last_rows.column(name), value))
    return deletes.select(job.keys) if deletes.num_rows else None


def _duplicates_in_batch(batch: pa.Table, keys: Sequence[str]) -> list[BadRow]:
    if not keys:
        return []
    names = [str(at) for at in range(len(keys))]
    counted = pa.table([batch.column(name) for name in keys], names).group_by(names).aggregate([([], "count_all")])
    shared = counted.filter(pc.field("count_all") > 1).slice(0, PROBLEMS_SHOWN).select(names).rename_columns(keys)
    return [BadRow(Problem.DUPLICATE_KEY, row_text(shared, at)) for at in range(shared.num_rows)]


def bad_keys(rows: DataFrame, keys: Sequence[str]) -> list[BadRow]:
    """Return up to `PROBLEMS_SHOWN` (5) keys that are NULL or not unique in the rows."""
    return bad_rows(rows_and_markers.key_problems(rows, keys, PROBLEMS_SHOWN).toArrow(), PROBLEM, keys)
