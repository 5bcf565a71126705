"""Data skipping: find the files that may match a condition, from partition values and statistics.

Supports only comparisons joined by AND, of integer, date and text columns with constants. As in Delta, a file is
selected unless its partition or statistics rule out a match. A missing statistic rules out nothing.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from functools import reduce
from typing import Any, Literal

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from mirrorfeed.archive.archived_files import TableMetadata
from mirrorfeed.archive.errors import BadPredicate, NoSuchColumn
from mirrorfeed.archive.spark_plans import items, kind_of, optimize, session_of
from mirrorfeed.runtime.spark_errors import analyze, find_condition, parameter, silence_spark_logs
from mirrorfeed.source.identifier import Source

Sign = Literal["=", "<", "<=", ">", ">=", "is there"]
TYPES: Mapping[str, pa.DataType] = {
    **dict.fromkeys(("byte", "short", "integer", "long"), pa.int64()),
    "date": pa.date32(),
    "string": pa.string(),
}
"""Types by their names in the log. Only types whose values compare as in Delta."""
_UNDERSTOOD = {"comment", "delta.columnMapping.id", "delta.columnMapping.physicalName", "delta.generationExpression"}
"""Column metadata that does not change comparisons, unlike collations, padded text and widened types."""
_INDEXED = 32
"""Number of leading columns for which Delta collects statistics by default."""
_OTHERS = ("delta.dataSkippingNumIndexedCols", "delta.dataSkippingStatsColumns")


@dataclass(frozen=True, slots=True)
class Comparison:
    column: str
    """Name of the column in the query."""
    sign: Sign
    value: int | str | date | None = None


@dataclass(frozen=True, slots=True)
class Rule:
    """A comparison with the column's name and type in the log."""

    name: str
    type: pa.DataType
    sign: Sign
    value: int | str | date | None
    is_partition: bool

    @property
    def scalar(self) -> pa.Scalar:
        return pa.scalar(self.value, self.type)


class Doubt(Exception):
    """Raised if the result might differ from Delta's, so that Delta decides."""


def check_columns(spark: SparkSession, source: Source, names: Sequence[str]) -> None:
    if names:
        exact_names(str(source), spark.table(source.sql).columns, names)


def exact_names(what: str, columns: Sequence[str], names: Sequence[str]) -> list[str]:
    """Return the columns with their exact names. Raises `NoSuchColumn`."""
    known = {name.lower(): name for name in columns}
    if unknown := [name for name in names if name.lower() not in known]:
        raise NoSuchColumn(table=what, column=unknown[0], columns=columns)
    return [known[name.lower()] for name in names]


def apply_condition(frame: DataFrame, table: str, predicate: str | None) -> DataFrame:
    """Return the rows that match a condition. Reads nothing. Raises `BadPredicate`.

    Spark validates the condition: a lambda accepts no subquery, and an aggregate no nondeterministic function.
    """
    if predicate is None:
        return frame
    try:
        with silence_spark_logs():
            filtered_rows = analyze(frame.where(predicate))
            analyze(frame.select(F.exists(F.array(F.lit(1)), lambda _: F.expr(predicate))))
            analyze(frame.agg(F.bool_or(F.expr(predicate))))
    except AnalysisException as error:
        raise BadPredicate(table=table, predicate=predicate, reason=_why_bad(error)) from error
    return filtered_rows


def _why_bad(error: AnalysisException) -> str:
    if find_condition(error, ("UNRESOLVED_COLUMN",)):
        return f"names {parameter(error, 'objectName')}, which is not a column of the table"
    if find_condition(error, ("UNSUPPORTED_SUBQUERY_EXPRESSION_CATEGORY",)):
        return "contains a subquery"
    if find_condition(error, ("AGGREGATE_FUNCTION_WITH_NONDETERMINISTIC_EXPRESSION",)):
        return "contains a nondeterministic function"
    if find_condition(error, ("PARSE_", "UNCLOSED_BRACKETED_COMMENT")):
        return "cannot be parsed"
    return f"is not a condition on a row ({find_condition(error, ('',)) or 'Spark gives no reason'})"


_COMPARISONS: Mapping[str, Sign] = {
    "EqualTo": "=",
    "LessThan": "<",
    "LessThanOrEqual": "<=",
    "GreaterThan": ">",
    "GreaterThanOrEqual": ">=",
}
_TURNED: Mapping[Sign, Sign] = {"=": "=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}


def frame_of_schema(spark: SparkSession, schema: str) -> DataFrame:
    """Return an empty DataFrame with the schema of a log. Raises `Doubt`."""
    try:
        types = spark._jvm.org.apache.spark.sql.types.DataType.fromJson(schema)  # type: ignore[union-attr]
        none = spark.sparkContext._jsc.emptyRDD()
        return DataFrame(spark._jsparkSession.createDataFrame(none, types), spark)
    except (Py4JError, PySparkException) as error:
        raise Doubt("unknown types") from error


def comparisons_in(frame: DataFrame) -> list[Comparison]:
    """Return the comparisons in the condition of a DataFrame, after Spark has resolved types and constants.

    Raises `Doubt` if the condition is more than comparisons joined by AND.
    """
    plan = optimize(session_of(frame), frame)
    if kind_of(plan) == "LogicalRDD":
        return []
    if kind_of(plan) != "Filter" or kind_of(plan.child()) != "LogicalRDD":
        raise Doubt("a condition that is not on rows alone")
    return [_comparison(part) for part in _conjuncts(plan.condition())]


def _conjuncts(condition: Any) -> Iterator[Any]:
    if kind_of(condition) != "And":
        yield condition
    else:
        for side in items(condition.children()):
            yield from _conjuncts(side)


def _comparison(condition: Any) -> Comparison:
    sides = list(items(condition.children()))
    kinds = [kind_of(side) for side in sides]
    if kind_of(condition) == "IsNotNull" and kinds == ["AttributeReference"]:
        return Comparison(str(sides[0].name()), "is there")
    sign = _COMPARISONS.get(kind_of(condition))
    if sign is not None and kinds == ["Literal", "AttributeReference"]:
        sign, sides = _TURNED[sign], sides[::-1]
    elif sign is None or kinds != ["AttributeReference", "Literal"]:
        raise Doubt(f"a condition of another kind, {kind_of(condition)}")
    column, literal = sides
    return Comparison(str(column.name()), sign, _value(literal))


def _value(literal: Any) -> int | str | date:
    type_, value = str(literal.dataType().typeName()), literal.value()
    if value is None:
        raise Doubt("NULL")
    if type_ in ("byte", "short", "integer", "long"):
        return int(value)
    if type_ == "date" and abs(int(value)) < 700_000:  # days from 1970, in years that Python has
        return date(1970, 1, 1) + timedelta(days=int(value))
    if type_ == "string":
        return str(value.toString())
    raise Doubt(f"a value of type {type_}")


def rules_of(comparisons: Sequence[Comparison], table: TableMetadata) -> list[Rule]:
    """Convert comparisons to rules for a table. Raises `Doubt`."""
    before, fields = 0, {}
    for field in json.loads(table.schema)["fields"]:
        fields[field["name"].lower()] = (field, before)
        before += _leaves(field["type"])
    of_partitions = {name.lower() for name in table.partitions}
    found = []
    for each in comparisons:
        field, place = fields.get(each.column.lower(), ({}, 0))
        type_ = TYPES.get(field["type"]) if field and isinstance(field["type"], str) else None
        if type_ is None or not set(field["metadata"]) <= _UNDERSTOOD:
            raise Doubt(each.column)
        is_partition = field["name"].lower() in of_partitions
        if not is_partition and (place >= _INDEXED or any(name in table.properties for name in _OTHERS)):
            raise Doubt(each.column)
        name = str(field["metadata"].get("delta.columnMapping.physicalName", field["name"]))
        found.append(Rule(name, type_, each.sign, each.value, is_partition))
    return found


def _leaves(type_: Any) -> int:
    """Return the number of leaf columns of a type."""
    if isinstance(type_, dict) and type_["type"] == "struct":
        return sum(_leaves(field["type"]) for field in type_["fields"])
    return 1


def may_match(rules: Sequence[Rule], partition: Callable[[str], pa.Array], stats: pa.Array) -> pa.Array:
    """Return for each file whether the rules select it. `partition` returns the values of a partition column in the
    log."""
    found = [pa.repeat(True, len(stats))]
    for rule in rules:
        if rule.is_partition:
            texts = partition(rule.name)
            if pc.any(pc.equal(texts, "")).as_py():
                raise Doubt(f"{rule.name} is '' or NULL")
            found.append(pc.fill_null(_holds(rule, texts.cast(rule.type)), False))
    if by_statistics := [rule for rule in rules if not rule.is_partition]:
        found.append(_by_statistics(by_statistics, stats))
    return reduce(pc.and_, found)


_COMPARE = {"=": pc.equal, "<": pc.less, "<=": pc.less_equal, ">": pc.greater, ">=": pc.greater_equal}
_BOUNDS: Mapping[Sign, Sequence[tuple[str, Callable[[pa.Array, pa.Scalar], pa.Array]]]] = {
    "=": (("minValues", pc.less_equal), ("maxValues", pc.greater_equal)),
    "<": (("minValues", pc.less),),
    "<=": (("minValues", pc.less_equal),),
    ">": (("maxValues", pc.greater),),
    ">=": (("maxValues", pc.greater_equal),),
}
"""Comparisons of the bounds of a file with the value that hold if a row may match."""


def _holds(rule: Rule, values: pa.Array) -> pa.Array:
    return pc.is_valid(values) if rule.sign == "is there" else _COMPARE[rule.sign](values, rule.scalar)


def _by_statistics(rules: Sequence[Rule], stats: pa.Array) -> pa.Array:
    """Return for each file False if the statistics rule out a match, by three-valued logic.

    A missing statistic rules out nothing.
    """
    table = _parsed(rules, stats)
    number = table["numRecords", ""]
    holds, known = [], [pc.is_valid(number)]
    for rule in rules:
        nulls = table["nullCount", rule.name]
        known.append(pc.is_valid(nulls))
        if rule.sign == "is there":
            holds.append(pc.less(nulls, number))
            continue
        for kind, compare in _BOUNDS[rule.sign]:
            bound = table[kind, rule.name]
            holds.append(compare(bound, rule.scalar))
            known.append(pc.or_kleene(pc.is_valid(bound), pc.equal(nulls, number)))
    may_match_file = pc.or_kleene(reduce(pc.and_kleene, holds), pc.invert(reduce(pc.and_kleene, known)))
    return pc.fill_null(may_match_file, False)


def _parsed(rules: Sequence[Rule], stats: pa.Array) -> Mapping[tuple[str, str], pa.Array]:
    """Return the statistics of the compared columns by kind and column."""
    types = {rule.name: rule.type for rule in rules}
    ends = pa.struct([(name, pa.string() if type_ == pa.date32() else type_) for name, type_ in types.items()])
    counts = pa.struct([(name, pa.int64()) for name in types])
    schema = pa.schema({"numRecords": pa.int64(), "nullCount": counts, "minValues": ends, "maxValues": ends})
    given = pc.fill_null(stats, "{}")
    if pc.any(pc.or_(pc.match_substring(given, "\n"), pc.invert(pc.starts_with(given, "{")))).as_py():
        raise Doubt("statistics that are not one line each")
    lines = pc.binary_join_element_wise(given, pa.scalar("\n", given.type), pa.scalar("", given.type))
    read = pj.read_json(
        pa.BufferReader(_bytes_of(lines)),
        parse_options=pj.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore"),
    ).combine_chunks()
    if len(read) != len(stats):
        raise Doubt("statistics that are not one object each")
    found = {("numRecords", ""): in_one(read["numRecords"])}
    for name, type_ in types.items():
        for kind, of in (("nullCount", pa.int64()), ("minValues", type_), ("maxValues", type_)):
            found[kind, name] = in_one(pc.struct_field(read[kind], name)).cast(of)
    return found


def in_one(column: pa.ChunkedArray) -> pa.Array:
    """Return a column as one array, copied only if it has several chunks."""
    return column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays([pa.nulls(0, column.type), *column.chunks])


def _bytes_of(texts: pa.Array) -> pa.Buffer:
    """Return the concatenated texts without copying them."""
    width = pa.int64() if pa.types.is_large_string(texts.type) else pa.int32()
    _, offsets, data = texts.buffers()
    ends = pa.Array.from_buffers(width, len(texts) + 1, [None, offsets], offset=texts.offset)
    start, end = ends[0].as_py(), ends[len(texts)].as_py()
    return data.slice(start, end - start)
