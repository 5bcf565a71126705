"""A source without a change data feed: each run reads all rows and publishes those that differ from the last run."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal

from pyspark.sql import DataFrame, SparkSession

from mirrorfeed.config.model import Config, Table, hashes_of
from mirrorfeed.landing.schema import Column, columns_of, lost_columns
from mirrorfeed.landing.selection import source_types
from mirrorfeed.publish.errors import ColumnsChanged, FeedRequired, LedgerRequired, RowHashesLost
from mirrorfeed.publish.files import staging
from mirrorfeed.publish.files.rolling_writer import write_empty
from mirrorfeed.publish.files.staging_area import staging_area_for
from mirrorfeed.publish.files.staging_job import BadRow, Staged, StagingJob
from mirrorfeed.publish.sources.row_hashes import HashTableVersion, HashWrite, RowHashTable
from mirrorfeed.publish.translate.row_diff import DIFFERS, HASH, differences, key_positions, with_hashes
from mirrorfeed.runtime.spark_session import faithful
from mirrorfeed.source.identifier import Source
from mirrorfeed.source.next_step import COMPARISON, Commit, Facts, Range, Repair
from mirrorfeed.source.reader import read_full

COMPARED = "none: all of it is compared each time"
"""Shown as the state of its change data feed."""


@dataclass(frozen=True, slots=True)
class CompareFacts(Facts):
    before: HashTableVersion | None = None
    """The table of row hashes. None if there is none."""
    published_at: int = 0
    """The version of the table that holds the published state."""


@dataclass(frozen=True)
class FullCompare:
    """Its versions are those of the table of row hashes. The next comparison creates the next one."""

    spark: SparkSession
    source: Source
    hashes: RowHashTable
    staging_path: str | None = None
    upload_from: Literal["driver", "executors"] = "driver"

    def facts(self, after: int | None, limit: int) -> CompareFacts:
        seen = self.hashes.newest()
        if after is not None and (seen is None or seen.version < after):
            raise RowHashesLost(table=str(self.source), states=str(self.hashes.place), published=after, where=after)
        new = HashTableVersion(seen.id, seen.version + 1) if seen else HashTableVersion(uuid.uuid4().hex, 0)
        at = self.hashes.version_holding(after, seen) if seen and after is not None else new.version
        first, now = new.version if after is None else after + 1, datetime.now(UTC)
        commits = tuple(Commit(version, now, COMPARISON) for version in range(first, new.version + 1))
        return CompareFacts(new.id, new.version, commits, before=seen, published_at=at)

    def is_as(self, facts: Facts) -> bool:
        return self.hashes.id() == facts.table_id

    def columns(self, version: int, facts: Facts) -> tuple[Column, ...]:
        return self._columns(read_full(self.spark, self.source))

    def source_columns(self, version: int, facts: Facts) -> Mapping[str, str]:
        return source_types(json.loads(read_full(self.spark, self.source).schema.json()))

    def check(self, what: Range | int, facts: Facts) -> None:
        if isinstance(what, Range):
            assert isinstance(facts, CompareFacts)
            self.hashes.check(what.from_version_exclusive, facts.published_at)

    def stage(self, what: Range | int | Repair, facts: Facts, table: Table, job: StagingJob) -> Staged | None:
        if isinstance(what, Repair):
            raise FeedRequired(table=str(self.source), asked="Repairing a mirror")
        assert isinstance(facts, CompareFacts)
        before, new = facts.before, facts.latest
        with faithful(self.spark):
            written = self._compare(what.from_version_exclusive if isinstance(what, Range) else None, facts, job)
            if written is None:
                return None
            rows_read = self.hashes.count_rows(new)
            if written.rows == 0:
                return Staged([] if job.with_marker else [write_empty(job)], rows_read=rows_read)
            size, target = written.bytes, job.output.target_file_size
            staged = staging.stage(
                self.hashes.changed_rows(new, job.columns, with_marker=job.with_marker),
                job,
                staging_area_for(self.spark, self.staging_path, job.store),
                self.upload_from,
                expect_few=written.rows <= staging.SMALL_BATCH_ROWS,
                rows_per_file=lambda: max(1, written.rows * target // size) if size > target else None,
            )
        if written.all_hashes and before and before.version == facts.published_at:
            self.hashes.vacuum()
        return staged._replace(rows_read=rows_read)

    def bad_keys(self, version: int, table: Table) -> list[BadRow]:
        return []  # each state had keys, which were checked

    def _compare(self, published: int | None, facts: CompareFacts, job: StagingJob) -> HashWrite | None:
        """Read the source once, and write its row hashes in one commit.

        Returns None without a commit if nothing differs from the published state and this is the newest one. If it is
        not, a commit says what the state is.
        """
        before, at = facts.before, facts.published_at
        new = HashTableVersion(facts.table_id, facts.latest)
        now = read_full(self.spark, self.source)
        if lost_columns(job.columns, self._columns(now)):  # they were read a moment ago
            raise ColumnsChanged(table=str(self.source))
        key = key_positions(job.columns, job.keys)
        rows = with_hashes(now, job.columns, job.keys)
        if published is None:
            no_hashes = self.spark.createDataFrame([], rows.select(*key, HASH).schema)
            return self.hashes.write(differences(rows, no_hashes, key), before, new, key, all_hashes=True)
        assert before is not None
        with self.hashes.missing_as_lost(published, before.folder):
            found = differences(rows, self.hashes.hashes_at(at, key), key)
            is_newest = at == before.version
            compacts = is_newest and self.hashes.needs_compaction(at)
            if compacts and found.where(DIFFERS).isEmpty():  # else all hashes would be rewritten for nothing
                return None
            return self.hashes.write(found, before, new, key, all_hashes=compacts or not is_newest)

    def _columns(self, rows: DataFrame) -> tuple[Column, ...]:
        return columns_of(str(self.source), json.loads(rows.schema.json()))


def full_compare(spark: SparkSession, config: Config, table: Table) -> FullCompare:
    hashes = RowHashTable(spark, hash_table_of(config, table), str(table.source))
    return FullCompare(spark, table.source, hashes, config.staging_path, config.upload_from)


def hash_table_of(config: Config, table: Table) -> Source:
    if config.ledger is None:  # for example left out for one run
        raise LedgerRequired(table=str(table.source))
    return hashes_of(config.ledger, table.target)
