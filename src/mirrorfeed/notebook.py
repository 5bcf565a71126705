"""Results as frames, for `display` in a notebook."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields
from datetime import datetime
from types import NoneType
from typing import Any, get_args, get_type_hints

from pyspark.sql import DataFrame, SparkSession

from mirrorfeed.feed.source import quote

_TYPES = {bool: "boolean", int: "bigint", float: "double", str: "string", datetime: "timestamp"}


def frame(spark: SparkSession, kind: type, rows: Iterable[Any]) -> DataFrame:
    """Rows of a dataclass with its fields as columns; what is no plain value is shown as its text."""
    hints = get_type_hints(kind)
    types = {field.name: _TYPES.get(_plain(hints[field.name])) for field in fields(kind)}
    schema = ", ".join(f"{quote(name)} {type_ or 'string'}" for name, type_ in types.items())

    def value(row: Any, name: str) -> Any:
        found = getattr(row, name)
        return found if found is None or types[name] else str(found)

    return spark.createDataFrame([tuple(value(row, name) for name in types) for row in rows], schema)


def _plain(hint: Any) -> Any:
    """The type of a field that may be missing."""
    there = [each for each in get_args(hint) if each is not NoneType]
    return there[0] if len(there) == 1 else hint
