"""The staging code reaches executors that do not have the package."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from pyspark import cloudpickle

from mirrorfeed.landing.schema import Column
from mirrorfeed.publish.source import let_code_travel
from mirrorfeed.publish.writer import StagingJob, executor_task
from mirrorfeed.stores import FolderStore

EXECUTOR = """
import sys
sys.modules["mirrorfeed"] = None  # any import of it fails
import pickle
import pyarrow as pa

task = pickle.load(sys.stdin.buffer)
batch = pa.RecordBatch.from_pydict({"id": [1, 2], "problem": pa.array([None, None], pa.int32())})
for receipt in task(iter([batch])):
    print(receipt.to_pylist()[0]["rows"])
"""


def test_a_task_runs_where_the_package_cannot_be_imported(tmp_path: Path) -> None:
    let_code_travel()
    job = StagingJob(
        FolderStore(str(tmp_path)), "zone", 1, "ab", (Column("id", "long"),), ("id",), False, "zstd", 2**20
    )
    task = cloudpickle.dumps(executor_task(job, "problem"))
    ended = subprocess.run([sys.executable, "-c", EXECUTOR], input=task, capture_output=True, check=False)
    assert ended.stderr.decode() == ""
    assert ended.stdout.decode().strip() == '{"insert": 2}'
    assert len(list((tmp_path / "zone").iterdir())) == 1
