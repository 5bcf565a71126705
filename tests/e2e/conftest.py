"""Fixtures that the tests of whole journeys share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from tests.conftest import ADAPTIVE

SEVERAL_FILES = {
    ADAPTIVE: "true",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "2",
    "spark.sql.adaptive.coalescePartitions.enabled": "false",
}
"""With a small target file size, a handful of rows fills several files in several tasks."""


@pytest.fixture(scope="module")
def several_files(spark: SparkSession) -> Iterator[None]:
    before = {name: str(spark.conf.get(name)) for name in SEVERAL_FILES}
    for name, value in SEVERAL_FILES.items():
        spark.conf.set(name, value)
    yield
    for name, value in before.items():
        spark.conf.set(name, value)
