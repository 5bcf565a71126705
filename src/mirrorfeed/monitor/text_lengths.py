"""How long the texts of a source are, where that is cheap to know: nothing but reading all rows tells it."""

from __future__ import annotations

from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, MapType, StringType, StructType

from mirrorfeed.feed.selection import selected
from mirrorfeed.feed.source import Source, quote
from mirrorfeed.landing.selection import Selection

CHEAP = 64 * 2**20
"""Bytes of files; in a table that has more, texts are not measured."""


def longest_text(spark: SparkSession, source: Source, selection: Selection | None = None) -> tuple[str, int] | None:
    """The column with the longest text of what is selected, and its bytes in UTF-8, nested values as JSON; None without
    a text."""
    frame = selected(str(source), spark.read.table(source.sql), selection)
    lengths = {
        field.name: F.max(length)
        for field in frame.schema
        if (length := _bytes(F.col(quote(field.name)), field.dataType)) is not None
    }
    row = frame.agg(*lengths.values()).first() if lengths else None
    found = [(name, length) for name, length in zip(lengths, row or (), strict=True) if length is not None]
    return max(found, key=lambda each: each[1], default=None)


def _bytes(column: Column, kind: DataType) -> Column | None:
    if isinstance(kind, StringType):
        return F.octet_length(column)
    if isinstance(kind, ArrayType | MapType | StructType):
        return F.octet_length(F.to_json(column))
    return None
