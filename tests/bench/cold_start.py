"""The status of many tables after a cold start, compared with the start of a Spark session."""

from __future__ import annotations

from pathlib import Path

import yaml
from pyspark.sql import SparkSession

from tests.bench import tables
from tests.bench.commands import python
from tests.bench.race import Case


def case(spark: SparkSession, folder: Path, count: int) -> Case:
    """Of `count` tables with ten rows each, which are published."""
    _, config = tables.fleet(spark, folder, count, 10)
    entries = [{"source": table.source.path, "target": str(table.target), "keys": ["id"]} for table in config.tables]
    (folder / "mirrorfeed.yml").write_text(yaml.safe_dump({"landing_zone": config.landing_zone, "tables": entries}))
    tables.publish(spark, config)
    return Case(
        {
            "mirrorfeed status": python("-m", "mirrorfeed.cli", "status", place=folder),
            "a Spark session": python("-c", "from mirrorfeed.runtime.spark_session import get_session; get_session()"),
        },
        facts={"tables": count},
    )
