"""Convert nested values (structs, arrays and maps) to JSON text that does not depend on settings of Spark."""

from __future__ import annotations

from functools import reduce
from operator import or_
from typing import Any

from pyspark.sql import Column as SparkColumn
from pyspark.sql import functions as F

from mirrorfeed.landing.schema import DECIMAL, EXACT_JSON, REPLACEMENT, is_geo_type, is_text, types_in


def json_text(value: SparkColumn, type_: Any) -> SparkColumn:
    """Return a nested value as JSON text. `type_` is the JSON of its Spark `DataType`.
    If a text in the value is not valid UTF-8, the result is not valid UTF-8 either, so that the row is rejected."""
    # `to_json` replaces invalid bytes, so append an invalid byte. Values are checked only if the JSON contains the
    # replacement character.
    text = F.to_json(_for_json(value, type_), EXACT_JSON)
    replaced = F.contains(text, F.lit(REPLACEMENT)) & _has_invalid_text(value, type_)
    return F.concat(text, F.when(replaced, F.lit(b"\xff").cast("string")).otherwise(""))


def _has_texts(type_: Any) -> bool:
    return any(isinstance(part, str) and is_text(part) for part in types_in(type_))


def _has_invalid_text(value: SparkColumn, type_: Any) -> SparkColumn:
    """Return a condition that is true if a text anywhere in a value is not valid UTF-8. NULL is valid."""
    if not _has_texts(type_):
        return F.lit(False)
    if isinstance(type_, str):
        return F.coalesce(~F.is_valid_utf8(value), F.lit(False))
    match type_["type"]:
        case "array":
            invalid = F.exists(value, lambda item: _has_invalid_text(item, type_["elementType"]))
            return F.coalesce(invalid, F.lit(False))
        case "struct":
            fields = type_["fields"]
            return reduce(or_, (_has_invalid_text(value.getField(each["name"]), each["type"]) for each in fields))
    keys, values = ({"type": "array", "elementType": type_[part]} for part in ("keyType", "valueType"))
    return _has_invalid_text(F.map_keys(value), keys) | _has_invalid_text(F.map_values(value), values)


def _for_json(value: SparkColumn, type_: Any) -> SparkColumn:
    """Convert parts of a value that `to_json` does not write correctly: geometries to bytes, and map keys to text.
    `to_json` would write some map keys in internal form, such as a date as a number of days."""
    if not _needs_json_form(type_):
        return value
    if is_geo_type(type_):
        return geo_bytes(value)
    match type_["type"]:
        case "array":
            return F.transform(value, lambda item: _for_json(item, type_["elementType"]))
        case "struct":
            parts = [_for_json(value.getField(f["name"]), f["type"]).alias(f["name"]) for f in type_["fields"]]
            return F.when(value.isNotNull(), F.struct(*parts))

    # `get_json_object` reads decimals as doubles, also in structs and arrays. The JSON of these keys has no quotes.
    is_unquoted = isinstance(type_["keyType"], dict) or DECIMAL.fullmatch(type_["keyType"])

    def text(key: SparkColumn) -> SparkColumn:
        if type_["keyType"] == "string":
            return key
        json = F.to_json(F.struct(key.alias("k")), EXACT_JSON)
        if is_unquoted:
            return F.regexp_extract(json, r'(?s)\{"k":(.*)\}', 1)
        return F.get_json_object(json, "$.k")

    return F.map_from_entries(
        F.transform(
            F.map_entries(value),
            lambda entry: F.struct(text(entry["key"]), _for_json(entry["value"], type_["valueType"])),
        )
    )


def _needs_json_form(type_: Any) -> bool:
    return any(
        is_geo_type(part) if isinstance(part, str) else part["type"] == "map" and part["keyType"] != "string"
        for part in types_in(type_)
    )


def geo_bytes(value: SparkColumn) -> SparkColumn:
    """Convert a geometry to well-known binary, without its coordinate system."""
    return F.call_function("st_asbinary", value)
