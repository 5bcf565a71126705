"""Read and change a table with archived files: return a correct result, or raise an error before anything is read.

Each read is planned at a fixed version, and its plan is checked for archived files. A DELETE, UPDATE or MERGE needs all
files in which it searches for rows. A `TierStore` shows which archived files are restored. Databricks itself checks
statements for archived files.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, date, datetime
from functools import cached_property
from typing import Any

from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import ByteType, DataType, DateType, IntegerType, LongType, ShortType, StringType

from mirrorfeed.archive import guard
from mirrorfeed.archive.archived_files import TiersAt, find_unreadable, not_enough_active_rows, require_readable
from mirrorfeed.archive.data_files import DataFile, NeededFiles, describe_files
from mirrorfeed.archive.data_skipping import (
    SUBQUERY,
    apply_condition,
    check_columns,
    check_expression,
    closed,
    exact_names,
)
from mirrorfeed.archive.engines import Engine, engine_of
from mirrorfeed.archive.errors import InvalidPredicateError, negative_number, statement_failed, subquery_in_statement
from mirrorfeed.archive.guard import guarded_rows
from mirrorfeed.archive.spark_plans import has_subqueries
from mirrorfeed.display.rows import counted
from mirrorfeed.errors import first_line
from mirrorfeed.runtime.spark_errors import is_value_error, silence_spark_logs
from mirrorfeed.source import versions
from mirrorfeed.source.identifier import Source, quote
from mirrorfeed.source.snapshot_or_range import Range
from mirrorfeed.source.table_info import read_table_info
from mirrorfeed.storage import tiers_at

Session = SparkSession | Callable[[], SparkSession]
_INTEGERS = (ByteType, ShortType, IntegerType, LongType)


@dataclass(frozen=True)
class Recent:
    """Rows in the readable files of a table, and the archived files that are left out."""

    rows: DataFrame
    version: int
    left_out: tuple[DataFile, ...]

    def __str__(self) -> str:
        if not self.left_out:
            return f"all rows at version {self.version}"
        rows = [file.rows for file in self.left_out]
        count = "an unknown number of rows" if None in rows else counted(sum(filter(None, rows)), "row")
        return f"version {self.version} without {describe_files(self.left_out)}, {count}"


class GuardedTable:
    def __init__(
        self,
        spark: Session,
        name: str | Source,
        tiers: TiersAt = tiers_at,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._session, self._tiers_at, self._now = spark, tiers, now
        self.source = Source.parse_argument(name) if isinstance(name, str) else name

    def query(
        self, where: str | None = None, columns: Sequence[str] | None = None, version: int | None = None
    ) -> DataFrame:
        """Return the rows that match a SQL condition, with all or some columns. The default version is the newest.

        Raises `MirrorfeedError` if the query needs archived files that are not restored.
        """
        check_columns(self._spark, self.source, columns or ())
        if self._engine.guards_itself:
            needed = self._needed(where, version)
            version = needed.version
            require_readable([needed], self._tiers_at, operation="A query", arguments=self._arguments(where))
        rows = apply_condition(self._engine.read(self.source, version), str(self.source), where)
        return self._guard("A query", rows if columns is None else rows.select(*map(quote, columns)), where)

    def count(self, version: int | None = None) -> int:
        """Return the row count of a version, by default the newest. Reads only the Delta log if it has row counts."""
        (row,) = self._guard("A count", self._engine.read(self.source, version).groupBy().count()).collect()
        return int(row[0])

    def bounds(self, column: str, version: int | None = None) -> tuple[Any, Any]:
        """Return the smallest and the largest value of a column. Both values are None if the column has only NULL.

        Reads data files only if the Delta log has no exact statistics of the column. The default version is the newest.
        """
        check_columns(self._spark, self.source, [column])
        ends = self._engine.read(self.source, version).agg(F.min(quote(column)), F.max(quote(column)))
        (row,) = self._guard("A query for bounds", ends).collect()
        return row[0], row[1]

    def partitions(self, version: int | None = None) -> list[dict[str, str | None]]:
        """Return one mapping per partition, from partition column to value. The default version is the newest."""
        return self._engine.partitions(self.source, version)

    def limit(self, n: int, where: str | None = None) -> DataFrame:
        """Return any `n` rows from files that can be read. The condition `where` may contain only partition columns.

        Raises `MirrorfeedError` if these files contain fewer rows and archived files may contain more.
        """
        if n < 0:
            raise negative_number(table=str(self.source), argument="LIMIT", value=n)
        partitions = read_table_info(self._spark, self.source).partition_columns
        apply_condition(self._rows.select(*map(quote, partitions)), f"the partitions of {self.source}", where)
        if self._engine.guards_itself:
            return apply_condition(self._rows, str(self.source), where).limit(n)
        active, blocked = self._active(self._needed(where))
        rows = apply_condition(active, str(self.source), where).limit(n)
        if blocked and (found := rows.count()) < n:
            raise not_enough_active_rows(table=str(self.source), limit=n, found=found, files=tuple(blocked))
        return rows

    def recent(self, columns: Sequence[str] | None = None) -> Recent:
        """Return the rows in files that can be read, and the archived files that are left out.

        No other method leaves out rows. Raises `MirrorfeedError` on Databricks.
        """
        check_columns(self._spark, self.source, columns or ())
        needed = self._needed()
        rows, blocked = self._active(needed)
        return Recent(rows if columns is None else rows.select(*map(quote, columns)), needed.version, tuple(blocked))

    def stream(self, starting_version: int | None = None) -> DataFrame:
        """Return a stream of the whole table and its later changes, or of the changes from `starting_version` on.

        Raises `MirrorfeedError` if an existing file that the stream needs is still archived. New files are not checked.
        """
        if starting_version is not None and starting_version < 0:
            raise negative_number(table=str(self.source), argument="starting version", value=starting_version)
        reader = self._spark.readStream.format("delta")
        # Only the files that exist now are checked, because files that are added later are new.
        if starting_version is None:
            needed = self._needed()
            operation = "A stream of the whole table"
            require_readable([needed], self._tiers_at, operation=operation, arguments=self._arguments())
        else:
            reader = reader.option("startingVersion", starting_version)
            if not self._engine.guards_itself:
                newest = versions.newest_version(self._spark, self.source)
                if starting_version <= newest:
                    range_, operation = Range(starting_version - 1, newest), f"A stream from version {starting_version}"
                    guard.check(self._spark, self.source, range_, self._tiers_at, self._now(), operation)
        return reader.table(self.source.sql) if self.source.path is None else reader.load(self.source.path)

    def _guard(self, operation: str, rows: DataFrame, where: str | None = None) -> DataFrame:
        """Return `rows` with a checked plan. Raises an error with `operation` and `where` if files are not restored."""
        arguments = self._arguments(where)
        return guarded_rows(self._spark, rows, self._tiers_at, self._now(), operation=operation, arguments=arguments)

    def _arguments(self, where: str | None = None) -> tuple[str, ...]:
        """Return the arguments with which `mirrorfeed archive plan` plans the restore for a query of this table."""
        return (str(self.source), "--where", where) if where else (str(self.source),)

    def _needed(self, where: str | None = None, version: int | None = None) -> NeededFiles:
        """Return the archived files that a query with the condition `where` needs, including restored files."""
        return self._engine.needed(self.source, where, self._now(), version)

    def delete(self, where: str) -> None:
        """Delete the rows that match a SQL condition.

        Raises `MirrorfeedError` and changes nothing if the statement searches archived files that are not restored.
        """
        apply_condition(self._rows, str(self.source), where)
        self._change("The DELETE", f"DELETE FROM {self.source.sql} WHERE {closed(where)}")

    def update(self, assignments: Mapping[str, str], where: str | None = None) -> None:
        """Set columns of the rows that match a SQL condition. `assignments` maps column names to SQL expressions.

        Raises `MirrorfeedError` and changes nothing if an expression is not valid for a single row, such as a subquery
        or an aggregate. Also raises it if the statement searches archived files that are not restored.
        """
        table, rows = str(self.source), self._rows
        apply_condition(rows, table, where)
        exact_names(table, rows.columns, [*assignments])
        for value in assignments.values():
            self._check_value(rows, value)
        values = ", ".join(f"{quote(name)} = {closed(value)}" for name, value in assignments.items())
        condition = "" if where is None else f" WHERE {closed(where)}"
        self._change("The UPDATE", f"UPDATE {self.source.sql} SET {values}{condition}")

    def _check_value(self, rows: DataFrame, value: str) -> None:
        try:
            if value.strip().upper() != "DEFAULT":  # the default value of the column
                check_expression(rows, str(self.source), value)
        except InvalidPredicateError as error:
            if error.reason == SUBQUERY:  # the files of a subquery are not checked
                raise subquery_in_statement(kind="UPDATE", table=str(self.source), text=value) from error
            raise

    def merge(self, rows: DataFrame, keys: Sequence[str], clauses: str, target_condition: str | None = None) -> None:
        """Merge `rows` into the table. Rows match if all keys are equal and `target_condition` is true.

        In SQL, the table has the alias `t`, and `rows` the alias `s`. Raises `MirrorfeedError` and changes nothing if
        the statement searches archived files that are not restored.

        Args:
            rows: Rows to merge.
            keys: Columns that `rows` and the table have in common.
            clauses: All WHEN clauses of the MERGE statement, without subqueries.
            target_condition: SQL condition that contains only columns of `t`.
        """
        keys = exact_names(str(self.source), self._rows.columns, keys)
        exact_names("The source of the MERGE", rows.columns, keys)
        view = f"mirrorfeed_merge_{uuid.uuid4().hex}"
        equal = [f"t.{quote(key)} = s.{quote(key)}" for key in keys]
        conditions = [closed(target_condition)] if target_condition else []
        apply_condition(self._rows.alias("t"), str(self.source), target_condition)
        if not self._engine.guards_itself:
            with self._statement_errors("The MERGE"):
                contains_subquery = has_subqueries(self._spark, self._merge(view, equal, clauses))
            if contains_subquery:
                raise subquery_in_statement(kind="MERGE", table=str(self.source), text=clauses)
            # Rows that change between two reads could need other files than were checked.
            rows = guarded_rows(self._spark, rows, self._tiers_at, self._now()).localCheckpoint()
            # The bounds follow from equal keys, so they only reduce the files that Delta reads.
            conditions += self._bounds(rows, keys)
        rows.createOrReplaceTempView(view)
        try:
            self._change("The MERGE", self._merge(view, [*equal, *conditions], clauses))
        finally:
            self._spark.catalog.dropTempView(view)

    def _merge(self, view: str, on: Sequence[str], clauses: str) -> str:
        return f"MERGE INTO {self.source.sql} t USING {view} s ON {' AND '.join(on)} {clauses}"

    def overwrite(self, rows: DataFrame) -> None:
        """Replace all rows of the table, also in dynamic partition overwrite mode. Reads no file of the table."""
        # Delta only marks the table's own files as removed.
        rows = guarded_rows(self._spark, rows, self._tiers_at, self._now())
        writer = rows.write.format("delta").mode("overwrite").option("partitionOverwriteMode", "static")
        if self.source.path is None:
            writer.saveAsTable(self.source.sql)
        else:
            writer.save(self.source.path)

    def _bounds(self, rows: DataFrame, keys: Sequence[str]) -> list[str]:
        """Return SQL conditions that limit each key to the range from its smallest to its largest value in `rows`.

        Only integer, date and text keys have conditions. Returns `["false"]` if no row of the table can match.
        """
        schema = self._rows.schema
        source_names = dict(zip(keys, exact_names("The source", rows.columns, keys), strict=True))
        keys = [key for key in keys if _have_same_order(schema[key].dataType, rows.schema[source_names[key]].dataType)]
        if not keys:
            return []
        ends = [end(quote(key)).alias(f"{end.__name__}{i}") for i, key in enumerate(keys) for end in (F.min, F.max)]
        values = tuple(rows.agg(*ends).collect()[0])
        if None in values:  # a key is NULL in all rows, or there are no rows
            return ["false"]
        bounds = zip(keys, map(_literal, values[::2]), map(_literal, values[1::2]), strict=True)
        return [f"t.{quote(key)} >= {low} AND t.{quote(key)} <= {high}" for key, low, high in bounds if low and high]

    @property
    def _rows(self) -> DataFrame:
        return self._spark.table(self.source.sql)

    def _change(self, operation: str, statement: str) -> None:
        """Check that a DELETE, UPDATE or MERGE of this table searches only readable files, and run the statement.

        Raises `ArchivedFilesNeededError` if a file cannot be read, and `statement_failed` if the statement is invalid.
        After the check, a concurrent change can make the statement fail, but cannot make its result wrong.
        """
        with self._statement_errors(operation):
            needed = self._engine.needed_by_change(self.source, statement, self._now())
            require_readable(needed, self._tiers_at, operation=operation)
            with self._engine.without_compaction():
                self._spark.sql(statement)

    @contextmanager
    def _statement_errors(self, operation: str) -> Iterator[None]:
        """Context manager that converts errors about the text of a statement, or about a value that it computes."""
        try:
            with silence_spark_logs():
                yield
        except PySparkException as error:
            if not isinstance(error, AnalysisException) and not is_value_error(error):
                raise
            reason = first_line(str(error))
            raise statement_failed(table=str(self.source), operation=operation, reason=reason) from error

    def _active(self, needed: NeededFiles) -> tuple[DataFrame, list[DataFile]]:
        """Return the rows of the readable files of the table, and a list of the unreadable files in `needed`."""
        blocked = find_unreadable(needed, self._tiers_at)
        return self._engine.rows_without(self.source, {file.uri for file in blocked}, needed.version), blocked

    @cached_property
    def _spark(self) -> SparkSession:
        return self._session() if callable(self._session) else self._session

    @cached_property
    def _engine(self) -> Engine:
        return engine_of(self._spark)


def _have_same_order(type_: DataType, source_type: DataType) -> bool:
    if isinstance(type_, _INTEGERS):
        return isinstance(source_type, _INTEGERS)
    return type_ == source_type and isinstance(type_, (DateType, StringType))


def _literal(value: Any) -> str | None:
    """Return a value as a SQL literal. None for text that Spark might change, such as `${…}`."""
    if isinstance(value, date):
        return f"DATE '{value.isoformat()}'"
    if isinstance(value, str):
        return f"'{value}'" if value.isprintable() and not set("'\\$") & set(value) else None
    return str(value)
