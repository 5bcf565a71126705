"""Read the files in a Delta log with Hadoop and Arrow, for queries that need few of many files.

Faster than Spark, which first builds the state of the table. In uncertain cases `Doubt` is raised, and Delta decides.
"""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj
import pyarrow.parquet as pq
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from mirrorfeed.archive.archived_files import (
    ABSOLUTE_PATH,
    DataFile,
    TableMetadata,
    file_system,
    hadoop_path,
    normalize_uri,
    to_data_file,
)
from mirrorfeed.archive.data_skipping import Comparison, Doubt, may_match, to_array
from mirrorfeed.archive.errors import CommitsElsewhere
from mirrorfeed.source.identifier import Source
from mirrorfeed.source.table_info import commit_name, commit_version, external_commit_features

_AT_ONCE = 2**20
_ROWS = 4096
_BLOCK = 2**20
_BUFFER = 2**20
_FEATURES = {"columnMapping", "deletionVectors", "timestampNtz", "v2Checkpoint", "vacuumProtocolCheck", "typeWidening"}
_VECTOR = pa.struct(
    [("storageType", pa.string()), ("pathOrInlineDv", pa.string()), ("offset", pa.int32()), ("cardinality", pa.int64())]
)
_KEY = [("path", pa.string()), ("deletionVector", _VECTOR)]
_FACTS = [*_KEY, ("size", pa.int64()), ("modificationTime", pa.int64()), ("stats", pa.string())]


_NAME = re.compile(r"(\d{20})\.(json|checkpoint(?:\.(\d{10})\.(\d{10})|\.[0-9a-f-]{36})?\.(?:parquet|json))")


@dataclass(frozen=True, slots=True)
class Parts:
    """Files of the log that describe a version: a complete checkpoint, and the commits after it."""

    checkpoint_version: int
    checkpoint: tuple[str, ...]
    commits: tuple[str, ...]


def parts_at(names: Iterable[str], version: int) -> Parts:
    """Return the parts among the file names of the log. Raise `Doubt` if commits are missing."""
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
        if checkpoint := _complete_checkpoint(checkpoints[start]):
            break
    else:
        start, checkpoint = -1, ()
    needed = range(start + 1, version + 1)
    if not all(number in commits for number in needed):
        raise Doubt("an incomplete log")
    return Parts(start, checkpoint, tuple(commits[number] for number in needed))


def _complete_checkpoint(found: Sequence[tuple[str, int]]) -> tuple[str, ...]:
    for name, parts in sorted(found):
        if not parts:
            return (name,)
        if len(same := [other for other, count in found if count == parts]) == parts:
            return tuple(sorted(same))
    return ()


def require_own_commits(table: str, features: Collection[str]) -> None:
    """Raise `CommitsElsewhere` if the catalog may have further commits."""
    if found := external_commit_features(features):
        raise CommitsElsewhere(table=table, feature=found[0])


@dataclass(frozen=True)
class ColumnarLog:
    """Log of a table at a version."""

    location: str
    """Folder of the table, as in the URIs of its files."""
    names: Sequence[str]
    """Names of all files of the log."""
    version: int
    local_path: Callable[[str], Path]
    """Return the local path of a file of the log."""

    def at(self, version: int | None) -> ColumnarLog:
        """Return the log at a version. With None, return this log."""
        if version is not None and commit_name(version) not in self.names:
            raise Doubt("a version that is not there")
        return self if version is None else replace(self, version=version)

    @cached_property
    def parts(self) -> Parts:
        return parts_at(self.names, self.version)

    @cached_property
    def metadata(self) -> TableMetadata:
        """Return the newest metadata. Raises `Doubt` for a table with unknown features."""
        metadata: dict[str, Any] = {}
        protocol: dict[str, Any] = {}
        for name in (*reversed(self.parts.commits), *self.parts.checkpoint):
            for action in _of_the_table(self.local_path(name)):
                metadata = metadata or action.get("metaData") or {}
                protocol = protocol or action.get("protocol") or {}
            if metadata and protocol:
                break
        else:
            raise Doubt("a log that does not describe its table")
        reading, writing = (protocol.get(f"{who}Features") or () for who in ("reader", "writer"))
        if protocol["minReaderVersion"] > 3 or not set(reading) <= _FEATURES or external_commit_features(writing):
            raise Doubt("a table of a newer kind")
        return TableMetadata.of(metadata)

    def files(
        self, comparisons: Sequence[Comparison] = (), until: int | None = None
    ) -> tuple[int, tuple[DataFile, ...]]:
        """Return the number of files that may match all comparisons, and those of them that were created until a
        time in milliseconds. The default is all."""
        names = self.metadata.names
        partitions = [physical for physical, name in names.items() if name in self.metadata.partitions]
        count, found = 0, []
        for added, later in self._added_files(partitions):
            matches = may_match(comparisons, partial(_partition, added), added["stats"].chunk(0))
            files = _without(added.filter(matches).combine_chunks(), later)
            if len(files) and pc.any(pc.match_substring_regex(files["path"], ABSOLUTE_PATH)).as_py():
                raise Doubt("files that may lie in another table's folder")
            count += len(files)
            if until is not None:
                files = files.filter(pc.fill_null(pc.less_equal(files["modificationTime"], until), True))
            found += [to_data_file(self.location, each, names) for each in files.to_pylist()]
        return count, tuple(found)

    def _added_files(self, partitions: Sequence[str]) -> Iterator[tuple[pa.Table, list[pa.Array]]]:
        """Yield the files that each part of the log adds, newest part first, with the keys of files in later parts.

        Files in later parts override files in earlier ones. A commit contains a file once.
        """
        later: list[pa.Array] = []
        for name in reversed(self.parts.commits):
            keys = []
            for actions in _lines(self.local_path(name), partitions):
                added, removed = (_facts(actions[kind]) for kind in ("add", "remove"))
                keys += [_keys(each) for each in (added, removed) if len(each)]
                if len(added):
                    yield added, later
            later += keys
        for name in self.parts.checkpoint:
            yield from ((added, later) for added in self._checkpoint(name, partitions) if len(added))

    def _checkpoint(self, name: str, partitions: Sequence[str]) -> Iterator[pa.Table]:
        path = self.local_path(name)
        if path.suffix == ".json":
            sidecars = []
            for actions in _lines(path, partitions):
                yield _facts(actions["add"])
                sidecars += pc.struct_field(actions["sidecar"], "path").drop_null().to_pylist()
        else:
            with pq.ParquetFile(path, pre_buffer=False, buffer_size=_BUFFER) as file:
                yield from _rows(file)
                sidecars = []
                if "sidecar" in file.schema_arrow.names:
                    column = file.read(["sidecar.path"])["sidecar"]
                    sidecars = pc.struct_field(column, "path").drop_null().to_pylist()
        for sidecar in sidecars:
            if "/" in sidecar:
                raise Doubt("a checkpoint with parts in another folder")
            with pq.ParquetFile(self.local_path(f"_sidecars/{sidecar}"), pre_buffer=False, buffer_size=_BUFFER) as file:
                yield from _rows(file)


def _of_the_table(path: Path) -> Iterator[Mapping[str, Any]]:
    """Yield the `metaData` and `protocol` actions in a file of the log."""
    if path.suffix == ".json":
        for chunk in _chunks(path):
            if b'"metaData"' in chunk or b'"protocol"' in chunk:
                yield from (
                    json.loads(line) for line in chunk.splitlines() if b'"metaData"' in line or b'"protocol"' in line
                )
        return
    with pq.ParquetFile(path, pre_buffer=False, buffer_size=_BUFFER) as file:
        for batch in file.iter_batches(_ROWS, columns=["metaData", "protocol"]):
            for kind in batch.schema.names:
                for action in batch[kind].drop_null().to_pylist():
                    yield {kind: action}


def _chunks(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while chunk := file.read(_AT_ONCE):
            yield chunk + file.readline()


def _lines(path: Path, partitions: Sequence[str]) -> Iterator[pa.Table]:
    """Yield the actions in a JSON file by kind."""
    values = pa.struct([(name, pa.string()) for name in partitions])
    kinds = {"add": [*_FACTS, ("partitionValues", values)], "remove": _KEY, "sidecar": [("path", pa.string())]}
    schema = pa.schema([(kind, pa.struct(fields)) for kind, fields in kinds.items()])
    only_these = pj.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore")
    for chunk in _chunks(path):
        if chunk.strip():
            yield pj.read_json(pa.BufferReader(chunk), pj.ReadOptions(block_size=_BLOCK), only_these)


def _rows(file: pq.ParquetFile) -> Iterator[pa.Table]:
    """Yield the files in a checkpoint or a part of one."""
    if "add" not in file.schema_arrow.names:
        return
    fields = {field.name for field in file.schema_arrow.field("add").type}
    needed = {"path", "size", "modificationTime", "stats", "partitionValues"}
    if not needed <= fields:
        raise Doubt("a checkpoint without texts of statistics")
    wanted = [f"add.{name}" for name in needed]
    wanted += [f"add.deletionVector.{field.name}" for field in _VECTOR] if "deletionVector" in fields else []
    for batch in file.iter_batches(_ROWS, columns=wanted):
        files = _facts(pa.chunked_array([batch["add"]]))
        if "stats_parsed" in fields and files["stats"].null_count:
            raise Doubt("statistics that are not texts")
        yield files


def _facts(actions: pa.ChunkedArray) -> pa.Table:
    """Convert file actions to a table with one chunk per column."""
    names = [field.name for field in actions.type]
    table = pa.table({name: pc.struct_field(actions, name) for name in names})
    table = table.filter(pc.is_valid(table["path"])).combine_chunks()
    if "deletionVector" not in names:
        table = table.append_column("deletionVector", pa.nulls(len(table), _VECTOR))
    return pa.table({name: to_array(table[name]) for name in table.column_names})


def _keys(files: pa.Table) -> pa.Array:
    """Return the key of each file: its path and deletion vector."""
    path, vector = to_array(files["path"]), to_array(files["deletionVector"])
    if vector.null_count == len(vector):
        return path
    kind, place, offset = (
        pc.fill_null(pc.struct_field(vector, name).cast(pa.string()), "")
        for name in ("storageType", "pathOrInlineDv", "offset")
    )
    marked = pc.binary_join_element_wise(path, kind, place, offset, "\n")
    return pc.if_else(pc.is_valid(vector), marked, path)


def _without(files: pa.Table, later: Sequence[pa.Array]) -> pa.Table:
    keys = _keys(files)
    both = [each.filter(pc.is_in(each, keys)) for each in later] if len(files) else []  # the larger side in no table
    return files.filter(pc.invert(pc.is_in(keys, pa.concat_arrays(both)))) if any(map(len, both)) else files


def _partition(files: pa.Table, name: str) -> pa.Array:
    values = files["partitionValues"].chunk(0)
    if pa.types.is_map(values.type):
        return pc.map_lookup(values, pa.scalar(name), "first")
    return pc.struct_field(values, name)


_NAMES = re.compile(r"/_delta_log/([^/;,\s}]+)[;,}\]]")


@contextmanager
def columns(spark: SparkSession, source: Source) -> Iterator[ColumnarLog]:
    """Yield the log at the newest version. Raise `Doubt` if it is not found or incomplete."""
    try:
        folder = _folder(spark, source)
        system = file_system(spark, folder)
        folder = system.makeQualified(folder)
        arrays = spark._jvm.org.apache.commons.lang3.ArrayUtils  # type: ignore[union-attr]
        names = _NAMES.findall(str(arrays.toString(system.listStatus(hadoop_path(spark, folder, "_delta_log")))))
    except (Py4JJavaError, PySparkException) as error:
        raise Doubt("a log that cannot be listed") from error
    newest = max((version for name in names if (version := commit_version(name)) is not None), default=-1)
    try:
        with log_files(spark, folder) as local_path:
            yield ColumnarLog(normalize_uri(str(folder.toString())), names, newest, local_path)
    except (pa.ArrowException, OSError) as error:
        raise Doubt("a log in an unknown form") from error


@contextmanager
def log_files(spark: SparkSession, folder: Any) -> Iterator[Callable[[str], Path]]:
    """Yield a function that returns the local path of a file in the log of a table. Remote files are copied."""
    folder = file_system(spark, folder).makeQualified(folder)
    if str(folder.toString()).startswith("file:"):
        yield Path(str(folder.toUri().getPath()), "_delta_log").joinpath
    else:
        with tempfile.TemporaryDirectory(prefix="mirrorfeed-log-") as copies:
            yield partial(copied, spark, hadoop_path(spark, folder, "_delta_log"), Path(copies))


def _folder(spark: SparkSession, source: Source) -> Any:
    if source.path is not None:
        return hadoop_path(spark, source.path)
    catalogs = spark._jsparkSession.sessionState().catalogManager()
    *schema, table = source.parts
    if str(catalogs.currentCatalog().name()) != "spark_catalog" or len(schema) > 1:
        raise Doubt("a table of another catalog")
    found = spark._jsparkSession.sessionState().sqlParser().parseTableIdentifier(source.sql)
    catalog = spark._jsparkSession.sessionState().catalog()
    if not schema and catalog.getTempView(table).isDefined():
        raise Doubt("a view")
    return hadoop_path(spark, catalog.getTableMetadata(found).location())


def copied(spark: SparkSession, log: Any, folder: Path, name: str) -> Path:
    """Copy a file of the log to a local folder, unless it is already there, and return its path."""
    target = folder / name
    if not target.exists():
        target.parent.mkdir(exist_ok=True)
        source, destination = hadoop_path(spark, log, name), hadoop_path(spark, target.as_uri())
        try:
            file_system(spark, log).copyToLocalFile(False, source, destination, True)
        except (Py4JJavaError, PySparkException) as error:
            raise Doubt("a file of the log that is gone") from error
    return target
