"""The files that a plan reads of a table, as Delta has them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from mirrorfeed.archive.file_index.log_file import ELSEWHERE, LogFile, column_names, file_of, plain
from mirrorfeed.archive.spark_plan_tree import DELTA, FILES, class_of, is_a, session_of
from mirrorfeed.source.identifier import Source

_VECTOR = tuple(f"deletionVector.{name}" for name in ("storageType", "pathOrInlineDv", "offset", "cardinality"))


@dataclass(frozen=True)
class Scan:
    """The files that a plan reads of one table at one version."""

    name: str
    """As the catalog has it, or the path."""
    _spark: SparkSession
    snapshot: Any
    _files: Any
    """Delta's; None for all of the version."""

    @property
    def version(self) -> int:
        return int(self.snapshot.version())

    @cached_property
    def location(self) -> str:
        return plain(str(self.snapshot.deltaLog().dataPath().toString()))

    @cached_property
    def table_id(self) -> str:
        return str(self.snapshot.metadata().id())

    @cached_property
    def properties(self) -> Mapping[str, str]:
        mapper = self._spark._jvm.org.apache.spark.sql.delta.util.JsonUtils.mapper()  # type: ignore[union-attr]
        found: dict[str, str] = json.loads(mapper.writeValueAsString(self.snapshot.metadata().configuration()))
        return found

    @cached_property
    def count(self) -> int:
        return int(self.snapshot.numOfFiles() if self._files is None else self._files.size())

    def files(self, until: int | None = None) -> list[LogFile]:
        """Those that were made by then, in milliseconds, and those that may lie in another table's folder; all without
        a time. No other comes into Python."""
        found = self._every() if self._files is None else self._planned()
        if until is not None:
            found = found.where((F.col("modificationTime") <= until) | F.col("path").rlike(ELSEWHERE))
        if self._files is not None:  # a plan leaves out what the log says of a file's content
            if found.isEmpty():  # as mostly: the log need not be read for that
                return []
            found = found.drop("stats").join(self._every().select("path", "stats"), "path", "left")
        columns = found.select(
            "path",
            F.col("partitionValues").alias("partition"),
            "size",
            F.col("modificationTime").alias("created"),
            F.get_json_object("stats", "$.numRecords").cast("bigint").alias("rows"),
            F.when(F.col("deletionVector").isNotNull(), F.struct(*_VECTOR)).alias("vector"),
        )
        names = column_names(self.snapshot.metadata().schemaString())
        return [file_of(self.location, row, names) for row in columns.toArrow().to_pylist()]

    def partitions(self) -> list[dict[str, str | None]]:
        """The values of the partition columns that there are in the whole version, as the log spells them."""
        entries = F.array_sort(F.map_entries("partitionValues")).alias("partition")
        names = column_names(self.snapshot.metadata().schemaString())
        rows = self._every().select(entries).distinct().toArrow()["partition"].to_pylist()
        return [{names.get(each["key"], each["key"]): each["value"] for each in row} for row in rows]

    def _every(self) -> DataFrame:
        """The log's entries of all files of the version."""
        return DataFrame(self.snapshot.allFiles().toDF(), self._spark)

    def _planned(self) -> DataFrame:
        """The entries that the plan has."""
        java: Any = self._spark._jvm
        encoder = java.org.apache.spark.sql.delta.implicits.package.addFileEncoder()
        return DataFrame(self._spark._jsparkSession.createDataset(self._files, encoder).toDF(), self._spark)


def whole(frame: DataFrame) -> Scan | None:
    """All files of the table that a DataFrame reads, at its version, with nothing planned; None where it is a view, or
    none of Delta's."""
    spark = session_of(frame)
    node = frame._jdf.queryExecution().analyzed()
    while node.children().size() == 1 and not class_of(node).endswith(".View"):
        node = node.children().apply(0)
    if not class_of(node).endswith(".LogicalRelation") or not is_a(node.relation(), FILES):
        return None
    index = node.relation().location()
    return Scan(name_of(node), spark, index.getSnapshot(), None) if class_of(index).startswith(DELTA) else None


def name_of(leaf: Any) -> str:
    """As a command takes it."""
    catalog = leaf.catalogTable()
    if catalog.isDefined():
        identifier = catalog.get().identifier()
        parts = [str(part.get()) for part in (identifier.catalog(), identifier.database()) if part.isDefined()]
        if parts and parts[-1] != "delta":  # which is how a path is spelled
            return str(Source(parts=(*parts, str(identifier.table()))))
    return plain(str(leaf.relation().location().path().toString())).removeprefix("file:")
