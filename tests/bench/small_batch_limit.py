"""`python -m tests.bench.small_batch_limit`: find the row limit of small batches.

Publishes more and more rows, as Arrow through the driver and through Spark's writer."""

from __future__ import annotations

import argparse
import shutil
import statistics
import tempfile
from collections.abc import Callable
from pathlib import Path

from mirrorfeed.publish.files import row_staging
from mirrorfeed.runtime.spark_session import get_session
from tests.bench import tables
from tests.bench.race import Case, race

TABLE_ROWS = 200_000
CHANGED = (1_000, 5_000, 20_000, 50_000, 100_000)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.small_batch_limit")
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    spark = get_session({"spark.driver.memory": "4g"})
    print(f"{'rows':>8}{'Arrow s':>12}{'CPU s':>8}{'writer s':>12}{'CPU s':>8}")
    for rows in CHANGED:
        folder = Path(tempfile.mkdtemp(prefix="mirrorfeed-bound-"))
        table = tables.Followed(spark, folder, TABLE_ROWS)
        spark.sql(f"UPDATE {table.source.sql} SET amount = amount + 1 WHERE id < {rows}")
        sides = {"Arrow": _with(table.publish, TABLE_ROWS), "writer": _with(table.publish, 0)}
        times = race(Case(sides, table.as_after_the_snapshot), given.rounds)
        medians = [statistics.median(each) for side in times.values() for each in (side.seconds, side.cpu_seconds)]
        print(f"{rows:>8,}{medians[0]:>12.2f}{medians[1]:>8.2f}{medians[2]:>12.2f}{medians[3]:>8.2f}", flush=True)
        shutil.rmtree(folder)
    spark.stop()


def _with(publish: Callable[[], None], bound: int) -> Callable[[], None]:
    def side() -> None:
        before, row_staging.SMALL_BATCH_ROWS = row_staging.SMALL_BATCH_ROWS, bound
        try:
            publish()
        finally:
            row_staging.SMALL_BATCH_ROWS = before

    return side


if __name__ == "__main__":
    main()
