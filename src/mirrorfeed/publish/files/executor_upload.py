"""Upload Spark's files from its executors (`upload_from: executors`)."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import asdict

import pyarrow as pa
from pyspark import cloudpickle

import mirrorfeed
from mirrorfeed.errors import MirrorfeedError, Transient, first_line
from mirrorfeed.landing.log_record import File
from mirrorfeed.landing.schema import Problem
from mirrorfeed.publish.errors import ExecutorUploadFailed, ExecutorUploadImpossible
from mirrorfeed.publish.files.spark_files import SparkFiles, check_counts, upload_file
from mirrorfeed.publish.files.staging_area import StagingArea
from mirrorfeed.publish.files.staging_job import BadRow, BadRows, Staged, StagingJob, combine_staged
from mirrorfeed.storage.request_retries import retry_counter

_Batches = Iterator[pa.RecordBatch]
_RESULT = pa.schema([("result", pa.string())])


def upload_from_executors(job: StagingJob, files: SparkFiles) -> Staged:
    """Upload the files with one task per file, for initial loads that are too large for the driver."""
    if not files.names:
        return Staged(())
    numbers = files.written.sparkSession.range(len(files.names), numPartitions=len(files.names))
    # Pickle by value, because executors may not have this package, for example if a notebook imports the bundle's
    # files.
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
    staged = combine_staged(part for _, part in sorted(found.items()))
    retry_counter().add(staged.retries)
    check_counts(files, staged)
    return staged


def upload_task(job: StagingJob, area: StagingArea, paths: list[str]) -> Callable[[_Batches], _Batches]:
    """Return a function for `mapInArrow` whose input rows are positions in `paths`.

    The function returns errors as rows, because Spark reports only text if a task fails.
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
