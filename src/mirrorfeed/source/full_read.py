"""A source that is read whole, as it is now: whatever Spark reads by a name, and folders of Delta or Parquet files."""

from __future__ import annotations

import json
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from mirrorfeed.runtime.spark_errors import NOT_IN_CATALOG, first_of
from mirrorfeed.source.errors import NothingToRead, SourceMissing
from mirrorfeed.source.identifier import Source, quote
from mirrorfeed.source.reader import as_written

_NO_FILES = ("PATH_NOT_FOUND", "UNABLE_TO_INFER_SCHEMA", "FAILED_READ_FILE", "CANNOT_READ_FILE_FOOTER")
_NOT_DELTA = ("DELTA_MISSING_DELTA_TABLE", "DELTA_TABLE_NOT_FOUND", "DELTA_PATH_DOES_NOT_EXIST", "PATH_NOT_FOUND")


def whole(spark: SparkSession, source: Source) -> DataFrame:
    """All rows as they are when they are asked for: twice asked, they may be others."""
    if source.path is not None:
        return as_written(_folder(spark, source.path))
    try:
        spark.sql(f"REFRESH TABLE {source.sql}")  # or Spark reads the files that it remembers
        found = spark.read.table(source.sql)
        _ = found.schema  # over Connect, only now anything is looked up
    except Exception as error:
        if first_of(error, NOT_IN_CATALOG):
            raise SourceMissing(table=str(source)) from error
        raise
    return as_written(found)


def schema_of(rows: DataFrame) -> dict[str, Any]:
    """As Spark spells it in JSON."""
    found: dict[str, Any] = json.loads(rows.schema.json())
    return found


def _folder(spark: SparkSession, path: str) -> DataFrame:
    try:
        found = spark.read.table(f"delta.{quote(path)}")
        _ = found.schema
        return found
    except Exception as error:
        if not first_of(error, _NOT_DELTA):
            raise
    try:
        found = spark.read.parquet(path)
        _ = found.schema
    except Exception as error:
        if first_of(error, _NO_FILES):
            raise NothingToRead(path=path) from error
        raise
    return found
