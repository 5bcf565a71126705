"""Ten changed rows of a large table, warm, beside counting the rows of that version in its feed."""

from __future__ import annotations

import shutil
from pathlib import Path

from pyspark.sql import SparkSession

from mirrorfeed.feed.source import Source
from mirrorfeed.publish.source import DeltaFeed
from mirrorfeed.publish.table import Plan, publish
from mirrorfeed.stores import FolderStore
from tests.bench import tables
from tests.bench.race import Case


def case(spark: SparkSession, folder: Path, rows: int) -> Case:
    source, zone = Source(path=str(folder / "source")), FolderStore(str(folder / "zone"))
    plan = Plan(str(source), "bench", "bench", ("id",), check_keys=False)
    feed = DeltaFeed(spark, source)
    tables.create(spark, source, rows)
    publish(feed, zone, plan)
    shutil.copytree(folder / "zone", folder / "after-snapshot")
    spark.sql(f"UPDATE {source.sql} SET amount = amount + 1 WHERE id BETWEEN 100 AND 109")

    def between() -> None:
        shutil.rmtree(folder / "zone", ignore_errors=True)
        shutil.copytree(folder / "after-snapshot", folder / "zone")

    return Case(
        {
            "publish": lambda: publish(feed, zone, plan),
            "count(*) on table_changes": lambda: spark.sql(
                f"SELECT count(*) FROM table_changes_by_path('{source.path}', 1, 1)"
            ).collect(),
            "DESCRIBE HISTORY LIMIT 1": lambda: spark.sql(f"DESCRIBE HISTORY {source.sql} LIMIT 1").collect(),
        },
        between,
        {"table_rows": rows},
    )
