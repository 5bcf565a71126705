"""Start Spark once, so that the JARs of Delta and the archive of Java classes are in the cache of later starts."""

from __future__ import annotations

import tempfile

from fixtures.connect import delta_jars
from mirrorfeed.runtime.spark_session import get_session


def main() -> None:
    """Query a table and its change data feed, because the archive has only classes that were loaded."""
    delta_jars()
    spark = get_session()
    with tempfile.TemporaryDirectory() as folder:
        table = f"delta.`{folder}/table`"
        spark.sql(
            f"CREATE TABLE {table} USING delta TBLPROPERTIES (delta.enableChangeDataFeed = true)"
            " AS SELECT id, CAST(id AS string) AS name FROM range(10)"
        )
        spark.sql(
            f"MERGE INTO {table} AS old USING (SELECT 1 AS id, 'new' AS name) AS new ON old.id = new.id"
            " WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
        )
        changes = spark.sql(f"SELECT * FROM table_changes_by_path('{folder}/table', 0, 1)")
        changes.groupBy("id").count().write.parquet(f"{folder}/parquet")
        spark.read.parquet(f"{folder}/parquet").collect()
    spark.stop()


if __name__ == "__main__":
    main()
