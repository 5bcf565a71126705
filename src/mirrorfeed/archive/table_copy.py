"""Copy rows into a new table."""

from __future__ import annotations

from pyspark.sql import SparkSession

from mirrorfeed.archive.errors import TargetExists
from mirrorfeed.source.errors import NoTableAtPath, NotDelta, SourceMissing
from mirrorfeed.source.identifier import Source
from mirrorfeed.source.table_info import read_table_info


def is_existing_copy(spark: SparkSession, into: Source, property_: str, value: str, expected: str) -> bool:
    """Return whether an earlier run created the table `into`: it exists, and its property `property_` is `value`.

    Raises `TargetExists` if `into` exists but an earlier run did not create it. `expected` describes the expected table
    for the error.
    """
    try:
        table = read_table_info(spark, into)
    except (SourceMissing, NoTableAtPath):
        return False
    except NotDelta as error:
        raise TargetExists(table=str(into), expected=expected) from error
    if table.properties.get(property_) != value:
        raise TargetExists(table=str(into), expected=expected)
    return True
