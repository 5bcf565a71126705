"""Append new versions of a table to its permanent history.

Each append is one commit with rows and a record. Delta ignores an append if an earlier commit has the same record
number. A run does not trust the response of an append. It reads the newest record before and after the append, to see
what this or another run appended.
"""

from __future__ import annotations

import json
import uuid
from bisect import bisect_left
from collections.abc import Callable, Mapping
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import cached_property, partial
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from mirrorfeed import archive
from mirrorfeed.config.model import Table
from mirrorfeed.errors import TerminalError
from mirrorfeed.history import history_table
from mirrorfeed.history.errors import (
    HistoryChangedError,
    HistoryColumnsError,
    HistorySourceReplacedError,
    append_conflict,
    history_interrupted,
)
from mirrorfeed.history.hidden_values import check_hidden, hidden_columns, history_selection
from mirrorfeed.history.history_record import (
    HistoryColumn,
    HistoryRecord,
    have_same_columns,
    next_columns,
    unreadable_columns,
)
from mirrorfeed.history.history_table import HistoryTable, HistoryView, maps_columns
from mirrorfeed.landing.schema import FEED_COLUMNS
from mirrorfeed.landing.selection import Selection, selected_schema
from mirrorfeed.runtime.spark_errors import find_condition
from mirrorfeed.runtime.spark_session import lossless_settings
from mirrorfeed.runtime.version import this_build
from mirrorfeed.source import reader
from mirrorfeed.source.change_feed import is_same_table, read_facts
from mirrorfeed.source.errors import (
    DeltaLogDamagedError,
    FeedGapError,
    FeedUnreadableError,
    PublicationBlockedError,
    SourceRecreatedError,
    VersionExpiredError,
)
from mirrorfeed.source.snapshot_or_range import (
    Decision,
    Facts,
    NothingNew,
    PublishedVersion,
    Range,
    Snapshot,
    decide,
    renamed_columns,
)
from mirrorfeed.source.table_info import CHANGES_NO_ROWS
from mirrorfeed.source.versions import read_schema

_MAX_CONFLICTS = 5
_LOST_RACE = ("DELTA_CONCURRENT", "DELTA_METADATA_CHANGED", "DELTA_PROTOCOL_CHANGED", "DELTA_TABLE_ALREADY_EXISTS")
_RECORDS_PER_COMPACTION = 100
"""Number of appends after which the files of a history are merged, because each append adds small files."""
_REPEAT_FACTOR = 2
"""The newest record is appended again, to keep it active, at the age of the archive interval divided by this number."""


@dataclass
class AppendProgress:
    """Progress of a run that appends to a history: appended records, and the newest source version in the history."""

    records: list[HistoryRecord] = field(default_factory=list)
    """Records that this run has appended."""
    newest_version: int | None = None
    """Newest version of the source that the history contains. None if the history is empty."""
    restarts: list[TerminalError] = field(default_factory=list)
    """Errors that made the history continue with a snapshot instead of changes."""


@dataclass(frozen=True)
class _Step:
    facts: Facts
    what: Range | Snapshot
    """Range of new versions, or a snapshot. The range is empty if there are no new versions."""
    columns: tuple[HistoryColumn, ...] = ()
    rows: DataFrame | None = None
    """Rows to append, as in a change data feed. None if the versions change no rows."""
    reason: TerminalError | None = None
    """Error that made the history continue with this snapshot. None for the first snapshot and for ranges."""


def append_versions(
    spark: SparkSession,
    table: Table,
    *,
    reseed: bool = False,
    now: Callable[[], datetime] = lambda: datetime.now(UTC),
    progress: AppendProgress | None = None,
) -> AppendProgress:
    """Append new versions of a table to its history, up to the newest version at the start of the call.

    An empty history starts with a snapshot. If later versions cannot be appended, the history can continue with another
    snapshot, and then lacks these versions. `reseed` allows this snapshot. The table's option `on_gap: reseed` allows a
    snapshot after a gap, and `on_schema_change: reseed` after all other errors. Updates `progress` after each append,
    and returns `progress`.

    Raises `history_interrupted` if no snapshot is allowed. Raises the error that prevented the append if no snapshot is
    possible. Raises `HistorySourceReplacedError` if the source was replaced or restored to an older version,
    `HistoryChangedError` if another process changed the history, and `append_conflict` after repeated conflicts with
    other runs.
    """
    assert table.history is not None
    append = _Append(spark, table, HistoryTable(spark, table.history.table), reseed, now)
    progress = progress or AppendProgress()
    view, goal, conflicts = append.history.read_view(), None, 0
    while True:
        newest = view.newest if view else None
        progress.newest_version = newest.to_version_inclusive if newest else None
        if goal is not None and newest and newest.to_version_inclusive >= goal:
            return progress
        step = append.next_step(view)
        goal = step.facts.latest if goal is None else goal
        if view is None:
            append.create(step.facts)
            view = append.history.read_view()
            if view is None or view.newest:  # another run created the first record
                continue
        if isinstance(step.what, Range) and not step.what.versions and not append.must_repeat(view):
            return progress
        try:
            record, is_accepted = append.append(view, step)
        except PublicationBlockedError as finding:  # some findings occur only when rows are read
            step = append.snapshot_or_raise(view, step.facts, finding)
            record, is_accepted = append.append(view, step)
        view = append.history.read_view()
        if record is None:
            continue
        newest = view.newest if view else None
        if newest and newest.batch == record.batch:
            conflicts = 0
            progress.records.append(record)
            progress.restarts += [step.reason] if step.reason else []
            if view and record.number % _RECORDS_PER_COMPACTION == 0:
                append.history.compact(view)
        elif is_accepted and (newest is None or newest.number < record.number):
            raise HistoryChangedError(history=str(append.history.table), record=record.number)
        elif (conflicts := conflicts + 1) == _MAX_CONFLICTS:
            raise append_conflict(history=str(append.history.table), conflicts=conflicts)


@dataclass
class _Append:
    spark: SparkSession
    table: Table
    history: HistoryTable
    reseed: bool
    now: Callable[[], datetime]

    @property
    def source(self) -> str:
        return str(self.table.source)

    @cached_property
    def selection(self) -> Selection | None:
        return history_selection(self.table)

    def next_step(self, view: HistoryView | None) -> _Step:
        newest, existing = (view.newest, view.columns) if view else (None, {})
        if newest:
            check_hidden(self.source, str(self.history.table), newest, self.selection)
        facts, decision = self._decide(newest)
        if isinstance(decision, NothingNew):
            return _Step(facts, Range(facts.latest, facts.latest), newest.columns if newest else ())
        try:
            if isinstance(decision, PublicationBlockedError):
                raise decision
            if isinstance(decision, Snapshot):
                return self._snapshot(facts, decision, existing)
            assert newest is not None
            return self._range(facts, decision.ranges[0], newest, existing)
        except PublicationBlockedError as finding:
            return self.snapshot_or_raise(view, facts, finding)

    def snapshot_or_raise(self, view: HistoryView | None, facts: Facts, finding: PublicationBlockedError) -> _Step:
        """Return a step that continues the history with a snapshot after the error `finding` prevented an append.

        Raises `HistorySourceReplacedError` if the source was replaced or restored to an older version. After all other
        errors, a snapshot is allowed if `self.reseed` is True, or if an option of the table is `reseed`. The option is
        `on_gap` after a gap, otherwise `on_schema_change`. Raises `history_interrupted` if no snapshot is allowed.
        Raises the error `finding` if the history is empty or no snapshot is possible.
        """
        if view is None or view.newest is None:
            raise finding
        version, history = view.newest.to_version_inclusive, str(self.history.table)
        if isinstance(finding, SourceRecreatedError):
            raise HistorySourceReplacedError(
                table=self.source,
                history=history,
                recorded=view.newest.source,
                version=version,
                recorded_id=finding.published_id,
                found_id=finding.found_id,
                latest=finding.latest,
            ) from None
        policy = self.table.on_gap if isinstance(finding, FeedGapError) else self.table.on_schema_change
        if not self.reseed and policy != "reseed":
            raise history_interrupted(
                table=finding.table, history=history, version=version, finding=finding
            ) from finding
        if isinstance(finding, HistoryColumnsError):
            with suppress(
                VersionExpiredError, DeltaLogDamagedError
            ):  # the version at which the columns changed, if it can be read
                return replace(self._snapshot(facts, Snapshot(finding.version), view.columns), reason=finding)
        facts, decision = self._decide(None)
        if not isinstance(decision, Snapshot):
            raise finding
        return replace(self._snapshot(facts, decision, view.columns), reason=finding)

    def create(self, facts: Facts) -> None:
        try:
            self.history.create(mapped=maps_columns(facts))
        except Exception:
            if self.history.read_view() is None:  # otherwise another run created the history
                raise
        days = self.table.history.archive_days if self.table.history else None
        if days is not None:
            archive.set_interval(self.spark, self.history.table, days, self.now())

    def must_repeat(self, view: HistoryView) -> bool:
        """Return whether the newest record must be appended again, because its file will soon count as archived."""
        if view.newest is None or view.archive_days is None:
            return False
        return self.now() - view.newest.time >= timedelta(days=view.archive_days) / _REPEAT_FACTOR

    def append(self, view: HistoryView, step: _Step) -> tuple[HistoryRecord | None, bool]:
        """Try to append the rows of `step` and a history record. Callers must read the history again to see the result.

        Returns the record and True if Delta reported no conflict. True does not prove that the history has the record.
        Returns the record and False if Delta reported a conflict. Returns None and False, and appends nothing, if the
        source was replaced or its partition columns changed after `step` was created.
        """
        if maps_columns(step.facts) and not view.maps_columns:
            self.history.map_columns()
        rows = None if step.rows is None else history_table.to_stored_rows(step.rows, step.columns)
        # Without source rows, an error of Delta is an error of the history.
        errors = reader.read_errors(self.source, step.what) if rows is not None else nullcontext()
        with errors, lossless_settings(self.spark):
            record = self._record(view, step, rows.count() if rows is not None else 0)
            if not is_same_table(step.facts, self.spark, self.table.source):
                return None, False
            try:
                # If another run has appended this record number, Delta ignores the append without an error.
                self.history.append(rows if record.rows else None, record)
            except Exception as error:
                if find_condition(error, _LOST_RACE) is None:
                    raise
                return record, False
        return record, True

    def _record(self, view: HistoryView, step: _Step, rows: int) -> HistoryRecord:
        number, total = (view.newest.number, view.newest.total) if view.newest else (0, 0)
        facts, begin, end = step.facts, step.what.from_version_exclusive, step.what.to_version_inclusive
        return HistoryRecord(
            number=number + 1,
            batch=uuid.uuid4().hex,
            time=self.now(),
            source=self.source,
            source_id=facts.table_id,
            from_version_exclusive=begin,
            to_version_inclusive=end,
            commits=tuple(
                commit
                for commit in facts.commits
                if commit.version in range(end if begin is None else begin + 1, end + 1)
            ),
            columns=step.columns,
            partitions=facts.partitions,
            rows=rows,
            total=total + rows + 1,
            base=view.version,
            build=this_build(),
            hidden=hidden_columns(self.selection),
            key_digest=self.selection.key_digest if self.selection else None,
        )

    def _decide(self, newest: HistoryRecord | None) -> tuple[Facts, Decision]:
        after = newest.to_version_inclusive if newest else None
        limit = self.table.max_versions_per_publication
        facts = read_facts(self.spark, self.table.source, after, limit)
        before = PublishedVersion(newest.source_id, newest.to_version_inclusive, newest.partitions) if newest else None
        return facts, decide(self.source, before, facts, limit)

    def _snapshot(self, facts: Facts, what: Snapshot, existing: Mapping[str, str]) -> _Step:
        version = what.version
        schema = self._schema(version, facts)
        history_table.check_names(self.source, schema)
        archive.check(self.spark, self.table.source, what, facts.properties)
        commit = next(commit for commit in facts.commits if commit.version == version)
        with reader.read_errors(self.source, what):
            snapshot = reader.read_snapshot(self.spark, self.table.source, version)
            rows = history_table.as_inserts(reader.apply_selection(self.source, snapshot, self.selection), commit)
        return _Step(facts, what, next_columns(self.source, version, (), schema, existing), rows)

    def _range(self, facts: Facts, range_: Range, newest: HistoryRecord, existing: Mapping[str, str]) -> _Step:
        """Return a step that appends `range_`, or only its first versions if a later version has other columns.

        All versions of a step have the same columns.
        """
        spark, source = self.spark, self.table.source
        first = range_.from_version_exclusive + 1
        schema_at = partial(self._schema, facts=facts)
        schema = schema_at(first)
        last = last_equal(first, range_.to_version_inclusive, lambda at: have_same_columns(schema_at(at), schema))
        what = Range(range_.from_version_exclusive, last)
        history_table.check_names(self.source, schema)
        renamed = renamed_columns(facts.commits[0].operation, facts.commits[0].parameters)
        columns = next_columns(self.source, first, newest.columns, schema, existing, renamed)
        commits = [commit for commit in facts.commits if first <= commit.version <= last]
        if len(commits) == what.versions and all(commit.operation in CHANGES_NO_ROWS for commit in commits):
            return _Step(facts, what, columns)  # Delta may be unable to read the range, because it uses newer columns
        with reader.read_errors(self.source, what):
            archive.check(spark, source, what, facts.properties)
            feed = reader.read_changes(spark, source, what)
            feed = reader.apply_selection(self.source, feed, self.selection, FEED_COLUMNS)
            if lost := unreadable_columns(columns, json.loads(feed.schema.json())):
                raise FeedUnreadableError(
                    table=self.source, range=what, version=str(last), read_version=None, lost=lost
                )
        return _Step(facts, what, columns, feed)

    def _schema(self, version: int, facts: Facts) -> dict[str, Any]:
        """Return the columns that the history stores of a version of the source."""
        schema = read_schema(self.spark, self.table.source, version, facts.schemas)
        return selected_schema(self.source, self.selection, schema)


def last_equal(first: int, last: int, is_equal: Callable[[int], bool]) -> int:
    """Return the last version from `first` to `last` for which `is_equal` returns True, by binary search.

    `is_equal` must return True for `first`, and False for all versions after the first False.
    """
    if is_equal(last):
        return last
    return bisect_left(range(last), True, lo=first + 1, key=lambda version: not is_equal(version)) - 1
