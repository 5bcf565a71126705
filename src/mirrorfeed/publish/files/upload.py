"""Upload Spark's files to the landing zone under staged names, from the driver or from executors.

A file is hashed while it is uploaded. A file that differs from other files of the table is rewritten on the way.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import asdict
from typing import Any, BinaryIO, cast

import pyarrow as pa
from pyspark import cloudpickle

import mirrorfeed
from mirrorfeed.display.humanize import counted
from mirrorfeed.errors import MirrorfeedError, Transient, first_line
from mirrorfeed.landing.record import File
from mirrorfeed.landing.schema import Problem
from mirrorfeed.publish.errors import ExecutorUploadFailed, ExecutorUploadImpossible, StagingFilesLost
from mirrorfeed.publish.files.rolling_writer import HashingSink, write_files
from mirrorfeed.publish.files.spark_writer import FileCheck, SparkFiles, check_file
from mirrorfeed.publish.files.staging_area import IN_ZONE, StagingArea
from mirrorfeed.publish.files.staging_job import BadRow, BadRows, Staged, StagingJob, joined
from mirrorfeed.storage import NotThere, Store, StoreUnavailable
from mirrorfeed.storage.base import per_process
from mirrorfeed.storage.folder import flush_to_disk
from mirrorfeed.storage.retry import retry_counter

_PARALLEL_FILES = 4
"""Uploads of the process at a time, for any number of tables. Each has two parts of 8 MiB in memory."""
_CHUNK = 2**20
_ATTEMPTS = 2
"""Names under which a file is uploaded before the upload fails."""
_Batches = Iterator[pa.RecordBatch]
_RESULT = pa.schema([("result", pa.string())])


def upload_files(job: StagingJob, files: SparkFiles) -> Staged:
    """Upload from the driver. Raises `BadRows` for delimited text."""
    # One pool for the process, because a thread keeps its memory for its next file.
    pool = per_process("uploads", lambda: ThreadPoolExecutor(_PARALLEL_FILES))
    uploads = [pool.submit(upload_file, job, files.area, path) for path in files.paths]
    try:
        staged = joined(upload.result() for upload in uploads)
    finally:
        wait([upload for upload in uploads if not upload.cancel()])
    _check_counts(files, staged)
    return staged


def upload_from_executors(job: StagingJob, files: SparkFiles) -> Staged:
    """Upload with one task per file, for initial loads that are too large for the driver."""
    if not files.names:
        return Staged(())
    numbers = files.written.sparkSession.range(len(files.names), numPartitions=len(files.names))
    # By value, because executors may not have this package, for example if a notebook imports the bundle's files.
    cloudpickle.register_pickle_by_value(mirrorfeed)  # type: ignore[no-untyped-call]
    results = numbers.mapInArrow(upload_task(job, files.area, files.paths), "result string").toArrow()
    found: dict[int, Staged] = {}
    for each in map(json.loads, results.column("result").to_pylist()):
        if "error" in each:
            kind = ExecutorUploadFailed if each["transient"] else ExecutorUploadImpossible
            raise kind(address=job.store.address(job.folder), reason=each["error"])
        if "bad" in each:
            raise BadRows(*(BadRow(Problem(problem), key) for problem, key in each["bad"]))
        files_ = [File(**file) for file in each["files"]]
        found[each["number"]] = Staged(files_, retries=each["retries"], differed=each["differed"])
    staged = joined(part for _, part in sorted(found.items()))
    retry_counter().add(staged.retries)
    _check_counts(files, staged)
    return staged


def upload_task(job: StagingJob, area: StagingArea, paths: list[str]) -> Callable[[_Batches], _Batches]:
    """Return a function for `mapInArrow` over numbers of paths.

    It returns errors as rows, because Spark reports only a text if a task fails.
    """

    def upload(number: int) -> dict[str, object]:
        try:
            done = upload_file(job, area, paths[number])
            files = [asdict(each) for each in done.files]
            return {"number": number, "files": files, "retries": done.retries, "differed": done.differed}
        except BadRows as error:
            return {"bad": [(int(row.problem), row.key) for row in error.rows]}
        except MirrorfeedError as error:
            return {"error": str(error), "transient": isinstance(error, Transient)}
        except Exception as error:
            return {"error": f"{type(error).__name__}: {first_line(str(error))}.", "transient": False}

    def task(batches: _Batches) -> _Batches:
        for batch in batches:
            rows = [{"result": json.dumps(upload(number))} for number in batch.column(0).to_pylist()]
            yield pa.RecordBatch.from_pylist(rows, _RESULT)

    return task


def upload_file(job: StagingJob, area: StagingArea, path: str) -> Staged:
    """Return no file if it has no rows, and several if its text is larger than the target size."""
    before = retry_counter().of_thread
    with area.open(path) as file:
        try:
            found = check_file(file, job)
        except Exception as error:  # from pyarrow or the file system
            raise StagingFilesLost(place=path, reason=first_line(str(error))) from error
        if not found.rows:
            return Staged(())
        if found.needs_rewrite:
            files = write_files(job, _batches(path, found))
        else:
            files = [_move(job, path, found, file) if area.in_zone else _copy(job, found, file)]
        differed = found.differs if found.needs_rewrite else ""
        return Staged(files, retries=retry_counter().of_thread - before, differed=differed)


def _copy(job: StagingJob, found: FileCheck, file: BinaryIO) -> File:
    for left in reversed(range(_ATTEMPTS)):
        file.seek(0)
        try:
            with job.open() as new:
                sink = HashingSink(new)
                while chunk := file.read(_CHUNK):
                    sink.write(chunk)
            return File(new.name, 0, job.by_marker(found.rows), sink.bytes, sink.hash.hexdigest())
        except StoreUnavailable:
            if not left:
                raise
    raise AssertionError("unreachable")


def _move(job: StagingJob, path: str, found: FileCheck, file: BinaryIO) -> File:
    """Rename a file within the landing zone. Not repeated: if the response is lost, the file may have moved."""
    file.seek(0)
    digest = hashlib.file_digest(cast(Any, file), "sha256").hexdigest()
    flush_to_disk(file.fileno())  # Spark does not
    staged = job.new_path()
    try:
        cast(Store, job.store).rename(f"{IN_ZONE}/{path.rsplit(f'/{IN_ZONE}/', 1)[1]}", staged)
    except NotThere as error:
        reason = "it was deleted, possibly by another publisher of the table"
        raise StagingFilesLost(place=path, reason=reason) from error
    return File(staged.rpartition("/")[2], 0, job.by_marker(found.rows), file.tell(), digest)


def _batches(path: str, found: FileCheck) -> Iterator[pa.RecordBatch]:
    try:
        yield from found.batches()
    except (pa.ArrowException, OSError) as error:
        raise StagingFilesLost(place=path, reason=first_line(str(error))) from error


def _check_counts(files: SparkFiles, staged: Staged) -> None:
    """Raise if the uploaded rows are not the written ones."""
    found: dict[str, int] = {}
    for each in staged.files:
        for marker, count in each.rows.items():
            found[marker] = found.get(marker, 0) + count
    if found != files.rows:
        was, is_ = counted(sum(files.rows.values()), "row"), counted(sum(found.values()), "row")
        raise StagingFilesLost(place=files.folder, reason=f"{is_} of {was} are left")
