"""One table's publication: look, finish, tidy, decide, stage, record, and again until nothing is left to do.

The source is behind a port, so that this loop can be tried with every fault of every call and without Spark.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Protocol

from mirrorfeed.errors import Terminal
from mirrorfeed.feed.ranges import (
    Decision,
    Facts,
    Finding,
    NothingNew,
    Published,
    PublishRanges,
    Range,
    TakeSnapshot,
    decide,
)
from mirrorfeed.landing.log import PublishedFile, Record
from mirrorfeed.landing.metadata import spell
from mirrorfeed.landing.names import log_folder
from mirrorfeed.landing.output import AS_PARQUET, COMPRESSION, Output, check_output
from mirrorfeed.landing.rows import Problem
from mirrorfeed.landing.schema import Column, ColumnsDropped, check_keys, evolve
from mirrorfeed.publish import commit
from mirrorfeed.publish.writer import BadRow, Receipt, StagingJob
from mirrorfeed.stores import Store

_DROP = "DROP COLUMNS"
"""The one operation after which a column that is gone is known to have no values under another name."""


@dataclass(frozen=True, slots=True)
class Plan:
    """How a table is published; `source` and `target` are for records and messages."""

    source: str
    target: str
    folder: str
    keys: tuple[str, ...]
    changes: str = "net"
    markers: str = "upsert"
    check_keys: bool = True
    output: Output = AS_PARQUET
    compression: str = COMPRESSION
    file_size: int = 128 * 2**20
    versions_per_range: int = 500
    keep_records: int = 10
    skip_unchanged: bool = False
    keep_dropped: bool = True
    """Whether columns that were dropped are published on, as NULL."""

    def metadata(self, columns: Sequence[Column]) -> dict[str, Any]:
        """What `_metadata.json` has to say."""
        return spell(self.keys, self.output.settings(columns))


class Feed(Protocol):
    """The source of one table."""

    def facts(self, after: int | None, limit: int) -> Facts:
        """What the history says about the versions after the published one."""
        ...

    def table_id(self) -> str:
        """The table's id now."""
        ...

    def columns(self, version: int) -> tuple[Column, ...]:
        """The landing form of the table's columns at a version."""
        ...

    def check(self, what: Range | int, facts: Facts) -> None:
        """Raises what is known, before anything is read, to stand in the way of reading it."""
        ...

    def stage(self, what: Range | int, plan: Plan, job: StagingJob) -> tuple[Sequence[Receipt], Sequence[BadRow]]:
        """Writes the landing rows of a range, or of a snapshot at a version, where the job says. The receipts are in
        the order in which the files are to be applied. An empty snapshot still gives one file."""
        ...


@dataclass(slots=True)
class Publication:
    """One record that a run made, and what only the run knows of it. For people, never for decisions."""

    record: Record
    oldest: datetime
    """When the first of its versions was committed."""
    latest: int
    """The newest version of the source as it was made."""
    seconds: dict[str, float]
    """By phase: stage, record and rename, as far as it came."""
    retries: int = 0
    """How often executors repeated calls to the landing zone for its files."""


@dataclass(slots=True)
class Progress:
    """What one run did for one table, as far as it came."""

    decision: str = ""
    from_version_exclusive: int | None = None
    to_version_inclusive: int | None = None
    published: int | None = None
    """The version that is published, by this run or one before."""
    latest: int | None = None
    publications: int = 0
    rows: dict[str, int] = field(default_factory=dict)
    files: int = 0
    bytes: int = 0
    retries: int = 0
    """How often executors repeated calls to the landing zone, for files that were published or not."""
    made: list[Publication] = field(default_factory=list)

    def add(self, publication: Publication) -> None:
        record = publication.record
        self.made.append(publication)
        if self.publications == 0:
            self.from_version_exclusive = record.from_version_exclusive
        self.published = self.to_version_inclusive = record.to_version_inclusive
        self.publications += 1
        self.files += len(record.files)
        for file in record.files:
            self.bytes += file.bytes
            for marker, count in file.rows.items():
                self.rows[marker] = self.rows.get(marker, 0) + count


class RowsRefused(Terminal):
    """Rows that have no right place in a mirror; nothing of their range is published."""

    _REASONS = {  # noqa: RUF012 - never changed
        Problem.NULL_KEY: "a key is NULL",
        Problem.DUPLICATE_KEY: "a key stands for more than one row",
        Problem.CHANGE_WITHOUT_KEY: "there is an update or delete, and a table without keys takes inserts only",
        Problem.NOT_IN_ENCODING: "a value has a character that the encoding of the files lacks",
        Problem.LIKE_NULL: "a value could not be told from NULL without quotes",
        Problem.NOT_ESCAPABLE: "a value holds what the files have no way to escape",
    }

    def __init__(self, table: str, what: Range | int, rows: Sequence[BadRow]) -> None:
        self.table, self.range, self.rows = table, what, tuple(rows)

    def what(self) -> str:
        where = f"at version {self.range}" if isinstance(self.range, int) else f"in {self.range}"
        problem = self.rows[0].problem
        keys = "; ".join(row.key for row in self.rows if row.problem == problem and row.key)
        return f"{self.table} cannot be published: {where} {self._REASONS[problem]}{f' ({keys})' if keys else ''}."

    def next(self) -> str:
        if self.rows[0].problem is Problem.CHANGE_WITHOUT_KEY:
            return "Give the table keys in the configuration, or a primary key in Unity Catalog."
        if self.rows[0].problem.of_text:
            return (
                "Under `delimited`, set an `encoding`, `quote`, `escape` or `null` that has room for it, and rebuild"
                " the table if it was published before; or correct the rows in the source."
            )
        return (
            "Correct these rows in the source, or choose keys that are unique and never NULL. If a corrected key is"
            " still refused, update its row once more, so that its changes end with the row that is right."
        )


def publish(
    feed: Feed,
    store: Store,
    plan: Plan,
    progress: Progress | None = None,
    on_step: Callable[[Progress], None] = lambda _: None,
    now: Callable[[], datetime] = lambda: datetime.now(UTC),
    clock: Callable[[], float] = time.monotonic,
) -> Progress:
    """Publishes all versions up to the one that is the newest when it begins; raises findings and refusals."""
    progress = progress or Progress()
    early = None if commit.has_log(store, plan.folder) else _refuse_early(feed, store, plan)
    goal: int | None = None
    while True:
        begun = clock()
        view = commit.settle(store, plan.folder)
        if progress.made:
            progress.made[-1].seconds.setdefault("rename", clock() - begun)
        commit.tidy(store, plan.folder, view, plan.keep_records)
        progress.published = view.newest.to_version_inclusive if view.newest else None
        if goal is not None and progress.published is not None and progress.published >= goal:
            return progress
        facts, decision = early if early and view.newest is None else look_ahead(feed, plan, view)
        early = None
        goal = facts.latest.version if goal is None else goal
        progress.latest = facts.latest.version
        progress.decision = progress.decision or str(decision)
        if isinstance(decision, NothingNew):
            return progress
        if isinstance(decision, Finding):
            raise decision
        on_step(progress)
        what = _next(decision)
        begun, repeated = clock(), progress.retries
        new = _stage(feed, store, plan, view, facts, what, now, progress)
        if feed.table_id() != new.source_id:
            continue  # another table took the source's name, perhaps before its rows were read
        staged = clock()
        if commit.record(store, plan.folder, view, new):
            oldest = facts.commits[0] if isinstance(what, Range) else facts.latest
            seconds = {"stage": staged - begun, "record": clock() - staged}
            repeated = progress.retries - repeated
            progress.add(Publication(new, oldest.timestamp, facts.latest.version, seconds, repeated))
            on_step(progress)


def look_ahead(feed: Feed, plan: Plan, view: commit.View | None) -> tuple[Facts, Decision]:
    """What would be published next; changes nothing."""
    newest = view.newest if view else None
    published = Published(newest.source_id, newest.to_version_inclusive, newest.partitions) if newest else None
    facts = feed.facts(published.version if published else None, plan.versions_per_range)
    return facts, decide(plan.source, published, facts, plan.versions_per_range)


def _next(decision: TakeSnapshot | PublishRanges) -> Range | int:
    return decision.ranges[0] if isinstance(decision, PublishRanges) else decision.version


def _end(what: Range | int) -> int:
    return what if isinstance(what, int) else what.to_version_inclusive


def check_snapshot(feed: Feed, plan: Plan) -> tuple[Facts, Decision, tuple[Column, ...]]:
    """The columns of a first publication; raises what in the source would stand in its way."""
    facts, decision = look_ahead(feed, plan, None)
    if isinstance(decision, Finding):
        raise decision
    columns = _columns(feed, plan, None, facts, facts.latest.version)
    feed.check(facts.latest.version, facts)
    return facts, decision, columns


def _refuse_early(feed: Feed, store: Store, plan: Plan) -> tuple[Facts, Decision]:
    """Before a first publication: an empty table folder would be an error to the service in the end."""
    facts, decision, columns = check_snapshot(feed, plan)
    commit.check_metadata(store, plan.folder, plan.metadata(columns))
    return facts, decision


def preflight(feed: Feed, store: Store, plan: Plan, view: commit.View | None, facts: Facts, decision: Decision) -> None:
    """Raises what can be known to stand in the way of a decision; changes nothing."""
    commit.check_data(store, plan.folder, view or commit.without_log(store, plan.folder))
    if isinstance(decision, PublishRanges | TakeSnapshot):
        what = _next(decision)
        columns = _columns(feed, plan, view, facts, _end(what))
        feed.check(what, facts)
    elif view is not None and view.newest is not None:
        columns = view.newest.columns
    else:
        return
    commit.check_metadata(store, plan.folder, plan.metadata(columns))


def _columns(feed: Feed, plan: Plan, view: commit.View | None, facts: Facts, version: int) -> tuple[Column, ...]:
    """The columns to write for what ends at a version; or why they cannot be written."""
    columns = feed.columns(version)
    if view is not None and view.newest is not None:
        before = view.newest.columns
        # A change that breaks the schema is a range of its own.
        drops = facts.commits[0].operation == _DROP
        if drops and not plan.keep_dropped:
            _refuse_drop(plan.source, version, before, columns)
        may_drop = [column.name for column in before if column.name not in plan.keys] if drops else []
        fixed = plan.output.fixes_columns
        columns = evolve(plan.source, version, before, columns, may_drop=may_drop, fixed=fixed)
    check_keys(plan.source, plan.keys, [column for column in columns if not column.dropped])
    check_output(plan.source, plan.output, columns, plan.keys)
    return columns


def _refuse_drop(table: str, version: int, before: Sequence[Column], now: Sequence[Column]) -> None:
    there = {column.name for column in now}
    if gone := [column.name for column in before if not (column.dropped or column.name in there)]:
        raise ColumnsDropped(table, version, gone)


def _stage(
    feed: Feed,
    store: Store,
    plan: Plan,
    view: commit.View,
    facts: Facts,
    what: Range | int,
    now: Callable[[], datetime],
    progress: Progress,
) -> Record:
    version = _end(what)
    columns = _columns(feed, plan, view, facts, version)
    feed.check(what, facts)
    commit.ensure_metadata(store, plan.folder, plan.metadata(columns))
    job = StagingJob(
        store=store,
        folder=f"{plan.folder}/{log_folder(view.log_id)}",
        record_number=view.next_number,
        batch=uuid.uuid4().hex,
        columns=columns,
        keys=plan.keys,
        with_marker=bool(plan.keys) and not isinstance(what, int),
        output=plan.output,
        compression=plan.compression,
        file_size=plan.file_size,
    )
    receipts, bad = feed.stage(what, plan, job)
    progress.retries += sum(receipt.retries for receipt in receipts)
    if bad:
        raise RowsRefused(plan.source, what, bad)
    if plan.output.by_time:
        commit.check_times(store, plan.folder, view, {receipt.staged for receipt in receipts})
    first = view.next_file_number
    files = tuple(
        PublishedFile(receipt.staged, number, receipt.rows, receipt.bytes, receipt.sha256)
        for number, receipt in enumerate(receipts, first)
    )
    return Record(
        number=view.next_number,
        batch=job.batch,
        time=now().isoformat(timespec="milliseconds"),
        source=plan.source,
        source_id=facts.table_id,
        from_version_exclusive=what.from_version_exclusive if isinstance(what, Range) else None,
        to_version_inclusive=version,
        columns=columns,
        keys=plan.keys,
        next_file_number=first + len(files),
        files=files,
        extension=plan.output.extension,
        partitions=facts.partitions,
    )
