"""Find the files that a query or statement will read, from its plan on classic Spark with open source Delta.

Not for Databricks, because Databricks itself checks queries. Not for Spark Connect, because it shows no plan.

A plan must show all files that the query reads, including the files of subqueries. So it uses no cached data, no
runtime filters, and no partition filters that Delta derives from generated columns. The derived filters miss rows that
were written in another time zone. A checked query runs the plan that was checked, with the files that were checked, so
later commits, caches and settings do not change which files it reads.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from operator import attrgetter
from typing import Any, NamedTuple

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from mirrorfeed.archive.data_files import (
    ABSOLUTE_PATH,
    DataFile,
    TableMetadata,
    normalize_uri,
    table_folder,
    to_data_file,
    to_uri,
)
from mirrorfeed.archive.errors import no_query_plan, query_not_plannable, query_not_repeatable, unknown_files
from mirrorfeed.errors import first_line
from mirrorfeed.runtime.spark_errors import silence_spark_logs
from mirrorfeed.source.identifier import Source, quote

DELTA = "org.apache.spark.sql.delta."
_OTHER_DELTA = "io.delta."
"""Start of the class names of Delta's other connectors, such as the one of `spark.databricks.delta.v2.enableMode`."""
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
        raise no_query_plan()
    return frame.sparkSession


def optimize(spark: SparkSession, frame: DataFrame) -> Any:
    """Return the optimized logical plan of a DataFrame, as a Java object.

    Spark makes the plan with `_SETTINGS`, so that the plan shows all files that the query reads.
    """
    session = spark._jsparkSession.cloneSession()
    for name, value in _SETTINGS.items():
        session.conf().set(name, value)
    with active_session(spark, session):
        return session.sessionState().optimizer().execute(frame._jdf.queryExecution().analyzed())


@contextmanager
def active_session(spark: SparkSession, session: Any) -> Iterator[None]:
    """Context manager in which `session`, a Java object, is the active session of Spark."""
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


def parse(spark: SparkSession, statement: str) -> Any:
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


@dataclass(frozen=True)
class Scan:
    """Files of one table at one version that a query plan reads."""

    name: str
    """Name of the table in the catalog, or its path."""
    _spark: SparkSession
    snapshot: Any
    _files: Any
    """Files as a Scala sequence. None means all files of the version."""

    @property
    def version(self) -> int:
        return int(self.snapshot.version())

    @cached_property
    def location(self) -> str:
        return normalize_uri(self.snapshot.deltaLog().dataPath())

    @cached_property
    def metadata(self) -> TableMetadata:
        return TableMetadata.of(json.loads(str(self.snapshot.metadata().json()))["metaData"])

    @cached_property
    def count(self) -> int:
        return int(self.snapshot.numOfFiles() if self._files is None else self._files.size())

    def files(self, until: int | None = None) -> list[DataFile]:
        """Return the files of the scan. Files created after `until`, in milliseconds since the epoch, are left out.

        Files that may be in the folder of another table are never left out.
        """
        entries = self._all_entries()
        if self._files is not None:
            dataset = self._spark._jsparkSession.createDataset(self._files, self._encoder)
            entries = DataFrame(dataset.toDF(), self._spark)
        if until is not None:
            entries = entries.where((F.col("modificationTime") <= until) | F.col("path").rlike(ABSOLUTE_PATH))
        if self._files is not None:  # a plan has no statistics
            if entries.isEmpty():  # the usual case, which does not read the log
                return []
            entries = entries.drop("stats").join(self._all_entries().select("path", "stats"), "path", "left")
        rows = F.get_json_object("stats", "$.numRecords").cast("bigint").alias("rows")
        # Arrow rejects a NULL whose fields cannot be NULL, as in Delta's own type.
        vector = F.when(F.col("deletionVector").isNotNull(), F.struct("deletionVector.*")).alias("deletionVector")
        actions = entries.select("path", "partitionValues", "size", "modificationTime", vector, rows)
        names = self.metadata.names
        return [to_data_file(self.location, action, names) for action in actions.toArrow().to_pylist()]

    def rows_without(self, left_out: Collection[str]) -> DataFrame:
        """Return the rows of all files of the table at `version`, except files whose URI is in `left_out`."""
        entries, java = self._all_entries(), self._spark._jvm
        paths = entries.select("path").toArrow()["path"].to_pylist()
        removed = self._spark.createDataFrame(
            [(each,) for each in paths if to_uri(self.location, each) in left_out], "path string"
        )
        remaining = getattr(entries.join(removed, "path", "left_anti")._jdf, "as")(self._encoder).collectAsList()
        files = java.PythonUtils.toSeq(remaining)  # type: ignore[union-attr]
        log = self.snapshot.deltaLog()
        with active_session(self._spark, self._spark._jsparkSession):
            rows = log.createDataFrame(self.snapshot, files, False, getattr(log, "createDataFrame$default$4")())
        return DataFrame(rows, self._spark)

    def partitions(self) -> list[dict[str, str | None]]:
        """Return each partition as a mapping from column name to value. The values are text from the Delta log."""
        entries = F.array_sort(F.map_entries("partitionValues")).alias("partition")
        names = self.metadata.names
        rows = self._all_entries().select(entries).distinct().toArrow()["partition"].to_pylist()
        return [{names.get(each["key"], each["key"]): each["value"] for each in row} for row in rows]

    def _all_entries(self) -> DataFrame:
        """Return the entries in the Delta log for all files of the version."""
        return DataFrame(self.snapshot.allFiles().toDF(), self._spark)

    @property
    def _encoder(self) -> Any:
        return self._spark._jvm.org.apache.spark.sql.delta.implicits.package.addFileEncoder()  # type: ignore[union-attr]


def scan_all(frame: DataFrame) -> Scan | None:
    """Return all files of the Delta table that `frame` reads, or None if `frame` reads a view or another source.

    Raises `unknown_files` if `frame` reads the table through an unknown connector.
    """
    spark = session_of(frame)
    node = frame._jdf.queryExecution().analyzed()
    while node.children().size() == 1 and not class_of(node).endswith(".View"):
        node = node.children().apply(0)
    if "DataSourceV2" in class_of(node):
        _refuse_connector(node.table())
    if not class_of(node).endswith(".LogicalRelation") or not is_a(node.relation(), FILES):
        return None
    index = node.relation().location()
    return Scan(name_of(node), spark, index.getSnapshot(), None) if class_of(index).startswith(DELTA) else None


def name_of(leaf: Any) -> str:
    """Return the catalog name or path of the table that a plan leaf reads. mirrorfeed commands accept this name."""
    catalog = leaf.catalogTable()
    if catalog.isDefined():
        identifier = catalog.get().identifier()
        parts = [str(part.get()) for part in (identifier.catalog(), identifier.database()) if part.isDefined()]
        if parts and parts[-1] != "delta":  # the schema `delta` means that the name is a path
            return str(Source(parts=(*parts, str(identifier.table()))))
    return normalize_uri(leaf.relation().location().path()).removeprefix("file:")


_PREPARED = f"{DELTA}stats.PreparedDeltaFileIndex"
_FIXED = f"{DELTA}files.TahoeBatchFileIndex"
"""Class of the file index in plans of `_fix_files`, and in the DataFrames of `Scan.rows_without`."""
_FILE_TABLE = "org.apache.spark.sql.execution.datasources.v2.FileTable"
_RDDS_WITHOUT_FILES = ("ParallelCollectionRDD", "ReliableCheckpointRDD", "LocalCheckpointRDD", "EmptyRDD")
"""Classes of RDDs that have no parents and read no file."""


def plan_frame(frame: DataFrame) -> tuple[DataFrame, tuple[Scan, ...]]:
    """Return a DataFrame that runs the optimized plan of `frame`, and the files that it reads: one `Scan` per table.

    Raises `unknown_files` if the plan does not show all files, `query_not_plannable` if Spark cannot plan the query,
    and `no_query_plan` with Spark Connect.
    """
    spark = session_of(frame)
    if frame.isStreaming:
        raise unknown_files(reads="a stream")
    try:
        with silence_spark_logs():
            plan = _fix_files(spark, optimize(spark, frame))
    except PySparkException as error:
        raise query_not_plannable(reason=first_line(str(error))) from error
    scans = tuple(_scans(spark, plan))
    rows = spark._jvm.org.apache.spark.sql.classic.Dataset.ofRows(spark._jsparkSession, plan)  # type: ignore[union-attr]
    return DataFrame(rows, spark), scans


def _fix_files(spark: SparkSession, plan: Any) -> Any:
    """Return an optimized plan that reads only the files that Delta selected for it.

    In a separate plan, Delta selects files again when the plan runs, if the filters are not the same then. It selects
    more files for a LIMIT with deletion vectors, for a Python UDF on a partition column, and if the session does not
    use statistics. The files of the plan are enough, because the plan still contains all filters and the LIMIT.
    """
    delta = spark._jvm.org.apache.spark.sql.delta  # type: ignore[union-attr]
    indexes, relations = spark._jvm.java.util.HashMap(), spark._jvm.java.util.HashMap()  # type: ignore[union-attr]
    for leaf in _leaves(plan):
        if not class_of(leaf).endswith(".LogicalRelation") or not is_a(leaf.relation(), FILES):
            continue
        index = leaf.relation().location()
        if class_of(index) != _PREPARED:
            continue
        if not indexes.containsKey(index):  # Spark reads equal scans once only if they have the same index
            scan, log, path = index.preparedScan(), index.deltaLog(), index.path()
            session, snapshot = spark._jsparkSession, scan.scannedSnapshot()
            fixed = delta.files.TahoeBatchFileIndex(session, "batch", scan.files(), log, path, snapshot, False)
            indexes.put(index, fixed)
        relations.put(leaf, delta.DeltaTableUtils.replaceFileIndex(leaf, indexes.get(index)))
    replacement = spark._jvm.PythonUtils.toScalaMap(relations)  # type: ignore[union-attr]
    return plan.transformDownWithSubqueries(replacement)


def _leaves(plan: Any) -> Iterator[Any]:
    for part in (plan, *items(plan.subqueriesAll())):
        yield from items(part.collectLeaves())


def _scans(spark: SparkSession, plan: Any) -> Iterator[Scan]:
    for leaf in _leaves(plan):
        kind = class_of(leaf)
        if kind.endswith(".LogicalRelation"):
            yield from _scan(spark, leaf)
        elif kind.endswith(".LogicalRDD"):
            _refuse_files(leaf.rdd())
        elif "InMemoryRelation" in kind:
            raise unknown_files(reads="rows that are cached, whose files it does not show")
        elif "DataSourceV2" in kind:
            table = (leaf.relation() if kind.endswith("ScanRelation") else leaf).table()
            _refuse_connector(table)
            if is_a(table, _FILE_TABLE):
                _refuse_tables(spark, table.fileIndex())


def _scan(spark: SparkSession, leaf: Any) -> Iterator[Scan]:
    relation = leaf.relation()
    if not is_a(relation, FILES):
        if class_of(relation).startswith(DELTA):
            raise unknown_files(reads="the change feed of a table")
        return
    index = relation.location()
    if class_of(index) == _FIXED:
        yield Scan(name_of(leaf), spark, index.snapshot(), index.addFiles())
    elif class_of(index).startswith(DELTA):
        raise unknown_files(reads=f"files of {name_of(leaf)} that Delta does not plan ({kind_of(index)})")
    else:
        _refuse_tables(spark, index)


def _refuse_connector(table: Any) -> None:
    """Raise `unknown_files` if `table` is a Delta table of a connector whose plans do not show the files."""
    if class_of(table).startswith((DELTA, _OTHER_DELTA)):
        raise unknown_files(reads=f"a Delta table in an unknown form ({kind_of(table)})")


def _refuse_tables(spark: SparkSession, index: Any) -> None:
    """Raise `unknown_files` if a query reads a Delta table's files as plain files, because some may be archived."""
    known: dict[str, str | None] = {}
    for path in (normalize_uri(root) for root in items(index.rootPaths())):
        if "_delta_log" not in path.split("/") and (table := table_folder(spark, path, known)) is not None:
            raise unknown_files(reads=f"files of the Delta table {table} directly, not as a table")


def _refuse_files(rdd: Any) -> None:
    """Raise `unknown_files` if an RDD may read files, because an RDD does not show which files it reads."""
    unchecked = [rdd]
    while unchecked:
        ancestor = unchecked.pop()
        if ancestor.isCheckpointed():
            continue
        parents = [each.rdd() for each in items(ancestor.dependencies())]
        if not parents and not class_of(ancestor).endswith(_RDDS_WITHOUT_FILES):
            raise unknown_files(reads="rows of an RDD, whose files it does not show")
        unchecked += parents


_COMMANDS = (f"{CATALYST}plans.logical.Command", f"{CATALYST}plans.logical.ParsedStatement")
_SUBQUERY = f"{CATALYST}expressions.SubqueryExpression"
READS_NO_ROWS = re.compile(
    r"(Show(?!Partitions)|Describe|Explain|SetCommand|SetCatalog|SetNamespace|Reset|CreateView|CreateTempView|CreateNamespace"
    r"|CreateTable$|CreateFunction|Drop(?!Columns)|Refresh|Uncache|ClearCache|CommentOn|AddColumns|RenameTable"
    r"|CloneTable)"
)
"""Regular expression for the start of the class names of Spark commands that read no data file."""
_RUNS = re.compile(r"(Statement|Command)$|ExecuteImmediate|Compound")
"""Regular expression for class names of other plan nodes that run commands, such as EXECUTE IMMEDIATE and scripts."""


def command_kind(spark: SparkSession, statement: str) -> str | None:
    """Return the class name of the command that a statement runs, such as "DropTable", or None for a query."""
    root = parse(spark, statement)
    return next((kind_of(node) for node in nodes(root) if is_a(node, *_COMMANDS) or _RUNS.search(kind_of(node))), None)


def has_subqueries(spark: SparkSession, statement: str) -> bool:
    """Return whether the expressions of a MERGE contain subqueries, according to Spark's parser."""
    expressions = items(parse(spark, statement).expressions())
    return any(is_a(node, _SUBQUERY) for expression in expressions for node in nodes(expression))


class TableReference(NamedTuple):
    """A name of a table or view in the text of a query."""

    name: str
    """Name in SQL."""
    start: int
    end: int
    """Position after the name."""
    has_version: bool
    """True if the query selects a version of the table."""


def table_references(spark: SparkSession, statement: str) -> list[TableReference]:
    """Return all names of tables and views in a query, in the order of the text, without the names of its CTEs."""
    return sorted(_references(parse(spark, statement), frozenset()), key=attrgetter("start"))


def _references(node: Any, ctes: frozenset[str], has_version: bool = False) -> Iterator[TableReference]:
    kind = kind_of(node)
    if kind == "UnresolvedRelation":
        parts = [str(part) for part in items(node.multipartIdentifier())]
        if len(parts) > 1 or parts[0].lower() not in ctes:
            start, last = (int(index.get()) for index in (node.origin().startIndex(), node.origin().stopIndex()))
            yield TableReference(".".join(map(quote, parts)), start, last + 1, has_version)
    elif kind == "RelationTimeTravel":
        yield from _references(node.relation(), ctes, has_version=True)
    elif kind == "UnresolvedWith":
        named = [(str(each._1()).lower(), each._2()) for each in items(node.cteRelations())]
        if node.allowRecursion():
            ctes |= {name for name, _ in named}
        for name, query in named:
            yield from _references(query, ctes)
            ctes |= {name}
    for child in items(node.children()):
        yield from _references(child, ctes)
    for expression in items(node.expressions()):
        for each in nodes(expression):
            if is_a(each, _SUBQUERY):
                yield from _references(each.plan(), ctes)


_CONSTANT_LEAVES = re.compile(r"LocalRelation|OneRowRelation|EmptyRelation|Range|CTERelationRef|UnionLoopRef")
"""Regular expression for class names of plan leaves that read no table."""


def scans_of_versions(frame: DataFrame) -> list[Scan]:
    """Return the tables that a query reads, each with all files of its version.

    Raises `query_not_repeatable` if the query reads a table without a version, or another source.
    """
    spark, plan = session_of(frame), frame._jdf.queryExecution().analyzed()
    scans = []
    for leaf in (leaf for part in (plan, *items(plan.subqueriesAll())) for leaf in items(part.collectLeaves())):
        if class_of(leaf).endswith(".LogicalRelation") and is_a(leaf.relation(), FILES):
            index = leaf.relation().location()
            if class_of(index) == f"{DELTA}files.TahoeLogFileIndex" and index.isTimeTravelQuery():
                scans.append(Scan(name_of(leaf), spark, index.getSnapshot(), None))
                continue
        if not _CONSTANT_LEAVES.fullmatch(kind_of(leaf)):
            raise query_not_repeatable(reason=f"it reads a source without versions ({kind_of(leaf)})")
    return scans


def scan_for_change(spark: SparkSession, statement: str, table: Scan) -> Scan:
    """Return the files in which a DELETE, UPDATE or MERGE of `table` searches for rows, without running the statement.

    Leaves out a file only if the conditions in the statement itself show that no row of the file matches. Raises
    `unknown_files` for other kinds of statements.
    """
    session = spark._jsparkSession
    not_run = spark._jvm.org.apache.spark.sql.execution.CommandExecutionMode.SKIP()  # type: ignore[union-attr]
    with silence_spark_logs(), active_session(spark, session):
        command = session.sessionState().executePlan(parse(spark, statement), not_run).optimizedPlan()
        if class_of(command) == f"{DELTA}commands.MergeIntoCommand":
            if not command.notMatchedBySourceClauses().isEmpty():
                return table
            predicates = command.getTargetOnlyPredicates(session)
        elif class_of(command) in (f"{DELTA}commands.DeleteCommand", f"{DELTA}commands.UpdateCommand"):
            if command.condition().isEmpty():
                return table
            helper = spark._jvm.org.apache.spark.sql.delta.DeltaTableUtils  # type: ignore[union-attr]
            partitions = table.snapshot.metadata().partitionColumns()
            parts = helper.splitMetadataAndDataPredicates(command.condition().get(), partitions, session)
            predicates = parts._1().concat(parts._2())
        else:
            raise unknown_files(reads=f"by an unknown kind of statement ({kind_of(command)})")
        return Scan(table.name, spark, table.snapshot, table.snapshot.filesForScan(predicates, False).files())
