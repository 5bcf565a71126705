"""For first loads past one driver, on dedicated clusters and chosen by hand: tasks send the files, one each."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import asdict

import pyarrow as pa
from pyspark import cloudpickle

import mirrorfeed
from mirrorfeed.errors import MirrorfeedError, Terminal, Transient, first_line
from mirrorfeed.landing.row_markers import Problem
from mirrorfeed.publish.files.rolling_writer import UnwritableRow
from mirrorfeed.publish.files.spark_writer import SparkFiles
from mirrorfeed.publish.files.staging_area import StagingArea
from mirrorfeed.publish.files.staging_job import BadRow, StagedFile, StagingJob
from mirrorfeed.publish.files.upload import check, send_one
from mirrorfeed.storage.process_cache import retry_counter

Batches = Iterator[pa.RecordBatch]
_TOLD = pa.schema([("told", pa.string())])


def send_by_executors(job: StagingJob, made: SparkFiles) -> list[StagedFile]:
    """As `send`, by tasks; or why they cannot."""
    if not made.names:
        return []
    count = len(made.names)
    numbers = made.written.sparkSession.range(count, numPartitions=count)
    # By value: executors need not have this package, as where a notebook imports the bundle's files.
    cloudpickle.register_pickle_by_value(mirrorfeed)  # type: ignore[no-untyped-call]
    paths = [f"{made.folder}/{name}" for name in made.names]
    told = numbers.mapInArrow(sending(job, made.place, paths), "told string").toArrow()
    found: dict[int, list[StagedFile]] = {}
    for each in map(json.loads, told.column("told").to_pylist()):
        if "trouble" in each:
            refused = ExecutorUploadFailed if each["passes"] else ExecutorUploadImpossible
            raise refused(job.store.address(job.folder), each["trouble"])
        if "bad" in each:
            problem, key = each["bad"]
            raise UnwritableRow(BadRow(Problem(problem), key))
        found[each["number"]] = [StagedFile(**receipt) for receipt in each["receipts"]]
    receipts = [receipt for _, some in sorted(found.items()) for receipt in some]
    retry_counter().add(sum(receipt.retries for receipt in receipts))
    check(made, receipts)
    return receipts


def sending(job: StagingJob, place: StagingArea, paths: list[str]) -> Callable[[Batches], Batches]:
    """A function for `mapInArrow`, over numbers of paths. Troubles are told in rows: of a task that fails Spark tells
    no more than a text."""

    def told(number: int) -> dict[str, object]:
        try:
            return {"number": number, "receipts": [asdict(each) for each in send_one(job, place, paths[number])]}
        except UnwritableRow as error:
            return {"bad": [int(error.row.problem), error.row.key]}
        except MirrorfeedError as error:
            return {"trouble": str(error), "passes": isinstance(error, Transient)}
        except Exception as error:
            return {"trouble": f"{type(error).__name__}: {first_line(str(error))}.", "passes": False}

    def task(batches: Batches) -> Batches:
        for batch in batches:
            rows = [{"told": json.dumps(told(number))} for number in batch.column(0).to_pylist()]
            yield pa.RecordBatch.from_pylist(rows, _TOLD)

    return task


class ExecutorUploadFailed(Transient):
    """Executors are to send files by themselves, and the landing zone did not take them for now.

    To do: The message says what the executors met. Publish again; if it repeats, leave out `upload_from: executors`.
    """

    code = "MF3307"

    def __init__(self, address: str, sentences: str) -> None:
        self.address, self.sentences = address, sentences

    def what(self) -> str:
        return f"The landing zone did not take what executors sent to {self.address}."

    def next(self) -> str:
        return self.sentences


class ExecutorUploadImpossible(Terminal):
    """Executors are to send files by themselves, and are not able to: what they met does not pass."""

    code = "MF3308"

    def __init__(self, address: str, sentences: str) -> None:
        self.address, self.sentences = address, sentences

    def what(self) -> str:
        return f"Executors cannot send files to {self.address}: {self.sentences}"

    def next(self) -> str:
        return (
            "Leave out `upload_from: executors`, so that the driver sends them: on serverless compute and in standard"
            " access mode executors have no network of their own. Or use a dedicated cluster."
        )
