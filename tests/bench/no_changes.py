"""Many tables without changes, compared with reading their histories one after the other."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession

from tests.bench import tables
from tests.bench.race import Case


def case(spark: SparkSession, folder: Path, rows: int) -> Case:
    """Of `rows` tables with ten rows each."""
    sources, config = tables.fleet(spark, folder, rows, 10)

    def ask() -> None:
        for source in sources:
            spark.sql(f"DESCRIBE HISTORY {source.sql} LIMIT 1").collect()

    tables.publish(spark, config)
    return Case(
        {"publish": lambda: tables.publish(spark, config), "DESCRIBE HISTORY LIMIT 1": ask}, facts={"tables": rows}
    )
