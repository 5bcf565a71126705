"""`python -m tests.bench.connect`: many tables without changes, published over a local Spark Connect server.

The other side reads their histories one after the other. Server and client share the cores of this machine.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from fixtures.connect import connect_server
from mirrorfeed.runtime.spark_session import get_session
from tests.bench import no_changes
from tests.bench.__main__ import spread
from tests.bench.race import race, ratios


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.connect")
    parser.add_argument("--tables", type=int, default=40)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.folder:
        measure(given.folder, given.tables, given.rounds)
        return
    with TemporaryDirectory(prefix="mirrorfeed-bench-") as folder:
        options = {"spark.sql.warehouse.dir": Path(folder, "warehouse").as_uri(), "spark.sql.shuffle.partitions": "2"}
        with connect_server(options) as address:
            command = [sys.executable, "-m", "tests.bench.connect", *sys.argv[1:], "--folder", folder]
            subprocess.run(command, env=os.environ | {"SPARK_REMOTE": address}, check=True)


def measure(folder: Path, count: int, rounds: int) -> None:
    """Measure in a process without a JVM."""
    times = race(no_changes.case(get_session(), folder, count), rounds)
    ours, theirs = (each.seconds for each in times.values())
    for name, side in times.items():
        print(f"{count} tables, {name}: {statistics.median(side.seconds):.2f} s")
    print(f"ratio: {spread(*ratios(ours, theirs))}")


if __name__ == "__main__":
    main()
