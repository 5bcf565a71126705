"""Whose Delta this is: that of Databricks, which knows archives itself, or the open source one."""

from __future__ import annotations

from functools import lru_cache

from pyspark.sql import SparkSession


@lru_cache(maxsize=8)
def is_databricks(spark: SparkSession) -> bool:
    """The engine is asked for a function that only it has: that is the same in a runtime, over Connect, and on
    serverless compute. One session stays what it is."""
    return bool(spark.sql("SHOW SYSTEM FUNCTIONS LIKE 'current_version'").collect())
