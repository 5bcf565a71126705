"""Identity, properties, retention, features and log files of a Delta table, read with Spark or delta-rs."""

from __future__ import annotations

import json
import logging
import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from os.path import normpath
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mirrorfeed.errors import MirrorfeedError, MirrorfeedWarning
from mirrorfeed.runtime.spark_errors import LOG_GONE, NOT_IN_CATALOG, find_condition
from mirrorfeed.runtime.spark_session import Kind, kind
from mirrorfeed.source.errors import (
    DeltaLogDamagedError,
    IntervalTextError,
    NoTableAtPathError,
    NotDeltaError,
    SourceMissingError,
    TableNotReadyError,
    no_table_id,
    retention_too_short,
    unknown_table_features,
)
from mirrorfeed.source.identifier import URI, Source

if TYPE_CHECKING:
    from deltalake import DeltaTable
    from pyspark.sql import SparkSession


FILES, LOG = "delta.deletedFileRetentionDuration", "delta.logRetentionDuration"
MIN_FACTOR = 2
"""Minimum retention, as a multiple of the longest delay from commit to publication, because one run may fail."""
MAX_DAYS = 36_500
"""Longest interval that `parse_days` accepts. A larger number was probably meant in another unit."""
_DEFAULTS = {FILES: 7 * 86_400.0, LOG: 30 * 86_400.0}
_DURATION = re.compile(r"(\d+)\s*(second|minute|hour|day|week)s?", re.IGNORECASE)
_SECONDS = {"second": 1, "minute": 60, "hour": 3600, "day": 86_400, "week": 604_800}
_DAYS = re.compile(r"\s*(\d+)\s+days?\s*", re.IGNORECASE)
FEED = "delta.enableChangeDataFeed"
_ROW_TRACKING = "delta.enableRowTracking"
_FORMATS = ("delta", "iceberg")
"""Supported formats. Only Databricks can compute the changes of Iceberg tables."""
_NO_TABLE = (
    *NOT_IN_CATALOG,
    "INVALID_ATTRIBUTE_NAME_SYNTAX",  # a backtick in a name, which Delta's commands do not support
    "DELTA_PATH_DOES_NOT_EXIST",
)
_NOT_DELTA = ("DELTA_MISSING_DELTA_TABLE", "DELTA_TABLE_ONLY_OPERATION", "DELTA_NOT_A_DELTA_TABLE")


@dataclass(frozen=True, slots=True)
class TableInfo:
    """Properties of a Delta or Iceberg table at its newest version."""

    table_id: str
    location: str
    properties: Mapping[str, str]
    partition_columns: tuple[str, ...]
    files: int
    """Number of data files. `files` and `bytes` are 0 if the files were not counted."""
    bytes: int
    format: str = "delta"
    features: tuple[str, ...] = ()
    """Table features in the protocol. Spark also returns the features that older protocol versions imply."""

    @property
    def records_changes(self) -> bool:
        return self.properties.get(FEED, "false").lower() == "true"

    @property
    def tracks_rows(self) -> bool:
        return self.format == "iceberg" or self.properties.get(_ROW_TRACKING, "false").lower() == "true"


def read_table_info(
    spark: SparkSession, source: Source, *, counted: bool = False, local: DeltaTable | None = None
) -> TableInfo:
    """Return id, location, properties and features of a table, and the number and size of its files.

    If `counted` is False, both can be 0 for a table in a local folder. `local` is the result of `open_local_table` if
    the table is already open. Raises the errors of `table_errors`,
    `no_table_id` for a table without an id, and `unknown_table_features` for table features that mirrorfeed does not
    know.
    """
    table = local or open_local_table(source)
    return (table and local_table_info(table, source, counted=counted)) or _describe(spark, source)


def open_local_table(source: Source, version: int | None = None) -> DeltaTable | None:
    """Return a table in a local folder, opened with delta-rs at `version` or the newest version.

    Returns None if the table is not in a local folder, delta-rs is not installed, or only Spark can read the table.
    """
    if source.path is None or not is_in_local_folder(source):
        return None
    try:
        from deltalake import DeltaTable

        table = DeltaTable(source.path, version=version)
        features = _features(table)
    except Exception:  # Spark will report the error
        return None
    return None if unknown_features(features) or external_commit_features(features) else table


def is_in_local_folder(source: Source) -> bool:
    """Return whether the source is an absolute path and Spark runs on this machine."""
    with suppress(Exception):  # the start of a session reports why the kind of Spark is unknown
        return source.path is not None and Path(source.path).is_absolute() and kind() is Kind.LOCAL
    return False


def is_missing_locally(source: Source) -> bool:
    """Return whether the source is a local path without a Delta table, and Spark runs on this machine."""
    is_folder = source.path is not None and not URI.match(source.path)
    return is_folder and not Path(source.path or "", "_delta_log").is_dir() and kind() is Kind.LOCAL


def find_log_damage(source: Source) -> MirrorfeedError | None:
    """Return why no reader can read the Delta log of a table in a local folder, or None. Needs no Spark.

    The error is `NoTableAtPathError` without a log, `TableNotReadyError` for a log without commits, and
    `DeltaLogDamagedError` if a commit after the newest checkpoint is missing or is no JSON.
    """
    if source.path is None or not is_in_local_folder(source):
        return None
    log = Path(source.path, "_delta_log")
    try:
        names = os.listdir(log)
        checkpoints = [int(match[1]) for name in names if (match := _CHECKPOINT.match(name))]
        versions, first = versions_of(names), max(checkpoints, default=-1) + 1
        if not versions and not checkpoints:
            return TableNotReadyError(table=str(source))
        files = [log / commit_name(version) for version in range(first, max(versions, default=-1) + 1)]
        if missing := {first + at for at in range(len(files))}.difference(versions):
            return DeltaLogDamagedError(table=str(source), damage=f"{commit_name(min(missing))} is missing")
        if open_local_table(source) is None and (damaged := next((each for each in files if not _is_json(each)), None)):
            return DeltaLogDamagedError(table=str(source), damage=f"{damaged.name} is damaged")
    except FileNotFoundError:
        return NoTableAtPathError(path=str(source))
    except OSError:  # not permitted to read it
        return None
    return None


def _is_json(file: Path) -> bool:
    try:
        for line in filter(str.strip, file.read_text(encoding="utf-8").splitlines()):
            json.loads(line)
    except ValueError:
        return False
    return True


def newest_schema(source: Source, spark: SparkSession | None) -> dict[str, Any] | None:
    """Return the newest schema of a Delta table, as the JSON of a Spark `StructType`.

    Returns None if Spark is needed but `spark` is None. Raises an error of `table_errors`, such as
    `SourceMissingError`, if the table cannot be read.
    """
    if is_missing_locally(source):
        raise NoTableAtPathError(path=str(source))
    if table := open_local_table(source):
        text = table.schema().to_json()
    elif damage := find_log_damage(source):
        raise damage
    elif spark is None:
        return None
    else:
        with table_errors(source):
            text = spark.read.table(source.sql).schema.json()
    schema: dict[str, Any] = json.loads(text)
    return schema


def local_table_info(table: DeltaTable, source: Source, *, counted: bool = False) -> TableInfo | None:
    """Return a table's properties, or None if delta-rs cannot read them. Counts the files only if `counted` is True."""
    try:
        metadata = table.metadata()
        files, size = count_files(table) if counted else (0, 0)
        location = "file:/" + Path(normpath(source.path or "")).as_posix().lstrip("/")
        columns, features = tuple(metadata.partition_columns), _features(table)
    except Exception:  # delta-rs does not support the table
        return None
    return TableInfo(str(metadata.id), location, metadata.configuration, columns, files, size, features=features)


def count_files(table: DeltaTable) -> tuple[int, int]:
    """Return the number of data files of a table, and their total size in bytes."""
    import pyarrow as pa
    import pyarrow.compute as pc

    sizes = pa.table(table.get_add_actions()).column("size_bytes")
    return len(sizes), pc.sum(sizes).as_py() or 0


def count_rows(table: DeltaTable) -> int | None:
    """Return the number of rows of a table, or None if its Delta log does not have the row count of each file."""
    import pyarrow as pa
    import pyarrow.compute as pc

    files = pa.table(table.get_add_actions())
    if not len(files):
        return 0
    counts = files["num_records"] if "num_records" in files.column_names else None
    return None if counts is None or counts.null_count else pc.sum(counts).as_py()


@contextmanager
def table_errors(source: Source) -> Iterator[None]:
    """Context manager that converts Spark errors about a missing or unreadable table.

    Raises `NoTableAtPathError` if a path has no Delta table, `SourceMissingError` if a name has no table,
    `NotDeltaError` for a view or another format, and `DeltaLogDamagedError` if log files are missing. Also raises the
    errors of `find_log_damage`.
    """
    try:
        yield
    except Exception as error:
        if damage := find_log_damage(source):
            raise damage from error
        if find_condition(error, LOG_GONE):
            raise DeltaLogDamagedError(table=str(source)) from error
        if find_condition(error, ("EXPECT_TABLE_NOT_VIEW",)):
            raise NotDeltaError(table=str(source), found="a view") from error
        if find_condition(error, (*_NO_TABLE, *_NOT_DELTA)) and source.path is not None:
            raise NoTableAtPathError(path=source.path) from error
        if find_condition(error, _NO_TABLE):
            raise SourceMissingError(table=str(source)) from error
        if find_condition(error, _NOT_DELTA):
            raise NotDeltaError(table=str(source), found="a table in another format") from error
        raise


def _describe(spark: SparkSession, source: Source) -> TableInfo:
    with table_errors(source):
        row = spark.sql(f"DESCRIBE DETAIL {source.sql}").first()
    detail = row.asDict() if row else {}
    format_ = (detail.get("format") or "unknown").lower()
    if format_ not in _FORMATS:
        raise NotDeltaError(table=str(source), found=f"a table in the format {format_}")
    if not detail.get("id"):
        raise no_table_id(table=str(source), format=format_)
    features = tuple(detail.get("tableFeatures") or ())
    if unknown := unknown_features(features):
        raise unknown_table_features(table=str(source), names=unknown)
    return TableInfo(
        detail["id"],
        detail.get("location") or "",
        detail.get("properties") or {},
        tuple(detail.get("partitionColumns") or ()),
        detail.get("numFiles") or 0,
        detail.get("sizeInBytes") or 0,
        format_,
        features,
    )


def _features(table: DeltaTable) -> tuple[str, ...]:
    protocol = table.protocol()
    return tuple(sorted({*(protocol.reader_features or ()), *(protocol.writer_features or ())}))


def retention_seconds(properties: Mapping[str, str], name: str) -> float | None:
    """Return the retention property `name` in seconds: Delta's default if not set, None if it cannot be parsed."""
    if name not in properties:
        return _DEFAULTS[name]
    parts = _DURATION.findall(properties[name])
    return float(sum(int(count) * _SECONDS[unit.lower()] for count, unit in parts)) if parts else None


def check_retention(table: str, properties: Mapping[str, str], waited: float) -> MirrorfeedWarning | None:
    """Return a warning if a table keeps old files or its log for less than twice the time `waited`, otherwise None.
    `waited` is the number of seconds from a commit to its publication."""
    retained = {name: retention_seconds(properties, name) for name in (FILES, LOG)}
    too_short = {name: value for name, value in retained.items() if value is not None and value < MIN_FACTOR * waited}
    if not too_short:
        return None
    name = min(too_short, key=too_short.__getitem__)
    return retention_too_short(table=table, name=name, retention=too_short[name], waited=waited)


def parse_days(text: str) -> int:
    """Return the number of days in a text such as `60 days`. Raises `IntervalTextError` for other text."""
    match = _DAYS.fullmatch(text)
    if match is None:
        raise IntervalTextError(text=text, reason="is not a whole number of days")
    if not 1 <= (days := int(match[1])) <= MAX_DAYS:
        raise IntervalTextError(text=text, reason="is empty" if days == 0 else f"is longer than {MAX_DAYS} days")
    return days


_log = logging.getLogger(__name__)
_COMMIT = re.compile(r"([0-9]{20})\.json")
_CHECKPOINT = re.compile(r"([0-9]{20})\.checkpoint\.")
_METADATA = "metaData struct<id string>"
_PATH_PATTERN = frozenset("*?[]{}\\")
"""Characters that make Spark treat a path as a pattern, which could match other tables."""
_MERGED_ROWS = ("numTargetRowsInserted", "numTargetRowsUpdated", "numTargetRowsDeleted")
"""Metrics of a MERGE. `numOutputRows` is not used, because it also counts copied rows."""
_CHANGED_ROWS = ("numUpdatedRows", "numDeletedRows", "numOutputRows")
_BYTES = ("numTargetBytesAdded", "numAddedBytes", "numOutputBytes")
CHANGES_NO_ROWS = ("OPTIMIZE", "VACUUM START", "VACUUM END", "COMPUTE STATS", "SET TBLPROPERTIES", "CLUSTER BY")
_EXTERNAL_COMMITS = frozenset({"catalogManaged", "catalogOwned", "coordinatedCommits"})
_KNOWN_FEATURES = _EXTERNAL_COMMITS | {
    *("adaptiveMetadata", "allowColumnDefaults", "appendOnly", "changeDataFeed", "checkConstraints"),
    *("checkpointProtection", "clustering", "collations", "columnMapping", "deletionVectors", "domainMetadata"),
    *("generatedColumns", "geospatial", "icebergCompatV1", "icebergCompatV2", "icebergCompatV3"),
    *("identityColumns", "inCommitTimestamp", "invariants", "materializePartitionColumns", "rowTracking"),
    *("timestampNtz", "typeWidening", "v2Checkpoint", "vacuumProtocolCheck", "variantShredding", "variantType"),
}


def commit_name(version: int) -> str:
    return f"{version:020d}.json"


def commit_version(name: str) -> int | None:
    """Return the version of a file in the Delta log from the file name, or None if the file is not a commit."""
    match = _COMMIT.fullmatch(name)
    return int(match[1]) if match else None


def list_versions(log: str) -> list[int]:
    """Return all versions in a local folder `_delta_log`, in ascending order."""
    return versions_of(os.listdir(log))


def versions_of(names: Iterable[str]) -> list[int]:
    """Return the versions of the commits among the files of a Delta log, in ascending order."""
    return sorted(version for version in map(commit_version, names) if version is not None)


def read_commit_info(path: str) -> Mapping[str, Any]:
    """Return the JSON object `commitInfo` in a file of the Delta log, or an empty mapping if the file has none."""
    with open(path, encoding="utf-8") as lines:
        for line in lines:
            if '"commitInfo"' in line and (info := json.loads(line).get("commitInfo")) is not None:
                commit_info: dict[str, Any] = info
                return commit_info
    return {}


def find_metadata_changes(spark: SparkSession, location: str, versions: Collection[int]) -> frozenset[int] | None:
    """Return the versions in `versions` that change the table's metadata. Metadata contains the schema and properties.

    `location` is the folder of the table. Returns None if Spark cannot read the table's Delta log as JSON.
    """
    from pyspark.sql import functions as F

    if _PATH_PATTERN.intersection(location):
        return None
    names = {commit_name(version): version for version in versions}
    reader = spark.read.schema(_METADATA).options(
        mode="FAILFAST", ignoreMissingFiles="false", ignoreCorruptFiles="false"
    )
    has_metadata = F.max(F.col("metaData").isNotNull()).alias("has_metadata")
    try:
        commits = reader.json([f"{location.rstrip('/')}/_delta_log/{name}" for name in names])
        rows = commits.groupBy(F.col("_metadata.file_name").alias("name")).agg(has_metadata).collect()
    except Exception as error:
        _log.info("The log at %s cannot be read directly, so the engine reads it: %s", location, error)
        return None
    changes = {row["name"]: row["has_metadata"] for row in rows}
    return frozenset(names[name] for name in names if changes[name]) if changes.keys() == names.keys() else None


def count_changes(operation: str, metrics: Mapping[str, str | None]) -> tuple[int | None, int | None]:
    """Return the number of changed rows and of written bytes of a commit. A number is None if it is unknown.

    The numbers may be inexact: use them only to decide when and how to read the commit.
    """
    if operation in CHANGES_NO_ROWS:
        return 0, 0
    names = _MERGED_ROWS if any(name in metrics for name in _MERGED_ROWS) else _CHANGED_ROWS
    counts = [whole_number(metrics[name]) for name in names if name in metrics]
    sizes = [size for name in _BYTES if (size := whole_number(metrics.get(name))) is not None]
    # Rows of files that are removed as a whole are not always counted.
    is_uncounted = not any(counts) and metrics.get("numRemovedFiles", "0") != "0"
    known = [count for count in counts if count is not None]
    rows = None if is_uncounted or not counts or len(known) < len(counts) else sum(known)
    return rows, max(sizes, default=None)


def whole_number(value: str | None) -> int | None:
    """Convert the text of a metric. Other writers than Spark also write `"3.0"` or null, which are no known number."""
    return int(value) if value and value.isdecimal() else None


def unknown_features(features: Iterable[str]) -> tuple[str, ...]:
    """Return the table features that mirrorfeed does not know. Unknown features can change how rows must be read."""
    return tuple(sorted(name for name in features if _released_name(name) not in _KNOWN_FEATURES))


def external_commit_features(features: Iterable[str]) -> tuple[str, ...]:
    """Return the features in `features` that allow commits outside the table's log folder."""
    return tuple(sorted(name for name in features if _released_name(name) in _EXTERNAL_COMMITS))


def _released_name(feature: str) -> str:
    return feature.removesuffix("-preview").removesuffix("-dev")
