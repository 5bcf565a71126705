"""Rows of a ledger, for tests."""

from __future__ import annotations

from dataclasses import astuple
from typing import Any

from pyspark.sql import SparkSession

from mirrorfeed.orchestration.ledger import COLUMNS, LedgerRow, all_rows_query
from mirrorfeed.source.identifier import Source


def read_ledger(spark: SparkSession, ledger: Source) -> list[LedgerRow]:
    """All rows, ordered by time, without their day. NULL becomes the default of a column."""
    found = (
        spark.sql(all_rows_query(spark, ledger, in_one_task=True)).orderBy("time").drop("utc_day").toArrow().to_pylist()
    )
    return [LedgerRow(**{name: _plain(value) for name, value in each.items() if value is not None}) for each in found]


def write_ledger(spark: SparkSession, ledger: Source, rows: list[LedgerRow]) -> None:
    """Write a ledger with exactly these rows."""
    columns = ", ".join(f"`{name}` {type_}" for name, type_, _ in COLUMNS)
    frame = spark.createDataFrame([astuple(row) for row in rows], columns)
    frame.coalesce(1).write.format("delta").save(str(ledger.path))


def _plain(value: Any) -> Any:
    return dict(value) if isinstance(value, list) else value
