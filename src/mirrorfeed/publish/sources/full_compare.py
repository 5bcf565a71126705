"""A source without a feed: each run reads all of it and publishes what differs from what was published last."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Literal

from pyspark.sql import DataFrame, SparkSession

from mirrorfeed.config import Config, Table
from mirrorfeed.config.model import hashes_of
from mirrorfeed.landing.schema import Column, columns_of, lost
from mirrorfeed.landing.selection import types_of
from mirrorfeed.publish.errors import ColumnsChanged, FeedRequired, LedgerRequired, RowHashesLost
from mirrorfeed.publish.files import small_batch
from mirrorfeed.publish.files.rolling_writer import write_empty
from mirrorfeed.publish.files.staging import Staged, stage
from mirrorfeed.publish.files.staging_area import staging_area_for
from mirrorfeed.publish.files.staging_job import BadRow, StagingJob
from mirrorfeed.publish.plan import Plan
from mirrorfeed.publish.sources.base import COMPARISON, Repair
from mirrorfeed.publish.sources.row_hashes import RowHashTable, Seen, Written
from mirrorfeed.publish.translate.row_diff import DIFFERS, differences, key_positions, with_hashes
from mirrorfeed.runtime.session_settings import faithful
from mirrorfeed.source.identifier import Source
from mirrorfeed.source.ranges import Commit, Facts, Range
from mirrorfeed.source.reader import read_full

COMPARED = "none: all of it is compared each time"
"""What is said of its change data feed."""


@dataclass(frozen=True)
class FullCompare:
    """Its versions are those of the table with the hashes: the next one is made by the comparison that is to come."""

    spark: SparkSession
    source: Source
    states: RowHashTable
    staging_path: str | None = None
    sender: Literal["driver", "executors"] = "driver"
    _next: list[tuple[Seen | None, Seen, int]] = field(default_factory=list, init=False, repr=False, compare=False)
    """As of the last facts: the table of hashes as it was seen, as it will be, and the version that holds the published
    state."""
    _read: list[int] = field(default_factory=list, init=False, repr=False, compare=False)

    def facts(self, after: int | None, limit: int) -> Facts:
        seen = self.states.look()
        if after is not None and (seen is None or seen.version < after):
            raise RowHashesLost(table=str(self.source), states=str(self.states.place), published=after, where=after)
        new = Seen(seen.id, seen.version + 1) if seen else Seen(uuid.uuid4().hex, 0)
        at = self.states.holding(after, seen) if seen and after is not None else new.version
        self._next[:] = [(seen, new, at)]
        first, now = new.version if after is None else after + 1, datetime.now(UTC)
        commits = tuple(Commit(version, now, COMPARISON) for version in range(first, new.version + 1))
        return Facts(new.id, new.version, commits)

    def is_as(self, facts: Facts) -> bool:
        return self.states.id() == facts.table_id

    def columns(self, version: int) -> tuple[Column, ...]:
        return self._columns(read_full(self.spark, self.source))

    def source_columns(self, version: int) -> Mapping[str, str]:
        return types_of(json.loads(read_full(self.spark, self.source).schema.json()))

    def check(self, what: Range | int, facts: Facts) -> None:
        if isinstance(what, Range):
            ((_, _, at),) = self._next
            self.states.check(what.from_version_exclusive, at)

    def stage(self, what: Range | int, plan: Plan, job: StagingJob) -> Staged | None:
        before = what.from_version_exclusive if isinstance(what, Range) else None
        ((seen, new, at),) = self._next
        with faithful(self.spark):
            written = self._compare(before, job)
            if written is None:
                return None
            if written.rows == 0:
                return ([] if job.with_marker else [write_empty(job)]), ()
            rows = self.states.changed(new.version, job.columns, with_marker=job.with_marker)
            count, size = written.rows, written.bytes
            staged = stage(
                rows,
                job,
                staging_area_for(self.spark, self.staging_path, job.store),
                self.sender,
                expect_few=count <= small_batch.ROWS,
                rows_per_file=lambda: (
                    max(1, count * job.target_file_size // size) if size > job.target_file_size else None
                ),
            )
        if written.anew and seen and seen.version == at:
            self.states.vacuum()
        return staged

    def stage_again(self, what: Repair, plan: Plan, job: StagingJob) -> Staged:
        raise FeedRequired(table=str(self.source), asked="to repair its mirror")

    def bad_keys(self, version: int, plan: Plan) -> list[BadRow]:
        return []  # every state has had keys, and was checked

    def rows_read(self) -> int | None:
        return self._read[0] if self._read else None

    def look_up_seconds(self) -> float:
        return 0.0

    def _compare(self, before: int | None, job: StagingJob) -> Written | None:
        """Keeps what the source has in one commit, from one read. None, and no commit, where nothing differs from the
        state before and that is the newest; where it is not, a commit says what the state is."""
        ((seen, new, at),) = self._next
        now = read_full(self.spark, self.source)
        if lost(job.columns, self._columns(now)):  # they were looked at a moment ago
            raise ColumnsChanged(table=str(self.source))
        key = key_positions(job.columns, job.keys)
        rows = with_hashes(now, job.columns, job.keys)
        if before is None:
            known = self.states.none(rows, key)
            written = self.states.write(differences(rows, known, key), seen, new, key, all_hashes=True)
        else:
            assert seen is not None
            with self.states.known_as(before, seen.folder):
                found = differences(rows, self.states.hashes(at, key), key)
                is_newest = at == seen.version
                heavy = is_newest and self.states.is_heavy(at)
                if heavy and found.where(DIFFERS).isEmpty():  # or the hashes would be written anew for nothing
                    return None
                written = self.states.write(found, seen, new, key, all_hashes=heavy or not is_newest)
        if written:
            self._read[:] = [self.states.rows(new.version)]
        return written

    def _columns(self, rows: DataFrame) -> tuple[Column, ...]:
        return columns_of(str(self.source), json.loads(rows.schema.json()))


def compared(spark: SparkSession, config: Config, table: Table) -> FullCompare:
    states = RowHashTable(spark, states_of(config, table), str(table.source))
    return FullCompare(spark, table.source, states, config.staging_path, config.upload_from)


def states_of(config: Config, table: Table) -> Source:
    """The table with the hashes of a source."""
    if config.ledger is None:  # as where it was left out for one run
        raise LedgerRequired(table=str(table.source))
    return hashes_of(config.ledger, table.target)
