"""Reads query plans of classic Spark in the JVM: walks their nodes, and finds the comparisons of a condition."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import date, timedelta
from typing import Any

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from mirrorfeed.archive.errors import NoPlan
from mirrorfeed.archive.file_index.data_skipping import Comparison, Doubt, Sign

DELTA = "org.apache.spark.sql.delta."
CATALYST = "org.apache.spark.sql.catalyst."
FILES = "org.apache.spark.sql.execution.datasources.HadoopFsRelation"
_SETTINGS = {
    "spark.databricks.delta.generatedColumn.partitionFilterOptimization.enabled": "false",
    "spark.databricks.delta.stats.skipping": "true",
    # Runtime filters are added when a query runs. Spark does not accept a plan that already has them.
    "spark.sql.optimizer.dynamicPartitionPruning.enabled": "false",
    "spark.sql.optimizer.runtime.bloomFilter.enabled": "false",
    "spark.sql.optimizer.runtimeFilter.semiJoinReduction.enabled": "false",
}


def session_of(frame: DataFrame) -> SparkSession:
    from pyspark.sql.classic.dataframe import DataFrame as ClassicFrame

    if not isinstance(frame, ClassicFrame):
        raise NoPlan()
    return frame.sparkSession


def optimized(spark: SparkSession, frame: DataFrame) -> Any:
    with planning(spark) as session:
        return session.sessionState().optimizer().execute(frame._jdf.queryExecution().analyzed())


@contextmanager
def planning(spark: SparkSession) -> Iterator[Any]:
    """A copy of the session, with settings under which the plan shows all files."""
    session = spark._jsparkSession.cloneSession()
    for name, value in _SETTINGS.items():
        session.conf().set(name, value)
    with active(spark, session):
        yield session


@contextmanager
def active(spark: SparkSession, session: Any) -> Iterator[None]:
    """Makes this the active session of the thread meanwhile."""
    sessions = spark._jvm.org.apache.spark.sql.classic.SparkSession  # type: ignore[union-attr]
    before = sessions.getActiveSession()
    sessions.setActiveSession(session)
    try:
        yield
    finally:
        if before.isDefined():
            sessions.setActiveSession(before.get())
        else:
            sessions.clearActiveSession()


def parsed(spark: SparkSession, statement: str) -> Any:
    return spark._jsparkSession.sessionState().sqlParser().parsePlan(statement)


def nodes(tree: Any) -> Iterator[Any]:
    yield tree
    for child in items(tree.children()):
        yield from nodes(child)


def is_a(node: Any, *classes: str) -> bool:
    loader = node.getClass().getClassLoader()
    return any(loader.loadClass(name).isInstance(node) for name in classes)


def kind_of(node: Any) -> str:
    return class_of(node).rpartition(".")[2]


def class_of(java: Any) -> str:
    return str(java.getClass().getName())


def items(sequence: Any) -> Iterable[Any]:
    return (sequence.apply(i) for i in range(sequence.size()))


_SIGNS: Mapping[str, Sign] = {
    "EqualTo": "=",
    "LessThan": "<",
    "LessThanOrEqual": "<=",
    "GreaterThan": ">",
    "GreaterThanOrEqual": ">=",
}
_TURNED: Mapping[Sign, Sign] = {"=": "=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}


def frame_of_schema(spark: SparkSession, schema: str) -> DataFrame:
    """An empty frame with the schema of a log. Raises `Doubt`."""
    try:
        types = spark._jvm.org.apache.spark.sql.types.DataType.fromJson(schema)  # type: ignore[union-attr]
        none = spark.sparkContext._jsc.emptyRDD()
        return DataFrame(spark._jsparkSession.createDataFrame(none, types), spark)
    except (Py4JError, PySparkException) as error:
        raise Doubt("types that are not known here") from error


def comparisons_in(frame: DataFrame) -> list[Comparison]:
    """The comparisons of the condition of a frame, after Spark has resolved types and constants. Raises `Doubt` if it
    is more than comparisons joined by AND."""
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
