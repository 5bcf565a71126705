"""What a query on classic Spark is going to read: Delta's own plan, made without what hides files or rows from it.

It reaches into the JVM, for open source Delta alone: Databricks guards archived files itself, and over Connect there is
no plan to look at. Three things hide files from the plan that a DataFrame shows, and none takes part
here: cached data, which has no files; subqueries, which hang beside the plan; and filters on partitions that Delta
derives from a generated column, which miss rows that were written under another time zone.

What comes back is the plan itself as a DataFrame: what was looked at is what is read, whatever is cached, committed or
set in the session later.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from mirrorfeed.archive.errors import CannotBeJudged, CannotBePlanned
from mirrorfeed.archive.file_index.log_file import plain
from mirrorfeed.archive.file_index.owner import Tables
from mirrorfeed.archive.spark_plan_tree import DELTA, FILES, class_of, is_a, items, kind_of, optimized, session_of
from mirrorfeed.archive.spark_scans import Scan, name_of
from mirrorfeed.errors import first_line
from mirrorfeed.runtime.spark_session import unlogged

_PREPARED = f"{DELTA}stats.PreparedDeltaFileIndex"
_FILE_TABLE = "org.apache.spark.sql.execution.datasources.v2.FileTable"
_ROWS_OF_THEIR_OWN = ("ParallelCollectionRDD", "ReliableCheckpointRDD", "LocalCheckpointRDD", "EmptyRDD")
"""Where the lineage of an RDD may end without a file of a table."""


@dataclass(frozen=True)
class Planned:
    """A query that is planned and not run."""

    rows: DataFrame
    scans: tuple[Scan, ...]
    """Of all tables that are Delta's, wherever in the query they are read."""


def planned(frame: DataFrame) -> Planned:
    """The plan of a DataFrame, or `CannotBeJudged`."""
    spark = session_of(frame)
    if frame.isStreaming:
        raise CannotBeJudged(reads="a stream")
    try:
        with unlogged():
            plan = optimized(spark, frame)
    except PySparkException as error:
        raise CannotBePlanned(reason=first_line(str(error))) from error
    scans = tuple(_scans(spark, plan))
    rows = spark._jvm.org.apache.spark.sql.classic.Dataset.ofRows(spark._jsparkSession, plan)  # type: ignore[union-attr]
    return Planned(DataFrame(rows, spark), scans)


def _scans(spark: SparkSession, plan: Any) -> Iterator[Scan]:
    for part in (plan, *items(plan.subqueriesAll())):
        for leaf in items(part.collectLeaves()):
            kind = class_of(leaf)
            if kind.endswith(".LogicalRelation"):
                yield from _scan(spark, leaf)
            elif kind.endswith(".LogicalRDD"):
                _refuse_files(leaf.rdd())
            elif "InMemoryRelation" in kind:
                raise CannotBeJudged(reads="rows that are cached, whose files it does not show")
            elif "DataSourceV2" in kind:
                table = (leaf.relation() if kind.endswith("ScanRelation") else leaf).table()
                if class_of(table).startswith(DELTA):
                    raise CannotBeJudged(reads=f"a Delta table in a form that is not known here ({kind_of(leaf)})")
                if is_a(table, _FILE_TABLE):
                    _refuse_tables(spark, table.fileIndex())


def _scan(spark: SparkSession, leaf: Any) -> Iterator[Scan]:
    relation = leaf.relation()
    if not is_a(relation, FILES):
        if class_of(relation).startswith(DELTA):
            raise CannotBeJudged(reads="the change feed of a table")
        return
    index = relation.location()
    if class_of(index) == _PREPARED:
        prepared = index.preparedScan()
        yield Scan(name_of(leaf), spark, prepared.scannedSnapshot(), prepared.files())
    elif class_of(index).startswith(DELTA):
        raise CannotBeJudged(reads=f"files of {name_of(leaf)} that Delta does not plan ({kind_of(index)})")
    else:
        _refuse_tables(spark, index)


def _refuse_tables(spark: SparkSession, index: Any) -> None:
    """Files that are read as such may be those of a table, of which a part is there and a part is archived."""
    tables = Tables(spark)
    for path in (plain(str(root.toString())) for root in items(index.rootPaths())):
        if "_delta_log" not in path.split("/") and (table := tables.holding(path)) is not None:
            raise CannotBeJudged(reads=f"files of the Delta table {table} as if they were none of a table's")


def _refuse_files(rdd: Any) -> None:
    """An RDD shows no plan: it may hold rows of its own, or read files when it runs."""
    left = [rdd]
    while left:
        found = left.pop()
        if found.isCheckpointed():
            continue
        parents = [each.rdd() for each in items(found.dependencies())]
        if not parents and not class_of(found).endswith(_ROWS_OF_THEIR_OWN):
            raise CannotBeJudged(reads="rows of an RDD, whose files it does not show")
        left += parents
