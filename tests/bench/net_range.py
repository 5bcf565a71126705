"""A net range of five MERGEs, compared with a plain query without output, notebooks, and delta-rs with DuckDB."""

from __future__ import annotations

import shutil
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from tests.bench import tables
from tests.bench.notebook import Notebook
from tests.bench.race import Case
from tests.bench.tables import MERGES

FILE = "00000000000000000002.parquet"
FEED_ONLY = ("_change_type", "_commit_version", "_commit_timestamp")


def case(spark: SparkSession, folder: Path, rows: int) -> Case:
    table = tables.Followed(spark, folder, rows)
    source = table.source
    tables.merges(spark, source, rows, rows)

    public = Notebook(spark, source, folder / "public/bench", folder / "control", ("id",))

    def between() -> None:
        shutil.rmtree(folder / "notebook", ignore_errors=True)
        public.as_after_version(0)
        table.as_after_the_snapshot()

    def notebook() -> None:
        marker = F.when(F.col("_change_type") == "delete", 2).otherwise(4)
        rows = last_rows(tables.feed(spark, source, 1, MERGES)).withColumn("__rowMarker__", marker)
        out = folder / "notebook"
        rows.drop(*FEED_ONLY).coalesce(1).write.parquet(str(out / "written"))
        (written,) = (out / "written").glob("*.parquet")
        shutil.copyfile(written, out / f"_{FILE}")
        (out / f"_{FILE}").rename(out / FILE)

    def without_spark() -> None:
        import duckdb
        import pyarrow as pa
        from deltalake import DeltaTable

        feed = DeltaTable(str(source.path)).load_cdf(starting_version=1, ending_version=MERGES)
        out = folder / "notebook"
        out.mkdir()
        with duckdb.connect() as connection:
            connection.register("feed", pa.RecordBatchReader.from_stream(feed))
            connection.execute(f"""
                COPY (
                    SELECT * EXCLUDE (n, {", ".join(FEED_ONLY)}), if(_change_type = 'delete', 2, 4) AS __rowMarker__
                    FROM (
                        SELECT *, row_number() OVER (
                            PARTITION BY id ORDER BY _commit_version DESC, _change_type DESC) AS n
                        FROM feed WHERE _change_type <> 'update_preimage')
                    WHERE n = 1
                ) TO '{out / f"_{FILE}"}' (FORMAT parquet)""")
        (out / f"_{FILE}").rename(out / FILE)

    return Case(
        {
            "publish": table.publish,
            "the plain floor": lambda: to_noop(last_rows(tables.feed(spark, source, 1, MERGES))),
            "a usual notebook": notebook,
            "the notebook that is public": public.run,
            "delta-rs and DuckDB": without_spark,
            "the feed to noop": lambda: to_noop(tables.feed(spark, source, 1, MERGES)),
        },
        between,
        {"table_rows": rows, "feed_rows": tables.feed(spark, source, 1, MERGES).count()},
        folder / "zone",
    )


def last_rows(feed: DataFrame) -> DataFrame:
    """The net result as most would write it: the last row of a key, post-images before deletes."""
    newest_first = Window.partitionBy("id").orderBy(F.desc("_commit_version"), F.desc("_change_type"))
    after = feed.where("_change_type <> 'update_preimage'")
    return after.withColumn("n", F.row_number().over(newest_first)).where("n = 1").drop("n")


def to_noop(rows: DataFrame) -> None:
    rows.write.format("noop").mode("overwrite").save()
