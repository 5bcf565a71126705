"""How many rows Spark hands to Python at a time, for a batch is in the memory of an executor whole."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress

from pyspark.sql import SparkSession

_BYTES = "spark.sql.execution.arrow.maxBytesPerBatch"
"""Spark 4.1 and newer: 64 MiB where nobody says otherwise."""
_ROWS = "spark.sql.execution.arrow.maxRecordsPerBatch"
_MOST_ROWS = 1000
"""Of 50 KB each they are 50 MB."""


@contextmanager
def small_batches(spark: SparkSession) -> Iterator[None]:
    """Meanwhile batches are of few rows, unless the engine bounds their bytes. Where it lets nobody set that, as on
    serverless compute, they are as they are."""
    before = _set(spark)
    try:
        yield
    finally:
        if before is not None:
            with suppress(Exception):
                spark.conf.set(_ROWS, before)


def _set(spark: SparkSession) -> str | None:
    """What it was, if it is something else now."""
    with suppress(Exception):
        spark.conf.get(_BYTES)
        return None
    with suppress(Exception):
        before = spark.conf.get(_ROWS)
        if before and not 0 < int(before) <= _MOST_ROWS:
            spark.conf.set(_ROWS, str(_MOST_ROWS))
            return before
    return None
