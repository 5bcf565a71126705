"""Copy rows into a new table, and check before that the table can have their columns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, MapType, StringType, StructType

from mirrorfeed.runtime.spark_session import is_databricks
from mirrorfeed.source.errors import NoTableAtPathError, NotDeltaError, SourceMissingError, copy_target_exists
from mirrorfeed.source.identifier import Source, quote
from mirrorfeed.source.table_info import FEED, is_in_local_folder, read_table_info

_MAPPING = "delta.columnMapping.mode"
_NEEDS_MAPPING = frozenset(" ,;{}()\n\t=")
"""Characters that require column mapping in a column name."""
_FEED_COLUMNS = frozenset({"_change_type", "_commit_version", "_commit_timestamp"})
"""Columns that a table with a change data feed cannot have."""
_NOT_IN_DELTA = frozenset({"CalendarIntervalType", "DayTimeIntervalType", "YearMonthIntervalType", "NullType"})
_ONLY_ON_DATABRICKS = frozenset({"TimeType", "GeometryType", "GeographyType"})


def create(rows: DataFrame, into: Source, properties: Mapping[str, str], partitions: Sequence[str] = ()) -> None:
    """Create the Delta table `into` in one commit, with all columns of `rows` and the properties `properties`."""
    writer = rows.writeTo(into.sql).using("delta")
    for name, value in {**_required_properties(rows.schema), **properties}.items():
        writer = writer.tableProperty(name, value)
    if partitions:
        writer = writer.partitionedBy(*(F.col(quote(name)) for name in partitions))
    writer.create()


def _required_properties(schema: StructType) -> dict[str, str]:
    properties = {}
    if any(_NEEDS_MAPPING.intersection(name) for each in _structs("", schema) for name in each[1].names):
        properties[_MAPPING] = "name"
    if any(name.lower() in _FEED_COLUMNS for name in schema.names):  # a session can turn on the feed of new tables
        properties[FEED] = "false"
    return properties


def find_copy_obstacles(spark: SparkSession, into: Source, schema: StructType) -> list[str]:
    """Return reasons why the new table `into` with the columns `schema` cannot be created. Empty if it can."""
    reasons = find_obstacles(schema, is_databricks(spark))
    if len(into.parts) > 1:
        with suppress(Exception):  # not every catalog can be asked
            if not spark.catalog.databaseExists(".".join(map(quote, into.parts[:-1]))):
                reasons.append(f"the schema {'.'.join(into.parts[:-1])} does not exist")
    return reasons


def find_obstacles(schema: StructType, on_databricks: bool = False) -> list[str]:
    """Return reasons why a Delta table cannot have the columns `schema`. Empty if it can."""
    reasons = []
    for parent, struct in _structs("", schema):
        place, kind = (f" of {parent}", "fields") if parent else ("", "columns")
        counts = Counter(name.lower() for name in struct.names)
        reasons += [f"{count} {kind}{place} are named {name!r}" for name, count in counts.items() if count > 1]
    unsupported = _NOT_IN_DELTA if on_databricks else _NOT_IN_DELTA | _ONLY_ON_DATABRICKS
    for name, type_ in _types("", schema):
        is_collated = (
            isinstance(type_, StringType)
            and getattr(type_, "collation", "UTF8_BINARY") != "UTF8_BINARY"
            and not on_databricks
        )
        if type(type_).__name__ in unsupported or is_collated:
            reasons.append(f"Delta cannot store the type {type_.simpleString()} of {name}")
    return reasons


def _structs(name: str, type_: DataType) -> Iterator[tuple[str, StructType]]:
    return ((parent, each) for parent, each in _types(name, type_) if isinstance(each, StructType))


def _types(name: str, type_: DataType) -> Iterator[tuple[str, DataType]]:
    """Yield the type and all types inside it, each with the name of its column or field."""
    yield name, type_
    match type_:
        case StructType():
            for field in type_.fields:
                yield from _types(f"{name}.{field.name}" if name else field.name, field.dataType)
        case ArrayType():
            yield from _types(name, type_.elementType)
        case MapType():
            yield from _types(name, type_.keyType)
            yield from _types(name, type_.valueType)


def is_existing_copy(spark: SparkSession, into: Source, property_: str, value: str, expected: str) -> bool:
    """Return whether an earlier run created the table `into`: it exists, and its property `property_` is `value`.

    Raises `copy_target_exists` if `into` exists but an earlier run did not create it. `expected` describes the expected
    table for the error.
    """
    try:
        table = read_table_info(spark, into)
    except (SourceMissingError, NoTableAtPathError):
        if _has_other_files(into):
            raise copy_target_exists(table=str(into), expected=expected) from None
        return False
    except NotDeltaError as error:
        raise copy_target_exists(table=str(into), expected=expected) from error
    if table.properties.get(property_) != value:
        raise copy_target_exists(table=str(into), expected=expected)
    return True


def _has_other_files(into: Source) -> bool:
    """Return whether the local folder of a new table contains files, so that Spark cannot create the table there."""
    if into.path is None or not is_in_local_folder(into):
        return False
    folder = Path(into.path)
    return folder.is_file() or (folder.is_dir() and any(folder.iterdir()))
