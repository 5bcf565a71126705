"""What is committed to a table, asked for lightly: by a listing of its log, or by one question to the engine."""

from __future__ import annotations

import json
from pathlib import Path

from pyspark.sql import SparkSession

from mirrorfeed.source.identifier import Source
from mirrorfeed.source.ranges import Waiting
from mirrorfeed.source.versions import waiting, waiting_in_folder
from tests.delta import DeltaTable


def commit(folder: Path, version: int, operation: str = "WRITE", **metrics: str) -> None:
    log = folder / "_delta_log"
    log.mkdir(exist_ok=True)
    info = {"commitInfo": {"operation": operation, "operationMetrics": metrics}}
    text = "\n".join(map(json.dumps, ({"add": {"path": "x"}}, info)))
    (log / f"{version:020d}.json").write_text(text, encoding="utf-8")


def test_a_listing_of_the_log_tells_what_waits(tmp_path: Path) -> None:
    for version in (3, 4, 5):
        commit(tmp_path, version, numOutputRows="2", numOutputBytes="50")
    for other in ("00000000000000000009.checkpoint.parquet", "_last_checkpoint", "00000000000000000006.json.tmp"):
        (tmp_path / "_delta_log" / other).touch()
    found = [waiting_in_folder(str(tmp_path), after, measured=True) for after in (5, 4, 3)]
    assert found == [Waiting(0), Waiting(1, 2, 50), Waiting(2, 4, 100)]
    assert waiting_in_folder(str(tmp_path), 3, measured=False) == Waiting(2)
    assert waiting_in_folder(str(tmp_path), 1, measured=True) == Waiting(4, None, None)  # version 2 is gone
    assert waiting_in_folder(str(tmp_path), 8, measured=True).versions == 3  # it went back
    commit(tmp_path, 6, "RESTORE")
    assert waiting_in_folder(str(tmp_path), 5, measured=True) == Waiting(1, None, None)


def test_the_engine_tells_the_same_of_a_table_by_its_name(spark: SparkSession, tmp_path: Path) -> None:
    table = DeltaTable(spark, tmp_path / "t")
    table.insert(1, 2, 3)
    table.sql("UPDATE {} SET v = 'x' WHERE id = 1")
    spark.sql(f"CREATE TABLE noticed USING DELTA LOCATION '{tmp_path / 't'}'")
    by_name, by_path = Source.parse("noticed"), table.source
    try:
        for after in (0, 1, 2):
            found = waiting(spark, by_name, after, measured=True)
            assert found == waiting(spark, by_path, after, measured=True)
            assert found.versions == 2 - after
            assert waiting(spark, by_name, after, measured=False) == Waiting(int(after < 2))
        assert waiting(spark, by_name, 0, measured=True).rows == 4
        for measured in (True, False):
            assert waiting(spark, by_name, 5, measured=measured).versions == 3  # it went back
    finally:
        spark.sql("DROP TABLE noticed")
