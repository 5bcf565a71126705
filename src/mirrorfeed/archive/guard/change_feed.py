"""Guarded ranges of the change data feed: the files that a range reads, checked before anything is read.

A range needs other files than a snapshot: `_change_data`, and files that were removed from the table. On Databricks the
engine guards the change data feed itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from pyspark.sql import SparkSession

from mirrorfeed.archive.file_index.archived_files import archived_of
from mirrorfeed.archive.file_index.log_file import LogFile
from mirrorfeed.archive.file_index.spark_log import log_of
from mirrorfeed.archive.guard.archived_files_needed import ArchivedFilesNeeded, blocked_among
from mirrorfeed.archive.interval import understood
from mirrorfeed.display.humanize import a_few
from mirrorfeed.runtime.databricks import is_databricks
from mirrorfeed.source.errors import Gap, SnapshotGone
from mirrorfeed.source.identifier import Source
from mirrorfeed.source.next_step import Range
from mirrorfeed.source.table_info import TableInfo, read_table_info
from mirrorfeed.storage.tiers import Tier, TierStore, tiers_at


def check(
    spark: SparkSession,
    source: Source,
    what: Range | int,
    properties: Mapping[str, str],
    tiers: TierStore | None = None,
    now: datetime | None = None,
) -> None:
    """Raises `ArchivedFilesNeeded`, `Gap` or `SnapshotGone` if a range of the change data feed, or the snapshot of a
    version, cannot be read completely. Does nothing for a table without an interval."""
    interval = understood(str(source), properties)
    if interval is None or is_databricks(spark):
        return
    found = read_table_info(spark, source)
    tiers = tiers or tiers_at(found.location)
    files = needed(spark, source, found, what)
    last = what if isinstance(what, int) else what.to_version_inclusive
    archived = archived_of(spark, str(source), found.location, files, interval, now or datetime.now(UTC))
    if gone := missing_among([file for file in files if tiers or file not in archived], tiers):
        if isinstance(what, int):
            raise SnapshotGone(table=str(source), version=what, uris=gone)
        raise Gap(
            table=str(source),
            published=what.from_version_exclusive,
            where=what,
            reason=f"files are gone, {a_few(gone)}",
        )
    if blocked := blocked_among(archived, tiers):
        asked = "A snapshot" if isinstance(what, int) else f"The change data feed ({what})"
        first = None if isinstance(what, int) else what.from_version_exclusive + 1
        raise ArchivedFilesNeeded(asked=asked, table=str(source), version=last, files=tuple(blocked), feed_from=first)


def needed(spark: SparkSession, source: Source, found: TableInfo, what: Range | int) -> Sequence[LogFile]:
    log = log_of(spark, source, found)
    if isinstance(what, int):
        return list(log.files(what).values())
    return log.changed_files(what.from_version_exclusive + 1, what.to_version_inclusive)


def missing_among(files: Sequence[LogFile], tiers: TierStore | None) -> list[str]:
    """The files that do not exist in the storage, or without `tiers` on this machine."""
    uris = sorted({uri for file in files for uri in file.uris})
    if tiers is not None:
        return [uri for uri, tier in tiers.read_tiers(uris).items() if tier is Tier.MISSING]
    local = [uri for uri in uris if uri.startswith("file:")]
    return [uri for uri in local if not Path(uri.removeprefix("file:")).exists()]
