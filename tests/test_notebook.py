"""Results as frames, for notebooks."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

import pytest
from pyspark.sql import SparkSession

from mirrorfeed.feed.source import Source
from mirrorfeed.notebook import frame

pytestmark = pytest.mark.connect


@dataclass
class Result:
    name: str
    count: int | None
    seconds: float
    at: datetime
    source: Source | None


def test_a_results_fields_are_the_columns_and_what_is_no_plain_value_is_its_text(spark: SparkSession) -> None:
    noon = datetime(2026, 3, 1, 12, tzinfo=UTC)
    found = frame(spark, Result, [Result("a", None, 1.5, noon, Source(("main", "t"))), Result("b", 2, 0.5, noon, None)])
    assert found.dtypes == [
        ("name", "string"), ("count", "bigint"), ("seconds", "double"), ("at", "timestamp"), ("source", "string"),
    ]  # fmt: skip
    assert [(row["count"], row.source) for row in found.collect()] == [(None, "main.t"), (2, None)]
    assert frame(spark, Result, []).count() == 0
