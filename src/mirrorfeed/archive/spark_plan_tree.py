"""A session of classic Spark as its plans are looked at, and words for walking through them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from mirrorfeed.archive.errors import NoPlanToLookAt

DELTA = "org.apache.spark.sql.delta."
CATALYST = "org.apache.spark.sql.catalyst."
FILES = "org.apache.spark.sql.execution.datasources.HadoopFsRelation"
_PLANNED_WITH = {
    "spark.databricks.delta.generatedColumn.partitionFilterOptimization.enabled": "false",
    "spark.databricks.delta.stats.skipping": "true",
    # What prunes while a query runs is put into the plan when it runs; Spark takes no plan that has it already.
    "spark.sql.optimizer.dynamicPartitionPruning.enabled": "false",
    "spark.sql.optimizer.runtime.bloomFilter.enabled": "false",
    "spark.sql.optimizer.runtimeFilter.semiJoinReduction.enabled": "false",
}


def session_of(frame: DataFrame) -> SparkSession:
    from pyspark.sql.classic.dataframe import DataFrame as ClassicFrame

    if not isinstance(frame, ClassicFrame):
        raise NoPlanToLookAt()
    return frame.sparkSession


def optimized(spark: SparkSession, frame: DataFrame) -> Any:
    with planning(spark) as session:
        return session.sessionState().optimizer().execute(frame._jdf.queryExecution().analyzed())


@contextmanager
def planning(spark: SparkSession) -> Iterator[Any]:
    """A session as the user's is now, with settings of our own, for as long as the planning takes."""
    session = spark._jsparkSession.cloneSession()
    for name, value in _PLANNED_WITH.items():
        session.conf().set(name, value)
    with active(spark, session):
        yield session


@contextmanager
def active(spark: SparkSession, session: Any) -> Iterator[None]:
    """What asks for the session of its thread gets this one meanwhile."""
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
