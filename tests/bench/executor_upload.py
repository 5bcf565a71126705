"""`python -m tests.bench.executor_upload`: a first load uploaded by two executor processes, and by the driver.

Spark runs as `local-cluster[2,1,…]`. The landing zone is a simulated OneLake in another process. Both sides write the
same rows to new tables. The exit code is 1 if the files or the records differ, or if one executor had no task.

The footer of a file lists encodings in an order that depends on the JVM. So this order and the hashes of whole files
are not compared."""

from __future__ import annotations

import argparse
import hashlib
import io
import os
import shutil
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

import psutil
import pyarrow.parquet as pq
import pyspark
from pyspark.sql import SparkSession

from mirrorfeed.landing.log_record import Record
from mirrorfeed.landing.names import data_name
from mirrorfeed.publish.change_sources.delta_feed import DeltaFeed
from mirrorfeed.publish.files import row_staging
from mirrorfeed.publish.table_publisher import publish
from mirrorfeed.runtime.spark_session import get_session
from mirrorfeed.source.identifier import Source
from mirrorfeed.storage.onelake import OneLakeStore
from tests.bench import tables
from tests.bench.two_executors import work_of_executors
from tests.bench.upload_rate import simulator
from tests.support.entries import entry

SIDES: tuple[Literal["driver", "executors"], ...] = ("driver", "executors")
_BY_CHANCE = ("number", "batch", "time", "follows", "committed")
"""Fields of a record that differ between two publications of the same rows."""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.executor_upload")
    parser.add_argument("--rows", type=int, default=20_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--mib", type=int, default=128, help="target size of a file")
    parser.add_argument("--memory", type=int, default=2048, help="memory of an executor in MiB")
    given = parser.parse_args()
    os.environ.setdefault("SPARK_HOME", str(Path(pyspark.__file__).parent))
    folder = Path(tempfile.mkdtemp(prefix="mirrorfeed-bench-"))
    try:
        with simulator(folder / "certificates") as store:
            sys.exit(_compare(store, folder, given))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _compare(store: OneLakeStore, folder: Path, given: argparse.Namespace) -> int:
    spark = get_session({"spark.master": f"local-cluster[2,1,{given.memory}]"})
    row_staging.SMALL_BATCH_ROWS = 0  # so that Spark writes the files, also of a small table
    try:
        source, contents, idle = Source(path=str(folder / "source")), dict[str, dict[str, Any]](), False
        tables.create(spark, source, given.rows, files=8)
        print(f"{given.rows:,} rows; {given.rounds} rounds after one to warm up")
        for round_ in range(given.rounds + 1):
            for side in SIDES if round_ % 2 else SIDES[::-1]:
                feed = DeltaFeed(spark, source, str(folder / "staging"), side)
                plan = entry(source, f"bench.{side}{round_}", target_file_size=given.mib * 2**20, load_part_size=2**40)
                before, cpu, started = work_of_executors(spark), _cpu_of_python(), time.monotonic()
                (record,) = publish(feed, store, plan).records
                seconds, cpu = time.monotonic() - started, _cpu_of_python() - cpu
                contents[side] = _content(record, store, plan.target.folder)
                tasks = _tasks_since(spark, before)
                idle = idle or 0 in tasks or len(tasks) < 2
                if round_:
                    print(
                        f"  {side:<10} {seconds:7.2f} s, {cpu:6.2f} CPU s in the driver's Python; tasks {tasks}",
                        flush=True,
                    )
        same = contents["driver"] == contents["executors"]
        print(f"files and records are {'the same' if same else 'DIFFERENT'}: {len(contents['driver']['files'])} files")
        if not same:
            print(contents["driver"], contents["executors"], sep="\n")
        return int(not same or idle)
    finally:
        spark.stop()


def _content(record: Record, store: OneLakeStore, folder: str) -> dict[str, Any]:
    fields = {name: value for name, value in asdict(record).items() if name not in _BY_CHANCE}
    names = {each["staged"] for each in fields["files"]}
    assert len(names) == len(fields["files"]), "a staged name occurs twice"
    files = [
        {**each, "staged": "", "sha256": _digest(store, f"{folder}/{data_name(each['number'])}")}
        for each in fields["files"]
    ]
    return {**fields, "files": files}


def _digest(store: OneLakeStore, path: str) -> tuple[str, str]:
    """Return hashes of a file's pages, and of its footer with the encodings of each column in a fixed order."""
    with store.open_read(path) as file:
        data = file.read()
    footer = pq.read_metadata(io.BytesIO(data)).to_dict()
    for group in footer["row_groups"]:
        for column in group["columns"]:
            column["encodings"] = sorted(column["encodings"])
    pages = data[: -8 - footer["serialized_size"]]
    return hashlib.sha256(pages).hexdigest(), hashlib.sha256(repr(footer).encode()).hexdigest()


def _tasks_since(spark: SparkSession, before: dict[str, tuple[int, int]]) -> list[int]:
    after = {name: tasks for name, (tasks, _) in work_of_executors(spark).items() if name != "driver"}
    return [tasks - before.get(name, (0, 0))[0] for name, tasks in sorted(after.items())]


def _cpu_of_python() -> float:
    times = psutil.Process().cpu_times()
    return float(times.user + times.system)


if __name__ == "__main__":
    main()
