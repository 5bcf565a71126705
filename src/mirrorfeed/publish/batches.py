"""How many rows Spark hands to Python at a time, for a batch is in the memory of an executor whole."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress

from pyspark.sql import SparkSession

_ROWS = "spark.sql.execution.arrow.maxRecordsPerBatch"
_MOST_ROWS = 500
"""Of 50 KB each they are 25 MB."""
_BYTES = "spark.sql.execution.arrow.maxBytesPerBatch"
"""Spark 4.1 and newer. To keep to it Spark measures what it gathered after every row, column by column, which takes
longer than gathering it."""
_SPARKS_OWN = "67108864b"
"""Where nobody says otherwise."""
_ANY = f"{2**31 - 1}b"


@contextmanager
def small_batches(spark: SparkSession) -> Iterator[None]:
    """Meanwhile batches are of few rows, and of any number of bytes where nobody set a bound. Where the engine lets
    nobody set that, as on serverless compute, they are as they are."""
    before: dict[str, str] = {}
    with suppress(Exception):
        rows = spark.conf.get(_ROWS) or "0"
        spark.conf.set(_ROWS, rows if 0 < int(rows) <= _MOST_ROWS else str(_MOST_ROWS))
        before[_ROWS] = rows
        if spark.conf.get(_BYTES) == _SPARKS_OWN:
            spark.conf.set(_BYTES, _ANY)
            before[_BYTES] = _SPARKS_OWN
    try:
        yield
    finally:
        for name, value in before.items():
            with suppress(Exception):
                spark.conf.set(name, value)
