"""The longest text of a source. All rows are read, so only small tables are measured."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, MapType, StringType, StructType

from mirrorfeed.landing.selection import Selection
from mirrorfeed.source.identifier import Source, quote
from mirrorfeed.source.reader import apply_selection
from mirrorfeed.source.table_info import count_files

if TYPE_CHECKING:
    from deltalake import DeltaTable

CHEAP = 64 * 2**20
"""Bytes of files; in a table that has more, texts are not measured."""


def longest_text(spark: SparkSession, source: Source, selection: Selection | None = None) -> tuple[str, int] | None:
    """The column with the longest text of what is selected, and its bytes in UTF-8, nested values as JSON; None without
    a text."""
    frame = apply_selection(str(source), spark.read.table(source.sql), selection)
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


def longest_text_here(table: DeltaTable) -> tuple[str, int] | None:
    """As `longest_text`, without Spark. Raises if there are nested values, which Spark measures as JSON, or files that
    delta-rs cannot read."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if count_files(table)[1] > CHEAP:
        return None
    rows = table.to_pyarrow_dataset()
    if any(pa.types.is_nested(field.type) for field in rows.schema):
        raise ValueError("nested")
    longest: dict[str, int] = {}
    texts = [
        field.name for field in rows.schema if pa.types.is_string(field.type) or pa.types.is_large_string(field.type)
    ]
    for batch in rows.to_batches(columns=texts) if texts else ():
        for name in texts:
            length = pc.max(pc.binary_length(batch.column(name))).as_py()
            if length is not None:
                longest[name] = max(length, longest.get(name, 0))
    return max(longest.items(), key=lambda each: each[1], default=None)
