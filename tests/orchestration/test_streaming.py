"""A streaming query whose batches publish tables."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from mirrorfeed.config.loader import load
from mirrorfeed.orchestration.publish_run import publisher
from mirrorfeed.publish.errors import ForeignFile
from tests.delta import DeltaTable, Zone


def test_stream_publishes_in_its_batches_and_fails_with_them(spark: SparkSession, tmp_path: Path) -> None:
    table = DeltaTable(spark, tmp_path / "t")
    zone = Zone(tmp_path / "landing", table)
    tables = "tables:\n  - {source: ./t, target: sales.orders, keys: [id]}\n"
    (tmp_path / "mirrorfeed.yml").write_text(f"landing_zone: ./landing\n{tables}", encoding="utf-8")
    config = load(str(tmp_path / "mirrorfeed.yml"))
    table.insert(1)

    def run() -> None:
        rows = spark.readStream.format("delta").option("readChangeFeed", "true").load(str(table.path))
        writer = rows.writeStream.foreachBatch(publisher(config, "sales.orders"))
        writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(
            availableNow=True
        ).start().awaitTermination()

    run()
    assert zone.mirrors_the_table()
    table.insert(2)
    stranger = zone.folder / "a stranger.parquet"
    stranger.touch()
    with pytest.raises(Exception, match=ForeignFile.__name__):
        run()
    stranger.unlink()
    run()
    assert zone.mirrors_the_table()
