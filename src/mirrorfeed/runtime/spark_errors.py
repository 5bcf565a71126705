"""Error conditions (names such as PATH_NOT_FOUND) of Spark and Delta, and functions that find them in an error.

A call of Spark can raise exceptions of many classes: those of PySpark, Py4J and gRPC, `ConnectionError`, and plain
exceptions of Databricks. So the code that calls Spark catches `Exception`, and asks for the condition.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.errors import PySparkException
    from pyspark.sql import DataFrame

NOT_THERE = "DELTA_VERSION_NOT_FOUND"
"""Condition for time travel to a version that the table no longer has, or does not have yet."""
_VECTOR_GONE = "DELETION_VECTOR_NOT_FOUND"
"""Name that mirrorfeed gives to the error for a deletion vector that VACUUM deleted. The error has no condition."""
FILES_GONE = (
    "FAILED_READ_FILE.FILE_NOT_EXIST",
    "FAILED_READ_FILE.DBR_FILE_NOT_EXIST",
    "DELTA_FILE_NOT_FOUND",
    "DELTA_CHANGE_DATA_FILE_NOT_FOUND",
    "PATH_NOT_FOUND",
    _VECTOR_GONE,
)
LOG_GONE = (
    "DELTA_VERSIONS_NOT_CONTIGUOUS",
    "DELTA_LOG_FILE_NOT_FOUND",
    "DELTA_TRUNCATED_TRANSACTION_LOG",
    "DELTA_NO_RECREATABLE_HISTORY_FOUND",
    NOT_THERE,
)
NOT_IN_CATALOG = (
    "TABLE_OR_VIEW_NOT_FOUND",
    "SCHEMA_NOT_FOUND",
    "CATALOG_NOT_FOUND",
    "NO_SUCH_CATALOG_EXCEPTION",
    "REQUIRES_SINGLE_PART_NAMESPACE",  # a name of three parts, where the only catalog is Spark's own
    "DELTA_TABLE_NOT_FOUND",
)
EXPIRED = "DELTA_UNSUPPORTED_TIME_TRAVEL_BEYOND_DELETED_FILE_RETENTION_DURATION"
"""Condition for time travel to a version that is older than the retention, even if its files still exist."""
FEED_OFF = "DELTA_MISSING_CHANGE_DATA"
SCHEMA_DIFFERS = "DELTA_CHANGE_DATA_FEED_INCOMPATIBLE"
LARGE_VECTOR = "LARGE_DELETION_VECTOR"
"""Name that mirrorfeed gives to the error for a deletion vector that is too large to read in a change data feed.
The error has no condition. Java limits the vector, as a string, to 64 KiB (delta-io/delta issue 5662)."""
UNREADABLE = "FAILED_READ_FILE"
"""Condition for a file that exists but cannot be read. Conditions for missing files start with the same text."""
SOURCE_FAULTS = (*FILES_GONE, *LOG_GONE, EXPIRED, FEED_OFF, SCHEMA_DIFFERS, LARGE_VECTOR, UNREADABLE)
"""Conditions whose cause is the source table, not the query."""

_DATA_EXCEPTION, _RAISED_BY_QUERY = "22", "P0001"
"""Start of the SQLSTATE of errors about values, and SQLSTATE of `raise_error`."""

_STREAM = "STREAM_FAILED"
"""Condition of any failure of a stream. The text of the error contains the cause."""

_OLD_NOT_THERE = re.compile(
    r"Cannot time travel Delta table to version (?P<userVersion>\d+)\. "
    r"Available versions: \[(?P<earliest>\d+), (?P<latest>\d+)\]"
)
"""Text of the error `NOT_THERE` in Delta 4.0, where the error has no condition and no parameters."""

_BY_TEXT = (
    (_OLD_NOT_THERE, NOT_THERE),
    (re.compile(r"java\.io\.UTFDataFormatException"), LARGE_VECTOR),
    (re.compile(r"java\.io\.FileNotFoundException\W.*deletion_vector_[0-9a-f-]+\.bin"), _VECTOR_GONE),
)
"""Regular expressions for the texts of errors without a condition, each with the name to use as the condition."""

_FILE_READ = re.compile(r"Encountered error while reading file (\S+)\.(?:\s|$)")

_NAMED = re.compile(r"\[([A-Z][A-Z0-9]*_[A-Z0-9_]*(?:\.[A-Z0-9_]+)*)\]")


def list_conditions(error: Exception) -> tuple[str, ...]:
    """Return the names of the error conditions that an error contains, outermost first. Empty if there are none."""
    condition: str | None = getattr(error, "getCondition", lambda: None)()
    if condition and condition != _STREAM:
        return (condition,)
    text = str(error)  # a failed task has no condition of its own, but its text can contain conditions in brackets
    without_name = [name for pattern, name in _BY_TEXT if pattern.search(text)]
    return tuple(dict.fromkeys(_NAMED.findall(text) + without_name))


def find_condition(error: Exception, prefixes: tuple[str, ...]) -> str | None:
    """Return the first error condition of `error` that starts with one of `prefixes`, or None."""
    return next((name for name in list_conditions(error) if name.startswith(prefixes)), None)


def unreadable_file(error: Exception) -> str:
    """Return the address of the file in a read error, or the text "Spark does not name it"."""
    match = _FILE_READ.search(str(error))
    return find_parameter(error, "path") or (match[1] if match else "Spark does not name it")


def find_parameter(error: Exception, name: str) -> str | None:
    """Return the value of a message parameter of a Spark error, or None if the error has no such parameter."""
    parameters: dict[str, str] | None = getattr(error, "getMessageParameters", lambda: None)()
    if not parameters and (match := _OLD_NOT_THERE.search(str(error))):
        parameters = match.groupdict()
    return (parameters or {}).get(name)


def is_value_error(error: PySparkException) -> bool:
    """Return whether an error is about a value that a query computes, such as an overflow or a failed cast."""
    state = error.getSqlState() or ""
    return state.startswith((_DATA_EXCEPTION, _RAISED_BY_QUERY))


def analyze(frame: DataFrame) -> DataFrame:
    """Return the same DataFrame after Spark has analyzed it, so that errors of the analysis are raised now.

    With Spark Connect, a schema can come from a cache, so reading the schema does not analyze the DataFrame.
    """
    _ = frame.isStreaming
    return frame


@contextmanager
def silence_spark_logs() -> Iterator[None]:
    """Context manager in which PySpark does not log errors of queries to standard error."""
    from pyspark.logger import PySparkLogger

    loggers = [PySparkLogger.getLogger(name) for name in ("DataFrameQueryContextLogger", "SQLQueryContextLogger")]
    were_disabled = [logger.disabled for logger in loggers]
    for logger in loggers:
        logger.disabled = True
    try:
        yield
    finally:
        for logger, was_disabled in zip(loggers, were_disabled, strict=True):
            logger.disabled = was_disabled
