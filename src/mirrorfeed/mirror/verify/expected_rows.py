"""One column of a source and of its mirror in a form that Spark can compare.

Nested columns are JSON text in the mirror: they are parsed back and compared by value, and so are the values of a table
that is published as text.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    ByteType,
    DataType,
    DayTimeIntervalType,
    MapType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
    VariantType,
    YearMonthIntervalType,
)

from mirrorfeed.source.identifier import quote

NESTED = (ArrayType, MapType, StructType, VariantType)


def fault_of(field: StructField, mirror: StructType, *, as_text: bool) -> str | None:
    wanted = _in_mirror(field.dataType)
    there = next((found for found in mirror if found.name == field.name), None)
    if there is None:
        return f"{field.name!r} is missing"
    if there.dataType != wanted and not (as_text and there.dataType in _in_text(wanted)):
        return f"{field.name!r} is {there.dataType.simpleString()} where {wanted.simpleString()} is expected"
    return None


def _in_mirror(type_: DataType) -> DataType:
    """The type that a column of the source has in its mirror."""
    if isinstance(type_, (*NESTED, StringType, DayTimeIntervalType, YearMonthIntervalType)):
        return StringType()
    return BinaryType() if _is_place(type_) else type_


def _in_text(type_: DataType) -> tuple[DataType, ...]:
    """What becomes of a mirror's type where files are text: it may have no declared form, or a wider one."""
    wider: dict[DataType, DataType] = {ByteType(): ShortType(), TimestampType(): TimestampNTZType()}
    return StringType(), wider.get(type_, type_)


def _is_place(type_: DataType) -> bool:
    return type_.typeName() in ("geometry", "geography")  # Spark 4.0 has no classes for them


def both(field: StructField, there: DataType) -> tuple[Column, Column]:
    """A column of the source and of its mirror, which has this type there, in one form that Spark can compare."""
    value, type_ = F.col(quote(field.name)), field.dataType
    if isinstance(type_, VariantType):
        return F.to_json(value), F.to_json(_parsed(value, type_))
    source = _comparable(value, type_, from_text=False)
    if isinstance(type_, NESTED):
        return source, _comparable(_parsed(value, type_), type_, from_text=True)
    wanted = _in_mirror(type_)
    if there == wanted:
        return source, value
    if there == StringType():  # what is no text of a value stays as it is, and so equals none
        return _as_text(source, wanted), F.coalesce(_as_text(_from_text(value, wanted), wanted), value)
    # A byte is among shorts, or an instant is a time without a zone, in UTC.
    return (source, _instant(value)) if isinstance(wanted, TimestampType) else (source.cast(there), value)


def values_of(field: StructField, there: DataType) -> tuple[Column, Column]:
    """A column of the source that is not nested and that of its mirror, both of the type that a mirror has for it; NULL
    for what is no text of a value."""
    value, wanted = F.col(quote(field.name)), _in_mirror(field.dataType)
    source = _plain(value, field.dataType)
    if there == wanted:
        return source, value
    if there == StringType():
        return source, _from_text(value, wanted)
    return source, (_instant(value) if isinstance(wanted, TimestampType) else value).cast(wanted)


def _as_text(value: Column, type_: DataType) -> Column:
    if isinstance(type_, TimestampType):  # its text in a session's zone may stand for two of them
        value = F.unix_micros(value)
    return F.hex(value) if isinstance(type_, BinaryType) else value.cast("string")


def _from_text(text: Column, type_: DataType) -> Column:
    if isinstance(type_, TimestampType):
        return _instant(text)
    return F.try_to_binary(text, F.lit("base64")) if isinstance(type_, BinaryType) else text.try_cast(type_)


def _instant(in_utc: Column) -> Column:
    return F.concat(in_utc.cast("string"), F.lit("Z")).try_cast("timestamp")


def _parsed(text: Column, type_: DataType) -> Column:
    return F.parse_json(text) if isinstance(type_, VariantType) else F.from_json(text, _in_json(type_).json())


def _in_json(type_: DataType) -> Any:
    """The type as JSON can hold it: keys are text."""
    if isinstance(type_, StructType):
        return StructType([StructField(field.name, _in_json(field.dataType)) for field in type_])
    if isinstance(type_, ArrayType):
        return ArrayType(_in_json(type_.elementType))
    if isinstance(type_, MapType):
        return MapType(StringType(), _in_json(type_.valueType))
    return type_ if isinstance(type_, VariantType) else _in_mirror(type_)


def _comparable(value: Column, type_: DataType, *, from_text: bool) -> Column:
    """Maps have no equality in Spark: they become arrays of entries in the order of their keys. Nor have variants:
    they become text; inside of others JSON does not tell their null from NULL."""
    if isinstance(type_, VariantType):
        return F.when(~F.is_variant_null(value), F.to_json(value))
    if isinstance(type_, StructType):
        fields = [
            _comparable(value.getField(field.name), field.dataType, from_text=from_text).alias(field.name)
            for field in type_
        ]
        return F.when(value.isNotNull(), F.struct(*fields)) if fields else value
    if isinstance(type_, ArrayType):
        return F.transform(value, lambda item: _comparable(item, type_.elementType, from_text=from_text))
    if isinstance(type_, MapType):
        return F.array_sort(
            F.transform(
                F.map_entries(value),
                lambda entry: F.struct(
                    _key(entry["key"], type_.keyType, from_text=from_text).alias("key"),
                    _comparable(entry["value"], type_.valueType, from_text=from_text).alias("value"),
                ),
            )
        )
    return value if from_text else _plain(value, type_)


def _plain(value: Column, type_: DataType) -> Column:
    """A value of the source that is not nested, as the mirror should have it."""
    if _is_place(type_):
        return F.call_function("st_asbinary", value)
    if isinstance(type_, StringType):  # compared as it is written, whatever its collation
        return F.collate(value, "UTF8_BINARY")
    wanted = _in_mirror(type_)
    return value if wanted == type_ else value.cast(wanted)


def _key(key: Column, type_: DataType, *, from_text: bool) -> Column:
    if isinstance(type_, NESTED):
        return _comparable(_parsed(key, type_) if from_text else key, type_, from_text=from_text)
    if not from_text:
        return key
    return F.unbase64(key) if isinstance(type_, BinaryType) else key.cast(type_)
