"""What a Delta table is: its identity and its properties; or why there is none to publish."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from os.path import normpath
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import SparkSession

from mirrorfeed.errors import Terminal
from mirrorfeed.feed.faults import LOG_GONE, NOT_IN_CATALOG, first_of
from mirrorfeed.feed.features import UnknownFeatures, unknown
from mirrorfeed.feed.here import counted_files, features_of, opened
from mirrorfeed.feed.source import Source

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


class SourceMissing(Terminal):
    """The catalog shows no such table to whoever runs the command: it is not there, or the right to see it is
    missing."""

    code = "MF2001"

    def __init__(self, table: str) -> None:
        self.table = table

    def what(self) -> str:
        return f"There is no table {self.table}, or it is not to be seen from here."

    def next(self) -> str:
        return "Check `source` in the configuration, and the right to select from the table."


class NoTableAtPath(Terminal):
    """The source is a path, and no Delta table is there."""

    code = "MF2002"

    def __init__(self, path: str) -> None:
        self.path = path

    def what(self) -> str:
        return f"There is no Delta table at {self.path}: either nothing is there, or files that are no Delta table."

    def next(self) -> str:
        return "Check the path. It must be the folder that holds the table's _delta_log."


class NotDelta(Terminal):
    """The source is a view, or a table of another format: only Delta tables have a change data feed."""

    code = "MF2003"

    def __init__(self, table: str, found: str) -> None:
        self.table, self.found = table, found

    def what(self) -> str:
        return f"{self.table} is {self.found}, not a Delta table, so it has no change data feed."

    def next(self) -> str:
        return "Name the Delta table that holds the data, or publish this by comparison: `changes: compare`."


class NoIdentity(Terminal):
    """The table has no id. Without one, a table that was dropped and made again could not be told from the one
    before."""

    code = "MF2004"

    def __init__(self, table: str, format_: str) -> None:
        self.table, self.format = table, format_

    def what(self) -> str:
        return (
            f"{self.table}, a table in the format {self.format}, has no id in DESCRIBE DETAIL: if it were dropped and"
            " made again, its mirror would keep the rows of both."
        )

    def next(self) -> str:
        return "Publish a Delta table that holds the same rows, or ask for this format with the output of that command."


class LogDamaged(Terminal):
    """Files are missing from the transaction log of the source, so Delta itself cannot read the table."""

    code = "MF2005"

    def __init__(self, table: str) -> None:
        self.table = table

    def what(self) -> str:
        return f"The transaction log of {self.table} cannot be read: commits are missing from it."

    def next(self) -> str:
        return "Put the missing files back into its _delta_log folder, or restore the table from a copy."


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
        raise NotDelta(str(source), f"a table in the format {format_}")
    if not found.get("id"):
        raise NoIdentity(str(source), format_)
    features = tuple(found.get("tableFeatures") or ())
    if strange := unknown(features):
        raise UnknownFeatures(str(source), strange)
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
            raise LogDamaged(str(source)) from error
        if first_of(error, _VIEW):
            raise NotDelta(str(source), "a view") from error
        if first_of(error, (*_NO_TABLE, *_NOT_DELTA)) and source.path is not None:
            raise NoTableAtPath(source.path) from error
        if first_of(error, _NO_TABLE):
            raise SourceMissing(str(source)) from error
        if first_of(error, _NOT_DELTA):
            raise NotDelta(str(source), "a table in another format") from error
        raise
