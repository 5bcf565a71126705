"""Which world a session is in. Everything else that the guard does is the same in both."""

from __future__ import annotations

from pyspark.sql import SparkSession

from mirrorfeed.archive.guard.databricks import Databricks
from mirrorfeed.archive.guard.engine import FileIndex, World
from mirrorfeed.archive.guard.local_engine import Here
from mirrorfeed.runtime.engine import is_databricks
from mirrorfeed.source.identifier import Source


def world_of(spark: SparkSession) -> World:
    return Databricks(spark) if is_databricks(spark) else Here(spark)


def index_of(spark: SparkSession, source: Source) -> FileIndex:
    return world_of(spark).table(source)
