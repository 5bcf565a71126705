"""The driver looks at each file that Spark made and sends it whole, hashing it as it passes: several at a time, in
bounded memory. A file that is not as it is to be is made anew on its way."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import replace
from typing import Any, BinaryIO, cast

import pyarrow as pa

from mirrorfeed.display.humanize import counted
from mirrorfeed.errors import first_line
from mirrorfeed.publish.files.rolling_writer import Counting, write_files
from mirrorfeed.publish.files.schema_check import FileCheck, look
from mirrorfeed.publish.files.spark_writer import SparkFiles
from mirrorfeed.publish.files.staging_area import IN_ZONE, StagingArea, StagingFilesLost
from mirrorfeed.publish.files.staging_job import StagedFile, StagingJob
from mirrorfeed.storage import NotThere, Store, StoreUnavailable
from mirrorfeed.storage.process_cache import per_process, retry_counter

_AT_ONCE = 4
"""Files that a process sends at a time, whatever the number of tables; each has two parts of 8 MiB in memory."""
_CHUNK = 2**20
_TRIES = 2
"""How often a file is begun under another name, where the landing zone did not take it."""


def send(job: StagingJob, made: SparkFiles) -> list[StagedFile]:
    """The receipts of all files, in their order; or `UnwritableRow`, for text."""
    # One pool for the process: what a thread once took of memory it keeps for its next file.
    pool = per_process("sending", lambda: ThreadPoolExecutor(_AT_ONCE))
    sent = [pool.submit(send_one, job, made.place, f"{made.folder}/{name}") for name in made.names]
    try:
        receipts = [receipt for file in sent for receipt in file.result()]
    finally:
        wait([file for file in sent if not file.cancel()])
    check(made, receipts)
    return receipts


def check(made: SparkFiles, receipts: Sequence[StagedFile]) -> None:
    """That what was sent is what was written."""
    found: dict[str, int] = {}
    for receipt in receipts:
        for marker, count in receipt.rows.items():
            found[marker] = found.get(marker, 0) + count
    if found != made.rows:
        raise StagingFilesLost(made.folder, f"{_rows(found)} are there of {_rows(made.rows)}")


def _rows(by_marker: dict[str, int]) -> str:
    return counted(sum(by_marker.values()), "row")


def send_one(job: StagingJob, place: StagingArea, path: str) -> list[StagedFile]:
    """None for a file without rows, several where text of it is larger than a file should be."""
    with place.open(path) as file:
        try:
            found = look(file, job)
        except Exception as error:  # pyarrow's own, or the file system's
            raise StagingFilesLost(path, first_line(str(error))) from error
        if not found.rows:
            return []
        if found.anew:
            return _anew(job, path, found)
        if place.in_zone:
            return [_renamed(job, path, found, file)]
        return [_streamed(job, found, file)]


def _streamed(job: StagingJob, found: FileCheck, file: BinaryIO) -> StagedFile:
    repeated = retry_counter().of_thread
    for left in reversed(range(_TRIES)):
        file.seek(0)
        try:
            with job.open() as sink:
                sent = Counting(sink)
                while chunk := file.read(_CHUNK):
                    sent.write(chunk)
            digest, again = sent.hash.hexdigest(), retry_counter().of_thread - repeated
            return StagedFile(sink.name, job.by_marker(found.rows), sent.bytes, digest, again)
        except StoreUnavailable:
            if not left:
                raise
    raise AssertionError("unreachable")


def _renamed(job: StagingJob, path: str, found: FileCheck, file: BinaryIO) -> StagedFile:
    """Not tried again: where the answer is lost, so is the file, or its name is taken."""
    file.seek(0)
    digest = hashlib.file_digest(cast(Any, file), "sha256").hexdigest()
    os.fsync(file.fileno())  # Spark does not
    staged = job.new_path()
    below = f"{IN_ZONE}/{path.rsplit(f'/{IN_ZONE}/', 1)[1]}"
    try:
        cast(Store, job.store).rename(below, staged)
    except NotThere as error:
        raise StagingFilesLost(path, "it was removed, perhaps by another publisher of the table") from error
    return StagedFile(staged.rpartition("/")[2], job.by_marker(found.rows), file.tell(), digest)


def _anew(job: StagingJob, path: str, found: FileCheck) -> list[StagedFile]:
    return [replace(receipt, differed=found.differs) for receipt in write_files(job, _readable(path, found))]


def _readable(path: str, found: FileCheck) -> Iterator[pa.RecordBatch]:
    try:
        yield from found.batches()
    except (pa.ArrowException, OSError) as error:
        raise StagingFilesLost(path, first_line(str(error))) from error
