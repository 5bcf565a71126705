"""Columns that are named, and whether they are there."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import SparkSession

from mirrorfeed.errors import Terminal
from mirrorfeed.feed.source import Source


def check_columns(spark: SparkSession, source: Source, names: Sequence[str]) -> None:
    if names:
        named(str(source), spark.table(source.sql).columns, names)


def named(what: str, there: Sequence[str], names: Sequence[str]) -> list[str]:
    """Columns as they are spelled where they are, or `NoSuchColumn`."""
    known = {name.lower(): name for name in there}
    if unknown := [name for name in names if name.lower() not in known]:
        raise NoSuchColumn(what, unknown[0], there)
    return [known[name.lower()] for name in names]


class NoSuchColumn(Terminal):
    """The question names a column that the table does not have."""

    code = "MF5005"

    def __init__(self, table: str, column: str, columns: Sequence[str]) -> None:
        self.table, self.column, self.columns = table, column, tuple(columns)

    def what(self) -> str:
        return f"{self.table} has no column {self.column!r}."

    def next(self) -> str:
        return f"Its columns are {', '.join(self.columns)}."
