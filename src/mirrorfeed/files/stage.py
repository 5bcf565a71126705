"""Which way the files of a publication are made, and that they stand in the landing zone under staged names."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import DataFrame

from mirrorfeed.errors import first_line
from mirrorfeed.feed import changes
from mirrorfeed.feed.source import quote
from mirrorfeed.files import few, unique
from mirrorfeed.files.executors import send_by_executors
from mirrorfeed.files.job import PROBLEMS_SHOWN, BadRow, Receipt, StagingJob, bad_rows
from mirrorfeed.files.make import Made, made
from mirrorfeed.files.place import HandoverLost, NoHandover, Place
from mirrorfeed.files.rolling import UnwritableRow, write_files
from mirrorfeed.files.send import send
from mirrorfeed.landing.arrow import told
from mirrorfeed.landing.rows import Problem

_WHOLE = ("byte", "short", "integer", "long")
Staged = tuple[Sequence[Receipt], Sequence[BadRow]]
"""Files in the order in which they are to be applied; or, with bad rows, nothing that counts."""
LookUp = Callable[[pa.Table], list[BadRow]]
"""Gives rows of the source whose texts are not valid UTF-8, among those with these keys; of a table without columns,
among all."""
_LOOKED_UP = 1_000
"""How many keys are looked up by themselves. With more, all rows are."""


def stage(
    rows: DataFrame,
    job: StagingJob,
    place: Place | None,
    sender: Literal["driver", "executors"] = "driver",
    *,
    expect_few: bool = True,
    rows_per_file: Callable[[], int | None] = lambda: None,
    unique_keys: Sequence[str] = (),
    look_up: LookUp | None = None,
) -> Staged:
    """`expect_few` is a hint: if the rows turn out to be many, Spark computes them a second time. `rows_per_file` is
    called only for many rows. Rows that share one of the `unique_keys` are bad, and so are texts that are not valid
    UTF-8. `look_up` is for rows of a change feed, which may have replaced such bytes."""
    rows = changes.with_text_judged(rows, job.columns, from_feed=look_up is not None)
    if (expect_few or place is None) and (found := few.taken(rows)) is not None:
        staged = stage_few(found, job, unique_keys, look_up)
        if place is not None:
            place.clear(job, may_ask=False)
        return staged
    if place is None:
        raise NoHandover(job.table)
    with made(rows, place, job, rows_per_file()) as files:
        if bad := files.bad or _shared_in(files, job, unique_keys):
            return (), bad
        if look_up and files.replaced and (bad := look_up(_replaced_in(rows, job))):
            return (), bad
        try:
            return (send if sender == "driver" else send_by_executors)(job, files), ()
        except UnwritableRow as error:
            return (), [error.row]


def _replaced_in(rows: DataFrame, job: StagingJob) -> pa.Table:
    """The keys to look up."""
    replaced = rows.where(f"{changes.PROBLEM} = {Problem.REPLACED_TEXT.value}")
    return _if_few(replaced.select(*map(quote, job.keys)).limit(_LOOKED_UP + 1).toArrow()) if job.keys else pa.table({})


def _if_few(keys: pa.Table) -> pa.Table:
    return keys if keys.num_rows <= _LOOKED_UP else pa.table({})


def stage_few(
    found: pa.Table, job: StagingJob, unique_keys: Sequence[str] = (), look_up: LookUp | None = None
) -> Staged:
    """Landing rows, whose last column is their problem, in their order."""
    if bad := bad_rows(found, changes.PROBLEM, job.keys) or _shared(found, unique_keys):
        return (), bad
    if look_up:
        replaced = found.filter(pc.equal(found.column(changes.PROBLEM), Problem.REPLACED_TEXT.value))
        if replaced.num_rows and (bad := look_up(_if_few(replaced.select(job.keys)))):
            return (), bad
    try:
        return write_files(job, found.drop_columns([changes.PROBLEM]).to_batches()), ()
    except UnwritableRow as error:
        return (), [error.row]


def _shared(found: pa.Table, keys: Sequence[str]) -> list[BadRow]:
    """The first keys that stand in more than one row."""
    if not keys:
        return []
    places = [str(at) for at in range(len(keys))]
    counted = pa.table([found.column(name) for name in keys], places).group_by(places).aggregate([([], "count_all")])
    shared = counted.filter(pc.field("count_all") > 1).slice(0, PROBLEMS_SHOWN).select(places).rename_columns(keys)
    return [BadRow(Problem.DUPLICATE_KEY, told(shared, at)) for at in range(shared.num_rows)]


def _shared_in(files: Made, job: StagingJob, keys: Sequence[str]) -> list[BadRow]:
    """The same of files that were just written, by numbers for the keys where these are not too many."""
    if not (keys and files.names):
        return []
    if sum(files.rows.values()) <= unique.MOST:
        numbers = _whole_numbers(files, job, keys)
        if numbers is None:
            numbers = changes.key_hashes(files.written, keys).toArrow().column(0)
        if not unique.repeat(numbers):
            return []
    found = changes.key_problems(files.written, keys, PROBLEMS_SHOWN).toArrow()
    return bad_rows(found, changes.PROBLEM, keys)


def _whole_numbers(files: Made, job: StagingJob, keys: Sequence[str]) -> pa.ChunkedArray | None:
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
                raise HandoverLost(path, first_line(str(error))) from error
    numbers = pa.chunked_array(found, pa.int64())
    return None if numbers.null_count else numbers
