"""`python -m tests.bench.range_or_rebuild`: a range that changes a share of the rows, compared with a rebuild.

One commit updates 5, 10, 25, 50 or 100 % of the rows. A rebuild deletes the table's folder and publishes all rows. If
its ratio is below 1, the rebuild takes less time than the range. The smallest such share is the value for
`REBUILD_SHARE` in `publish/rebuild_hint.py`."""

from __future__ import annotations

import argparse
import shutil
import statistics
import tempfile
from pathlib import Path

from pyspark.sql import SparkSession

from mirrorfeed.runtime.spark_session import get_session
from tests.bench import tables
from tests.bench.bounds import spread
from tests.bench.race import Case, race, ratios

SHARES = (5, 10, 25, 50, 100)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.range_or_rebuild")
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    spark = get_session({"spark.driver.memory": "6g"})
    try:
        print(f"{given.rows:,} rows in the table; median of {given.rounds} rounds")
        print(f"{'changed':>8}{'range s':>10}{'rebuild s':>11}   rebuild / range")
        for share in SHARES:
            folder = Path(tempfile.mkdtemp(prefix="mirrorfeed-bench-"))
            try:
                _measure(spark, folder, given.rows, share, given.rounds)
            finally:
                shutil.rmtree(folder, ignore_errors=True)
    finally:
        spark.stop()


def _measure(spark: SparkSession, folder: Path, rows: int, share: int, rounds: int) -> None:
    table = tables.Followed(spark, folder, rows)
    tables.merge(spark, table.source, 1, max(1, rows * share // 100), rows)

    def rebuild() -> None:
        shutil.rmtree(folder / "zone")
        table.publish()

    times = race(Case({"rebuild": rebuild, "range": table.publish}, table.as_after_the_snapshot), rounds)
    medians = [statistics.median(times[side].seconds) for side in ("range", "rebuild")]
    shown = spread(*ratios(times["rebuild"].seconds, times["range"].seconds))
    print(f"{share:>7}%{medians[0]:>10.2f}{medians[1]:>11.2f}   {shown}", flush=True)


if __name__ == "__main__":
    main()
