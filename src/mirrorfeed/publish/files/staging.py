"""Which way the files of a publication are made, and that they stand in the landing zone under staged names."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import DataFrame

from mirrorfeed.errors import first_line
from mirrorfeed.landing.row_markers import Marker, Problem
from mirrorfeed.landing.schema import MARKER
from mirrorfeed.publish.files import duplicate_keys, small_batch
from mirrorfeed.publish.files.arrow_types import told
from mirrorfeed.publish.files.executor_upload import send_by_executors
from mirrorfeed.publish.files.rolling_writer import UnwritableRow, write_files
from mirrorfeed.publish.files.spark_writer import SparkFiles, made
from mirrorfeed.publish.files.staging_area import StagingArea, StagingFilesLost, StagingPathRequired
from mirrorfeed.publish.files.staging_job import PROBLEMS_SHOWN, BadRow, StagedFile, StagingJob, bad_rows
from mirrorfeed.publish.files.upload import send
from mirrorfeed.publish.translate import landing_rows
from mirrorfeed.source.identifier import quote

_WHOLE = ("byte", "short", "integer", "long")
Staged = tuple[Sequence[StagedFile], Sequence[BadRow]]
"""Files in the order in which they are to be applied; or, with bad rows, nothing that counts."""
LookUp = Callable[[pa.Table], list[BadRow]]
"""Gives rows of the source whose texts are not valid UTF-8, among those with these keys; of a table without columns,
among all."""
StillThere = Callable[["pa.Table | DataFrame"], DataFrame | None]
"""Gives the rows that the source has, at the end of the range, for some of these keys; None if it has none."""
_SECOND = 1.1
_LOOKED_UP = 1_000
"""How many keys are looked up by themselves. With more, all rows are."""


def stage(
    rows: DataFrame,
    job: StagingJob,
    place: StagingArea | None,
    sender: Literal["driver", "executors"] = "driver",
    *,
    expect_few: bool = True,
    rows_per_file: Callable[[], int | None] = lambda: None,
    unique_keys: Sequence[str] = (),
    look_up: LookUp | None = None,
    still_there: StillThere | None = None,
) -> Staged:
    """`expect_few` is a hint: if the rows turn out to be many, Spark computes them a second time. `rows_per_file` is
    called only for many rows. Rows that share one of the `unique_keys` are bad, and so are texts that are not valid
    UTF-8. `look_up` is for rows of a change feed, which may have replaced such bytes. What `still_there` gives for the
    deleted keys follows in files of its own."""
    with ExitStack() as folders:

        def ready(rows: DataFrame, *, corrects: bool = False) -> Ready:
            rows = landing_rows.check_text(rows, job.columns, from_feed=look_up is not None and not corrects)
            if (expect_few or place is None or corrects) and (found := small_batch.taken(rows)) is not None:
                if place is not None:
                    folders.callback(place.clear, job, may_ask=False)
                return _few(found, job, unique_keys, None if corrects else look_up)
            if place is None:
                raise StagingPathRequired(job.table)
            files = folders.enter_context(made(rows, place, job, rows_per_file(), part="-2" if corrects else ""))
            return _many(rows, files, job, unique_keys, sender, None if corrects else look_up)

        parts = [ready(rows)]
        if still_there and not parts[0].bad and (deleted := parts[0].deleted()) is not None:
            corrections = still_there(deleted)
            if corrections is not None:
                parts.append(ready(corrections, corrects=True))
        if bad := parts[-1].bad:
            return (), bad
        try:
            receipts = list(parts[0].send())
            for part in parts[1:]:
                receipts += _later(part.send, job)
        except UnwritableRow as error:
            return (), [error.row]
        return receipts, ()


def _later(send: Callable[[], Sequence[StagedFile]], job: StagingJob) -> list[StagedFile]:
    """Storage times have a precision of a second at worst."""
    if job.output.by_time:
        time.sleep(_SECOND)
    return [replace(receipt, corrects=True) for receipt in send()]


@dataclass(frozen=True)
class Ready:
    """Landing rows that can be sent as files."""

    bad: Sequence[BadRow]
    deleted: Callable[[], pa.Table | DataFrame | None]
    """The keys that may be absent once the rows are applied; None if there are none."""
    send: Callable[[], Sequence[StagedFile]]
    """Raises `UnwritableRow`."""


def _many(
    rows: DataFrame,
    files: SparkFiles,
    job: StagingJob,
    unique_keys: Sequence[str],
    sender: Literal["driver", "executors"],
    look_up: LookUp | None,
) -> Ready:
    bad = files.bad or _shared_in(files, job, unique_keys)
    if not bad and look_up and files.replaced:
        bad = look_up(_replaced_in(rows, job))

    def deleted() -> DataFrame | None:
        # Of every change to a key, the last one may be another: then its row is sent once more than needed.
        if not files.rows.get(Marker.DELETE.name.lower()):
            return None
        return files.written.where(f"{MARKER} = {Marker.DELETE.value}").select(*map(quote, job.keys)).distinct()

    return Ready(bad, deleted, partial(send if sender == "driver" else send_by_executors, job, files))


def _replaced_in(rows: DataFrame, job: StagingJob) -> pa.Table:
    """The keys to look up."""
    replaced = rows.where(f"{landing_rows.PROBLEM} = {Problem.REPLACED_TEXT.value}")
    return _if_few(replaced.select(*map(quote, job.keys)).limit(_LOOKED_UP + 1).toArrow()) if job.keys else pa.table({})


def _if_few(keys: pa.Table) -> pa.Table:
    return keys if keys.num_rows <= _LOOKED_UP else pa.table({})


def stage_few(found: pa.Table, job: StagingJob, unique_keys: Sequence[str] = ()) -> Staged:
    """Landing rows, whose last column is their problem, in their order."""
    ready = _few(found, job, unique_keys)
    if ready.bad:
        return (), ready.bad
    try:
        return ready.send(), ()
    except UnwritableRow as error:
        return (), [error.row]


def _few(found: pa.Table, job: StagingJob, unique_keys: Sequence[str] = (), look_up: LookUp | None = None) -> Ready:
    bad = bad_rows(found, landing_rows.PROBLEM, job.keys) or _shared(found, unique_keys)
    if not bad and look_up:
        replaced = found.filter(pc.equal(found.column(landing_rows.PROBLEM), Problem.REPLACED_TEXT.value))
        if replaced.num_rows:
            bad = look_up(_if_few(replaced.select(job.keys)))
    rows = found.drop_columns([landing_rows.PROBLEM])
    return Ready(bad, partial(_deleted, found, job), lambda: write_files(job, rows.to_batches()))


def _deleted(found: pa.Table, job: StagingJob) -> pa.Table | None:
    """The keys whose last row is a delete."""
    if MARKER not in found.column_names:
        return None
    places, at = [str(at) for at in range(len(job.keys))], pa.array(range(found.num_rows), pa.int64())
    keys = pa.table([*(found.column(name) for name in job.keys), at], [*places, "at"])
    last = keys.group_by(places).aggregate([("at", "max")]).column("at_max")
    rows = found.take(last)
    rows = rows.filter(pc.equal(rows.column(MARKER), Marker.DELETE.value))
    return rows.select(job.keys) if rows.num_rows else None


def _shared(found: pa.Table, keys: Sequence[str]) -> list[BadRow]:
    """The first keys that stand in more than one row."""
    if not keys:
        return []
    places = [str(at) for at in range(len(keys))]
    counted = pa.table([found.column(name) for name in keys], places).group_by(places).aggregate([([], "count_all")])
    shared = counted.filter(pc.field("count_all") > 1).slice(0, PROBLEMS_SHOWN).select(places).rename_columns(keys)
    return [BadRow(Problem.DUPLICATE_KEY, told(shared, at)) for at in range(shared.num_rows)]


def _shared_in(files: SparkFiles, job: StagingJob, keys: Sequence[str]) -> list[BadRow]:
    """The same of files that were just written, by numbers for the keys where these are not too many."""
    if not (keys and files.names):
        return []
    if sum(files.rows.values()) <= duplicate_keys.MOST:
        numbers = _whole_numbers(files, job, keys)
        if numbers is None:
            numbers = landing_rows.key_hashes(files.written, keys).toArrow().column(0)
        if not duplicate_keys.repeat(numbers):
            return []
    found = landing_rows.key_problems(files.written, keys, PROBLEMS_SHOWN).toArrow()
    return bad_rows(found, landing_rows.PROBLEM, keys)


def _whole_numbers(files: SparkFiles, job: StagingJob, keys: Sequence[str]) -> pa.ChunkedArray | None:
    """The keys themselves where that is what they are, and the files are at hand: to read a column takes a tenth of
    what a query does."""
    if [column.type in _WHOLE for column in job.columns if column.name in keys] != [True] or not files.place.sees():
        return None
    found: list[pa.Array] = []
    for name in files.names:
        path = f"{files.folder}/{name}"
        with files.place.open(path) as file:
            try:
                found += pq.ParquetFile(file).read([keys[0]]).column(keys[0]).cast(pa.int64()).chunks
            except (pa.ArrowException, OSError, KeyError) as error:
                raise StagingFilesLost(path, first_line(str(error))) from error
    numbers = pa.chunked_array(found, pa.int64())
    return None if numbers.null_count else numbers
