"""Validate SQL conditions, and use partition values and statistics to select the files that may have matching rows.

Files are selected only for comparisons of integer, date and text columns with constants, joined by AND. Other
conditions raise `UncertainFiles`. As in Delta, a file is selected if the statistics for a comparison are missing.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date, timedelta
from functools import reduce
from typing import Any, Literal

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from mirrorfeed.archive.data_files import TableMetadata
from mirrorfeed.archive.errors import InvalidPredicateError, column_missing
from mirrorfeed.archive.spark_plans import items, kind_of, optimize
from mirrorfeed.runtime.spark_errors import analyze, find_condition, find_parameter, silence_spark_logs
from mirrorfeed.source.identifier import Source

Sign = Literal["=", "<", "<=", ">", ">=", "IS NOT NULL"]
TYPES: Mapping[str, pa.DataType] = {
    **dict.fromkeys(("byte", "short", "integer", "long"), pa.int64()),
    "date": pa.date32(),
    "string": pa.string(),
}
"""Arrow types by type name in the Delta log. Arrow compares values of these types as Delta does."""
_HARMLESS_METADATA = {
    "comment",
    "delta.columnMapping.id",
    "delta.columnMapping.physicalName",
    "delta.generationExpression",
}
"""Keys of column metadata that do not change comparisons, unlike keys for collations, padded text or widened types."""
_INDEXED = 32
"""Number of leading columns for which Delta collects statistics by default."""
_INDEX_PROPERTIES = ("delta.dataSkippingNumIndexedCols", "delta.dataSkippingStatsColumns")
"""Table properties that select the columns for which Delta collects statistics."""


@dataclass(frozen=True, slots=True)
class ColumnComparison:
    """Comparison of a column with a constant, or a test that the column is not NULL."""

    column: str
    """Physical name of the column, as in the Delta log."""
    type: pa.DataType
    is_partition: bool
    sign: Sign
    value: int | str | date | None

    @property
    def scalar(self) -> pa.Scalar:
        return pa.scalar(self.value, self.type)


class UncertainFiles(Exception):
    """Raised if mirrorfeed cannot be sure to select the same files as Delta. The caller then uses Delta."""


def check_columns(spark: SparkSession, source: Source, names: Sequence[str]) -> None:
    if names:
        exact_names(str(source), spark.table(source.sql).columns, names)


def exact_names(table: str, columns: Sequence[str], names: Sequence[str]) -> list[str]:
    """Return `names` as `columns` spells them. Case is ignored.
    Raises `column_missing` if a name is not in `columns`."""
    known = {name.lower(): name for name in columns}
    if unknown := [name for name in names if name.lower() not in known]:
        raise column_missing(table=table, column=unknown[0], columns=columns)
    return [known[name.lower()] for name in names]


def closed(expression: str) -> str:
    """Return a SQL expression in two pairs of parentheses, with a line break after the expression.

    The line break ends a comment at the end of the expression. One pair of parentheses is not enough: Spark would parse
    `orders WHERE (flag)` as the table `orders` with the alias `WHERE` and the column alias `flag`.
    """
    return f"(({expression}\n))"


def apply_condition(frame: DataFrame, table: str, predicate: str | None) -> DataFrame:
    """Return the rows that match a SQL condition, or all rows if `predicate` is None. Does not run the query.

    Raises `InvalidPredicateError` if the condition is invalid, or has a subquery or nondeterministic function. After
    this check, a statement can contain `closed(predicate)`.
    """
    if predicate is None:
        return frame
    with _expression_errors(table, "condition", predicate):
        filtered_rows = analyze(frame.where(predicate))
        _check_on_a_row(frame, F.expr(closed(predicate)))
    return filtered_rows


def check_expression(frame: DataFrame, table: str, expression: str) -> None:
    """Check that a text is one SQL expression, whose value depends only on the columns of a row.

    Raises `InvalidPredicateError` otherwise. After this check, a statement can contain `closed(expression)`.
    """
    with _expression_errors(table, "expression", expression):
        analyze(frame.where(F.expr(expression).isNotNull()))
        _check_on_a_row(frame, F.expr(closed(expression)).isNotNull())


def _check_on_a_row(frame: DataFrame, condition: Column) -> None:
    # Spark accepts no subquery in a lambda, and no nondeterministic function in an aggregate.
    analyze(frame.select(F.exists(F.array(F.lit(1)), lambda _: condition)))
    analyze(frame.agg(F.bool_or(condition)))


@contextmanager
def _expression_errors(table: str, kind: Literal["condition", "expression"], text: str) -> Iterator[None]:
    try:
        with silence_spark_logs():
            yield
    except (PySparkException, Py4JError) as error:
        # For some texts, such as `x -> x`, Spark raises an internal error.
        if not isinstance(error, AnalysisException) and not find_condition(error, ("INTERNAL_ERROR",)):
            raise
        raise InvalidPredicateError(table=table, kind=kind, predicate=text, reason=_why_bad(error, kind)) from error


SUBQUERY = "contains a subquery"
_NOT_ON_A_ROW = {"condition": "is not a condition on a row", "expression": "is not an expression on a row"}


def _why_bad(error: Exception, kind: str) -> str:
    if find_condition(error, ("UNRESOLVED_COLUMN",)):
        return f"names {find_parameter(error, 'objectName')}, which is not a column of the table"
    if find_condition(error, ("UNSUPPORTED_SUBQUERY_EXPRESSION_CATEGORY",)):
        return SUBQUERY
    if find_condition(error, ("AGGREGATE_FUNCTION_WITH_NONDETERMINISTIC_EXPRESSION",)):
        return "contains a nondeterministic function"
    if find_condition(error, ("PARSE_", "UNCLOSED_BRACKETED_COMMENT")):
        return "cannot be parsed"
    return f"{_NOT_ON_A_ROW[kind]} ({find_condition(error, ('',)) or 'Spark gives no reason'})"


_COMPARISONS: Mapping[str, Sign] = {
    "EqualTo": "=",
    "LessThan": "<",
    "LessThanOrEqual": "<=",
    "GreaterThan": ">",
    "GreaterThanOrEqual": ">=",
}
_SWAPPED: Mapping[Sign, Sign] = {"=": "=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}


def find_comparisons(spark: SparkSession, name: str, table: TableMetadata, where: str) -> list[ColumnComparison]:
    """Return the comparisons in a SQL condition on the table `name`, with types and constants as Spark resolves them.

    Raises `UncertainFiles` if the condition is invalid or is not a list of supported comparisons joined by AND.
    """
    try:
        types = spark._jvm.org.apache.spark.sql.types.DataType.fromJson(table.schema)  # type: ignore[union-attr]
        none = spark._jsparkSession.createDataFrame(spark.sparkContext._jsc.emptyRDD(), types)
        plan = optimize(spark, apply_condition(DataFrame(none, spark), name, where))
    except (InvalidPredicateError, Py4JError, PySparkException) as error:
        raise UncertainFiles("a condition that only Delta may accept") from error
    if kind_of(plan) == "LogicalRDD":
        return []
    if kind_of(plan) != "Filter" or kind_of(plan.child()) != "LogicalRDD":
        raise UncertainFiles("a condition that is not on rows alone")
    return [_comparison(part, table) for part in _conjuncts(plan.condition())]


def _conjuncts(condition: Any) -> Iterator[Any]:
    if kind_of(condition) != "And":
        yield condition
    else:
        for side in items(condition.children()):
            yield from _conjuncts(side)


def _comparison(condition: Any, table: TableMetadata) -> ColumnComparison:
    sides = list(items(condition.children()))
    kinds = [kind_of(side) for side in sides]
    if kind_of(condition) == "IsNotNull" and kinds == ["AttributeReference"]:
        return to_comparison(table, str(sides[0].name()), "IS NOT NULL")
    sign = _COMPARISONS.get(kind_of(condition))
    if sign is not None and kinds == ["Literal", "AttributeReference"]:
        sign, sides = _SWAPPED[sign], sides[::-1]
    elif sign is None or kinds != ["AttributeReference", "Literal"]:
        raise UncertainFiles(f"a condition of another kind, {kind_of(condition)}")
    column, literal = sides
    return to_comparison(table, str(column.name()), sign, _value(literal))


def _value(literal: Any) -> int | str | date:
    type_, value = str(literal.dataType().typeName()), literal.value()
    if value is None:
        raise UncertainFiles("NULL")
    if type_ in ("byte", "short", "integer", "long"):
        return int(value)
    if type_ == "date" and abs(int(value)) < 700_000:  # days since 1970, within the years that Python supports
        return date(1970, 1, 1) + timedelta(days=int(value))
    if type_ == "string":
        return str(value.toString())
    raise UncertainFiles(f"a value of type {type_}")


def to_comparison(
    table: TableMetadata, column: str, sign: Sign, value: int | str | date | None = None
) -> ColumnComparison:
    """Return a comparison of a column with the constant `value`. If `sign` is "IS NOT NULL", `value` is None.

    Upper and lower case in `column` make no difference. Raises `UncertainFiles` if the column does not exist, has an
    unsupported type, or may have no statistics.
    """
    fields = json.loads(table.schema)["fields"]
    place = next((place for place, field in enumerate(fields) if field["name"].lower() == column.lower()), None)
    if place is None:
        raise UncertainFiles(column)
    field = fields[place]
    type_ = TYPES.get(field["type"]) if isinstance(field["type"], str) else None
    if type_ is None or not set(field["metadata"]) <= _HARMLESS_METADATA:
        raise UncertainFiles(column)
    is_partition = column.lower() in {name.lower() for name in table.partitions}
    has_statistics = sum(_leaves(other["type"]) for other in fields[:place]) < _INDEXED
    if not is_partition and (not has_statistics or any(name in table.properties for name in _INDEX_PROPERTIES)):
        raise UncertainFiles(column)
    name = str(field["metadata"].get("delta.columnMapping.physicalName", field["name"]))
    return ColumnComparison(name, type_, is_partition, sign, value)


def _leaves(type_: Any) -> int:
    """Return how much of the limit `_INDEXED` a column uses: for a struct the sum over its fields, otherwise 1."""
    if isinstance(type_, dict) and type_["type"] == "struct":
        return sum(_leaves(field["type"]) for field in type_["fields"])
    return 1


def may_match(comparisons: Sequence[ColumnComparison], partition: Callable[[str], pa.Array], stats: pa.Array) -> Any:
    """Return one Boolean per file: False if no row can match all comparisons.

    `stats` has the statistics of each file as JSON text. `partition` takes the physical name of a column, and returns
    the value in each file as text. Raises `UncertainFiles` if a partition value is "", because "" can mean NULL, or if
    `stats` is unreadable.
    """
    results = [pa.repeat(True, len(stats))]
    for each in comparisons:
        if each.is_partition:
            texts = partition(each.column)
            if pc.any(pc.equal(texts, "")).as_py():
                raise UncertainFiles(f"{each.column} is '' or NULL")
            values = texts.cast(each.type)
            holds = pc.is_valid(values) if each.sign == "IS NOT NULL" else _COMPARE[each.sign](values, each.scalar)
            results.append(pc.fill_null(holds, False))
    if others := [each for each in comparisons if not each.is_partition]:
        results.append(_may_match_by_statistics(others, stats))
    return reduce(pc.and_, results)


_COMPARE = {"=": pc.equal, "<": pc.less, "<=": pc.less_equal, ">": pc.greater, ">=": pc.greater_equal}
_BOUNDS: Mapping[Sign, Sequence[tuple[str, Callable[[pa.Array, pa.Scalar], pa.Array]]]] = {
    "=": (("minValues", pc.less_equal), ("maxValues", pc.greater_equal)),
    "<": (("minValues", pc.less),),
    "<=": (("minValues", pc.less_equal),),
    ">": (("maxValues", pc.greater),),
    ">=": (("maxValues", pc.greater_equal),),
}
"""Statistics to compare with the constant, and tests that they pass if a row may match, by sign of the comparison."""


def _may_match_by_statistics(comparisons: Sequence[ColumnComparison], stats: pa.Array) -> pa.ChunkedArray:
    """Return one Boolean per file: False if its statistics are complete and rule out a match, otherwise True."""
    table = _parse_statistics({each.column: each.type for each in comparisons}, stats)
    number = table["numRecords"]
    holds, known = [], [pc.is_valid(number)]
    for each in comparisons:
        nulls = pc.struct_field(table["nullCount"], each.column)
        known.append(pc.is_valid(nulls))
        if each.sign == "IS NOT NULL":
            holds.append(pc.less(nulls, number))
            continue
        for kind, compare in _BOUNDS[each.sign]:
            bound = pc.struct_field(table[kind], each.column).cast(each.type)
            holds.append(compare(bound, each.scalar))
            known.append(pc.or_kleene(pc.is_valid(bound), pc.equal(nulls, number)))
    may_match_file = pc.or_kleene(reduce(pc.and_kleene, holds), pc.invert(reduce(pc.and_kleene, known)))
    return pc.fill_null(may_match_file, False)


def _parse_statistics(types: Mapping[str, pa.DataType], stats: pa.Array) -> pa.Table:
    """Return the statistics of the columns in `types`, with one row per file, and dates as text.

    Raises `UncertainFiles` if an element of `stats` is not a JSON object in one line.
    """
    ends = pa.struct([(name, pa.string() if type_ == pa.date32() else type_) for name, type_ in types.items()])
    counts = pa.struct([(name, pa.int64()) for name in types])
    schema = pa.schema({"numRecords": pa.int64(), "nullCount": counts, "minValues": ends, "maxValues": ends})
    texts = pc.fill_null(stats, "{}").cast(pa.string())
    if pc.any(pc.or_(pc.match_substring(texts, "\n"), pc.invert(pc.starts_with(texts, "{")))).as_py():
        raise UncertainFiles("statistics that are not one line each")
    lines = pc.binary_join(pa.ListArray.from_arrays([0, len(texts)], texts), "\n")[0]
    options = pj.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore")
    table = pj.read_json(pa.BufferReader(lines.as_buffer()), parse_options=options)
    if len(table) != len(stats):
        raise UncertainFiles("statistics that are not one object each")
    return table


def to_array(column: pa.ChunkedArray) -> pa.Array:
    """Return a column as one array. The values are copied only if the column has several chunks."""
    return column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays([pa.nulls(0, column.type), *column.chunks])
