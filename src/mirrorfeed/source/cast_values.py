"""Cast the values of selected columns, with the same result in every session."""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, DecimalType, StringType

from mirrorfeed.landing.selection import Cast


def cast_value(value: Column, type_: DataType, cast: Cast | None) -> Column:
    if cast is None:
        return value
    if cast.length is not None:
        return F.substring(value, 1, cast.length)
    if cast.type == "string" and isinstance(type_, DecimalType):
        # Session settings decide whether a small decimal is cast to digits or to a power of ten.
        return F.replace(F.format_number(value, type_.scale), F.lit(","))
    return value if isinstance(type_, StringType) else value.cast(cast.type)
