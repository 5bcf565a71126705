"""A range of five MERGEs, compared with a range a tenth as large of the same table and of a table a tenth as large."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession

from tests.bench import tables
from tests.bench.race import Case


def case(spark: SparkSession, folder: Path, rows: int) -> Case:
    """Of `rows` rows of the feed, of a table with as many."""
    sizes = {"all": (rows, rows), "a tenth of the feed": (rows, rows // 10), "of the table as well": (rows // 10,) * 2}
    measured = {}
    for name, (of_table, of_feed) in sizes.items():
        (folder / name).mkdir()
        measured[name] = tables.Followed(spark, folder / name, of_table)
        tables.merges(spark, measured[name].source, of_feed, of_table)

    def between() -> None:
        for table in measured.values():
            table.as_after_the_snapshot()

    return Case(
        {name: table.publish for name, table in measured.items()}, between, {"feed_rows": rows, "table_rows": rows}
    )
