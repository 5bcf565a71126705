"""One table's publication: look, finish, tidy, decide, stage, record, and again until nothing is left to do.

The source is behind a port, so that this loop can be tried with every fault of every call and without Spark.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from mirrorfeed.landing.metadata_files import KeysChanged
from mirrorfeed.landing.names import METADATA, log_folder
from mirrorfeed.landing.record import READ_WHOLE, SELECTED, PublishedFile, Record, WholeRead
from mirrorfeed.publish.columns import as_before, columns_of, no_longer_selected
from mirrorfeed.publish.errors import RowsRefused
from mirrorfeed.publish.files.staging_job import BadRow, StagedFile, StagingJob
from mirrorfeed.publish.log import metadata_files
from mirrorfeed.publish.log.table_log import TableLog
from mirrorfeed.publish.log.view import View
from mirrorfeed.publish.plan import Plan
from mirrorfeed.publish.result import Progress, Publication
from mirrorfeed.publish.sources.base import ChangeSource, Repair
from mirrorfeed.publish.unexpected import unknown_faults
from mirrorfeed.runtime.version import this_build
from mirrorfeed.source.errors import Finding
from mirrorfeed.source.ranges import Decision, Facts, NothingNew, Published, PublishRanges, Range, TakeSnapshot, decide
from mirrorfeed.source.retention import check_retention
from mirrorfeed.storage import Store


def publish(
    feed: ChangeSource,
    store: Store,
    plan: Plan,
    progress: Progress | None = None,
    on_step: Callable[[Progress], None] = lambda _: None,
    now: Callable[[], datetime] = lambda: datetime.now(UTC),
    clock: Callable[[], float] = time.monotonic,
    stop: Callable[[], bool] = lambda: False,
) -> Progress:
    """Publishes all versions up to the one that is the newest when it begins, or until it is to stop, which it does
    between two records with nothing left to rename; raises findings and refusals."""
    run = TablePublisher(feed, TableLog(store, plan.folder), plan, progress or Progress(), on_step, now, clock, stop)
    run.publish()
    return run.progress


@dataclass
class TablePublisher:
    """One run for one table: the steps of a publication, which a repair takes as well."""

    feed: ChangeSource
    log: TableLog
    plan: Plan
    progress: Progress
    on_step: Callable[[Progress], None]
    now: Callable[[], datetime] = lambda: datetime.now(UTC)
    clock: Callable[[], float] = time.monotonic
    stop: Callable[[], bool] = lambda: False

    def publish(self) -> None:
        log, plan, progress = self.log, self.plan, self.progress
        view: View | None = None
        goal: int | None = None
        while True:
            view = self.finish(view or log.read_latest())
            if goal is not None and progress.published is not None and progress.published >= goal:
                return
            if self.stop():
                return
            facts, decision = decide_next(self.feed, plan, view)
            goal = facts.latest if goal is None else goal
            progress.latest = facts.latest
            progress.decision = str(decision)
            if view and view.newest and facts.commits and not progress.made:
                waited = (self.now() - facts.commits[0].timestamp).total_seconds()
                progress.short = check_retention(plan.source, facts.properties, waited)
            if isinstance(decision, NothingNew):
                self.check_unchanged(view)
                return
            if view:
                view = log.confirm(view)
                if view is None or view.unfinished:  # the first listing may show a record without its files
                    continue
                progress.last_gone = log.check(view) or progress.last_gone
            if isinstance(decision, Finding):
                raise decision
            self.on_step(progress)
            what = _next(decision)
            with unknown_faults(plan.source, what, facts.commits, plan.selection):
                staged = self.stage(view, facts, what)
            if isinstance(staged, NothingNew):
                progress.latest, progress.decision = staged.version, str(staged)
                return
            view = self.send(*staged) if staged else None

    def send(self, view: View, publication: Publication) -> View | None:
        """The commit; what a look after it shows, or None if the log is gone."""
        begun = self.clock()
        self.progress.sent[publication.record.batch] = view.log_id, publication
        after = self.log.add_record(view, publication.record)
        publication.seconds["record"] = self.clock() - begun
        return after

    def finish(self, view: View | None) -> View | None:
        """Tells what was sent, once a look shows it; renames what is left of the newest publication, and tidies. None
        if there is no log."""
        made, begun, found = len(self.progress.made), self.clock(), view
        if view:
            self._tell(view)
            view = self.log.finish_publication(view)
        if view is None:
            self.progress.published = None
            return None
        self._tell(view)
        left = found.newest if found and found.unfinished else None
        if left and all(each.record != left for each in self.progress.made):
            self.progress.add(Publication(left, None, None, {}))  # of a run that did not live to tell
        for publication in self.progress.made[-1:]:
            publication.seconds.setdefault("rename", self.clock() - begun)
        others = len(self.progress.made) > made and _looks_for_others(view.number)
        self.progress.untidy = (
            self.log.clean_up(view, self.plan.log_retention_records, others=others) or self.progress.untidy
        )
        self.progress.published = view.newest.to_version_inclusive if view.newest else None
        return view

    def _tell(self, view: View) -> None:
        """Adds what was sent, in this try or an earlier one, once a look shows that it is in the log."""
        for batch, (log_id, publication) in list(self.progress.sent.items()):
            if log_id == view.log_id and publication.record.number > view.number:
                continue  # its creation may still take effect
            del self.progress.sent[batch]
            if log_id == view.log_id and view.follows_on and self.log.holds(view, publication.record):
                self.progress.add(publication)
                self.progress.decision = ""
                self.on_step(self.progress)

    def check_unchanged(self, view: View | None) -> None:
        """Keys that changed, or which rows are selected, are refused also while nothing is new."""
        newest = view.newest if view else None
        if newest and newest.keys and newest.keys != self.plan.keys:
            address = self.log.store.address(f"{self.plan.folder}/{METADATA}")
            raise KeysChanged(address, newest.keys, self.plan.keys)
        if newest:
            no_longer_selected(self.plan.source, newest, self.plan.selection)

    def stage(
        self, view: View | None, facts: Facts, what: Range | int | Repair
    ) -> tuple[View, Publication] | NothingNew | None:
        """Writes the files, and the record that would publish them; None if another table took the source's name,
        perhaps before its rows were read, or another publisher was first. What was staged is removed where no record is
        to be sent.

        Without a view there is no log yet. To the service a table without data is a fault, so `_metadata.json` is made
        once the rows are known to be good; nor are keys, which never change, set for rows that they do not fit.
        """
        begun, plan, version = self.clock(), self.plan, _end(what)
        before = view.newest if view else None
        if isinstance(what, Repair):
            assert before is not None
            columns = as_before(plan, before, version)
            self.feed.check(version, facts)
        else:
            columns = columns_of(self.feed, plan, before, facts, version)
            self.feed.check(what, facts)
        if before and plan.keys and not before.keys and plan.validate_keys != "none":
            self._refuse(before.to_version_inclusive, self.feed.bad_keys(before.to_version_inclusive, plan))
        wanted = plan.metadata(columns)
        described = metadata_files.check(self.log.store, plan.folder, wanted)
        view = view or self.log.confirm(self.log.begin())
        if view is None or view.newest != before:
            return None
        job = StagingJob(
            store=self.log.store,
            folder=f"{plan.folder}/{log_folder(view.log_id)}",
            record_number=view.number + 1,
            batch=uuid.uuid4().hex if view.newest else self.log.mark_beginning(view),
            columns=columns,
            keys=plan.keys,
            with_marker=bool(plan.keys) and not isinstance(what, int),
            output=plan.output,
            compression=plan.compression,
            target_file_size=plan.target_file_size,
        )
        try:
            receipts = self._receipts(what, job)
            if receipts is None:
                assert before is not None
                return NothingNew(before.to_version_inclusive)
            if plan.output.by_time:
                corrections = {receipt.staged for receipt in receipts if receipt.corrects}
                self.log.check_times(view, {receipt.staged for receipt in receipts}, corrections)
            if not described:
                metadata_files.ensure(self.log.store, plan.folder, wanted, first=view.newest is None)
            same = self.feed.is_as(facts)
        except Exception:
            self.log.discard(view, job.batch)
            raise
        if not same:
            self.log.discard(view, job.batch)
            return None
        first = view.next_file_number
        files = tuple(
            PublishedFile(receipt.staged, number, receipt.rows, receipt.bytes, receipt.sha256)
            for number, receipt in enumerate(receipts, first)
        )
        seconds, rows = {"stage": self.clock() - begun}, self.feed.rows_read()
        if looked_up := self.feed.look_up_seconds():
            seconds["look_up"] = looked_up
        record = Record(
            number=job.record_number,
            batch=job.batch,
            time=self.now().isoformat(timespec="milliseconds"),
            source=plan.source,
            source_id=facts.table_id,
            from_version_exclusive=_begin(what),
            to_version_inclusive=version,
            columns=columns,
            keys=plan.keys,
            next_file_number=first + len(files),
            files=files,
            extension=plan.output.extension,
            partitions=facts.partitions,
            follows=self.log.follows(view),
            build=this_build(),
            **_selected(self.feed, plan, version),
            **_read(rows, seconds["stage"]),
        )
        oldest = None if isinstance(what, Repair) else facts.commits[0].timestamp
        retries = sum(receipt.retries for receipt in receipts)
        return view, Publication(record, oldest, facts.latest, seconds, retries)

    def _receipts(self, what: Range | int | Repair, job: StagingJob) -> Sequence[StagedFile] | None:
        feed, plan = self.feed, self.plan
        staged = feed.stage_again(what, plan, job) if isinstance(what, Repair) else feed.stage(what, plan, job)
        if staged is None:
            return None
        receipts, bad = staged
        self.progress.retries += sum(receipt.retries for receipt in receipts)
        self.progress.differed = next((each.differed for each in receipts if each.differed), self.progress.differed)
        self._refuse(what.version if isinstance(what, Repair) else what, bad)
        return receipts

    def _refuse(self, what: Range | int, bad: Sequence[BadRow]) -> None:
        if bad:
            raise RowsRefused(table=self.plan.source, range=what, rows=bad)


def decide_next(feed: ChangeSource, plan: Plan, view: View | None) -> tuple[Facts, Decision]:
    """What would be published next; changes nothing."""
    newest = view.newest if view else None
    published = Published(newest.source_id, newest.to_version_inclusive, newest.partitions) if newest else None
    facts = feed.facts(published.version if published else None, plan.max_versions_per_publication)
    return facts, decide(plan.source, published, facts, plan.max_versions_per_publication)


def _looks_for_others(number: int) -> bool:
    """Whether folders of other logs are looked for after a record: they are left by publishers that were writing when
    this log was begun, so at first often, and later hardly ever. After the records 1, 2, 4, 8 and so on."""
    return number & (number - 1) == 0


def _next(decision: TakeSnapshot | PublishRanges) -> Range | int:
    return decision.ranges[0] if isinstance(decision, PublishRanges) else decision.version


def _begin(what: Range | int | Repair) -> int | None:
    """A repair publishes no new version."""
    if isinstance(what, Range):
        return what.from_version_exclusive
    return what.version if isinstance(what, Repair) else None


def _end(what: Range | int | Repair) -> int:
    if isinstance(what, Range):
        return what.to_version_inclusive
    return what.version if isinstance(what, Repair) else what


def check_snapshot(feed: ChangeSource, plan: Plan) -> None:
    """Raises what in the source would stand in the way of a first publication."""
    facts, decision = decide_next(feed, plan, None)
    if isinstance(decision, Finding):
        raise decision
    columns_of(feed, plan, None, facts, facts.latest)
    feed.check(facts.latest, facts)


def preflight(
    feed: ChangeSource, store: Store, plan: Plan, view: View | None, facts: Facts, decision: Decision
) -> None:
    """Raises what can be known to stand in the way of a decision; changes nothing."""
    log = TableLog(store, plan.folder)
    if view:
        log.check(view)
    else:
        log.check_unclaimed()
    if isinstance(decision, PublishRanges | TakeSnapshot):
        what = _next(decision)
        columns = columns_of(feed, plan, view.newest if view else None, facts, _end(what))
        feed.check(what, facts)
    elif view is not None and view.newest is not None:
        columns = view.newest.columns
        no_longer_selected(plan.source, view.newest, plan.selection)
    else:
        return
    metadata_files.check(store, plan.folder, plan.metadata(columns))


def _read(rows: int | None, seconds: float) -> dict[str, Any]:
    """What a record says of it where all of the source was read."""
    return {} if rows is None else {"read": WholeRead(rows, round(seconds, 3)), "format": READ_WHOLE}


def _selected(feed: ChangeSource, plan: Plan, version: int) -> dict[str, Any]:
    """What a record says of what is selected; nothing where that is all."""
    if plan.selection is None:
        return {}
    return {"selection": plan.selection, "source_columns": feed.source_columns(version), "format": SELECTED}
