"""Columns that are named, and whether they are there."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import SparkSession

from mirrorfeed.archive.errors import NoSuchColumn
from mirrorfeed.source.identifier import Source


def check_columns(spark: SparkSession, source: Source, names: Sequence[str]) -> None:
    if names:
        named(str(source), spark.table(source.sql).columns, names)


def named(what: str, there: Sequence[str], names: Sequence[str]) -> list[str]:
    """Columns as they are spelled where they are, or `NoSuchColumn`."""
    known = {name.lower(): name for name in there}
    if unknown := [name for name in names if name.lower() not in known]:
        raise NoSuchColumn(table=what, column=unknown[0], columns=there)
    return [known[name.lower()] for name in names]
