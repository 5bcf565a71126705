"""What a query on classic Spark is going to read: Delta's own plan, made without what hides files or rows from it.

It reaches into the JVM, for open source Delta alone: Databricks guards archived files itself, and over Connect there is
no plan to look at. Three things hide files from the plan that a DataFrame shows, and none takes part
here: cached data, which has no files; subqueries, which hang beside the plan; and filters on partitions that Delta
derives from a generated column, which miss rows that were written under another time zone.

What comes back is the plan itself as a DataFrame: what was looked at is what is read, whatever is cached, committed or
set in the session later.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from datetime import date, timedelta
from functools import cached_property
from typing import Any

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from mirrorfeed.archive.engine import setting
from mirrorfeed.archive.log import LogFile, column_names, file_of, plain
from mirrorfeed.archive.predicate import unlogged
from mirrorfeed.archive.skipping import Comparison, Doubt, Sign
from mirrorfeed.errors import Terminal, first_line
from mirrorfeed.feed.source import Source

_DERIVES = "spark.databricks.delta.generatedColumn.partitionFilterOptimization.enabled"
_PLANNED_WITH = {
    _DERIVES: "false",
    "spark.databricks.delta.stats.skipping": "true",
    # What prunes while a query runs is put into the plan when it runs; Spark takes no plan that has it already.
    "spark.sql.optimizer.dynamicPartitionPruning.enabled": "false",
    "spark.sql.optimizer.runtime.bloomFilter.enabled": "false",
    "spark.sql.optimizer.runtimeFilter.semiJoinReduction.enabled": "false",
}
_DELTA = "org.apache.spark.sql.delta."
_PREPARED = f"{_DELTA}stats.PreparedDeltaFileIndex"
_CATALYST = "org.apache.spark.sql.catalyst."
_COMMANDS = (f"{_CATALYST}plans.logical.Command", f"{_CATALYST}plans.logical.ParsedStatement")
_FILES = "org.apache.spark.sql.execution.datasources.HadoopFsRelation"
_SUBQUERY = f"{_CATALYST}expressions.SubqueryExpression"
_VECTOR = tuple(f"deletionVector.{name}" for name in ("storageType", "pathOrInlineDv", "offset", "cardinality"))
_ROWS_OF_THEIR_OWN = ("ParallelCollectionRDD", "ReliableCheckpointRDD", "LocalCheckpointRDD", "EmptyRDD")
"""Where the lineage of an RDD may end without a file of a table."""


@dataclass(frozen=True)
class Scan:
    """The files that a plan reads of one table at one version."""

    name: str
    """As the catalog has it, or the path."""
    _spark: SparkSession
    _snapshot: Any
    _files: Any
    """Delta's; None for all of the version."""

    @property
    def version(self) -> int:
        return int(self._snapshot.version())

    @cached_property
    def location(self) -> str:
        return plain(str(self._snapshot.deltaLog().dataPath().toString()))

    @cached_property
    def table_id(self) -> str:
        return str(self._snapshot.metadata().id())

    @cached_property
    def properties(self) -> Mapping[str, str]:
        mapper = self._spark._jvm.org.apache.spark.sql.delta.util.JsonUtils.mapper()  # type: ignore[union-attr]
        found: dict[str, str] = json.loads(mapper.writeValueAsString(self._snapshot.metadata().configuration()))
        return found

    @cached_property
    def count(self) -> int:
        return int(self._snapshot.numOfFiles() if self._files is None else self._files.size())

    def files(self, until: int | None = None) -> list[LogFile]:
        """Those that were made by then, in milliseconds; all without a time. No other comes into Python."""
        if self._files is None:
            rows = self._snapshot.allFiles().toDF()
        elif not self.count:
            return []
        else:
            encoder = self._snapshot.allFiles().encoder()
            rows = self._spark._jsparkSession.createDataset(self._files, encoder).toDF()
        found = DataFrame(rows, self._spark)
        if self._files is not None:  # a plan leaves out what the log says of a file's content
            every = DataFrame(self._snapshot.allFiles().toDF(), self._spark).select("path", "stats")
            found = found.drop("stats").join(every, "path", "left")
        if until is not None:
            found = found.where(F.col("modificationTime") <= until)
        columns = found.select(
            "path",
            F.col("partitionValues").alias("partition"),
            "size",
            F.col("modificationTime").alias("created"),
            F.get_json_object("stats", "$.numRecords").cast("bigint").alias("rows"),
            F.when(F.col("deletionVector").isNotNull(), F.struct(*_VECTOR)).alias("vector"),
        )
        names = column_names(self._snapshot.metadata().schemaString())
        return [file_of(self.location, row, names) for row in columns.toArrow().to_pylist()]

    def partitions(self) -> list[dict[str, str | None]]:
        """The values of the partition columns that there are in the whole version, as the log spells them."""
        every = DataFrame(self._snapshot.allFiles().toDF(), self._spark)
        entries = F.array_sort(F.map_entries("partitionValues")).alias("partition")
        names = column_names(self._snapshot.metadata().schemaString())
        rows = every.select(entries).distinct().toArrow()["partition"].to_pylist()
        return [{names.get(each["key"], each["key"]): each["value"] for each in row} for row in rows]


@dataclass(frozen=True)
class Planned:
    """A query that is planned and not run."""

    rows: DataFrame
    scans: tuple[Scan, ...]
    """Of all tables that are Delta's, wherever in the query they are read."""


def planned(frame: DataFrame) -> Planned:
    """The plan of a DataFrame, or `CannotBeJudged`."""
    spark = _classic(frame)
    if frame.isStreaming:
        raise CannotBeJudged("a stream")
    try:
        with unlogged():
            plan = _optimized(spark, frame)
    except PySparkException as error:
        raise CannotBePlanned(first_line(str(error))) from error
    scans = tuple(_scans(spark, plan))
    rows = spark._jvm.org.apache.spark.sql.classic.Dataset.ofRows(spark._jsparkSession, plan)  # type: ignore[union-attr]
    return Planned(DataFrame(rows, spark), scans)


def whole(frame: DataFrame) -> Scan | None:
    """All files of the table that a DataFrame reads, at its version, with nothing planned; None where it is a view, or
    none of Delta's."""
    spark = _classic(frame)
    node = frame._jdf.queryExecution().analyzed()
    while node.children().size() == 1 and not _class(node).endswith(".View"):
        node = node.children().apply(0)
    if not _class(node).endswith(".LogicalRelation") or not _is(node.relation(), _FILES):
        return None
    index = node.relation().location()
    return Scan(_name(node), spark, index.getSnapshot(), None) if _class(index).startswith(_DELTA) else None


_NO_ROWS = re.compile(
    r"(Show(?!Partitions)|Describe|Explain|SetCommand|SetCatalog|SetNamespace|Reset|CreateView|CreateTempView|CreateNamespace"
    r"|CreateTable$|CreateFunction|Drop(?!Columns)|Refresh|Uncache|ClearCache|CommentOn|SetTableProperties"
    r"|UnsetTableProperties|AddColumns|RenameTable|CloneTable)"
)
_RUNS = re.compile(r"(Statement|Command)$|ExecuteImmediate|Compound")
"""What is carried out, and for Spark is no command: statements of Delta's own, texts and scripts."""


def command(spark: SparkSession, statement: str) -> str | None:
    """The kind of a statement that is no query."""
    root = _parsed(spark, statement)
    return next((_kind(node) for node in _nodes(root) if _is(node, *_COMMANDS) or _RUNS.search(_kind(node))), None)


def reads_no_rows(kind: str) -> bool:
    """Of a kind of command: whether it is known to read no data file."""
    return _NO_ROWS.match(kind) is not None


@dataclass(frozen=True)
class Merge:
    """What the text of a MERGE says of what it reads."""

    every_row: bool
    """It says what to do with rows that the source does not have."""
    subqueries: bool


def merge(spark: SparkSession, statement: str) -> Merge:
    """As the parser has it, whatever spaces and comments stand between the words."""
    root = _parsed(spark, statement)
    asked = [each for actions in (root.matchedActions(), root.notMatchedActions()) for each in _each(actions)]
    rest = list(_each(root.notMatchedBySourceActions()))
    trees = [root.mergeCondition(), *asked, *rest]
    subqueries = any(_is(node, _SUBQUERY) for tree in trees for node in _nodes(tree))
    return Merge(bool(rest), subqueries)


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


def comparisons(frame: DataFrame) -> list[Comparison]:
    """What a condition on the rows of a frame comes to, once Spark has worked out its types and constants; or `Doubt`
    where that is more than comparisons that must all hold."""
    plan = _optimized(_classic(frame), frame)
    if _kind(plan) == "LogicalRDD":
        return []
    if _kind(plan) != "Filter" or _kind(plan.child()) != "LogicalRDD":
        raise Doubt("a condition that is not on rows alone")
    return [_comparison(part) for part in _conjuncts(plan.condition())]


def _conjuncts(condition: Any) -> Iterator[Any]:
    if _kind(condition) != "And":
        yield condition
    else:
        for side in _each(condition.children()):
            yield from _conjuncts(side)


def _comparison(condition: Any) -> Comparison:
    sides = list(_each(condition.children()))
    kinds = [_kind(side) for side in sides]
    if _kind(condition) == "IsNotNull" and kinds == ["AttributeReference"]:
        return Comparison(str(sides[0].name()), "is there")
    sign = _SIGNS.get(_kind(condition))
    if sign is not None and kinds == ["Literal", "AttributeReference"]:
        sign, sides = _TURNED[sign], sides[::-1]
    elif sign is None or kinds != ["AttributeReference", "Literal"]:
        raise Doubt(f"a condition of another kind, {_kind(condition)}")
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


def _parsed(spark: SparkSession, statement: str) -> Any:
    return spark._jsparkSession.sessionState().sqlParser().parsePlan(statement)


def _nodes(tree: Any) -> Iterator[Any]:
    yield tree
    for child in _each(tree.children()):
        yield from _nodes(child)


def _is(node: Any, *classes: str) -> bool:
    loader = node.getClass().getClassLoader()
    return any(loader.loadClass(name).isInstance(node) for name in classes)


def _kind(node: Any) -> str:
    return _class(node).rpartition(".")[2]


def _classic(frame: DataFrame) -> SparkSession:
    from pyspark.sql.classic.dataframe import DataFrame as ClassicFrame

    if not isinstance(frame, ClassicFrame):
        raise NoPlanToLookAt()
    return frame.sparkSession


def _optimized(spark: SparkSession, frame: DataFrame) -> Any:
    with _planning(spark) as session:
        return session.sessionState().optimizer().execute(frame._jdf.queryExecution().analyzed())


@contextmanager
def _planning(spark: SparkSession) -> Iterator[Any]:
    """A session as the user's is now, with settings of our own, for as long as the planning takes."""
    sessions = spark._jvm.org.apache.spark.sql.classic.SparkSession  # type: ignore[union-attr]
    session = spark._jsparkSession.cloneSession()
    for name, value in _PLANNED_WITH.items():
        session.conf().set(name, value)
    before = sessions.getActiveSession()
    sessions.setActiveSession(session)
    try:
        yield session
    finally:
        if before.isDefined():
            sessions.setActiveSession(before.get())
        else:
            sessions.clearActiveSession()


def nothing_derived(spark: SparkSession) -> AbstractContextManager[None]:
    """For a statement, which runs in the user's session: Delta derives no filters meanwhile."""
    return setting(spark, _DERIVES, "false")


def _scans(spark: SparkSession, plan: Any) -> Iterator[Scan]:
    for part in (plan, *_each(plan.subqueriesAll())):
        for leaf in _each(part.collectLeaves()):
            kind = _class(leaf)
            if kind.endswith(".LogicalRelation"):
                yield from _scan(spark, leaf)
            elif kind.endswith(".LogicalRDD"):
                _refuse_files(leaf.rdd())
            elif "InMemoryRelation" in kind:
                raise CannotBeJudged("rows that are cached, whose files it does not show")
            elif "DataSourceV2" in kind:
                table = (leaf.relation() if kind.endswith("ScanRelation") else leaf).table()
                if _class(table).startswith(_DELTA):
                    raise CannotBeJudged(f"a Delta table in a form that is not known here ({_kind(leaf)})")


def _scan(spark: SparkSession, leaf: Any) -> Iterator[Scan]:
    relation = leaf.relation()
    if not _is(relation, _FILES):
        if _class(relation).startswith(_DELTA):
            raise CannotBeJudged("the change feed of a table")
        return
    index = relation.location()
    if _class(index) == _PREPARED:
        prepared = index.preparedScan()
        yield Scan(_name(leaf), spark, prepared.scannedSnapshot(), prepared.files())
    elif _class(index).startswith(_DELTA):
        raise CannotBeJudged(f"files of {_name(leaf)} that Delta does not plan ({_kind(index)})")


def _refuse_files(rdd: Any) -> None:
    """An RDD shows no plan: it may hold rows of its own, or read files when it runs."""
    left = [rdd]
    while left:
        found = left.pop()
        if found.isCheckpointed():
            continue
        parents = [each.rdd() for each in _each(found.dependencies())]
        if not parents and not _class(found).endswith(_ROWS_OF_THEIR_OWN):
            raise CannotBeJudged("rows of an RDD, whose files it does not show")
        left += parents


def _name(leaf: Any) -> str:
    """As a command takes it."""
    catalog = leaf.catalogTable()
    if catalog.isDefined():
        identifier = catalog.get().identifier()
        parts = [str(part.get()) for part in (identifier.catalog(), identifier.database()) if part.isDefined()]
        if parts and parts[-1] != "delta":  # which is how a path is spelled
            return str(Source(parts=(*parts, str(identifier.table()))))
    return plain(str(leaf.relation().location().path().toString())).removeprefix("file:")


def _class(java: Any) -> str:
    return str(java.getClass().getName())


def _each(sequence: Any) -> Iterable[Any]:
    return (sequence.apply(i) for i in range(sequence.size()))


class CannotBeJudged(Terminal):
    def __init__(self, reads: str) -> None:
        self.reads = reads

    def what(self) -> str:
        return f"Which files the query needs cannot be told, for it reads {self.reads}. Nothing was read."

    def next(self) -> str:
        return (
            "Ask the tables themselves, by name or path, in one query; rows from elsewhere can be written to a table"
            " first, or checkpointed."
        )


class CannotBePlanned(Terminal):
    def __init__(self, reason: str) -> None:
        self.reason = reason

    def what(self) -> str:
        return f"The query cannot be planned: {self.reason.rstrip('.')}. Nothing was read."

    def next(self) -> str:
        return "Correct what it names."


class NoPlanToLookAt(Terminal):
    def what(self) -> str:
        return "Over Spark Connect the plan of a query on open source Delta cannot be looked at, so nothing was read."

    def next(self) -> str:
        return "Use classic Spark, as on this machine; or Databricks, which guards archived files itself."
