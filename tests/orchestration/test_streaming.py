"""A streaming query whose batches publish tables."""

from __future__ import annotations

import traceback
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from pyspark.sql import DataFrame, SparkSession

from mirrorfeed.config.loader import load
from mirrorfeed.config.model import Config
from mirrorfeed.errors import LandingZoneError, UnexpectedError
from mirrorfeed.orchestration import follow
from mirrorfeed.orchestration.follow import publisher
from mirrorfeed.publish.errors import foreign_file
from mirrorfeed.publish.table_result import TableResult
from tests.support.delta import DeltaTable, Zone


@pytest.mark.parametrize("returned", [True, False])
def test_failed_batch_has_a_traceback_without_steps_and_causes(monkeypatch: pytest.MonkeyPatch, returned: bool) -> None:
    def failed(*_: object) -> list[TableResult]:
        try:
            try:
                raise KeyError("Java stack")
            except KeyError as cause:
                raise foreign_file(address="zone/a.parquet") from cause
        except LandingZoneError as error:
            if not returned:
                raise
            return [TableResult("sales.orders", error=error)]

    monkeypatch.setattr(follow, "publish_tables", failed)
    run = publisher(Config(landing_zone="./zone", tables=()))
    try:
        run(cast(DataFrame, SimpleNamespace(sparkSession=None)), 0)
    except LandingZoneError:
        lines = traceback.format_exc().splitlines()
    assert [Path(line.split('"')[1]).name for line in lines if line.startswith("  File ")] == [
        "test_streaming.py",
        "follow.py",
    ]
    assert lines[-2].startswith("mirrorfeed.errors.LandingZoneError: zone/a.parquet was not written by a publisher")
    assert lines[-1] == "The code of this error is MF3209. `mirrorfeed explain` explains each code."


def test_unknown_error_of_a_batch_has_a_code_and_no_traceback_of_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    def failed(*_: object) -> list[TableResult]:
        raise ValueError("[INTERNAL_ERROR] at org.apache.spark")

    monkeypatch.setattr(follow, "publish_tables", failed)
    run = publisher(Config(landing_zone="./zone", tables=()))
    with pytest.raises(UnexpectedError) as caught:
        run(cast(DataFrame, SimpleNamespace(sparkSession=None)), 0)
    assert len(traceback.extract_tb(caught.value.__traceback__)) == 2
    assert "".join(traceback.format_exception(caught.value)).count("Traceback") == 1


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

    zone.folder.mkdir(parents=True)
    stranger = zone.folder / "a stranger.parquet"
    stranger.touch()
    with pytest.raises(Exception, match="LandingZoneError") as caught:
        run()
    assert "table_task.py" not in str(caught.value)
    stranger.unlink()
    run()
    assert zone.mirrors_the_table()
