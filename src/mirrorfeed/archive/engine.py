"""Whose Delta this is: that of Databricks, which knows archives itself, or the open source one."""

from __future__ import annotations

from pyspark.sql import SparkSession


def is_databricks(spark: SparkSession) -> bool:
    """The engine is asked for a function that only it has: that is the same in a runtime, over Connect, and on
    serverless compute."""
    return bool(spark.sql("SHOW SYSTEM FUNCTIONS LIKE 'current_version'").collect())
