"""The status of many tables from a cold start, beside the start of a Spark session alone."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import yaml
from pyspark.sql import SparkSession

from mirrorfeed.publish.fleet import publish_tables
from tests.bench import tables
from tests.bench.race import Case


def case(spark: SparkSession, folder: Path, count: int) -> Case:
    """Of `count` tables with ten rows each, which are published."""
    _, config = tables.fleet(spark, folder, count, 10)
    entries = [{"source": table.source.path, "target": str(table.target), "keys": ["id"]} for table in config.tables]
    (folder / "mirrorfeed.yml").write_text(yaml.safe_dump({"landing_zone": config.landing_zone, "tables": entries}))
    for outcome in publish_tables(spark, config):
        if outcome.error:
            raise outcome.error

    def run(*arguments: str) -> Callable[[], None]:
        def runs() -> None:
            subprocess.run([sys.executable, *arguments], cwd=folder, check=True, stdout=subprocess.DEVNULL)

        return runs

    return Case(
        {
            "mirrorfeed status": run("-m", "mirrorfeed.cli", "status"),
            "a Spark session": run("-c", "from mirrorfeed.session import get_session; get_session()"),
        },
        facts={"tables": count},
    )
