"""A first load in ten parts, compared with the same load in one part and with Spark's own Parquet writer."""

from __future__ import annotations

import shutil
from pathlib import Path

from pyspark.sql import SparkSession

from mirrorfeed.publish.change_sources.delta_feed import DeltaFeed
from mirrorfeed.publish.table_publisher import publish
from mirrorfeed.source import reader
from mirrorfeed.source.identifier import Source
from mirrorfeed.storage.local_folder import FolderStore
from tests.bench import tables
from tests.bench.race import Case
from tests.support.entries import entry

PARTS = 10


def case(spark: SparkSession, folder: Path, rows: int) -> Case:
    source, zone = Source(path=str(folder / "source")), FolderStore(str(folder / "zone"))
    tables.create(spark, source, rows, files=4 * PARTS)
    size = sum(file.stat().st_size for file in (folder / "source").glob("*.parquet"))
    feed = DeltaFeed(spark, source)

    def load(part_bytes: int, parts: int) -> None:
        result = publish(feed, zone, entry(source, "bench", load_part_size=part_bytes))
        assert len(result.records) == parts, f"the load has {len(result.records)} parts"

    def between() -> None:
        for name in ("zone", "parquet"):
            shutil.rmtree(folder / name, ignore_errors=True)

    def copy() -> None:
        rows = reader.read_snapshot(spark, source, 0)
        rows.write.option("compression", "zstd").parquet(str(folder / "parquet"))

    return Case(
        {
            "publish in ten parts": lambda: load(-(-size // PARTS), PARTS),
            "publish in one part": lambda: load(2**40, 1),
            "the same, zstd": copy,
        },
        between,
        {"table_rows": rows},
        folder / "zone",
    )
