"""Many tables with nothing new, beside as many questions to their histories, one after the other."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession

from mirrorfeed.config import Config, Table
from mirrorfeed.feed.source import Source
from mirrorfeed.publish.fleet import publish_tables
from tests.bench import tables
from tests.bench.race import Case


def case(spark: SparkSession, folder: Path, rows: int) -> Case:
    """Of `rows` tables with ten rows each."""
    sources = [Source(path=str(folder / f"source-{number}")) for number in range(rows)]
    for source in sources:
        tables.create(spark, source, 10)
    entries = [
        Table.model_validate({"source": source.path, "target": f"bench.t{number}", "keys": ["id"]})
        for number, source in enumerate(sources)
    ]
    config = Config(str(folder / "zone"), tuple(entries))

    def publish() -> None:
        for outcome in publish_tables(spark, config):
            if outcome.error:
                raise outcome.error

    def ask() -> None:
        for source in sources:
            spark.sql(f"DESCRIBE HISTORY {source.sql} LIMIT 1").collect()

    publish()
    return Case({"publish": publish, "DESCRIBE HISTORY LIMIT 1": ask}, facts={"tables": rows})
