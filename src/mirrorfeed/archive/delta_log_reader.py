"""List the data files of a table from its Delta log, with Hadoop and Arrow.

Spark is slower, because it first builds a snapshot. Raises `UncertainFiles` if Delta itself might list different files.
"""

from __future__ import annotations

import json
import re
import tempfile
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj
import pyarrow.parquet as pq
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from mirrorfeed.archive.data_files import (
    ABSOLUTE_PATH,
    DataFile,
    TableMetadata,
    file_system,
    hadoop_path,
    normalize_uri,
    to_data_file,
)
from mirrorfeed.archive.data_skipping import ColumnComparison, UncertainFiles, may_match, to_array
from mirrorfeed.archive.errors import commits_outside_log
from mirrorfeed.source.identifier import Source
from mirrorfeed.source.table_info import commit_name, commit_version, external_commit_features

_CHUNK_SIZE = 2**20
_BATCH_ROWS = 4096
_BUFFER_SIZE = 2**20
_FEATURES = {"columnMapping", "deletionVectors", "timestampNtz", "v2Checkpoint", "vacuumProtocolCheck", "typeWidening"}
_VECTOR = pa.struct(
    [("storageType", pa.string()), ("pathOrInlineDv", pa.string()), ("offset", pa.int32()), ("cardinality", pa.int64())]
)
_KEY = [("path", pa.string()), ("deletionVector", _VECTOR)]
_ADD = [*_KEY, ("size", pa.int64()), ("modificationTime", pa.int64()), ("stats", pa.string())]


_NAME = re.compile(r"(\d{20})\.(json|checkpoint(?:\.(\d{10})\.(\d{10})|\.[0-9a-f-]{36})?\.(?:parquet|json))")


class LogFiles(NamedTuple):
    """Names of the log files that describe a version: one complete checkpoint, if any, and the commits after it."""

    checkpoint: tuple[str, ...]
    commits: tuple[str, ...]


def select_log_files(names: Iterable[str], version: int) -> LogFiles:
    """Return the log files in `names` that describe `version`. Raises `UncertainFiles` if commits are missing."""
    commits: dict[int, str] = {}
    checkpoints = defaultdict[tuple[int, int], list[str]](list)
    """Names of checkpoint files by version and number of parts."""
    for match_ in filter(None, map(_NAME.fullmatch, names)):
        if (number := int(match_[1])) > version:
            continue
        if match_[2] == "json":
            commits[number] = match_[0]
        else:
            checkpoints[number, int(match_[4] or 1)].append(match_[0])
    complete = (
        (number, sorted(files)[:parts]) for (number, parts), files in checkpoints.items() if len(files) >= parts
    )
    start, checkpoint = max(complete, default=(-1, []))
    needed = range(start + 1, version + 1)
    if not all(number in commits for number in needed):
        raise UncertainFiles("an incomplete log")
    return LogFiles(tuple(checkpoint), tuple(commits[number] for number in needed))


def require_own_commits(table: str, features: Collection[str]) -> None:
    """Raise `commits_outside_log` if a table feature allows commits outside the Delta log, for example in a catalog."""
    if external := external_commit_features(features):
        raise commits_outside_log(table=table, feature=external[0])


@dataclass(frozen=True)
class ColumnarLog:
    """Delta log of a table at one version, read with Arrow."""

    location: str
    """Folder of the table. URIs of its files start with this text."""
    names: Sequence[str]
    """Names of all files of the log."""
    version: int
    local_path: Callable[[str], Path]
    """Function that returns the local path of a log file by name. A remote file is copied first."""

    def at(self, version: int | None) -> ColumnarLog:
        """Return the log at `version`. If `version` is None, return this object.

        Raises `UncertainFiles` if the log does not contain `version`.
        """
        if version is not None and commit_name(version) not in self.names:
            raise UncertainFiles("a version that is not there")
        return self if version is None else replace(self, version=version)

    @cached_property
    def log_files(self) -> LogFiles:
        return select_log_files(self.names, self.version)

    @cached_property
    def metadata(self) -> TableMetadata:
        """Metadata of the table. Raises `UncertainFiles` if the log has none, or if features are unsupported."""
        metadata: dict[str, Any] = {}
        protocol: dict[str, Any] = {}
        for name in (*reversed(self.log_files.commits), *self.log_files.checkpoint):
            for action in _table_actions(self.local_path(name)):
                metadata = metadata or action.get("metaData") or {}
                protocol = protocol or action.get("protocol") or {}
            if metadata and protocol:
                break
        else:
            raise UncertainFiles("a log that does not describe its table")
        reading, writing = (protocol.get(f"{who}Features") or () for who in ("reader", "writer"))
        if protocol["minReaderVersion"] > 3 or not set(reading) <= _FEATURES or external_commit_features(writing):
            raise UncertainFiles("a table of a newer kind")
        return TableMetadata.of(metadata)

    def files(
        self, comparisons: Sequence[ColumnComparison] = (), until: int | None = None
    ) -> tuple[int, tuple[DataFile, ...]]:
        """Return the number of all matching files, and those matching files that were created up to `until`.

        A file matches if one of its rows may match all comparisons. `until` is in milliseconds since the epoch. None
        means no limit. Raises `UncertainFiles` if Delta itself might read different files.
        """
        names = self.metadata.names
        partitions = [physical for physical, name in names.items() if name in self.metadata.partitions]
        count, selected = 0, list[DataFile]()
        for added, later in self._added_files(partitions):
            matches = may_match(comparisons, partial(_partition, added), added["stats"].chunk(0))
            files = _without(added.filter(matches).combine_chunks(), later)
            if len(files) and pc.any(pc.match_substring_regex(files["path"], ABSOLUTE_PATH)).as_py():
                raise UncertainFiles("files that may lie in another table's folder")
            count += len(files)
            if until is not None:
                files = files.filter(pc.fill_null(pc.less_equal(files["modificationTime"], until), True))
            selected += [to_data_file(self.location, each, names) for each in files.to_pylist()]
        return count, tuple(selected)

    def _added_files(self, partitions: Sequence[str]) -> Iterator[tuple[pa.Table, list[pa.Array]]]:
        """Yield pairs of an Arrow table and a list. The pairs of the newest log file come first.

        The table contains files that one log file adds. The list contains the keys from `_keys` of all files that newer
        log files add or remove. A file in the table is outdated if the list contains its key.
        """
        later: list[pa.Array] = []
        for name in reversed(self.log_files.commits):
            keys = []
            for actions in _lines(self.local_path(name), partitions):
                added, removed = (_to_table(actions[kind]) for kind in ("add", "remove"))
                keys += [_keys(each) for each in (added, removed) if len(each)]
                if len(added):
                    yield added, later
            later += keys
        for name in self.log_files.checkpoint:
            yield from ((added, later) for added in self._checkpoint(name, partitions) if len(added))

    def _checkpoint(self, name: str, partitions: Sequence[str]) -> Iterator[pa.Table]:
        path = self.local_path(name)
        if path.suffix == ".json":
            sidecars = []
            for actions in _lines(path, partitions):
                yield _to_table(actions["add"])
                sidecars += pc.struct_field(actions["sidecar"], "path").drop_null().to_pylist()
        else:
            with _open_parquet(path) as file:
                yield from _added_in(file)
                sidecars = []
                if "sidecar" in file.schema_arrow.names:
                    column = file.read(["sidecar.path"])["sidecar"]
                    sidecars = pc.struct_field(column, "path").drop_null().to_pylist()
        for sidecar in sidecars:
            if "/" in sidecar:
                raise UncertainFiles("a checkpoint with parts in another folder")
            with _open_parquet(self.local_path(f"_sidecars/{sidecar}")) as file:
                yield from _added_in(file)


def count_rows(
    location: str, names: Sequence[str], version: int, local_path: Callable[[str], Path]
) -> dict[tuple[tuple[str, str | None], ...], int] | str:
    """Return the number of rows of each partition, or the reason why the log does not show it."""
    try:
        _, files = ColumnarLog(location, names, version, local_path).at(version).files()
    except UncertainFiles as error:
        return str(error)
    counts = defaultdict[tuple[tuple[str, str | None], ...], int](int)
    for file in files:
        if file.rows is None:
            return "files without statistics"
        counts[tuple(sorted((file.partition or {}).items()))] += file.rows
    return dict(counts)


_open_parquet = partial(pq.ParquetFile, pre_buffer=False, buffer_size=_BUFFER_SIZE)


def _table_actions(path: Path) -> Iterator[Mapping[str, Any]]:
    """Yield the `metaData` and `protocol` actions in a file of the log."""
    if path.suffix == ".json":
        for chunk in _chunks(path):
            if b'"metaData"' in chunk or b'"protocol"' in chunk:
                lines = chunk.splitlines()
                yield from (json.loads(line) for line in lines if b'"metaData"' in line or b'"protocol"' in line)
        return
    with _open_parquet(path) as file:
        for batch in file.iter_batches(_BATCH_ROWS, columns=["metaData", "protocol"]):
            for kind in batch.schema.names:
                for action in batch[kind].drop_null().to_pylist():
                    yield {kind: action}


def _chunks(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK_SIZE):
            yield chunk + file.readline()


def _lines(path: Path, partitions: Sequence[str]) -> Iterator[pa.Table]:
    """Yield the `add`, `remove` and `sidecar` actions in a JSON log file. `partitions` has the partition columns."""
    values = pa.struct([(name, pa.string()) for name in partitions])
    kinds = {"add": [*_ADD, ("partitionValues", values)], "remove": _KEY, "sidecar": [("path", pa.string())]}
    schema = pa.schema([(kind, pa.struct(fields)) for kind, fields in kinds.items()])
    only_these = pj.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore")
    for chunk in _chunks(path):
        if chunk.strip():
            yield pj.read_json(pa.BufferReader(chunk), pj.ReadOptions(block_size=_BUFFER_SIZE), only_these)


def _added_in(file: pq.ParquetFile) -> Iterator[pa.Table]:
    """Yield the added files that a Parquet checkpoint or sidecar lists, as Arrow tables.

    Raises `UncertainFiles` if columns are missing.
    """
    if "add" not in file.schema_arrow.names:
        return
    fields = {field.name for field in file.schema_arrow.field("add").type}
    needed = {"path", "size", "modificationTime", "stats", "partitionValues"}
    if not needed <= fields:
        raise UncertainFiles("a checkpoint without texts of statistics")
    columns = [f"add.{name}" for name in needed]
    columns += [f"add.deletionVector.{field.name}" for field in _VECTOR] if "deletionVector" in fields else []
    for batch in file.iter_batches(_BATCH_ROWS, columns=columns):
        files = _to_table(pa.chunked_array([batch["add"]]))
        if "stats_parsed" in fields and files["stats"].null_count:
            raise UncertainFiles("statistics that are not texts")
        yield files


def _to_table(actions: pa.ChunkedArray) -> pa.Table:
    """Return file actions as a table with a column per field. Drops rows without a path. Each column is one chunk."""
    names = [field.name for field in actions.type]
    table = pa.table({name: pc.struct_field(actions, name) for name in names})
    table = table.filter(pc.is_valid(table["path"])).combine_chunks()
    if "deletionVector" not in names:
        table = table.append_column("deletionVector", pa.nulls(len(table), _VECTOR))
    return pa.table({name: to_array(table[name]) for name in table.column_names})


def _keys(files: pa.Table) -> pa.Array:
    """Return one text for each file, with the path and the deletion vector, if any. The text identifies the file."""
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
    """Return the files that newer log files do not contain. `later` has the `_keys` of each newer log file."""
    keys = _keys(files)
    # Filter `later` first, because `is_in` builds a hash table of its second argument, and `later` can be much larger.
    both = [each.filter(pc.is_in(each, keys)) for each in later] if len(files) else []
    return files.filter(pc.invert(pc.is_in(keys, pa.concat_arrays(both)))) if any(map(len, both)) else files


def _partition(files: pa.Table, name: str) -> pa.Array:
    values = files["partitionValues"].chunk(0)
    if pa.types.is_map(values.type):
        return pc.map_lookup(values, pa.scalar(name), "first")
    return pc.struct_field(values, name)


_LISTED_NAME = re.compile(r"/_delta_log/([^/;,\s}]+)[;,}\]]")


@contextmanager
def open_log(spark: SparkSession, source: Source) -> Iterator[ColumnarLog]:
    """Context manager that yields a table's Delta log at the newest version. Raises `UncertainFiles` if this fails."""
    try:
        folder = _folder(spark, source)
        system = file_system(spark, folder)
        folder = system.makeQualified(folder)
        arrays = spark._jvm.org.apache.commons.lang3.ArrayUtils  # type: ignore[union-attr]
        names = _LISTED_NAME.findall(str(arrays.toString(system.listStatus(hadoop_path(spark, folder, "_delta_log")))))
    except (Py4JJavaError, PySparkException) as error:
        raise UncertainFiles("a log that cannot be listed") from error
    newest = max((version for name in names if (version := commit_version(name)) is not None), default=-1)
    try:
        with local_log_files(spark, folder) as local_path:
            yield ColumnarLog(normalize_uri(folder), names, newest, local_path)
    except (pa.ArrowException, OSError) as error:
        raise UncertainFiles("a log in an unknown form") from error


@contextmanager
def local_log_files(spark: SparkSession, folder: Any) -> Iterator[Callable[[str], Path]]:
    """Context manager that yields a function. The function takes the name of a log file, and returns its local path.

    `folder` is the folder of the table. If `folder` is remote, the function copies log files to a temporary folder.
    """
    folder = file_system(spark, folder).makeQualified(folder)
    if str(folder.toString()).startswith("file:"):
        yield Path(str(folder.toUri().getPath()), "_delta_log").joinpath
    else:
        with tempfile.TemporaryDirectory(prefix="mirrorfeed-log-") as copies:
            yield partial(copy_log_file, spark, hadoop_path(spark, folder, "_delta_log"), Path(copies))


def _folder(spark: SparkSession, source: Source) -> Any:
    if source.path is not None:
        return hadoop_path(spark, source.path)
    catalogs = spark._jsparkSession.sessionState().catalogManager()
    *schema, table = source.parts
    if str(catalogs.currentCatalog().name()) != "spark_catalog" or len(schema) > 1:
        raise UncertainFiles("a table of another catalog")
    identifier = spark._jsparkSession.sessionState().sqlParser().parseTableIdentifier(source.sql)
    catalog = spark._jsparkSession.sessionState().catalog()
    if not schema and catalog.getTempView(table).isDefined():
        raise UncertainFiles("a view")
    return hadoop_path(spark, catalog.getTableMetadata(identifier).location())


def copy_log_file(spark: SparkSession, log: Any, folder: Path, name: str) -> Path:
    """Copy the log file `name` to `folder`, unless `folder` has it, and return the path of the copy.

    Raises `UncertainFiles` if the file cannot be copied.
    """
    target = folder / name
    if not target.exists():
        target.parent.mkdir(exist_ok=True)
        source, destination = hadoop_path(spark, log, name), hadoop_path(spark, target.as_uri())
        try:
            file_system(spark, log).copyToLocalFile(False, source, destination, True)
        except (Py4JJavaError, PySparkException) as error:
            raise UncertainFiles("a file of the log that is gone") from error
    return target
