"""Small batches are collected as Arrow."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from mirrorfeed.publish.files import row_staging


def test_small_batch_is_not_collected_if_one_row_is_wide(spark: SparkSession) -> None:
    rows = spark.sql("SELECT id, repeat('ü', IF(id = 3, 2100, 5)) AS `a b`, X'00' AS bin FROM range(5)")

    assert row_staging.collect_small_batch(rows) is None
    found = row_staging.collect_small_batch(rows.where("id <> 3"))
    assert found is not None
    assert found.to_pylist() == [{"id": id_, "a b": "üüüüü", "bin": b"\0"} for id_ in (0, 1, 2, 4)]
    none = row_staging.collect_small_batch(rows.where("id > 9"))
    assert none is not None
    assert none.num_rows == 0


def test_collection_fetches_at_most_one_row_over_the_limit(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetched, to_arrow = list[int](), type(spark.range(1)).toArrow

    def counting(rows: Any) -> pa.Table:
        fetched.append((found := to_arrow(rows)).num_rows)
        return found

    monkeypatch.setattr(type(spark.range(1)), "toArrow", counting)
    monkeypatch.setattr(row_staging, "SMALL_BATCH_ROWS", 3)
    assert row_staging.collect_small_batch(spark.range(0, 9, 1, 4)) is None
    assert row_staging.collect_small_batch(spark.range(0, 3, 1, 4)) is not None
    assert fetched == [4, 3]


def test_ordered_rows_are_collected_in_order(spark: SparkSession) -> None:
    rows = spark.range(0, 400, 1, 8).selectExpr("id", "CAST(id % 7 AS string) AS part").orderBy("part", "id")

    found = row_staging.collect_small_batch(rows)
    assert found is not None
    pairs = [(row["part"], row["id"]) for row in found.to_pylist()]
    assert len(pairs) == 400
    assert pairs == sorted(pairs)
