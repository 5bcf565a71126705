"""Keeping what is new of one table: look, decide, append, and look again, until all is kept.

An append is one commit of rows and record, and Delta takes a record's number once. So whatever a run or another one
beside it does, or did before it died, the newest record says what is kept; no answer of an append is believed.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Mapping
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from mirrorfeed.archive import interval
from mirrorfeed.archive.guard import change_feed as archive
from mirrorfeed.errors import Terminal
from mirrorfeed.history.columns import DROP, RENAME, drops, first_columns, follow, lost, renames, same_columns
from mirrorfeed.history.errors import AnotherSource, CannotGoOn, ColumnsBroken, OtherRun, RestoreRejected
from mirrorfeed.history.history_table import HistoryTable, Seen, as_inserts, kept_rows, maps_columns, refuse_names
from mirrorfeed.history.record import KeptColumn, Record
from mirrorfeed.runtime.session_settings import faithful
from mirrorfeed.runtime.spark_errors import first_of
from mirrorfeed.runtime.version import this_build
from mirrorfeed.source import reader
from mirrorfeed.source import versions as log
from mirrorfeed.source.change_feed import is_same_table, read_facts
from mirrorfeed.source.errors import FeedUnreadable, Finding, Gap, LogDamaged, SourceRecreated, VersionExpired
from mirrorfeed.source.identifier import Source
from mirrorfeed.source.ranges import Commit, Decision, Facts, NothingNew, Published, Range, TakeSnapshot, decide
from mirrorfeed.source.versions import schema_at

_TRIES = 5
"""Appends in a row of which another run's came first."""
_ANOTHER_FIRST = ("DELTA_CONCURRENT", "DELTA_METADATA_CHANGED", "DELTA_PROTOCOL_CHANGED", "DELTA_TABLE_ALREADY_EXISTS")
_BEFORE_IT_AGES = 2
"""A record is said again when it is half as old as files are that go to the archive."""


@dataclass(frozen=True)
class Keeping:
    """How one table is kept."""

    source: Source
    history: Source
    archive_days: int | None = None
    max_versions_per_publication: int = 500
    on_gap: str = "stop"
    on_schema_change: str = "stop"
    """Either may say `reseed`: then the history goes on with a snapshot by itself."""


@dataclass
class Kept:
    """What a run did for a table, as far as it came."""

    made: list[Record] = field(default_factory=list)
    version: int | None = None
    """Up to which it is kept, by this run or one before."""
    began_again: list[Terminal] = field(default_factory=list)
    """Why it went on with a snapshot."""


def keep(
    spark: SparkSession,
    how: Keeping,
    *,
    begin_again: bool = False,
    on_step: Callable[[Kept], None] = lambda _: None,
    now: Callable[[], datetime] = lambda: datetime.now(UTC),
    into: Kept | None = None,
) -> Kept:
    """Keeps all versions up to the one that is the newest when it begins; raises what stands in the way. Told to begin
    again, it goes on with a snapshot where it cannot otherwise; what is kept stays, and the hole is known. What is done
    is told in `into` as it comes, also where something fails later."""
    run = _Run(spark, how, HistoryTable(spark, how.history), begin_again, now)
    kept, goal, lost = into or Kept(), None, 0
    after: Seen | None = None
    while True:
        seen, after = after or run.table.look(), None
        kept.version = seen.newest.to_version_inclusive if seen and seen.newest else None
        if goal is not None and kept.version is not None and kept.version >= goal:
            return kept
        step = run.next(seen)
        goal = step.facts.latest if goal is None else goal
        if seen is None:
            run.begin(step.facts)
            seen = run.table.look()
            if seen is None or seen.newest:  # another run's
                after = seen
                continue
        if step.what is None and not run.ages(seen):
            return kept
        try:
            record, taken = run.append(seen, step)
        except Finding as finding:  # some show up only when rows are read
            step = run.instead(seen, step.facts, finding)
            record, taken = run.append(seen, step)
        if record is None:
            continue
        after = run.table.look()
        newest = after.newest if after else None
        if newest and newest.batch == record.batch:
            lost = 0
            kept.made.append(record)
            kept.began_again += [step.instead_of] if step.instead_of else []
            on_step(kept)
        elif taken and (newest is None or newest.number < record.number):
            raise RestoreRejected(history=str(how.history), number=record.number)
        elif (lost := lost + 1) == _TRIES:
            raise OtherRun(history=str(how.history), conflicts=_TRIES)


@dataclass(frozen=True)
class _Step:
    """What comes next."""

    facts: Facts
    what: Range | int | None
    """A range, a snapshot's version, or nothing."""
    columns: tuple[KeptColumn, ...] = ()
    rows: DataFrame | None = None
    """Of it, as the feed has them."""
    instead_of: Terminal | None = None
    """Why it is a snapshot beside what is kept."""


@dataclass
class _Run:
    spark: SparkSession
    how: Keeping
    table: HistoryTable
    begin_again: bool
    now: Callable[[], datetime]
    _schemas: dict[int, dict[str, Any]] = field(default_factory=dict)
    """By version, as asked since the last facts."""

    @property
    def source(self) -> str:
        return str(self.how.source)

    def next(self, seen: Seen | None) -> _Step:
        newest, there = (seen.newest, seen.columns) if seen else (None, {})
        facts, decision = self._decide(newest)
        if isinstance(decision, NothingNew):
            return _Step(facts, None, newest.columns if newest else ())
        try:
            if isinstance(decision, Finding):
                raise decision
            if isinstance(decision, TakeSnapshot):
                return self._snapshot(facts, decision.version, there)
            assert newest is not None
            return self._range(facts, decision.ranges[0], newest, there)
        except Finding as finding:
            return self.instead(seen, facts, finding)

    def instead(self, seen: Seen | None, facts: Facts, finding: Finding) -> _Step:
        """A snapshot, where it is to go on with one; or the finding, in the words of a history."""
        if seen is None or seen.newest is None:
            raise finding
        if isinstance(finding, SourceRecreated):
            raise AnotherSource(
                table=self.source,
                history=str(self.how.history),
                kept=seen.newest.source,
                version=seen.newest.to_version_inclusive,
                kept_id=finding.published_id,
                found_id=finding.found_id,
                latest=finding.latest,
            ) from None
        if not (self.begin_again or self._reseeds(finding)):
            raise CannotGoOn(
                table=finding.table,
                history=str(self.how.history),
                version=seen.newest.to_version_inclusive,
                finding=finding,
            ) from finding
        return self._again(facts, seen.columns, finding)

    def begin(self, facts: Facts) -> None:
        """An empty history, which says nothing as kept."""
        try:
            self.table.create(mapped=maps_columns(facts))
        except Exception:
            if self.table.look() is None:  # or another run was first
                raise
        if self.how.archive_days is not None and interval.read(self.spark, self.how.history) is None:
            interval.set_first(self.spark, self.how.history, self.how.archive_days, self.now())

    def ages(self, seen: Seen) -> bool:
        """Whether the newest record is to be said again before its file goes to the archive."""
        if seen.newest is None or seen.archive_days is None:
            return False
        return self.now() - seen.newest.time >= timedelta(days=seen.archive_days) / _BEFORE_IT_AGES

    def append(self, seen: Seen, step: _Step) -> tuple[Record | None, bool]:
        """What was sent, and whether Delta has raised nothing against it; whether it was kept is for a look to say.
        None where another table took the source's name meanwhile, or it was partitioned anew."""
        if maps_columns(step.facts) and not seen.mapped:
            self.table.map_columns()
        rows = None if step.rows is None else kept_rows(step.rows, step.columns)
        faults = reader.read_errors(self.source, step.what) if step.what is not None else nullcontext()
        with faults, faithful(self.spark):
            record = self._record(seen, step, rows.count() if rows is not None else 0)
            if not is_same_table(step.facts, self.spark, self.how.source):
                return None, False
            try:
                self.table.append(rows if record.rows else None, record)
            except Exception as error:
                if first_of(error, _ANOTHER_FIRST) is None:
                    raise
                return record, False
        return record, True

    def _record(self, seen: Seen, step: _Step, rows: int) -> Record:
        begin, end = _bounds(step.what, step.facts.latest)
        return Record(
            number=seen.number + 1,
            batch=uuid.uuid4().hex,
            time=self.now(),
            source=self.source,
            source_id=step.facts.table_id,
            from_version_exclusive=begin,
            to_version_inclusive=end,
            commits=_commits(step.facts, step.what),
            columns=step.columns,
            partitions=step.facts.partitions,
            rows=rows,
            total=seen.total + rows + 1,
            base=seen.version,
            build=this_build(),
        )

    def _decide(self, newest: Record | None) -> tuple[Facts, Decision]:
        self._schemas.clear()
        after = newest.to_version_inclusive if newest else None
        limit = self.how.max_versions_per_publication
        facts = read_facts(self.spark, self.how.source, after, limit, self._schema)
        before = Published(newest.source_id, newest.to_version_inclusive, newest.partitions) if newest else None
        return facts, decide(self.source, before, facts, limit)

    def _snapshot(self, facts: Facts, version: int, there: Mapping[str, str]) -> _Step:
        schema = self._schema(version)
        refuse_names(self.source, schema)
        archive.check(self.spark, self.how.source, version, facts.properties)
        (commit,) = _commits(facts, version)
        with reader.read_errors(self.source, version):
            rows = as_inserts(reader.snapshot(self.spark, self.how.source, version), commit)
        return _Step(facts, version, first_columns(schema, version, there), rows)

    def _range(self, facts: Facts, range_: Range, newest: Record, there: Mapping[str, str]) -> _Step:
        """The first versions of a range that all have the same columns."""
        first = range_.from_version_exclusive + 1
        schema = self._schema(first)
        last = last_alike(first, range_.to_version_inclusive, lambda at: same_columns(self._schema(at), schema))
        what = Range(range_.from_version_exclusive, last)
        operation = facts.commits[0].operation
        told = log.operation_parameters(self.spark, self.how.source, first) if operation in (RENAME, DROP) else {}
        refuse_names(self.source, schema)
        gone, new = drops(operation, told), renames(operation, told)
        columns = follow(self.source, first, newest.columns, schema, there, renamed=new, dropped=gone)
        with reader.read_errors(self.source, what):
            archive.check(self.spark, self.how.source, what, facts.properties)
            feed = reader.changes(self.spark, self.how.source, what)
            if missing := lost(columns, json.loads(feed.schema.json())):
                raise FeedUnreadable(table=self.source, range=what, version=str(last), read_version=None, lost=missing)
        return _Step(facts, what, columns, feed)

    def _again(self, facts: Facts, there: Mapping[str, str], finding: Finding) -> _Step:
        """A snapshot of the version at which columns broke, or else of the newest, for all between is lost."""
        if isinstance(finding, ColumnsBroken):
            with suppress(VersionExpired, LogDamaged):
                return replace(self._snapshot(facts, finding.version, there), instead_of=finding)
        now, decision = self._decide(None)
        if not isinstance(decision, TakeSnapshot):
            raise finding
        return replace(self._snapshot(now, decision.version, there), instead_of=finding)

    def _reseeds(self, finding: Finding) -> bool:
        return (self.how.on_gap if isinstance(finding, Gap) else self.how.on_schema_change) == "reseed"

    def _schema(self, version: int) -> dict[str, Any]:
        if version not in self._schemas:
            self._schemas[version] = schema_at(self.spark, self.how.source, version)
        return self._schemas[version]


def last_alike(first: int, last: int, alike: Callable[[int], bool]) -> int:
    """The last version from the first on that is like it, where those that are not come after those that are."""
    if alike(last):
        return last
    while last - first > 1:
        middle = (first + last) // 2
        first, last = (middle, last) if alike(middle) else (first, middle)
    return first


def _commits(facts: Facts, what: Range | int | None) -> tuple[Commit, ...]:
    if isinstance(what, Range):
        return tuple(commit for commit in facts.commits if commit.version <= what.to_version_inclusive)
    return tuple(commit for commit in facts.commits if commit.version == what)


def _bounds(what: Range | int | None, newest: int) -> tuple[int | None, int]:
    """Exclusive and inclusive; where nothing is new, the record before is said again."""
    if isinstance(what, Range):
        return what.from_version_exclusive, what.to_version_inclusive
    return (newest, newest) if what is None else (None, what)
