"""Guarded changes of one table: a statement that would read archived files fails before it starts.

A statement needs every file in which its command searches for rows: possibly too many, never too few. Statements that
only remove files in the log need none. On Databricks the engine guards statements itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date
from typing import Any

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import ByteType, DataType, DateType, IntegerType, LongType, ShortType, StringType

from mirrorfeed.archive.errors import SubqueryInStatement
from mirrorfeed.archive.guard.predicate import filtered, named
from mirrorfeed.archive.guard.query import engine_of
from mirrorfeed.archive.guard.table import GuardedTable
from mirrorfeed.archive.spark_scans import merge_has_subqueries
from mirrorfeed.runtime.spark_session import looked_at, unlogged
from mirrorfeed.source.identifier import quote

_WHOLE = (ByteType, ShortType, IntegerType, LongType)


class GuardedWriter:
    """Statements are atomic: a concurrent change after the check can only make a statement fail."""

    def __init__(self, spark: SparkSession, table: GuardedTable) -> None:
        self._spark, self._table, self._source = spark, table, table.source

    def delete(self, where: str) -> None:
        self._filtered(self._rows, where)
        self._table.change("The DELETE", f"DELETE FROM {self._source.sql} WHERE {_closed(where)}")

    def update(self, assignments: Mapping[str, str], where: str | None = None) -> None:
        """Assignments are SQL expressions by column."""
        found = self._filtered(self._rows, where)
        for value in assignments.values():
            self._check_assigned(found, value)
        spelled = ", ".join(f"{quote(name)} = {value}" for name, value in assignments.items())
        condition = "" if where is None else f" WHERE {_closed(where)}"
        self._table.change("The UPDATE", f"UPDATE {self._source.sql} SET {spelled}{condition}")

    def merge(self, rows: DataFrame, keys: Sequence[str], clauses: str, target_condition: str | None = None) -> None:
        """MERGE of these rows, called `s`, into the table, called `t`, where all keys are equal and the condition
        holds, which names columns of `t` alone. `clauses` are SQL, from the first WHEN on, without subqueries.

        Files are found from that condition and from the smallest and largest keys of the rows. With WHEN NOT MATCHED BY
        SOURCE every file is needed. The rows are read once, before anything is changed.
        """
        keys = named(str(self._source), self._rows.columns, keys)
        named("The source of the MERGE", rows.columns, keys)
        view = f"mirrorfeed_merge_{id(rows)}"
        equal = [f"t.{quote(key)} = s.{quote(key)}" for key in keys]
        own = [f"({target_condition}\n)"] if target_condition else []
        self._filtered(self._rows.alias("t"), target_condition)
        if not engine_of(self._spark).guards_itself:
            if merge_has_subqueries(self._spark, self._merge(view, [*equal, *own], clauses)):
                raise SubqueryInStatement(kind="MERGE", table=str(self._source), text=clauses)
            # Rows that change between two reads could need other files than were checked.
            rows = self._table.rows_of(rows).localCheckpoint()
            # The bounds follow from equal keys, so they only reduce the files that Delta reads.
            own += self._bounds(rows, keys)
        rows.createOrReplaceTempView(view)
        try:
            self._table.change("The MERGE", self._merge(view, [*equal, *own], clauses))
        finally:
            self._spark.catalog.dropTempView(view)

    def _merge(self, view: str, on: Sequence[str], clauses: str) -> str:
        return f"MERGE INTO {self._source.sql} t USING {view} s ON {' AND '.join(on)} {clauses}"

    def overwrite(self, rows: DataFrame) -> None:
        """All rows of the table by these, whatever the session says of partitions. The table's own files are marked as
        removed, and none is read."""
        writer = self._table.rows_of(rows).write.format("delta").mode("overwrite")
        writer = writer.option("partitionOverwriteMode", "static")
        if self._source.path is None:
            writer.saveAsTable(self._source.sql)
        else:
            writer.save(self._source.path)

    def _filtered(self, rows: DataFrame, where: str | None) -> DataFrame:
        return filtered(rows, str(self._source), where)

    @property
    def _rows(self) -> DataFrame:
        return self._spark.table(self._source.sql)

    def _check_assigned(self, rows: DataFrame, value: str) -> None:
        """Raises an error if an assigned expression contains a subquery."""
        if "SUBQUERY" in _refusal(rows, value):
            raise SubqueryInStatement(kind="UPDATE", table=str(self._source), text=value)

    def _bounds(self, rows: DataFrame, keys: Sequence[str]) -> list[str]:
        """Conditions that follow from equal keys, for types with the same order on both sides of the join."""
        ours, theirs = self._rows.schema, dict(zip(keys, named("The source", rows.columns, keys), strict=True))
        plain = [key for key in keys if _in_one_order(ours[key].dataType, rows.schema[theirs[key]].dataType)]
        if not plain:
            return []
        ends = [end(quote(key)).alias(f"{end.__name__}{i}") for i, key in enumerate(plain) for end in (F.min, F.max)]
        row = rows.agg(*ends).collect()[0]
        if None in tuple(row):  # a key is NULL in all rows, or there are no rows
            return ["false"]
        found = []
        for i, key in enumerate(plain):
            low, high = _literal(row[2 * i]), _literal(row[2 * i + 1])
            if low is not None and high is not None:
                found.append(f"t.{quote(key)} >= {low} AND t.{quote(key)} <= {high}")
        return found


def _refusal(rows: DataFrame, value: str) -> str:
    """The error condition of an expression: a lambda accepts no subquery."""
    try:
        with unlogged():
            looked_at(rows.select(F.transform(F.array(F.lit(1)), lambda _: F.expr(value))))
    except AnalysisException as error:
        return error.getCondition() or ""
    return ""


def _in_one_order(ours: DataType, theirs: DataType) -> bool:
    if isinstance(ours, _WHOLE):
        return isinstance(theirs, _WHOLE)
    return ours == theirs and isinstance(ours, (DateType, StringType))


def _literal(value: Any) -> str | None:
    """A value as a SQL literal, or None if uncertain: Spark replaces variables `${…}` also in text."""
    if isinstance(value, date):
        return f"DATE '{value.isoformat()}'"
    if isinstance(value, str):
        return f"'{value}'" if value.isprintable() and not set("'\\$") & set(value) else None
    return str(value)


def _closed(condition: str) -> str:
    """The line break ends a comment at the end. Two parentheses, because Spark parses `WHERE (flag)` after a table name
    as an alias called WHERE with a column."""
    return f"(({condition}\n))"
