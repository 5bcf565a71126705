"""Work with tables whose old files are in an archive tier. A read that needs an archived file fails before any data is
read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from mirrorfeed.source.identifier import Source
    from mirrorfeed.source.snapshot_or_range import Range

PROPERTY = "delta.timeUntilArchived"


def has_interval(properties: Mapping[str, str]) -> bool:
    """Return whether the properties of a table set an archive interval."""
    return PROPERTY in properties


def check(spark: SparkSession, source: Source, what: Range | int, properties: Mapping[str, str]) -> None:
    """Check the files of `what`, a range of the change data feed or the version of a snapshot, before they are read.

    Raises `Gap` (range) or `SnapshotGone` (snapshot) if files are missing, and `ArchivedFilesNeeded` if archived files
    are not restored. Does nothing on Databricks, or if the table's `properties` set no archive interval.
    """
    if has_interval(properties):
        from mirrorfeed.archive import guard  # imported late: few tables have archived files

        guard.check(spark, source, what, properties)
