"""Many tables without changes, checked without Spark, compared with as many runs for one of them."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession

from mirrorfeed.config.loader import load
from mirrorfeed.orchestration.publish_run import publish_tables
from mirrorfeed.orchestration.run_context import RunContext
from tests.bench.race import Case
from tests.support.fleets import fleet


def case(_spark: SparkSession, folder: Path, count: int) -> Case:
    """Of `count` tables in folders, published up to their newest versions."""
    config = load(fleet(folder, count))

    def no_spark() -> SparkSession:
        raise AssertionError("Spark is needed")

    def all_of_them() -> None:
        assert len(publish_tables(RunContext(no_spark, config))) == count

    def one_by_one() -> None:
        for table in config.tables:
            assert publish_tables(RunContext(no_spark, config), [str(table.target)])

    return Case({"publish": all_of_them, "one after the other": one_by_one}, facts={"tables": count})
