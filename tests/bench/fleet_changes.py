"""Many tables with ten changed rows each, beside publishing them one after the other."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from pyspark.sql import SparkSession

from mirrorfeed.publish.fleet import publish_tables
from tests.bench import tables
from tests.bench.race import Case


def case(spark: SparkSession, folder: Path, rows: int) -> Case:
    """Of `rows` tables with a hundred rows each."""
    sources, config = tables.fleet(spark, folder, rows, 100)

    def publish(names: Sequence[str] = ()) -> None:
        for outcome in publish_tables(spark, config, names):
            if outcome.error:
                raise outcome.error

    publish()
    shutil.copytree(folder / "zone", folder / "after-snapshots")
    for source in sources:
        spark.sql(f"UPDATE {source.sql} SET amount = amount + 1 WHERE id < 10")

    def between() -> None:
        shutil.rmtree(folder / "zone")
        shutil.copytree(folder / "after-snapshots", folder / "zone")

    def one_by_one() -> None:
        for table in config.tables:
            publish([str(table.target)])

    return Case({"publish": publish, "one after the other": one_by_one}, between, {"tables": rows})
