"""A range of many commits that delete one row each by a deletion vector, beside Spark's own read of that range."""

from __future__ import annotations

import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from pyspark.sql import SparkSession

from mirrorfeed.feed.source import Source
from mirrorfeed.publish.source import DeltaFeed
from mirrorfeed.publish.table import Plan, publish
from mirrorfeed.stores import FolderStore
from tests.bench import tables
from tests.bench.net_range import to_noop
from tests.bench.race import Case

ROWS = 100_000


def case(spark: SparkSession, folder: Path, commits: int) -> Case:
    source, zone = Source(path=str(folder / "source")), FolderStore(str(folder / "zone"))
    plan = Plan(str(source), "bench", "bench", ("id",), check_keys=False)
    feed = DeltaFeed(spark, source)
    tables.create(spark, source, ROWS)
    spark.sql(f"ALTER TABLE {source.sql} SET TBLPROPERTIES (delta.enableDeletionVectors = true)")
    publish(feed, zone, plan)
    shutil.copytree(folder / "zone", folder / "after-snapshot")
    first = feed.facts(None, 1).latest
    for number in range(commits):
        spark.sql(f"DELETE FROM {source.sql} WHERE id = {number}")

    def between() -> None:
        shutil.rmtree(folder / "zone")
        shutil.copytree(folder / "after-snapshot", folder / "zone")

    def read_one(version: int) -> None:
        to_noop(tables.feed(spark, source, version, version))

    def one_by_one() -> None:
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(read_one, range(first + 1, first + commits + 1)))

    return Case(
        {
            "publish": lambda: publish(feed, zone, plan),
            "Spark reads the range": lambda: to_noop(tables.feed(spark, source, first + 1, first + commits)),
            "single versions, four at once": one_by_one,
        },
        between,
        {"commits": commits, "table_rows": ROWS},
    )
