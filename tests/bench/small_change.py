"""Ten changed rows of a large table, warm, compared with counting the rows of that version in its feed."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession

from tests.bench import tables
from tests.bench.notebook import Notebook
from tests.bench.race import Case


def case(spark: SparkSession, folder: Path, rows: int) -> Case:
    table = tables.Followed(spark, folder, rows)
    source = table.source
    spark.sql(f"UPDATE {source.sql} SET amount = amount + 1 WHERE id BETWEEN 100 AND 109")

    public = Notebook(spark, source, folder / "public/bench", folder / "control", ("id",))

    def between() -> None:
        table.as_after_the_snapshot()
        public.as_after_version(0)

    return Case(
        {
            "publish": table.publish,
            "the notebook that is public": public.run,
            "count(*) on table_changes": lambda: spark.sql(
                f"SELECT count(*) FROM table_changes_by_path('{source.path}', 1, 1)"
            ).collect(),
            "DESCRIBE HISTORY LIMIT 1": lambda: spark.sql(f"DESCRIBE HISTORY {source.sql} LIMIT 1").collect(),
        },
        between,
        {"table_rows": rows},
    )
