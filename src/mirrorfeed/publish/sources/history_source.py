"""A source whose own feed has lost changes: they are read from its history, as long as that has them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from mirrorfeed.config import Config, Table
from mirrorfeed.errors import MirrorfeedError, named
from mirrorfeed.history.history_table import HistoryTable, Seen
from mirrorfeed.history.record import Chapter, chapter_of, record_of
from mirrorfeed.landing.schema import Column
from mirrorfeed.publish.errors import GapCompared, HistoryUnusable, ReadFromHistory
from mirrorfeed.publish.sources.base import ChangeSource
from mirrorfeed.publish.sources.delta_feed import DeltaFeed
from mirrorfeed.publish.sources.full_compare import FullCompare, compared
from mirrorfeed.publish.sources.snapshot_diff import SnapshotDiff
from mirrorfeed.source.errors import Gap
from mirrorfeed.source.identifier import Source
from mirrorfeed.source.ranges import Facts, Range
from mirrorfeed.source.table_info import read_table_info
from mirrorfeed.source.versions import only_adds_columns


@dataclass(frozen=True)
class HistorySource(DeltaFeed):
    """Ranges that the history holds are read from there, by the same rules; all else is the source's own."""

    history: Source = field(kw_only=True)
    _held: list[tuple[Seen, Chapter]] = field(default_factory=list, init=False, repr=False, compare=False)
    """The history and what goes on from the published version, as of the last facts; none where nothing."""

    def facts(self, after: int | None, limit: int) -> Facts:
        self._held.clear()
        live = super().facts(after, limit)
        found = held(self.spark, self.history, after, live.table_id)
        if after is None or found is None:
            return live
        self._held.append(found)
        chapter = found[1]
        commits = [commit for record in chapter for commit in record.commits if commit.version > after]
        kept = replace(live, commits=tuple(commits), breaks=breaks(chapter), partitions=chapter[-1].partitions)
        return replace(kept, feed_off_at=None, damaged_at=None, expired_at=None)

    def is_as(self, facts: Facts) -> bool:
        if not self._held:
            return super().is_as(facts)
        return read_table_info(self.spark, self.source).table_id == facts.table_id  # what is kept stays as it was read

    def check(self, what: Range | int, facts: Facts) -> None:
        if not self._holds(what):
            super().check(what, facts)

    def _holds(self, what: Range | int) -> bool:
        if isinstance(what, int) or not self._held:
            return False
        ((_, chapter),) = self._held
        first, last = chapter[0].to_version_inclusive, chapter[-1].to_version_inclusive
        return first <= what.from_version_exclusive and what.to_version_inclusive <= last

    def _schema(self, version: int) -> dict[str, Any]:
        if self._holds(Range(version - 1, version)):
            return record_of(self._held[0][1], version).schema
        return super()._schema(version)

    def _images(self, range_: Range, columns: Sequence[Column]) -> DataFrame:
        if not self._holds(range_):
            return super()._images(range_, columns)
        ((seen, chapter),) = self._held
        table = HistoryTable(self.spark, self.history)
        return table.rows(seen, chapter, range_.from_version_exclusive, range_.to_version_inclusive)


def source_for(
    spark: SparkSession,
    config: Config,
    table: Table,
    gap: Gap | None = None,
    on_note: Callable[[MirrorfeedError], None] = lambda _: None,
) -> DeltaFeed | FullCompare:
    """The table's own feed, or what stands for one where it has none; across a gap in it, its history, or else a
    comparison, where it is to be had."""
    if table.changes == "compare":
        return compared(spark, config, table)
    if gap and table.on_gap == "compare" and not is_kept(spark, table, gap):
        return SnapshotDiff(spark, table.source, config.staging_path, config.upload_from, table.selection)
    if gap is None or table.history is None:
        return DeltaFeed(spark, table.source, config.staging_path, config.upload_from, table.selection, on_note=on_note)
    kept = table.history.table
    return HistorySource(
        spark, table.source, config.staging_path, config.upload_from, table.selection, on_note=on_note, history=kept
    )


def can_bridge_gap(
    spark: SparkSession, table: Table, gap: Gap, on_trouble: Callable[[MirrorfeedError], None] = lambda _: None
) -> bool:
    """Whether there is another way across a gap than the feed."""
    return is_kept(spark, table, gap, on_trouble) or table.on_gap == "compare"


def across(feed: ChangeSource, gap: Gap) -> MirrorfeedError | None:
    """What is said of the way that was taken."""
    if isinstance(feed, SnapshotDiff):
        return GapCompared(gap=gap)
    return ReadFromHistory(gap=gap, history=str(feed.history)) if isinstance(feed, HistorySource) else None


def is_kept(
    spark: SparkSession, table: Table, gap: Gap, on_trouble: Callable[[MirrorfeedError], None] = lambda _: None
) -> bool:
    """Whether the table's history holds what goes on from the published version. Why it cannot be asked is told."""
    if table.history is None:
        return False
    place = table.history.table
    try:
        return held(spark, place, gap.published, read_table_info(spark, table.source).table_id) is not None
    except Exception as error:
        on_trouble(HistoryUnusable(gap=gap, history=str(place), error=named(f"Asking the history {place}", error)))
        return False


def held(spark: SparkSession, history: Source, after: int | None, table_id: str) -> tuple[Seen, Chapter] | None:
    """The history, and the chapter in it that goes on from a version of this table; None without one."""
    table = HistoryTable(spark, history)
    seen = table.look()
    if after is None or seen is None or seen.newest is None or seen.newest.source_id != table_id:
        return None
    chapter = chapter_of(table.records(seen), after)
    return (seen, chapter) if chapter and chapter[-1].to_version_inclusive > after else None


def breaks(chapter: Chapter) -> tuple[int, ...]:
    """The versions of a chapter at which columns changed by more than being added: each was kept by itself."""
    return tuple(
        record.commits[0].version
        for before, record in pairwise(chapter)
        if record.commits and not only_adds_columns(before.schema, record.schema)
    )
