"""The files in a Delta log, read with Spark: paths, sizes, ages and deletion vectors. Reads no data file.

Spark does not list the files of a table with their ages, so this reads the JSON and Parquet files of the log. They only
show how old a file is. Delta decides whether a query needs it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import reduce

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from mirrorfeed.archive.errors import CommitsElsewhere
from mirrorfeed.archive.file_index.log_file import LogFile, column_names, file_of, no_pattern
from mirrorfeed.source.delta_protocol import commit_name, external_commit_features
from mirrorfeed.source.errors import LogDamaged
from mirrorfeed.source.identifier import Source
from mirrorfeed.source.table_info import TableInfo

_VECTOR = "struct<storageType string, pathOrInlineDv string, offset int, cardinality bigint>"
_FILE = f"path string, partitionValues map<string, string>, size bigint, deletionVector {_VECTOR}, dataChange boolean"
_ADD = f"struct<{_FILE}, modificationTime bigint, stats string, stats_parsed struct<numRecords bigint>>"
_SCHEMA = (
    f"add {_ADD}, remove struct<{_FILE}>, cdc struct<{_FILE}>, sidecar struct<path string>,"
    " metaData struct<schemaString string>, commitInfo struct<timestamp bigint, inCommitTimestamp bigint>"
)

_NAME = re.compile(r"(\d{20})\.(json|checkpoint(?:\.(\d{10})\.(\d{10})|\.[0-9a-f-]{36})?\.(?:parquet|json))")


@dataclass(frozen=True, slots=True)
class Parts:
    """The files of the log from which to read a version: a complete checkpoint, and the commits after it."""

    checkpoint_version: int
    checkpoint: tuple[str, ...]
    commits: tuple[str, ...]


def parts_at(table: str, names: Iterable[str], version: int) -> Parts:
    """The parts among the file names of the log. Raises `LogDamaged` if commits are missing."""
    commits: dict[int, str] = {}
    checkpoints: dict[int, list[tuple[str, int]]] = {}
    for name in names:
        if (found := _NAME.fullmatch(name)) is None or int(found[1]) > version:
            continue
        if found[2] == "json":
            commits[int(found[1])] = name
        else:
            checkpoints.setdefault(int(found[1]), []).append((name, int(found[4] or 0)))
    for start in sorted(checkpoints, reverse=True):
        if whole := _whole(checkpoints[start]):
            break
    else:
        start, whole = -1, ()
    needed = range(start + 1, version + 1)
    if not all(number in commits for number in needed):
        raise LogDamaged(table=table)
    return Parts(start, whole, tuple(commits[number] for number in needed))


def _whole(found: Sequence[tuple[str, int]]) -> tuple[str, ...]:
    """The files of a complete checkpoint of a version."""
    for name, parts in sorted(found):
        if not parts:
            return (name,)
        if len(same := [other for other, count in found if count == parts]) == parts:
            return tuple(sorted(same))
    return ()


def log_of(spark: SparkSession, source: Source, found: TableInfo) -> DeltaLog:
    """Raises `CommitsElsewhere` if the catalog may have further commits."""
    if features := external_commit_features(found.features):
        raise CommitsElsewhere(table=str(source), feature=features[0])
    return DeltaLog(spark, str(source), found.location)


@dataclass(frozen=True)
class DeltaLog:
    spark: SparkSession
    table: str
    location: str

    def files(self, version: int) -> dict[str, LogFile]:
        """The files of the table at a version, by URI."""
        parts = parts_at(self.table, self._names(), version)
        actions, names = self._actions(parts)
        key = F.concat_ws(":", "vector.storageType", "vector.pathOrInlineDv", "vector.offset")
        newest = (
            actions.where("path IS NOT NULL")
            .groupBy("path", key.alias("key"))
            .agg(F.max_by(F.struct(*_COLUMNS[2:]), "version").alias("last"))
            .where("last.live")
            .select("path", "last.*")
        )
        found = (file_of(self.location, row, names) for row in newest.toArrow().to_pylist())
        return {file.uri: file for file in found}

    def changed_files(self, first: int, last: int) -> list[LogFile]:
        """The files that the change data feed of these versions reads: the `_change_data` files of each commit, or the
        files that it added and removed, with their deletion vectors. `_change_data` files are as old as their commit.
        The age of a removed file is unknown if the log does not contain it any more."""
        try:
            before = self.files(first - 1) if first > 0 else {}
        except LogDamaged:
            before = {}
        frame = self._read("json", [commit_name(version) for version in range(first, last + 1)])
        listed = []
        for kind in ("add", "remove", "cdc"):
            there = frame.where(f"{kind}.path IS NOT NULL")
            listed.append(_narrow(there, kind, _version()).withColumn("kind", F.lit(kind)))
        rows = reduce(DataFrame.unionByName, listed).toArrow().to_pylist()
        time = F.coalesce("commitInfo.inCommitTimestamp", "commitInfo.timestamp").alias("time")
        times = {row["v"]: row["time"] for row in frame.select(_version().alias("v"), time).collect() if row["time"]}
        known = before | {
            file.uri: file for file in (file_of(self.location, row) for row in rows if row["kind"] == "add")
        }
        with_changes = {row["version"] for row in rows if row["kind"] == "cdc"}
        found: dict[str, LogFile] = {}
        for row in rows:
            if (row["kind"] != "cdc") if row["version"] in with_changes else not row["change"]:
                continue
            if row["kind"] == "cdc":
                row["created"] = times.get(row["version"])
            file = file_of(self.location, row)
            if file.uri in known:
                same = known[file.uri]
                file = LogFile(file.uri, same.size, same.rows, same.created, same.partition, file.vector)
            found[file.uri + (file.vector or "")] = file
        return list(found.values())

    def _names(self) -> list[str]:
        listed = self.spark.read.format("binaryFile").option("pathGlobFilter", "*.{json,parquet}")
        rows = listed.load(no_pattern(f"{self.location}/_delta_log")).select("path").toArrow()["path"].to_pylist()
        return [str(path).rpartition("/")[2] for path in rows]

    def _actions(self, parts: Parts) -> tuple[DataFrame, dict[str, str]]:
        """The actions that add and remove files, and the column names of the table by those of the log."""
        frames, schemas = [], []
        if parts.checkpoint:
            at = F.lit(parts.checkpoint_version)
            main = self._read(parts.checkpoint[0].rpartition(".")[2], parts.checkpoint)
            rest = main.where("sidecar.path IS NOT NULL OR metaData.schemaString IS NOT NULL").select(
                "sidecar.path", "metaData.*"
            )
            rows = rest.collect()
            sidecars = [f"_sidecars/{row['path']}" for row in rows if row["path"]]
            schemas += [(parts.checkpoint_version, row) for row in rows if row["schemaString"]]
            frames.append(_narrow(main, "add", at))
            if sidecars:
                frames.append(_narrow(self._read("parquet", sidecars), "add", at))
        if parts.commits:
            commits = self._read("json", parts.commits)
            frames += [_narrow(commits, kind, _version()) for kind in ("add", "remove")]
            changed = commits.where("metaData.schemaString IS NOT NULL").select(_version().alias("v"), "metaData.*")
            schemas += [(row["v"], row) for row in changed.collect()]
        _, newest = max(schemas, key=lambda each: each[0])
        return reduce(DataFrame.unionByName, frames), column_names(newest["schemaString"])

    def _read(self, form: str, names: Sequence[str]) -> DataFrame:
        paths = [no_pattern(f"{self.location}/_delta_log/{name}") for name in names]
        return self.spark.read.schema(_SCHEMA).format(form).load(paths)


_COLUMNS = ("version", "path", "live", "change", "partition", "size", "created", "rows", "vector")


def _version() -> Column:
    return F.substring(F.col("_metadata.file_name"), 1, 20).cast("int")


def _narrow(frame: DataFrame, kind: str, version: Column) -> DataFrame:
    """The needed columns of the actions of one kind."""
    is_add = kind == "add"
    rows = F.coalesce(F.get_json_object("add.stats", "$.numRecords").cast("bigint"), "add.stats_parsed.numRecords")
    return frame.select(
        version.alias("version"),
        F.col(f"{kind}.path").alias("path"),
        F.lit(is_add).alias("live"),
        F.col(f"{kind}.dataChange").alias("change"),
        F.col(f"{kind}.partitionValues").alias("partition"),
        F.col(f"{kind}.size").alias("size"),
        (F.col("add.modificationTime") if is_add else F.lit(None).cast("bigint")).alias("created"),
        (rows if is_add else F.lit(None).cast("bigint")).alias("rows"),
        F.col(f"{kind}.deletionVector").alias("vector"),
    )
