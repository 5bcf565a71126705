"""`python -m tests.bench.two_executors`: a range of five MERGEs on one executor and on two, each with one core.

Shows the work of each process and the memory of the driver. Shows the time if the machine has a core for each
executor."""

from __future__ import annotations

import argparse
import json
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from mirrorfeed.runtime.spark_session import get_session
from tests.bench import tables
from tests.bench.race import Case, race
from tests.bench.tables import MERGES

ROWS, ROUNDS = 1_000_000, 3


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.two_executors")
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--executors", type=int, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.executors:
        print(json.dumps(measured(given.executors, given.rows)))
        return
    print(f"{MERGES} MERGEs, {given.rows:,} rows in the table and in the feed; {ROUNDS} rounds after two to warm up")
    for executors in (1, 2):
        command = [
            sys.executable,
            "-m",
            "tests.bench.two_executors",
            "--rows",
            str(given.rows),
            "--executors",
            str(executors),
        ]
        found = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)
        of_each = "; ".join(f"executor {name}: {figures}" for name, figures in sorted(found["executors"].items()))
        print(f"{executors}: {found['seconds']:.1f} s, {found['mib']:.0f} MiB in the driver's Python; {of_each}")


def measured(executors: int, rows: int) -> dict[str, Any]:
    folder = Path(tempfile.mkdtemp(prefix="mirrorfeed-bench-"))
    spark = get_session({"spark.master": f"local-cluster[{executors},1,2048]"})
    try:
        table = tables.Followed(spark, folder, rows)
        tables.merges(spark, table.source, rows, rows)
        before = work_of_executors(spark)
        times = race(Case({"publish": table.publish}, table.as_after_the_snapshot), ROUNDS)
        after = work_of_executors(spark)
    finally:
        spark.stop()
        shutil.rmtree(folder, ignore_errors=True)
    figures = {
        name: f"{tasks - before[name][0]} tasks, {(shuffled - before[name][1]) / 2**20:.0f} MiB shuffled"
        for name, (tasks, shuffled) in after.items()
        if name != "driver"
    }
    mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"seconds": statistics.median(times["publish"].seconds), "executors": figures, "mib": mib}


def work_of_executors(spark: Any) -> dict[str, tuple[int, int]]:
    """Tasks, and bytes written for others to read, of each executor so far."""
    spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()
    found = spark.sparkContext._jsc.sc().statusStore().executorList(True)
    each = [found.apply(i) for i in range(found.size())]
    return {one.id(): (one.totalTasks(), one.totalShuffleWrite()) for one in each}


if __name__ == "__main__":
    main()
