"""Statements that are no queries: their kinds, and the files in which those that change a table look for rows."""

from __future__ import annotations

import re

from pyspark.sql import SparkSession

from mirrorfeed.archive.errors import CannotBeJudged
from mirrorfeed.archive.spark_plan_tree import CATALYST, DELTA, active, class_of, is_a, items, kind_of, nodes, parsed
from mirrorfeed.archive.spark_scans import Scan
from mirrorfeed.runtime.spark_session import unlogged

_COMMANDS = (f"{CATALYST}plans.logical.Command", f"{CATALYST}plans.logical.ParsedStatement")
_SUBQUERY = f"{CATALYST}expressions.SubqueryExpression"
_NO_ROWS = re.compile(
    r"(Show(?!Partitions)|Describe|Explain|SetCommand|SetCatalog|SetNamespace|Reset|CreateView|CreateTempView|CreateNamespace"
    r"|CreateTable$|CreateFunction|Drop(?!Columns)|Refresh|Uncache|ClearCache|CommentOn|SetTableProperties"
    r"|UnsetTableProperties|AddColumns|RenameTable|CloneTable)"
)
_RUNS = re.compile(r"(Statement|Command)$|ExecuteImmediate|Compound")
"""What is carried out, and for Spark is no command: statements of Delta's own, texts and scripts."""


def kind(spark: SparkSession, statement: str) -> str | None:
    """The kind of a statement that is no query."""
    root = parsed(spark, statement)
    return next((kind_of(node) for node in nodes(root) if is_a(node, *_COMMANDS) or _RUNS.search(kind_of(node))), None)


def reads_no_rows(kind: str) -> bool:
    """Of a kind of command: whether it is known to read no data file."""
    return _NO_ROWS.match(kind) is not None


def merge_has_subqueries(spark: SparkSession, statement: str) -> bool:
    """As the parser has it, whatever spaces and comments stand between the words."""
    root = parsed(spark, statement)
    kinds = (root.matchedActions(), root.notMatchedActions(), root.notMatchedBySourceActions())
    trees = [root.mergeCondition(), *(each for actions in kinds for each in items(actions))]
    return any(is_a(node, _SUBQUERY) for tree in trees for node in nodes(tree))


def candidates(spark: SparkSession, statement: str, table: Scan) -> Scan:
    """The files of a table in which a DELETE, UPDATE or MERGE of it looks for rows, found as the command itself finds
    them when it runs in this session: by the conditions that it is given, where a query goes by all that follows from
    its conditions."""
    session = spark._jsparkSession
    not_run = spark._jvm.org.apache.spark.sql.execution.CommandExecutionMode.SKIP()  # type: ignore[union-attr]
    with unlogged(), active(spark, session):
        command = session.sessionState().executePlan(parsed(spark, statement), not_run).optimizedPlan()
        if class_of(command) == f"{DELTA}commands.MergeIntoCommand":
            if not command.notMatchedBySourceClauses().isEmpty():
                return table
            asked = command.getTargetOnlyPredicates(session)
        elif class_of(command) in (f"{DELTA}commands.DeleteCommand", f"{DELTA}commands.UpdateCommand"):
            if command.condition().isEmpty():
                return table
            helper = spark._jvm.org.apache.spark.sql.delta.DeltaTableUtils  # type: ignore[union-attr]
            partitions = table.snapshot.metadata().partitionColumns()
            parts = helper.splitMetadataAndDataPredicates(command.condition().get(), partitions, session)
            asked = parts._1().concat(parts._2())
        else:
            raise CannotBeJudged(reads=f"by a statement of a kind that is not known here ({kind_of(command)})")
        return Scan(table.name, spark, table.snapshot, table.snapshot.filesForScan(asked, False).files())
