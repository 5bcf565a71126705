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
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date, timedelta
from functools import cached_property
from typing import Any

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from mirrorfeed.archive.log import ELSEWHERE, LogFile, column_names, file_of, plain
from mirrorfeed.archive.owner import Tables
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
_FILE_TABLE = "org.apache.spark.sql.execution.datasources.v2.FileTable"
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
        """Those that were made by then, in milliseconds, and those that may lie in another table's folder; all without
        a time. No other comes into Python."""
        if self._files is None:
            rows = self._snapshot.allFiles().toDF()
        elif not self.count:
            return []
        else:
            encoder = self._snapshot.allFiles().encoder()
            rows = self._spark._jsparkSession.createDataset(self._files, encoder).toDF()
        found = DataFrame(rows, self._spark)
        if until is not None:
            found = found.where((F.col("modificationTime") <= until) | F.col("path").rlike(ELSEWHERE))
        if self._files is not None:  # a plan leaves out what the log says of a file's content
            every = DataFrame(self._snapshot.allFiles().toDF(), self._spark).select("path", "stats")
            found = found.drop("stats").join(every, "path", "left")
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


def merge_has_subqueries(spark: SparkSession, statement: str) -> bool:
    """As the parser has it, whatever spaces and comments stand between the words."""
    root = _parsed(spark, statement)
    kinds = (root.matchedActions(), root.notMatchedActions(), root.notMatchedBySourceActions())
    trees = [root.mergeCondition(), *(each for actions in kinds for each in _each(actions))]
    return any(_is(node, _SUBQUERY) for tree in trees for node in _nodes(tree))


def candidates(spark: SparkSession, statement: str, table: Scan) -> Scan:
    """The files of a table in which a DELETE, UPDATE or MERGE of it looks for rows, found as the command itself finds
    them when it runs in this session: by the conditions that it is given, where a query goes by all that follows from
    its conditions."""
    session = spark._jsparkSession
    not_run = spark._jvm.org.apache.spark.sql.execution.CommandExecutionMode.SKIP()  # type: ignore[union-attr]
    with unlogged(), _active(spark, session):
        command = session.sessionState().executePlan(_parsed(spark, statement), not_run).optimizedPlan()
        if _class(command) == f"{_DELTA}commands.MergeIntoCommand":
            if not command.notMatchedBySourceClauses().isEmpty():
                return table
            asked = command.getTargetOnlyPredicates(session)
        elif _class(command) in (f"{_DELTA}commands.DeleteCommand", f"{_DELTA}commands.UpdateCommand"):
            if command.condition().isEmpty():
                return table
            helper = spark._jvm.org.apache.spark.sql.delta.DeltaTableUtils  # type: ignore[union-attr]
            partitions = table._snapshot.metadata().partitionColumns()
            parts = helper.splitMetadataAndDataPredicates(command.condition().get(), partitions, session)
            asked = parts._1().concat(parts._2())
        else:
            raise CannotBeJudged(f"by a statement of a kind that is not known here ({_kind(command)})")
        return Scan(table.name, spark, table._snapshot, table._snapshot.filesForScan(asked, False).files())


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
    session = spark._jsparkSession.cloneSession()
    for name, value in _PLANNED_WITH.items():
        session.conf().set(name, value)
    with _active(spark, session):
        yield session


@contextmanager
def _active(spark: SparkSession, session: Any) -> Iterator[None]:
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
                if _is(table, _FILE_TABLE):
                    _refuse_tables(spark, table.fileIndex())


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
    else:
        _refuse_tables(spark, index)


def _refuse_tables(spark: SparkSession, index: Any) -> None:
    """Files that are read as such may be those of a table, of which a part is there and a part is archived."""
    tables = Tables(spark)
    for path in (plain(str(root.toString())) for root in _each(index.rootPaths())):
        if "_delta_log" not in path.split("/") and (table := tables.holding(path)) is not None:
            raise CannotBeJudged(f"files of the Delta table {table} as if they were none of a table's")


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
