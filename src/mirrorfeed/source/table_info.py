"""Identity and properties of a Delta table, from Spark or, for a local folder, from delta-rs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from os.path import normpath
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import SparkSession

from mirrorfeed.runtime.spark_errors import LOG_GONE, NOT_IN_CATALOG, first_of
from mirrorfeed.runtime.spark_session import Kind, kind
from mirrorfeed.source.delta_protocol import commits_elsewhere, unknown_features
from mirrorfeed.source.errors import LogDamaged, NoIdentity, NoTableAtPath, NotDelta, SourceMissing, UnknownFeatures
from mirrorfeed.source.identifier import Source

if TYPE_CHECKING:
    from deltalake import DeltaTable

FEED = "delta.enableChangeDataFeed"
_ROW_TRACKING = "delta.enableRowTracking"
_FORMATS = ("delta", "iceberg")
"""Of which Databricks computes changes; that another engine has none of Iceberg is said by the engine."""


@dataclass(frozen=True, slots=True)
class Detail:
    table_id: str
    location: str
    properties: Mapping[str, str]
    partition_columns: tuple[str, ...]
    files: int
    bytes: int
    """Of all files together, as `files` nothing where they were not counted."""
    format: str = "delta"
    features: tuple[str, ...] = ()
    """Those that the protocol names; an engine adds what older protocols imply by their numbers."""

    @property
    def records_changes(self) -> bool:
        return self.properties.get(FEED, "false").lower() == "true"

    @property
    def tracks_rows(self) -> bool:
        return self.format == "iceberg" or self.properties.get(_ROW_TRACKING, "false").lower() == "true"


def detail_of(spark: SparkSession, source: Source, *, counted: bool = False) -> Detail:
    """The table's identity, or a refusal where the source is missing, a view, or not Delta. Of a table in a folder of
    this machine Spark is not asked, for DESCRIBE DETAIL makes it count all files of every new version; there they are
    counted for those who need it."""
    table = opened(source)
    return (table and as_told(table, source, counted=counted)) or _described(spark, source)


def as_told(table: DeltaTable, source: Source, *, counted: bool = False) -> Detail | None:
    """A table that was opened here as its metadata says, with its files if they are to be counted; None where only
    Spark tells."""
    try:
        told, files, size = table.metadata(), 0, 0
        if counted:
            files, size = counted_files(table)
        place = "file:/" + Path(normpath(source.path or "")).as_posix().lstrip("/")
        columns, features = tuple(told.partition_columns), features_of(table)
    except Exception:  # more than it knows
        return None
    return Detail(str(told.id), place, told.configuration, columns, files, size, features=features)


def _described(spark: SparkSession, source: Source) -> Detail:
    with refusals(source):
        row = spark.sql(f"DESCRIBE DETAIL {source.sql}").first()
    found = row.asDict() if row else {}
    format_ = (found.get("format") or "unknown").lower()
    if format_ not in _FORMATS:
        raise NotDelta(table=str(source), found=f"a table in the format {format_}")
    if not found.get("id"):
        raise NoIdentity(table=str(source), format=format_)
    features = tuple(found.get("tableFeatures") or ())
    if strange := unknown_features(features):
        raise UnknownFeatures(table=str(source), names=strange)
    return Detail(
        found["id"],
        found.get("location") or "",
        found.get("properties") or {},
        tuple(found.get("partitionColumns") or ()),
        found.get("numFiles") or 0,
        found.get("sizeInBytes") or 0,
        format_,
        features,
    )


_NO_TABLE = (
    *NOT_IN_CATALOG,
    "INVALID_ATTRIBUTE_NAME_SYNTAX",  # a backtick in a name, which Delta's commands cannot spell
    "DELTA_PATH_DOES_NOT_EXIST",
)
_VIEW = ("EXPECT_TABLE_NOT_VIEW",)
_NOT_DELTA = ("DELTA_MISSING_DELTA_TABLE", "DELTA_TABLE_ONLY_OPERATION", "DELTA_NOT_A_DELTA_TABLE")


@contextmanager
def refusals(source: Source) -> Iterator[None]:
    """What stands for no table, or for none that can be read, becomes an error that says so."""
    try:
        yield
    except Exception as error:
        if first_of(error, LOG_GONE):
            raise LogDamaged(table=str(source)) from error
        if first_of(error, _VIEW):
            raise NotDelta(table=str(source), found="a view") from error
        if first_of(error, (*_NO_TABLE, *_NOT_DELTA)) and source.path is not None:
            raise NoTableAtPath(path=source.path) from error
        if first_of(error, _NO_TABLE):
            raise SourceMissing(table=str(source)) from error
        if first_of(error, _NOT_DELTA):
            raise NotDelta(table=str(source), found="a table in another format") from error
        raise


def opened(source: Source, version: int | None = None) -> DeltaTable | None:
    """At a version, or the newest. None of a table that is elsewhere or cannot be read without Spark."""
    if source.path is None or not Path(source.path).is_absolute():
        return None
    try:
        if kind() is not Kind.LOCAL:  # paths are those of another machine, or of another file system
            return None
        from deltalake import DeltaTable

        table = DeltaTable(source.path, version=version)
        features = features_of(table)
    except Exception:  # not installed, not a table, or more than it knows: Spark will tell
        return None
    return None if unknown_features(features) or commits_elsewhere(features) else table


def features_of(table: DeltaTable) -> tuple[str, ...]:
    protocol = table.protocol()
    return tuple(sorted({*(protocol.reader_features or ()), *(protocol.writer_features or ())}))


def counted_files(table: DeltaTable) -> tuple[int, int]:
    """How many there are, and their bytes together."""
    import pyarrow as pa
    import pyarrow.compute as pc

    sizes = pa.table(table.get_add_actions()).column("size_bytes")
    return len(sizes), pc.sum(sizes).as_py() or 0


def counted_rows(table: DeltaTable) -> int | None:
    """None where the log does not say it of every file."""
    import pyarrow as pa
    import pyarrow.compute as pc

    files = pa.table(table.get_add_actions())
    if not len(files):
        return 0
    counts = files["num_records"] if "num_records" in files.column_names else None
    return None if counts is None or counts.null_count else pc.sum(counts).as_py()
