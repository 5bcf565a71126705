"""Write large batches with Spark: write files to the staging area, check them, and upload them to the landing zone.

Uploaded files have staged names, which Fabric ignores until the files are renamed. If the schema of a file differs from
the schema of the table, the file is rewritten before the upload.
"""

from __future__ import annotations

import hashlib
import io
import json
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any, BinaryIO, cast

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark import cloudpickle
from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F

import mirrorfeed
from mirrorfeed.display.rows import counted
from mirrorfeed.errors import MirrorfeedError, TransientError, first_line, innermost_cause
from mirrorfeed.landing.log_record import File
from mirrorfeed.landing.schema import MARKER, Marker, Problem
from mirrorfeed.publish.errors import StagingFilesLostError, executor_upload_failed, executor_upload_impossible
from mirrorfeed.publish.files.file_sizes import Piece, SparkFile, plan_files
from mirrorfeed.publish.files.joined_parquet import Joined, RowGroups, join, read_footer
from mirrorfeed.publish.files.rolling_writer import ROW_GROUP_BYTES, write_files
from mirrorfeed.publish.files.staging_area import IN_ZONE, StagingArea
from mirrorfeed.publish.files.staging_job import (
    PROBLEMS_SHOWN,
    BadRow,
    BadRows,
    Staged,
    StagingJob,
    arrow_schema,
    bad_rows,
    combine_staged,
    count_markers,
)
from mirrorfeed.publish.rows_and_markers import PROBLEM
from mirrorfeed.runtime.spark_errors import SOURCE_FAULTS, find_condition
from mirrorfeed.source.identifier import quote
from mirrorfeed.storage import per_process
from mirrorfeed.storage.errors import PathExistsError, PathMissingError, StorageUnavailableError
from mirrorfeed.storage.local_folder import flush_to_disk
from mirrorfeed.storage.request_retries import NewFile, retry_counter

_OPTIONS = {
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.parquet.writeLegacyFormat": "true",  # write decimals of any width as bytes of a fixed length
    "parquet.summary.metadata.level": "NONE",  # write no files without rows
    "maxRecordsPerFile": "0",  # no limit, because `plan_files` divides large files
}
"""Parquet options for Spark's writer. Spark may ignore them, so each file is checked after the write.
Spark 4.0, for example, reads the first two only from the configuration of the user's session."""
_GROUPS_PER_FILE = 8
"""Number of row groups in a file of the target size, so that files can be divided into data files of similar size."""
_BATCH_ROWS = 2**14
_PARALLEL_FILES = 4
"""Maximum number of parallel uploads of the process, over all tables. Each keeps two parts of 8 MiB in memory."""
_STORAGE_PROPERTIES = ("is_from_converted_type", "force_set_converted_type")
"""Properties in the JSON of a Parquet logical type that describe its storage. Files may differ in these properties."""
_Batches = Iterator[pa.RecordBatch]
_RESULT = pa.schema([("result", pa.string())])


@dataclass(frozen=True)
class SparkFiles:
    """The files that Spark wrote for a publication, in a folder of the staging area."""

    area: StagingArea
    folder: str
    written: DataFrame
    """DataFrame that reads the files."""
    paths: Sequence[str]
    """Paths of the files, in the order in which Fabric must apply them."""
    rows: dict[str, int]
    """Number of rows by name of the row marker, counted during the write."""
    replaced: int = 0
    """Number of rows with text in which the change feed may have replaced invalid bytes."""
    deletes: int = 0
    """Number of rows that delete a key."""
    without_marker: int = 0
    """Number of rows that were not written, because they have NULL instead of a row marker."""


@contextmanager
def write_with_spark(rows: DataFrame, area: StagingArea, job: StagingJob, part: str = "") -> Iterator[SparkFiles]:
    """Context manager that writes rows with Spark to a folder of the staging area, and yields the files.

    Rows with NULL as row marker are counted, but not written. The folder is deleted at the end. `part` is a suffix for
    the name of the folder, so that one job can have several folders. Raises `BadRows` if rows cannot be published.
    Raises `StagingFilesLostError` if the disk is full, if the written files cannot be read, or if the write fails but a
    test write succeeds. Raises `StagingUnusableError` if both writes fail.
    """
    folder, observation = area.folder(job) + part, Observation()
    observed = rows.observe(observation, *_counts(job))
    finished = (observed.where(f"{MARKER} IS NOT NULL") if job.with_marker else observed).selectExpr(
        *_nullable_columns(rows)
    )
    options = _OPTIONS | {
        "compression": "zstd" if job.output.delimited else job.output.compression,
        "parquet.block.size": str(min(ROW_GROUP_BYTES, -(-job.output.target_file_size // _GROUPS_PER_FILE))),
    }
    area.check(folder)
    try:
        try:
            finished.write.options(**options).parquet(folder)
        except Exception as error:
            # Errors of reading the source are converted by the caller, which reads the source.
            if find_condition(error, SOURCE_FAULTS) or area.root not in str(error):
                raise
            raise area.write_error(rows.sparkSession, folder, error) from error
        # If the engine reports no metrics, count with a second query, which reads the same versions.
        counts = dict(observation.get) or rows.agg(*_counts(job)).collect()[0].asDict()
        yield _written_files(rows, finished, area, folder, job, counts)
    except BaseException:
        area.remove(folder)
        raise
    area.clear(job)


def _written_files(
    rows: DataFrame, finished: DataFrame, area: StagingArea, folder: str, job: StagingJob, counts: dict[str, int]
) -> SparkFiles:
    if counts.pop("bad"):
        wrong = rows.where(f"{PROBLEM} <> {Problem.REPLACED_TEXT.value}").limit(PROBLEMS_SHOWN)
        raise BadRows(*bad_rows(wrong.toArrow(), PROBLEM, job.keys))
    replaced, deletes = counts.pop("replaced"), counts.pop("deletes", counts.get(str(Marker.DELETE.value), 0))
    without_marker = counts.pop("without_marker", 0)
    try:
        written = area.read(rows.sparkSession, folder, finished.schema)
        paths = area.file_paths(folder, written)
    except StagingFilesLostError:
        raise
    except Exception as error:
        raise StagingFilesLostError(place=folder, reason=innermost_cause(error)) from error
    by_marker = {None if name == "rows" else int(name): count for name, count in counts.items() if count}
    return SparkFiles(area, folder, written, paths, job.by_marker(by_marker), replaced, deletes, without_marker)


def _counts(job: StagingJob) -> Iterator[SparkColumn]:
    yield F.expr(f"count_if({PROBLEM} <> {Problem.REPLACED_TEXT.value}) AS bad")
    yield F.expr(f"count_if({PROBLEM} = {Problem.REPLACED_TEXT.value}) AS replaced")
    if not job.with_marker:
        yield F.expr("count(*) AS rows")
        return
    if job.delivery.marks_deletes:  # otherwise, the row marker says it
        yield F.expr(f"count_if({quote(job.delivery.deleted_column)}) AS deletes")
    yield F.expr(f"count_if({MARKER} IS NULL) AS without_marker")
    for marker in Marker:
        yield F.expr(f"count_if({MARKER} = {marker.value}) AS `{marker.value}`")


def _nullable_columns(rows: DataFrame) -> Iterator[str]:
    """Yield an SQL expression for each column except `PROBLEM`. Each expression makes its column nullable."""
    # If all columns are nullable, all files have the same schema.
    # Spark removes a condition whose result it knows in advance, and the column would stay not nullable.
    for field in rows.schema.fields:
        name = quote(field.name)
        if field.name != PROBLEM:
            yield name if field.nullable else f"CASE WHEN monotonically_increasing_id() >= 0 THEN {name} END AS {name}"


@dataclass(frozen=True)
class SchemaCheck:
    """Result of comparing a file from Spark with the schema of the table."""

    file: pq.ParquetFile
    rows: dict[int | None, int]
    """Number of rows by marker number. The key is None for rows without a marker. Markers without rows are omitted."""
    differs: str
    """First difference from the schema of the table, in words. Empty if there is none."""
    needs_rewrite: bool
    """True if the file cannot be uploaded as Spark wrote it."""


def check_file(file: BinaryIO, job: StagingJob, row_groups: Sequence[int] | None = None) -> SchemaCheck:
    """Count the rows of a file from Spark, and compare its schema with the schema of the job's columns.

    Counts only the rows of `row_groups`, if given. Raises an error of PyArrow if the file is damaged."""
    parquet = _open_parquet(file)
    groups = range(parquet.metadata.num_row_groups) if row_groups is None else row_groups
    if job.with_marker:
        rows = _count_markers(parquet, groups)
    else:
        rows = {None: sum(parquet.metadata.row_group(number).num_rows for number in groups)}
    rows = {marker: count for marker, count in rows.items() if count}
    differs = _difference(parquet, arrow_schema(job.file_columns, with_marker=job.with_marker))
    # If rows without a marker are upserts, a file with only upserts needs no marker column.
    drops_marker = job.with_marker and job.output.upserts_by_default and set(rows) <= {Marker.UPSERT.value}
    return SchemaCheck(parquet, rows, differs, bool(differs) or drops_marker or job.output.delimited is not None)


def _open_parquet(file: BinaryIO) -> pq.ParquetFile:
    # Nanoseconds would overflow for INT96 times before 1677 and after 2262.
    return pq.ParquetFile(file, coerce_int96_timestamp_unit="us")


def _count_markers(file: pq.ParquetFile, row_groups: Sequence[int]) -> dict[int | None, int]:
    """Return the number of rows by marker. Reads the marker column only where the statistics are not sufficient."""
    metadata, counts = file.metadata, Counter[int | None]()
    for number in row_groups:
        group = metadata.row_group(number)
        marker = group.column(metadata.num_columns - 1).statistics
        if marker is not None and marker.has_min_max and marker.min == marker.max and marker.null_count == 0:
            counts[marker.min] += group.num_rows
        else:
            counts.update(count_markers(file.read_row_group(number, columns=[MARKER])))
    return counts


def _difference(file: pq.ParquetFile, wanted: pa.Schema) -> str:
    """Return the first difference of a file from the schema `wanted`, in words, or an empty text."""
    columns, expected = _columns(file), _columns_of(wanted)
    if [name for name, _ in columns] != [name for name, _ in expected]:
        return "the columns"
    pairs = zip(columns, expected, strict=True)
    return next((f"column {name!r} as {has}" for (name, has), (_, should) in pairs if has != should), "")


def schema_difference(file: pq.ParquetFile, wanted: pa.Schema) -> str:
    """Return the first column of a file of another publisher whose type Fabric would not combine with the type in
    `wanted`, in words, or an empty text. Ignores the order of columns, and whether they are nullable."""
    types = {name: type_.partition(" ")[2] for name, type_ in _columns(file)}
    expected = {name: type_.partition(" ")[2] for name, type_ in _columns_of(wanted)}
    differing = (name for name, type_ in expected.items() if types.get(name) != type_)
    return next((f"column {name!r} as {types.get(name)} instead of {expected[name]}" for name in differing), "")


def _columns_of(schema: pa.Schema) -> Sequence[tuple[str, str]]:
    """Return the name and the Parquet type of each column of a file with a schema."""
    sample = io.BytesIO()
    pq.ParquetWriter(sample, schema).close()
    return _columns(pq.ParquetFile(sample))


def _columns(file: pq.ParquetFile) -> Sequence[tuple[str, str]]:
    """Return the name and the Parquet type of each column."""
    columns = []
    for column in map(file.schema.column, range(len(file.schema))):
        rule = "OPTIONAL" if column.max_definition_level == 1 else "REQUIRED"
        length = f"({column.length})" if column.length else ""
        logical = json.loads(column.logical_type.to_json())
        logical_name = logical.pop("Type")
        properties = ", ".join(f"{name} {value}" for name, value in logical.items() if name not in _STORAGE_PROPERTIES)
        form = "" if logical_name == "None" else f" {logical_name}" + (f" ({properties})" if properties else "")
        columns.append((column.path, f"{rule} {column.physical_type}{length}{form}"))
    return columns


def upload_files(job: StagingJob, files: SparkFiles) -> Staged:
    """Upload the files from the driver. Returns the staged files. Raises `BadRows` if delimited text cannot store a
    value, and `StagingFilesLostError` if files are missing or damaged.
    """
    uploads = [_pool().submit(upload_pieces, job, files.area, pieces) for pieces in _plan(job, files)]
    try:
        staged = combine_staged(upload.result() for upload in uploads)
    finally:
        wait([upload for upload in uploads if not upload.cancel()])
    _check_counts(files, staged)
    return staged


def _pool() -> ThreadPoolExecutor:
    # The process has one pool, because a thread reuses its memory for its next file.
    return per_process("uploads", lambda: ThreadPoolExecutor(_PARALLEL_FILES))


def _plan(job: StagingJob, files: SparkFiles) -> list[list[Piece]]:
    """Return the row groups of Spark's files that each data file consists of."""
    if not files.area.is_visible():  # each read of a footer would download the file
        return [[Piece(path)] for path in files.paths]
    sizes = _pool().map(partial(_row_group_sizes, files.area), files.paths)
    return plan_files([SparkFile(*each) for each in zip(files.paths, sizes, strict=True)], job.output.target_file_size)


def _row_group_sizes(area: StagingArea, path: str) -> tuple[int, ...]:
    with area.open(path) as file, _lost_file_errors(path):
        metadata = pq.ParquetFile(file).metadata
    groups = map(metadata.row_group, range(metadata.num_row_groups))
    return tuple(sum(each.column(at).total_compressed_size for at in range(each.num_columns)) for each in groups)


@contextmanager
def _lost_file_errors(path: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:  # errors of pyarrow or the file system
        raise StagingFilesLostError(place=path, reason=first_line(str(error))) from error


def upload_pieces(job: StagingJob, area: StagingArea, pieces: Sequence[Piece]) -> Staged:
    """Upload row groups of Spark's files as one data file, and return the result as a `Staged`.

    Without rows, nothing is uploaded, and the result has no staged file. If a file must be rewritten, the result can
    have several staged files of about the target size. Raises `BadRows` if delimited text cannot store a value, and
    `StagingFilesLostError` if a file is missing or damaged.
    """
    retries_before = retry_counter().of_thread
    if len(pieces) == 1 and pieces[0].end is None:
        files, differs = _upload_whole(job, area, pieces[0])
    else:
        files, differs = _upload_joined(job, area, pieces)
    return Staged(files, retries=retry_counter().of_thread - retries_before, differed=differs)


def _upload_whole(job: StagingJob, area: StagingArea, piece: Piece) -> tuple[Sequence[File], str]:
    """Upload one file. Returns the staged files, and the first difference from the schema of the table."""
    path = piece.path
    with area.open(path) as file:
        with _lost_file_errors(path):
            check = check_file(file, job)
        if not check.rows:
            return (), ""
        if check.needs_rewrite:
            return write_files(job, _batches(path, check.file, None)), check.differs
        return [_move(job, path, check, file) if area.in_zone else _copy(job, check, file)], check.differs


def _upload_joined(job: StagingJob, area: StagingArea, pieces: Sequence[Piece]) -> tuple[Sequence[File], str]:
    """Upload row groups of several files, or some row groups of one. For the result, see `_upload_whole`."""
    parts, rows, differs, needs_rewrite = list[RowGroups](), Counter[int | None](), "", False
    for piece in pieces:
        with area.open(piece.path) as file, _lost_file_errors(piece.path):
            check = check_file(file, job, piece.numbers)
            numbers = piece.numbers or range(check.file.metadata.num_row_groups)
            parts.append(RowGroups(piece.path, read_footer(file), check.file.metadata, numbers))
        rows.update(check.rows)
        differs, needs_rewrite = differs or check.differs, needs_rewrite or check.needs_rewrite
    joined = None if needs_rewrite else join(parts)
    if joined is None:
        return write_files(job, _batches_of_pieces(area, pieces)), differs
    return [_upload_new(job, joined, dict(rows), area)], differs


def _upload_new(job: StagingJob, joined: Joined, rows: dict[int | None, int], area: StagingArea) -> File:
    def write(new: NewFile) -> None:
        try:
            joined.write(new, area.open)
        except EOFError as error:
            raise StagingFilesLostError(place=str(error), reason="it is shorter than before") from error

    return _create(job, write, rows)


def _create(job: StagingJob, write: Callable[[NewFile], None], rows: dict[int | None, int]) -> File:
    """Create a staged file with the content that `write` writes."""

    def create() -> File:
        with NewFile(job.store, job.new_path) as new:
            write(new)
        return File(new.name, 0, job.by_marker(rows), new.bytes, new.sha256)

    try:
        return create()
    except StorageUnavailableError:
        return create()  # once more, with a new staged name


def _copy(job: StagingJob, check: SchemaCheck, file: BinaryIO) -> File:
    def write(new: NewFile) -> None:
        file.seek(0)
        shutil.copyfileobj(file, new, 2**20)

    return _create(job, write, check.rows)


def _move(job: StagingJob, path: str, check: SchemaCheck, file: BinaryIO) -> File:
    """Move a file from the staging area to the folder of the table's log, under a new staged name. The move is only a
    rename, so the staging area must be in the landing zone. Raises `StagingFilesLostError` if the file is missing, and
    `StorageUnavailableError` if the rename failed but may have taken effect."""
    file.seek(0)
    digest = hashlib.file_digest(cast(Any, file), "sha256").hexdigest()
    flush_to_disk(file.fileno())  # Spark does not flush files to disk
    staged = job.new_path()
    try:
        # Do not retry the rename: a failed request may have renamed the file.
        job.store.rename(f"{IN_ZONE}/{path.rsplit(f'/{IN_ZONE}/', 1)[1]}", staged)
    except PathMissingError as error:
        reason = "it was deleted, possibly by another publisher of the table"
        raise StagingFilesLostError(place=path, reason=reason) from error
    except PathExistsError as error:  # renamed by this same request, if the storage client sent the request twice
        reason = "the name was already taken"
        raise StorageUnavailableError(action="rename", address=error.address, reason=reason) from error
    return File(staged.rpartition("/")[2], 0, job.by_marker(check.rows), file.tell(), digest)


def _batches(path: str, file: pq.ParquetFile, row_groups: Sequence[int] | None) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a file, or of some of its row groups, in small batches.
    Raises `StagingFilesLostError` with `path` if a read fails."""
    try:
        yield from file.iter_batches(batch_size=_BATCH_ROWS, row_groups=row_groups)
    except (pa.ArrowException, OSError) as error:
        raise StagingFilesLostError(place=path, reason=first_line(str(error))) from error


def _batches_of_pieces(area: StagingArea, pieces: Sequence[Piece]) -> Iterator[pa.RecordBatch]:
    for piece in pieces:
        with area.open(piece.path) as file:
            yield from _batches(piece.path, _open_parquet(file), piece.numbers)


def _check_counts(files: SparkFiles, staged: Staged) -> None:
    """Check that all rows that Spark wrote were uploaded. The rows of each row marker are counted separately.
    Raises `StagingFilesLostError` if a count differs."""
    uploaded = sum((Counter(file.rows) for file in staged.files), Counter[str]())
    if uploaded != files.rows:
        left, written = counted(uploaded.total(), "row"), counted(sum(files.rows.values()), "row")
        raise StagingFilesLostError(place=files.folder, reason=f"{left} of {written} are left")


def upload_from_executors(job: StagingJob, files: SparkFiles) -> Staged:
    """Upload the files from executors, with one Spark task per data file. Returns the staged files.

    Raises `BadRows` if delimited text cannot store a value, `StagingFilesLostError` if not all rows were uploaded,
    `executor_upload_failed` for a transient error of a task, and `executor_upload_impossible` for any other error of a
    task.
    """
    if not files.paths:
        return Staged(())
    plan = _plan(job, files)
    numbers = files.written.sparkSession.range(len(plan), numPartitions=len(plan))
    # Pickle by value, because executors may not have this package, for example if a notebook imports it from files.
    cloudpickle.register_pickle_by_value(mirrorfeed)  # type: ignore[no-untyped-call]
    results = numbers.mapInArrow(upload_task(job, files.area, plan), "result string").toArrow()
    parts: dict[int, Staged] = {}
    for each in map(json.loads, results.column("result").to_pylist()):
        if "error" in each:
            address = job.store.address(job.folder)
            if each["transient"]:
                raise executor_upload_failed(address=address, reason=each["error"])
            raise executor_upload_impossible(address=address, reason=each["error"])
        if "bad" in each:
            raise BadRows(*(BadRow(Problem(problem), key) for problem, key in each["bad"]))
        uploaded = [File(**file) for file in each["files"]]
        parts[each["number"]] = Staged(uploaded, retries=each["retries"], differed=each["differed"])
    staged = combine_staged(part for _, part in sorted(parts.items()))
    _check_counts(files, staged)
    retry_counter().add(staged.retries)
    return staged._replace(retries=0)  # now counted as retries of this thread


def upload_task(job: StagingJob, area: StagingArea, plan: Sequence[Sequence[Piece]]) -> Callable[[_Batches], _Batches]:
    """Return a function for `mapInArrow` that uploads files.

    Each input row is a position in `plan`, which has the pieces of each data file. Each output row is JSON text: the
    staged files, or the error of the upload. The function returns errors and does not raise them: Spark would pass on
    only their text.
    """
    if job.output.delimited:
        from mirrorfeed.publish.files.delimited_text import TextForm  # imported late: few tables are text

        job = replace(job, text_form=TextForm)

    def upload(number: int) -> dict[str, object]:
        try:
            done = upload_pieces(job, area, plan[number])
            files = [asdict(file) for file in done.files]
            return {"number": number, "files": files, "retries": done.retries, "differed": done.differed}
        except BadRows as error:
            return {"bad": [(int(row.problem), row.key) for row in error.rows]}
        except MirrorfeedError as error:
            return {"error": str(error), "transient": isinstance(error, TransientError)}
        except Exception as error:
            return {"error": f"{type(error).__name__}: {first_line(str(error))}.", "transient": False}

    def task(batches: _Batches) -> _Batches:
        for batch in batches:
            rows = [{"result": json.dumps(upload(number))} for number in batch.column(0).to_pylist()]
            yield pa.RecordBatch.from_pylist(rows, _RESULT)

    return task
