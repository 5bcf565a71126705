"""Publishing more tables needs no more memory: nothing of a finished table stays in Spark's process."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import deltalake
import pyarrow as pa
import pytest
import yaml
from pyspark.sql import SparkSession

from mirrorfeed.api.feed import load

_TABLES = 80
"""Number of tables in each half. Delta keeps the logs of the newest 64 tables."""
_MAX_MIB = 1.0
"""Most live memory per table in the second half. Without bounds, it was 2.8 MiB. With them, it varies around 0."""


@pytest.mark.slow
def test_live_memory_does_not_grow_with_the_number_of_published_tables(spark: SparkSession, tmp_path: Path) -> None:
    source = tmp_path / "t0"
    rows = pa.table({"id": range(10), "v": [f"v{id_}" for id_ in range(10)]})
    deltalake.write_deltalake(source, rows, configuration={"delta.enableChangeDataFeed": "true"})
    for number in range(1, 2 * _TABLES):
        shutil.copytree(source, tmp_path / f"t{number}")
    tables = [{"source": f"./t{number}", "target": f"sales.t{number}", "keys": ["id"]} for number in range(2 * _TABLES)]
    file = tmp_path / "mirrorfeed.yml"
    file.write_text(yaml.safe_dump({"landing_zone": "./zone", "tables": tables}), encoding="utf-8")
    feed, names = load(str(file), spark), [table["target"] for table in tables]
    assert feed.publish(*names[:_TABLES]).ok
    before = _live_mib(spark)
    assert feed.publish(*names[_TABLES:]).ok
    assert (_live_mib(spark) - before) / _TABLES <= _MAX_MIB


def _live_mib(spark: SparkSession) -> float:
    """Return the memory of Spark's process that is still in use after garbage collections."""
    jvm = spark._jvm
    assert jvm is not None
    for _ in range(3):  # Spark cleans up in a thread that learns from a collection what nobody uses
        jvm.java.lang.System.gc()
        time.sleep(0.5)
    runtime = jvm.java.lang.Runtime.getRuntime()
    return float(runtime.totalMemory() - runtime.freeMemory()) / 2**20
