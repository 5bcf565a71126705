"""Conditions that can be judged for each row by its own columns, and columns that exist."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from mirrorfeed.archive.errors import BadPredicate, NoSuchColumn
from mirrorfeed.runtime.spark_errors import first_of, parameter
from mirrorfeed.runtime.spark_session import looked_at, unlogged
from mirrorfeed.source.identifier import Source


def check_columns(spark: SparkSession, source: Source, names: Sequence[str]) -> None:
    if names:
        named(str(source), spark.table(source.sql).columns, names)


def named(what: str, there: Sequence[str], names: Sequence[str]) -> list[str]:
    """The columns with their exact names. Raises `NoSuchColumn`."""
    known = {name.lower(): name for name in there}
    if unknown := [name for name in names if name.lower() not in known]:
        raise NoSuchColumn(table=what, column=unknown[0], columns=there)
    return [known[name.lower()] for name in names]


def filtered(frame: DataFrame, table: str, predicate: str | None) -> DataFrame:
    """The rows that match a condition. Reads nothing, and raises `BadPredicate`.

    Spark judges the condition: a lambda accepts no subquery, and an aggregate no nondeterministic function.
    """
    if predicate is None:
        return frame
    try:
        with unlogged():
            found = looked_at(frame.where(predicate))
            looked_at(frame.select(F.exists(F.array(F.lit(1)), lambda _: F.expr(predicate))))
            looked_at(frame.agg(F.bool_or(F.expr(predicate))))
    except AnalysisException as error:
        raise BadPredicate(table=table, predicate=predicate, reason=_reason(error)) from error
    return found


def _reason(error: AnalysisException) -> str:
    if first_of(error, ("UNRESOLVED_COLUMN",)):
        return f"names {parameter(error, 'objectName')}, which is not a column of the table"
    if first_of(error, ("UNSUPPORTED_SUBQUERY_EXPRESSION_CATEGORY",)):
        return "contains a subquery"
    if first_of(error, ("AGGREGATE_FUNCTION_WITH_NONDETERMINISTIC_EXPRESSION",)):
        return "contains a nondeterministic function"
    if first_of(error, ("PARSE_", "UNCLOSED_BRACKETED_COMMENT")):
        return "cannot be parsed"
    return f"is not a condition on a row ({first_of(error, ('',)) or 'Spark does not say why'})"
