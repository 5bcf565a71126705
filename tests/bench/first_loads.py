"""First publications of many small tables by the command line, compared with reading and writing them by plain
Spark."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import yaml
from pyspark.sql import SparkSession

from mirrorfeed.runtime.spark_session import get_session
from tests.bench import tables
from tests.bench.commands import python
from tests.bench.race import Case


def case(spark: SparkSession, folder: Path, count: int) -> Case:
    """Of `count` tables with ten rows each. Every side starts its own session."""
    sources, config = tables.fleet(spark, folder, count, 10)
    entries = [{"source": table.source.path, "target": str(table.target), "keys": ["id"]} for table in config.tables]
    settings = {"landing_zone": config.landing_zone, "tables": entries}
    (folder / "mirrorfeed.yml").write_text(yaml.safe_dump(settings), encoding="utf-8")

    def between() -> None:
        for name in ("zone", "parquet"):
            shutil.rmtree(folder / name, ignore_errors=True)

    repository = Path(__file__).parents[2]
    plain = python("-m", "tests.bench.first_loads", *(str(each.path) for each in sources), place=repository)
    return Case(
        {"mirrorfeed publish": python("-m", "mirrorfeed.cli", "publish", place=folder), "plain Spark": plain},
        between,
        {"tables": count},
    )


def copy_tables(paths: list[str]) -> None:
    """Read each table with Spark and write it as Parquet."""
    spark = get_session()
    for path in map(Path, paths):
        spark.read.format("delta").load(str(path)).write.parquet(str(path.parent / "parquet" / path.name))


if __name__ == "__main__":
    copy_tables(sys.argv[1:])
