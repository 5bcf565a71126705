"""Guard tables with archived files: a query that needs an archived file fails before anything is read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from mirrorfeed.source.identifier import Source
    from mirrorfeed.source.snapshot_or_range import Range

PROPERTY = "delta.timeUntilArchived"


def has_interval(properties: Mapping[str, str]) -> bool:
    """Return whether files of the table may count as archived."""
    return PROPERTY in properties


def check(spark: SparkSession, source: Source, what: Range | int, properties: Mapping[str, str]) -> None:
    """Raise an error if a range of the change data feed, or the snapshot of a version, needs archived files."""
    if has_interval(properties):
        from mirrorfeed.archive import guard  # imported late: few tables have archived files

        guard.check(spark, source, what, properties)
