"""Convert the values of source rows and mirror rows so that Spark can compare them.

Shares no code for values and types with the publisher, so that verification finds errors of the publisher. In a mirror,
nested columns are JSON text. If a table is published as delimited text, other columns of its mirror can also be text.
This module parses both kinds of text.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from mirrorfeed.landing.selection import Selection
from mirrorfeed.landing.tag_rules import check_tags_known
from mirrorfeed.source.identifier import quote
from mirrorfeed.source.transformed_values import HASH_PADS, with_hash_key

NESTED = (T.ArrayType, T.MapType, T.StructType, T.VariantType)
_ROW = "__row__"
_MAX_VARIANT_TEXT = 4 * 2**20
"""Maximum size in bytes of JSON text that always fits in a variant. On some engines, a variant has at most 16 MiB."""


def select_rows(rows: DataFrame, selection: Selection | None) -> DataFrame:
    """Return the rows and columns that `selection` selects (all if None), with its names, casts and transformations."""
    if selection is None:
        return rows
    if selection.where is not None:
        whole_row = F.struct(*(F.col(quote(name)) for name in rows.columns)).alias(_ROW)
        plain = [field for field in rows.schema if not isinstance(field.dataType, NESTED)]
        plain_rows = rows.select(whole_row, *(_in_condition(field).alias(field.name) for field in plain))
        rows = plain_rows.where(F.expr(f"({selection.where})")).select(f"{_ROW}.*")
    excluded = set(selection.exclude_columns)
    listed = set(rows.columns if selection.columns is None else selection.columns)
    fields = rows.schema
    check_tags_known("the source", selection, [each.name for each in fields if each.name in listed - excluded])
    if selection.has_hashes:
        rows = with_hash_key(rows, selection.read_hash_key())
    return rows.select(
        *(
            _as_transformed(
                _as_cast(F.col(quote(field.name)), field.dataType, selection.cast.get(field.name)),
                field.dataType,
                selection.transform.get(field.name, "").strip(),
            ).alias(selection.rename.get(field.name, field.name))
            for field in fields
            if field.name in listed - excluded
        )
    )


def _in_condition(field: T.StructField) -> Column:
    """Return the column `field`, converted for use in the condition of a selection (`where`).

    Text gets a collation with which Spark compares text byte for byte. Timestamps become UTC times without a time zone.
    """
    if isinstance(field.dataType, T.TimestampType):
        seconds = f"CAST(CAST(unix_micros({quote(field.name)}) AS decimal(20,0)) * 0.000001BD AS decimal(18,6))"
        return F.expr(f"TIMESTAMP_NTZ '1970-01-01 00:00:00' + make_dt_interval(0, 0, 0, {seconds})")
    value = F.col(quote(field.name))
    if isinstance(field.dataType, T.FloatType | T.DoubleType):
        # With the column itself, Spark skips a file that has -0.0 and no +0.0 when a condition compares with 0.
        return F.nanvl(value, value)
    return F.collate(value, "UTF8_BINARY") if isinstance(field.dataType, T.StringType) else value


def _as_cast(value: Column, type_: T.DataType, cast: str | None) -> Column:
    if cast is None:
        return value
    name, _, length = cast.strip().lower().partition("(")
    if name == "string" and length:
        return F.left(value, F.lit(int(length.rstrip(")"))))
    if name == "string" and isinstance(type_, T.DecimalType):
        return value.try_cast("string")  # in some sessions, a plain cast writes small values with an exponent
    return value.cast(cast.strip())


def _as_transformed(value: Column, type_: T.DataType, transformation: str) -> Column:
    if transformation == "hash":
        text = value.try_cast("string") if isinstance(type_, T.DecimalType) else value.cast("string")
        inner = F.sha2(F.concat(F.col(HASH_PADS[0]), F.encode(F.collate(text, "UTF8_BINARY"), "UTF-8")), 256)
        return F.sha2(F.concat(F.col(HASH_PADS[1]), F.unhex(inner)), 256)
    if transformation.startswith("mask"):
        texts = transformation.split("'")
        return F.lit(texts[1]) if len(texts) > 1 else F.nullif(value, value)
    if transformation.startswith("truncate"):
        month = F.month(value) if "month" in transformation else F.lit(1)
        return F.make_date(F.year(value), month, F.lit(1))
    return value


def column_faults(expected: T.StructType, mirror: T.StructType, *, as_text: bool) -> list[str]:
    """Return a message for each column of `expected` that is missing in `mirror` or has a wrong type there.

    `expected` has the columns of the source. Set `as_text` if the published files are delimited text. With `as_text`,
    a mirror column can also have one of the types from `_text_types`, for example text.
    """
    types, faults = {field.name: field.dataType for field in mirror}, []
    for field in expected:
        wanted, actual = _mirror_type(field.dataType), types.get(field.name)
        if actual is None:
            faults.append(f"{field.name!r} is missing")
        elif actual != wanted and not (as_text and actual in _text_types(wanted)):
            faults.append(f"{field.name!r} is {actual.simpleString()} where {wanted.simpleString()} is expected")
    return faults


def _mirror_type(type_: T.DataType) -> T.DataType:
    if isinstance(type_, (*NESTED, T.StringType, T.DayTimeIntervalType, T.YearMonthIntervalType)):
        return T.StringType()
    return T.BinaryType() if _is_geo_type(type_) else type_


def _text_types(type_: T.DataType) -> tuple[T.DataType, ...]:
    """Return the types that a mirror can have instead of `type_` if the published files are delimited text."""
    wider: dict[T.DataType, T.DataType] = {T.ByteType(): T.ShortType(), T.TimestampType(): T.TimestampNTZType()}
    return T.StringType(), wider.get(type_, type_)


def _is_geo_type(type_: T.DataType) -> bool:
    return type_.typeName() in ("geometry", "geography")  # Spark 4.0 has no classes for these types


def comparable_columns(field: T.StructField, mirror_type: T.DataType) -> tuple[Column, Column]:
    """Return two expressions for a column: one for the source, and one for the mirror.

    The results of both expressions are equal if source and mirror have the same value. For an array, map or struct, the
    result is a struct. Its field `value` has the value, and its field `text` is NULL. If the mirror's text is not JSON
    of this kind, `text` has the text, so that it differs from every value of the source.
    """
    value, type_ = F.col(quote(field.name)), field.dataType
    if isinstance(type_, T.VariantType):  # text that is not JSON is compared unchanged, so it differs
        return F.to_json(value), F.coalesce(F.to_json(F.try_parse_json(value)), value)
    source = _comparable(value, type_, from_text=False)
    if isinstance(type_, NESTED):
        no_text = F.lit(None).cast("string").alias("text")
        return F.struct(source.alias("value"), no_text), _mirror_value(value, type_)
    expected = _mirror_type(type_)
    if mirror_type == expected:
        return source, value
    if mirror_type == T.StringType():  # text that cannot be parsed is compared unchanged, so it differs
        return _as_text(source, expected), F.coalesce(_as_text(_converted(value, expected), expected), value)
    # The mirror has shorts for bytes, or timestamps in UTC without a zone.
    return (source, _instant(value)) if isinstance(expected, T.TimestampType) else (source.cast(mirror_type), value)


def key_columns(field: T.StructField, mirror_type: T.DataType) -> tuple[Column, Column]:
    """Return two expressions for a key column: one for the source, and one for the mirror.

    Both expressions have the type that a mirror column gets from Parquet files. `mirror_type` is the actual type of the
    mirror column. If the actual type is different, the expression for the mirror converts the values. A value that
    cannot be converted becomes NULL. `field` is the source column, and must not be nested.
    """
    value, expected = F.col(quote(field.name)), _mirror_type(field.dataType)
    return _plain(value, field.dataType), value if mirror_type == expected else _converted(value, expected)


def _as_text(value: Column, type_: T.DataType) -> Column:
    if isinstance(type_, T.TimestampType):  # text with a time zone can be ambiguous
        value = F.unix_micros(value)
    return F.hex(value) if isinstance(type_, T.BinaryType) else value.cast("string")


def _converted(value: Column, type_: T.DataType) -> Column:
    """Convert `value`, which the mirror got from delimited text, to `type_`. Returns NULL if the conversion fails."""
    if isinstance(type_, T.TimestampType):
        return _instant(value)
    return F.try_to_binary(value, F.lit("base64")) if isinstance(type_, T.BinaryType) else value.try_cast(type_)


def _instant(in_utc: Column) -> Column:
    return F.concat(in_utc.cast("string"), F.lit("Z")).try_cast("timestamp")


def _mirror_value(text: Column, type_: T.DataType) -> Column:
    """Return the value of a nested mirror column, as described in `comparable_columns`."""
    # `from_json` returns NULL for JSON of another kind. For text that is not JSON, it can return a struct of NULLs.
    parsed = _parsed(text, type_)
    is_json = F.try_parse_json(text).isNotNull() | (F.octet_length(text) > _MAX_VARIANT_TEXT)
    wrong = F.when(text.isNotNull() & (parsed.isNull() | ~is_json), text)
    return F.struct(_comparable(parsed, type_, from_text=True).alias("value"), wrong.alias("text"))


def _parsed(text: Column, type_: T.DataType) -> Column:
    return F.from_json(text, _json_type(type_).json())


def _json_type(type_: T.DataType) -> Any:
    """Return the type that Spark needs to parse a value of `type_` from JSON text. Map keys get the type text."""
    if isinstance(type_, T.StructType):
        return T.StructType([T.StructField(field.name, _json_type(field.dataType)) for field in type_])
    if isinstance(type_, T.ArrayType):
        return T.ArrayType(_json_type(type_.elementType))
    if isinstance(type_, T.MapType):
        return T.MapType(T.StringType(), _json_type(type_.valueType))
    return type_ if isinstance(type_, T.VariantType) else _mirror_type(type_)


def _comparable(value: Column, type_: T.DataType, *, from_text: bool) -> Column:
    """Return a value that Spark can compare: maps as arrays of entries sorted by key, and variants as text.

    Set `from_text` if the value is parsed from JSON text. The variant value null becomes NULL.
    """
    if isinstance(type_, T.VariantType):
        return F.when(~F.is_variant_null(value), F.to_json(value))
    if isinstance(type_, T.StructType):
        fields = [
            _comparable(value.getField(field.name), field.dataType, from_text=from_text).alias(field.name)
            for field in type_
        ]
        return F.when(value.isNotNull(), F.struct(*fields)) if fields else value
    if isinstance(type_, T.ArrayType):
        return F.transform(value, lambda item: _comparable(item, type_.elementType, from_text=from_text))
    if isinstance(type_, T.MapType):
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


def _plain(value: Column, type_: T.DataType) -> Column:
    """Convert a source value of type `type_` to the type of its column in a mirror. `type_` must not be nested.

    Text gets a collation with which Spark compares text byte for byte.
    """
    if _is_geo_type(type_):
        return F.call_function("st_asbinary", value)
    if isinstance(type_, T.StringType):  # compare bytes, independent of the collation
        return F.collate(value, "UTF8_BINARY")
    expected = _mirror_type(type_)
    return value if expected == type_ else value.cast(expected)


def _key(key: Column, type_: T.DataType, *, from_text: bool) -> Column:
    if isinstance(type_, NESTED):
        return _comparable(_parsed(key, type_) if from_text else key, type_, from_text=from_text)
    if not from_text:
        return key
    return F.try_to_binary(key, F.lit("base64")) if isinstance(type_, T.BinaryType) else key.try_cast(type_)
