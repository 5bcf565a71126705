"""What a mirror should have of its source, as the configuration selects it. Written for itself: publishing has its own
way, so that agreement means something."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, DecimalType, DoubleType, FloatType, StringType, StructField, TimestampType

from mirrorfeed.landing.selection import Selection
from mirrorfeed.mirror.verify.expected_rows import NESTED
from mirrorfeed.source.identifier import quote

_ROW = "__row__"


def selected(rows: DataFrame, selection: Selection | None) -> DataFrame:
    if selection is None:
        return rows
    if selection.where is not None:
        whole = F.struct(*(F.col(quote(name)) for name in rows.columns)).alias(_ROW)
        plain = [field for field in rows.schema if not isinstance(field.dataType, NESTED)]
        asked = rows.select(whole, *(_in_condition(field).alias(field.name) for field in plain))
        rows = asked.where(F.expr(f"({selection.where})")).select(f"{_ROW}.*")
    gone = set(selection.exclude_columns)
    listed = set(rows.columns if selection.columns is None else selection.columns)
    return rows.select(
        *(
            _as_cast(F.col(quote(field.name)), field.dataType, selection.cast.get(field.name)).alias(
                selection.rename.get(field.name, field.name)
            )
            for field in rows.schema
            if field.name in listed - gone
        )
    )


def _in_condition(field: StructField) -> Column:
    """Texts are compared as they are written, and times are in UTC."""
    if isinstance(field.dataType, TimestampType):
        seconds = f"CAST(CAST(unix_micros({quote(field.name)}) AS decimal(20,0)) * 0.000001BD AS decimal(18,6))"
        return F.expr(f"TIMESTAMP_NTZ '1970-01-01 00:00:00' + make_dt_interval(0, 0, 0, {seconds})")
    value = F.col(quote(field.name))
    if isinstance(field.dataType, FloatType | DoubleType):
        return F.nanvl(value, value)  # or a file without +0.0 is passed over where 0 is asked for, and has -0.0
    return F.collate(value, "UTF8_BINARY") if isinstance(field.dataType, StringType) else value


def _as_cast(value: Column, type_: DataType, wanted: str | None) -> Column:
    if wanted is None:
        return value
    name, _, length = wanted.strip().lower().partition("(")
    if name == "string" and length:
        return F.left(value, F.lit(int(length.rstrip(")"))))
    if name == "string" and isinstance(type_, DecimalType):
        return value.try_cast("string")  # a plain cast makes a power of ten of a small one in some sessions
    return value.cast(wanted.strip())
