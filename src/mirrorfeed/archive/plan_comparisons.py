"""What a condition on rows comes to, where that is comparisons alone: few files are found by them without Delta."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import date, timedelta
from typing import Any

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from mirrorfeed.archive.file_index.data_skipping import Comparison, Doubt, Sign
from mirrorfeed.archive.spark_plan_tree import items, kind_of, optimized, session_of

_SIGNS: Mapping[str, Sign] = {
    "EqualTo": "=",
    "LessThan": "<",
    "LessThanOrEqual": "<=",
    "GreaterThan": ">",
    "GreaterThanOrEqual": ">=",
}
_TURNED: Mapping[Sign, Sign] = {"=": "=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}


def like(spark: SparkSession, schema: str) -> DataFrame:
    """No rows, of columns as a log spells them; or `Doubt`."""
    try:
        types = spark._jvm.org.apache.spark.sql.types.DataType.fromJson(schema)  # type: ignore[union-attr]
        none = spark.sparkContext._jsc.emptyRDD()
        return DataFrame(spark._jsparkSession.createDataFrame(none, types), spark)
    except (Py4JError, PySparkException) as error:
        raise Doubt("types that are not known here") from error


def of(frame: DataFrame) -> list[Comparison]:
    """What a condition on the rows of a frame comes to, once Spark has worked out its types and constants; or `Doubt`
    where that is more than comparisons that must all hold."""
    plan = optimized(session_of(frame), frame)
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
    sign = _SIGNS.get(kind_of(condition))
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
