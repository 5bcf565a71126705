from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from mirrorfeed.publish.files import small_batch


def test_no_rows_come_where_one_is_wide_and_all_as_they_are_where_none_is(spark: SparkSession) -> None:
    rows = spark.sql("SELECT id, repeat('ü', IF(id = 3, 2100, 5)) AS `a b`, X'00' AS bin FROM range(5)")

    assert small_batch.taken(rows) is None
    found = small_batch.taken(rows.where("id <> 3"))
    assert found is not None
    assert found.to_pylist() == [{"id": id_, "a b": "üüüüü", "bin": b"\0"} for id_ in (0, 1, 2, 4)]
    none = small_batch.taken(rows.where("id > 9"))
    assert none is not None
    assert none.num_rows == 0


def test_no_more_rows_are_fetched_than_the_bound_and_one(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    fetched, to_arrow = list[int](), type(spark.range(1)).toArrow

    def counting(rows: Any) -> pa.Table:
        fetched.append((found := to_arrow(rows)).num_rows)
        return found

    monkeypatch.setattr(type(spark.range(1)), "toArrow", counting)
    monkeypatch.setattr(small_batch, "ROWS", 3)
    assert small_batch.taken(spark.range(0, 9, 1, 4)) is None
    assert small_batch.taken(spark.range(0, 3, 1, 4)) is not None
    assert fetched == [4, 3]


def test_ordered_rows_are_fetched_in_their_order(spark: SparkSession) -> None:
    rows = spark.range(0, 400, 1, 8).selectExpr("id", "CAST(id % 7 AS string) AS part").orderBy("part", "id")

    found = small_batch.taken(rows)
    assert found is not None
    pairs = [(row["part"], row["id"]) for row in found.to_pylist()]
    assert len(pairs) == 400
    assert pairs == sorted(pairs)
