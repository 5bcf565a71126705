"""A first publication, keys checked, beside Spark's own Parquet writer on the same rows."""

from __future__ import annotations

import shutil
import uuid
from functools import cache
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from mirrorfeed.feed import changes, read
from mirrorfeed.feed.source import Source
from mirrorfeed.publish.source import DeltaFeed
from mirrorfeed.publish.table import Plan, publish
from mirrorfeed.publish.writer import StagingJob, stage
from mirrorfeed.stores import FolderStore
from tests.bench import tables
from tests.bench.race import Case


def case(spark: SparkSession, folder: Path, rows: int) -> Case:
    source, zone = Source(path=str(folder / "source")), FolderStore(str(folder / "zone"))
    tables.create(spark, source, rows)
    feed = DeltaFeed(spark, source)

    def to_zone(*, check_keys: bool) -> None:
        publish(feed, zone, Plan(str(source), "bench", "bench", ("id",), check_keys=check_keys))

    def between() -> None:
        for name in ("zone", "parquet"):
            shutil.rmtree(folder / name, ignore_errors=True)

    def rows_of_it() -> DataFrame:
        return read.snapshot(spark, source, 0)

    @cache
    def as_arrow() -> list[pa.RecordBatch]:
        rows = changes.snapshot_rows(rows_of_it(), feed.columns(0)).drop(changes.PROBLEM)
        return rows.toArrow().to_batches(max_chunksize=500)

    def encode(compression: str) -> None:
        (folder / "zone/encoded").mkdir(parents=True, exist_ok=True)
        job = StagingJob(
            zone, "encoded", 1, uuid.uuid4().hex, feed.columns(0), ("id",), False, compression, 128 * 2**20
        )
        list(stage(job, 0, as_arrow()))

    return Case(
        {
            "publish": lambda: to_zone(check_keys=True),
            "publish, keys not checked": lambda: to_zone(check_keys=False),
            "Spark's Parquet writer": lambda: rows_of_it().write.parquet(str(folder / "parquet")),
            "the same, zstd": lambda: rows_of_it().write.option("compression", "zstd").parquet(str(folder / "parquet")),
            "Spark to noop": lambda: rows_of_it().write.format("noop").mode("overwrite").save(),
        },
        between,
        {"table_rows": rows},
        {
            "(rows to the driver, not done)": as_arrow,
            "files, zstd": lambda: encode("zstd"),
            "files, not compressed": lambda: encode("none"),
        },
    )
