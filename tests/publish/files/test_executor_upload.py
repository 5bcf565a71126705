"""Files that Spark tasks upload, with a function that needs no package on the executors. Errors are returned as
rows."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark import cloudpickle
from pyspark.sql import SparkSession

import mirrorfeed
from mirrorfeed.landing.output_format import Delimited, Output
from mirrorfeed.landing.schema import Column
from mirrorfeed.publish.change_sources.delta_feed import DeltaFeed
from mirrorfeed.publish.errors import executor_upload_failed, executor_upload_impossible
from mirrorfeed.publish.files import row_staging
from mirrorfeed.publish.files.file_sizes import Piece
from mirrorfeed.publish.files.spark_files import SparkFiles, upload_from_executors, upload_task
from mirrorfeed.publish.files.staging_area import StagingArea
from mirrorfeed.publish.files.staging_job import Staged, StagingJob
from mirrorfeed.publish.table_publisher import publish
from mirrorfeed.storage.local_folder import FolderStore
from mirrorfeed.storage.request_retries import retry_counter
from tests.raised import Expected, raises
from tests.support.delta import DeltaTable, Zone

EXECUTOR = """
import sys
sys.modules["mirrorfeed"] = None  # any import of it fails
import pickle
import pyarrow as pa

task = pickle.load(sys.stdin.buffer)
for told in task(iter([pa.RecordBatch.from_pydict({"id": [0, 1, 2]})])):
    print(*told.column(0).to_pylist(), sep="\\n")
"""


@pytest.mark.process
def test_upload_task_runs_without_the_package(tmp_path: Path) -> None:
    pq.write_table(pa.table({"id": pa.array([1, 2], pa.int64())}), tmp_path / "made.parquet")
    store = FolderStore(str(tmp_path / "zone"))
    job = StagingJob(store, "t/_mirrorfeed/log", 1, "ab", (Column("id", "long"),), ("id",), False)
    cloudpickle.register_pickle_by_value(mirrorfeed)  # type: ignore[no-untyped-call]
    plan = [[Piece(f"{tmp_path}/made.parquet")], [Piece(f"{tmp_path}/made.parquet", 0, 1)] * 2]
    plan.append([Piece(f"{tmp_path}/gone.parquet")])
    task = cloudpickle.dumps(upload_task(job, StagingArea(str(tmp_path)), plan))  # type: ignore[no-untyped-call]
    ended = subprocess.run([sys.executable, "-c", EXECUTOR], input=task, capture_output=True, check=False)
    assert ended.stderr.decode() == ""
    sent, joined, trouble = ended.stdout.decode().splitlines()
    assert '"rows": {"insert": 2}' in sent
    assert '"rows": {"insert": 4}' in joined
    assert (
        f"{tmp_path}/gone.parquet changed or disappeared before they were uploaded: No such file or directory."
        in trouble
    )
    staged = tmp_path / "zone/t/_mirrorfeed/log" / json.loads(sent)["files"][0]["staged"]
    assert staged.read_bytes() == (tmp_path / "made.parquet").read_bytes()


@pytest.mark.process
def test_upload_task_writes_text_without_the_package(tmp_path: Path) -> None:
    pq.write_table(pa.table({"id": pa.array([1, 2], pa.int64())}), tmp_path / "made.parquet")
    store, output = FolderStore(str(tmp_path / "zone")), Output(delimited=Delimited(), compression="none")
    job = StagingJob(store, "t/_mirrorfeed/log", 1, "ab", (Column("id", "long"),), ("id",), False, output)
    cloudpickle.register_pickle_by_value(mirrorfeed)  # type: ignore[no-untyped-call]
    plan = [[Piece(f"{tmp_path}/made.parquet")]] * 3
    task = cloudpickle.dumps(upload_task(job, StagingArea(str(tmp_path)), plan))  # type: ignore[no-untyped-call]
    ended = subprocess.run([sys.executable, "-c", EXECUTOR], input=task, capture_output=True, check=False)
    assert ended.stderr.decode() == ""
    results = [json.loads(line) for line in ended.stdout.decode().splitlines()]
    assert [each["files"][0]["rows"] for each in results] == [{"insert": 2}] * 3
    staged = tmp_path / "zone/t/_mirrorfeed/log" / results[0]["files"][0]["staged"]
    assert staged.read_bytes().split() == [b"id", b"1", b"2"]


def test_executors_upload_with_upload_from_executors(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(row_staging, "SMALL_BATCH_ROWS", 0)
    table = DeltaTable(spark, tmp_path / "orders")
    table.sql("INSERT INTO {} SELECT cast(id AS int), 'v' || id FROM range(0, 300, 1, 3)")
    zone = Zone(tmp_path / "zone", table, target_file_size=512)
    progress = publish(DeltaFeed(spark, table.source, upload_from="executors"), zone.store, zone.plan)
    assert progress.rows == {"insert": 300}
    assert progress.files > 1
    assert zone.mirrors_the_table()


@pytest.mark.slow
def test_two_executor_processes_upload_the_same_files_as_the_driver() -> None:
    options = "--rows=20000", "--rounds=0", "--mib=1", "--memory=1024"
    command = [sys.executable, "-m", "tests.bench.executor_upload", *options]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "the records are the same" in ended.stdout, ended.stdout + ended.stderr
    assert ended.returncode == 0, ended.stdout


def upload_with_result(place: Path, result: dict[str, Any], rows: Counter[str]) -> Staged:
    """Run `upload_from_executors` for one file, with this result of its Spark task."""
    task_result = SimpleNamespace(toArrow=lambda: pa.table({"result": [json.dumps(result)]}))
    numbers = SimpleNamespace(mapInArrow=lambda _task, _schema: task_result)
    written: Any = SimpleNamespace(sparkSession=SimpleNamespace(range=lambda _end, numPartitions: numbers))
    job = StagingJob(FolderStore(str(place)), "t/_mirrorfeed/log", 1, "ab", (Column("id", "long"),), ("id",), False)
    path = f"{place}/part.parquet"
    pq.write_table(pa.table({"id": [1]}), path)
    return upload_from_executors(job, SparkFiles(StagingArea(str(place)), str(place), written, [path], rows, 0))


def test_retries_on_executors_are_counted_once(tmp_path: Path) -> None:
    file = {"staged": "a", "number": 0, "rows": {"insert": 2}, "bytes": 1, "sha256": "0" * 64}
    counter = retry_counter()
    of_process, of_thread = counter.value, counter.of_thread
    result = {"number": 0, "files": [file], "retries": 3, "differed": ""}
    staged = upload_with_result(tmp_path, result, Counter(insert=2))
    assert counter.value - of_process == 3
    assert counter.of_thread - of_thread + staged.retries == 3  # the retries of a publication


@pytest.mark.parametrize(
    ("transient", "expected"), [(False, executor_upload_impossible), (True, executor_upload_failed)]
)
def test_executor_errors_are_raised_on_the_driver(tmp_path: Path, transient: bool, expected: Expected) -> None:
    with raises(expected) as caught:
        upload_with_result(tmp_path, {"error": "It is busy.", "transient": transient}, Counter())
    assert caught.value.reason == "It is busy."
