"""`make bench`: publishing a range net to a folder, beside the same net result written to Spark's `noop` sink.

Rounds alternate within one run, for times on one machine differ from minute to minute; the ratio of the medians is the
figure. The driver's memory is that of its Python process: rows that reached it would show there.
"""

from __future__ import annotations

import json
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import SparkSession

from mirrorfeed.feed import changes, history, read
from mirrorfeed.feed.ranges import Range
from mirrorfeed.feed.source import Source
from mirrorfeed.landing.schema import columns_of
from mirrorfeed.publish.source import DeltaFeed
from mirrorfeed.publish.table import Plan, publish
from mirrorfeed.session import get_session
from mirrorfeed.stores import FolderStore

MERGES = 5
ROUNDS, WARM_UPS = 5, 3
TABLE_ROWS = 2_000_000


def main() -> None:
    if len(sys.argv) > 1:
        print(json.dumps(measure(int(sys.argv[1]))))
        return
    print(
        f"{MERGES} MERGEs on a table of 2 million rows; {ROUNDS} alternating rounds each, after {WARM_UPS} to warm up"
    )
    print(f"{'feed rows':>10} {'publish s':>10} {'noop s':>8} {'ratio':>6} {'driver MiB':>11}")
    for feed_rows in (2_000_000, 8_000_000):
        # Each size in a process of its own: peak memory is a figure of the whole life of a process.
        command = [sys.executable, "-m", "tests.bench", str(feed_rows)]
        found = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)
        print(
            f"{found['feed_rows']:>10,} {found['publish']:>10.2f} {found['noop']:>8.2f}"
            f" {found['publish'] / found['noop']:>6.2f} {found['driver_mib']:>11.0f}"
        )


def measure(feed_rows: int) -> dict[str, float]:
    spark = get_session(memory="6g")
    folder = Path(tempfile.mkdtemp(prefix="mirrorfeed-bench-"))
    try:
        source, zone = Source(path=str(folder / "source")), FolderStore(str(folder / "zone"))
        plan = Plan(str(source), "bench", "bench", ("id",), check_keys=False)
        feed = DeltaFeed(spark, source)
        _create(spark, source)
        publish(feed, zone, plan)
        shutil.copytree(folder / "zone", folder / "after-snapshot")
        per_merge = feed_rows // MERGES // 2  # every update gives two rows of the feed
        for number in range(MERGES):
            _merge(spark, source, number, per_merge)
        range_ = Range(0, MERGES)
        counted = read.changes(spark, source, range_).count()

        def to_noop() -> None:
            rows = read.changes(spark, source, range_)
            columns = columns_of(str(source), history.schema_at(spark, source, MERGES))
            changes.net(rows, columns, plan.keys).write.format("noop").mode("overwrite").save()

        def to_zone() -> None:
            publish(feed, zone, plan)

        def reset() -> None:
            shutil.rmtree(folder / "zone")
            shutil.copytree(folder / "after-snapshot", folder / "zone")

        times: dict[str, list[float]] = {"publish": [], "noop": []}
        for number in range(-WARM_UPS, ROUNDS):
            sides: list[tuple[str, Callable[[], None]]] = [("publish", to_zone), ("noop", to_noop)]
            for name, call in sides if number % 2 else reversed(sides):
                reset()
                begun = time.perf_counter()
                call()
                if number >= 0:
                    times[name].append(time.perf_counter() - begun)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        return {
            "feed_rows": counted,
            "publish": statistics.median(times["publish"]),
            "noop": statistics.median(times["noop"]),
            "driver_mib": peak,
        }
    finally:
        spark.stop()
        shutil.rmtree(folder, ignore_errors=True)


def _create(spark: SparkSession, source: Source) -> None:
    spark.sql(f"""
        CREATE TABLE {source.sql} USING DELTA TBLPROPERTIES (delta.enableChangeDataFeed = true)
        AS SELECT {_columns("id")} FROM range({TABLE_ROWS})""")


def _merge(spark: SparkSession, source: Source, number: int, rows: int) -> None:
    # A different part of the table each time, overlapping with the one before by half.
    start = number * rows // 2
    spark.sql(f"""
        MERGE INTO {source.sql} t
        USING (SELECT {_columns(f"(id + {start}) % {TABLE_ROWS}", seed=number + 1)} FROM range({rows})) s
        ON t.id = s.id WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *""")


def _columns(key: str, seed: int = 0) -> str:
    return f"""
        {key} AS id,
        cast((({key}) * 37 + {seed}) % 1000000 / 100 AS decimal(18,2)) AS amount,
        timestamp_micros(1700000000000000 + ({key}) * 1000 + {seed}) AS at,
        date_add(DATE '2020-01-01', cast(({key}) % 2000 AS int)) AS day,
        concat('customer-', ({key}) % 50000, '-', {seed}) AS name,
        cast(({key}) * 1.1 + {seed} AS double) AS score"""


if __name__ == "__main__":
    main()
