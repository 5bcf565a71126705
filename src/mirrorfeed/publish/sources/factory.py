"""Choose the source of a table: its feed, a full comparison, or what can bridge a gap in the feed."""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import SparkSession

from mirrorfeed.config.model import Config, Table
from mirrorfeed.errors import MirrorfeedError, named
from mirrorfeed.publish.errors import GapCompared, HistoryUnusable, ReadFromHistory
from mirrorfeed.publish.sources.base import ChangeSource
from mirrorfeed.publish.sources.delta_feed import DeltaFeed
from mirrorfeed.publish.sources.full_compare import FullCompare, full_compare
from mirrorfeed.publish.sources.gap_sources import HistorySource, SnapshotDiff, segment_after
from mirrorfeed.source.errors import Gap
from mirrorfeed.source.table_info import read_table_info

Report = Callable[[MirrorfeedError], None]


def source_for(
    spark: SparkSession, config: Config, table: Table, gap: Gap | None = None, on_note: Report = lambda _: None
) -> DeltaFeed | FullCompare:
    if table.changes == "compare":
        return full_compare(spark, config, table)
    common = (spark, table.source, config.staging_path, config.upload_from, table.selection)
    if gap and table.on_gap == "compare" and not _has_history(spark, table, gap):
        return SnapshotDiff(*common)
    if gap is None or table.history is None:
        return DeltaFeed(*common, on_note=on_note)
    return HistorySource(*common, on_note=on_note, history=table.history.table)


def can_bridge_gap(spark: SparkSession, table: Table, gap: Gap, on_problem: Report = lambda _: None) -> bool:
    """Whether another source than the feed has the changes. Reports a history that cannot be read."""
    return _has_history(spark, table, gap, on_problem) or table.on_gap == "compare"


def gap_note(source: ChangeSource, gap: Gap) -> MirrorfeedError | None:
    """The note on how a gap was bridged."""
    if isinstance(source, SnapshotDiff):
        return GapCompared(gap=gap)
    return ReadFromHistory(gap=gap, history=str(source.history)) if isinstance(source, HistorySource) else None


def _has_history(spark: SparkSession, table: Table, gap: Gap, on_problem: Report = lambda _: None) -> bool:
    if table.history is None:
        return False
    history = table.history.table
    try:
        return segment_after(spark, history, gap.published, read_table_info(spark, table.source).table_id) is not None
    except Exception as error:
        cause = named(f"Reading the history {history}", error)
        on_problem(HistoryUnusable(gap=gap, history=str(history), error=cause))
        return False
