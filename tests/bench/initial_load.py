"""An initial load with key validation, compared with Spark's own Parquet writer on the same rows."""

from __future__ import annotations

import shutil
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from mirrorfeed.publish.change_sources.delta_feed import DeltaFeed
from mirrorfeed.publish.table_publisher import publish
from mirrorfeed.source import reader
from mirrorfeed.source.identifier import Source
from mirrorfeed.storage.local_folder import FolderStore
from tests.bench import tables
from tests.bench.race import Case
from tests.support.entries import entry


def case(spark: SparkSession, folder: Path, rows: int) -> Case:
    source, zone = Source(path=str(folder / "source")), FolderStore(str(folder / "zone"))
    tables.create(spark, source, rows)
    feed = DeltaFeed(spark, source)

    def to_zone(validate_keys: str) -> None:
        publish(feed, zone, entry(source, "bench", validate_keys=validate_keys))

    def between() -> None:
        for name in ("zone", "parquet"):
            shutil.rmtree(folder / name, ignore_errors=True)

    def rows_of_it() -> DataFrame:
        return reader.read_snapshot(spark, source, 0)

    return Case(
        {
            "publish": lambda: to_zone("source"),
            "publish, keys not checked": lambda: to_zone("none"),
            "Spark's Parquet writer": lambda: rows_of_it().write.parquet(str(folder / "parquet")),
            "the same, zstd": lambda: rows_of_it().write.option("compression", "zstd").parquet(str(folder / "parquet")),
            "Spark to noop": lambda: rows_of_it().write.format("noop").mode("overwrite").save(),
        },
        between,
        {"table_rows": rows},
        folder / "zone",
    )
