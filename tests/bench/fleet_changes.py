"""Many tables with ten changed rows each, compared with publishing them one after the other."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession

from tests.bench import tables
from tests.bench.race import Case


def case(spark: SparkSession, folder: Path, rows: int) -> Case:
    """Of `rows` tables with a hundred rows each."""
    sources, config = tables.fleet(spark, folder, rows, 100)

    tables.publish(spark, config)
    between = tables.keeping(folder / "zone")
    for source in sources:
        spark.sql(f"UPDATE {source.sql} SET amount = amount + 1 WHERE id < 10")

    def one_by_one() -> None:
        for table in config.tables:
            tables.publish(spark, config, [str(table.target)])

    return Case(
        {"publish": lambda: tables.publish(spark, config), "one after the other": one_by_one}, between, {"tables": rows}
    )
