"""Whose Delta this is: that of Databricks, which knows archives itself, or the open source one; and its settings."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache

from pyspark.sql import SparkSession


@lru_cache(maxsize=8)
def is_databricks(spark: SparkSession) -> bool:
    """The engine is asked for a function that only it has: that is the same in a runtime, over Connect, and on
    serverless compute. One session stays what it is."""
    return bool(spark.sql("SHOW SYSTEM FUNCTIONS LIKE 'current_version'").collect())


@contextmanager
def setting(spark: SparkSession, name: str, value: str) -> Iterator[None]:
    """The session has this value meanwhile, and then what it had, be it none."""
    before = spark.conf.get(name, None)
    spark.conf.set(name, value)
    try:
        yield
    finally:
        if before is None:
            spark.conf.unset(name)
        else:
            spark.conf.set(name, before)
