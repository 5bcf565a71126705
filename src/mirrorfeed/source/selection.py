"""What is selected of a source, from its rows: of a snapshot as of the feed. Each image of a row is kept or left out by
itself, so what is left is the feed of the selected rows: one that moves out ends without an image after it, which is a
delete, and one that moves in begins without one before it."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, DecimalType, DoubleType, FloatType, StringType, TimestampType

from mirrorfeed.errors import first_line
from mirrorfeed.landing.selection import BadCondition, Cast, Selection, asked
from mirrorfeed.runtime.spark_session import looked_at
from mirrorfeed.source.identifier import quote

_IN_UTC = "timestampadd(MICROSECOND, unix_micros({}), TIMESTAMP_NTZ '1970-01-01 00:00:00')"
"""An instant as the time without a zone that it is in UTC, whatever the session's zone is."""
_FLOATS = (FloatType, DoubleType)
_FLOATING = "nanvl({0}, {0})"
"""The same value, of which readers of files know nothing: by a file's dictionary they take -0.0 for less than 0.0, and
leave out rows that Spark would find."""


def selected(table: str, rows: DataFrame, selection: Selection | None, beside: Sequence[str] = ()) -> DataFrame:
    """The rows and columns that a target gets, and those columns `beside` them that are not the source's own; or
    `BadCondition`."""
    if selection is None:
        return rows
    types = {field.name: field.dataType for field in rows.schema if field.name not in beside}
    values = [
        _cast(F.col(quote(name)), type_, selection.cast_of(name)).alias(selection.name_of(name))
        for name, type_ in types.items()
        if selection.takes(name)
    ]
    return _fulfilling(table, rows, selection, types).select(*values, *beside)


def _fulfilling(table: str, rows: DataFrame, selection: Selection, types: dict[str, DataType]) -> DataFrame:
    condition = selection.condition
    if condition is None or selection.where is None:
        return rows
    names = asked(selection, {name: type_.typeName() for name, type_ in types.items()})

    def column(name: str) -> str:
        type_ = types.get(names.get(name, ""))
        form = _IN_UTC if isinstance(type_, TimestampType) else _FLOATING if isinstance(type_, _FLOATS) else "{0}"
        return form.format(quote(names.get(name, name)))

    try:
        return looked_at(rows.where(f"({condition.sql(column)})"))
    except (AnalysisException, ParseException) as error:
        reason = first_line(str(error).strip()).partition(" SQLSTATE")[0].rstrip(".")
        raise BadCondition(table, selection.where, reason) from error


def _cast(value: Column, type_: DataType, cast: Cast | None) -> Column:
    if cast is None:
        return value
    if cast.length is not None:
        return F.substring(value, 1, cast.length)
    if cast.type == "string" and isinstance(type_, DecimalType):
        # A session decides whether a small one is cast to digits or to a power of ten.
        return F.replace(F.format_number(value, type_.scale), F.lit(","))
    return value if isinstance(type_, StringType) else value.cast(cast.type)
