from __future__ import annotations

import deltalake
import pytest
from pyspark.sql import SparkSession

from tests.support.delta import DeltaTable


@pytest.fixture(scope="module")
def table(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> DeltaTable:
    """Versions 0 to 8, with the feed off at versions 2 and 3, and a column added at version 6."""
    created = DeltaTable(spark, tmp_path_factory.mktemp("delta") / "orders")
    created.insert(1)
    created.set_feed(False)
    created.insert(2)
    created.set_feed(True)
    created.insert(3)
    created.sql("ALTER TABLE {} ADD COLUMNS (w int)")
    created.sql("OPTIMIZE {}")
    created.sql("UPDATE {} SET w = 1")
    return created


@pytest.fixture(scope="module")
def holed(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> DeltaTable:
    """Version 4 of 0 to 8 is missing, between the checkpoints of 3 and 6. Only the history shows it."""
    path = tmp_path_factory.mktemp("delta") / "holed"
    created = DeltaTable(spark, path)
    for i in range(1, 9):
        created.insert(i)
        if i % 3 == 0:
            deltalake.DeltaTable(path).create_checkpoint()
    created.commit_file(4).unlink()
    return created
