"""A range of many commits that each delete one row with a deletion vector, compared with Spark's own read of the
range."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from pyspark.sql import SparkSession

from tests.bench import tables
from tests.bench.net_range import to_noop
from tests.bench.race import Case

ROWS = 100_000


def case(spark: SparkSession, folder: Path, commits: int) -> Case:
    table = tables.Followed(spark, folder, ROWS)
    source = table.source
    spark.sql(f"ALTER TABLE {source.sql} SET TBLPROPERTIES (delta.enableDeletionVectors = true)")
    for number in range(commits):
        spark.sql(f"DELETE FROM {source.sql} WHERE id = {number}")

    def read_one(version: int) -> None:
        to_noop(tables.feed(spark, source, version, version))

    def one_by_one() -> None:
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(read_one, range(1, commits + 2)))

    return Case(
        {
            "publish": table.publish,
            "Spark reads the range": lambda: to_noop(tables.feed(spark, source, 1, commits + 1)),
            "single versions, four at once": one_by_one,
        },
        table.as_after_the_snapshot,
        {"commits": commits, "table_rows": ROWS},
    )
