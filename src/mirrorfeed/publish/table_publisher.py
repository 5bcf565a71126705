"""Publish new versions of one table, and the steps of this, which `key_repair` shares.

A publication runs in passes. A pass reads the log and gives the staged files of the newest record their final names.
Then it deletes old files, decides what to publish, stages the files and adds one record to the log.

The source is a protocol (`ChangeSource`), so that tests run the passes without Spark and inject a fault at every call.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, cast

from mirrorfeed.config.model import Table
from mirrorfeed.landing.log_record import PART_FORMAT, FullRead, Record
from mirrorfeed.landing.names import log_folder
from mirrorfeed.landing.schema import Column
from mirrorfeed.landing.selection import source_types
from mirrorfeed.publish.files.staging_job import Staged, StagingJob
from mirrorfeed.publish.next_publication import (
    check_unchanged,
    decide_next,
    prepare,
    published_version,
)
from mirrorfeed.publish.table_log import TableLog, metadata_files
from mirrorfeed.publish.table_log.rename_and_clean_up import clean_up, discard, finish_publication
from mirrorfeed.publish.table_log.view import View
from mirrorfeed.publish.table_result import TableResult, add_record
from mirrorfeed.runtime.version import this_build
from mirrorfeed.source.errors import PublicationBlockedError, SourceRecreatedError
from mirrorfeed.source.snapshot_or_range import (
    ComparisonStart,
    Decision,
    Facts,
    KeyRepair,
    NothingNew,
    Publication,
    PublishRanges,
    Snapshot,
    WithinVersion,
)
from mirrorfeed.source.table_info import check_retention
from mirrorfeed.storage import Store
from mirrorfeed.storage.request_retries import retry_counter

if TYPE_CHECKING:
    from mirrorfeed.publish.change_sources import ChangeSource, ComparisonSource


OnStep = Callable[[TableResult], None]
"""Function that is called with the result before files are staged, and after a log record is added."""


def publish(
    source: ChangeSource,
    store: Store,
    table: Table,
    result: TableResult | None = None,
    on_step: OnStep = lambda _: None,
    stop: Callable[[], bool] = lambda: False,
) -> TableResult:
    """Publish all versions that exist at the start.

    Returns `result`, or a new result if it is None. The result is updated during the run. If `stop` returns True, the
    run ends after the current publication. Raises a subclass of `PublicationBlockedError` if the source cannot be
    published, and another `MirrorfeedError` for any other failure.
    """
    run = Run(source, store, table, result, on_step)
    view = goal = None
    while not run.is_done:
        view = run.finish(view or run.log.read_latest())
        if run.has_published(goal) or stop():
            break
        facts, decision = decide_next(source, table, view)
        run.check(view, facts, decision)
        if isinstance(decision, NothingNew):
            break
        if goal is None and not isinstance(decision, ComparisonStart):  # whose versions are not those of the source
            goal = facts.latest
        view = run.carry_out(view, facts, decision)
    return run.result


class Run:
    """One run that publishes one table. The methods are the steps of the run, and update its result `result`."""

    def __init__(
        self, source: ChangeSource, store: Store, table: Table, result: TableResult | None, on_step: OnStep
    ) -> None:
        self.source, self.table, self.on_step = source, table, on_step
        self.log, self.result = TableLog(store, table.target.folder), result or TableResult(str(table.target))
        self.is_done = False
        """True after the rows were read and there was nothing to publish."""

    def has_published(self, goal: int | None) -> bool:
        published = self.result.published_version
        return goal is not None and published is not None and published >= goal

    def check(self, view: View | None, facts: Facts, decision: Decision | KeyRepair | ComparisonStart) -> None:
        """Show a decision in the result. If it publishes no new version, check keys and selection. Otherwise check that
        the source keeps its changes for long enough."""
        result, table, newest = self.result, self.table, view.newest if view else None
        result.latest = None if isinstance(decision, SourceRecreatedError) else facts.latest
        result.decision = str(decision)
        if isinstance(decision, NothingNew | WithinVersion):
            check_unchanged(self.log, table, newest)
        elif newest and facts.commits and not result.records:
            waited = (utc_now() - facts.commits[0].timestamp).total_seconds()
            result.retention_warning = check_retention(str(table.source), facts.properties, waited)
            if isinstance(decision, PublishRanges):
                from mirrorfeed.publish.rebuild_hint import rebuild_hint  # imported late: not all runs have ranges

                result.rebuild_hint = rebuild_hint(table, facts, decision)

    def carry_out(
        self,
        view: View | None,
        facts: Facts,
        decision: Snapshot | PublishRanges | KeyRepair | ComparisonStart | PublicationBlockedError,
    ) -> View | None:
        """Raise the error in `decision`, or stage its first publication and record it. The next pass renames the files.

        Returns the log for the next pass, or None if the next pass must read the log."""
        if view:
            view = self.log.confirm(view)
            if view is None or view.unfinished:  # the first listing may show a record without its files
                return view
            self.result.missing_file_warning = self.log.check(view) or self.result.missing_file_warning
        if isinstance(decision, PublicationBlockedError):
            raise decision
        self.on_step(self.result)
        what: Publication = decision.first if isinstance(decision, PublishRanges) else decision
        try:
            staged = self.stage(view, facts, what)
        except Exception:
            from mirrorfeed.publish.publication_errors import publication_errors  # imported late: few publications fail

            with publication_errors(str(self.table.source), what, facts.commits, self.table.selection):
                raise
        return self.record(*staged) if staged else None

    def stage(self, view: View | None, facts: Facts, what: Publication) -> tuple[View, Record] | None:
        """Stage the files of a publication, and build its log record. Returns the log and the record to add to the log.

        If `view` is None, creates the log. Returns None if there is nothing to publish, if another publisher has
        changed the log, or if another table has replaced the source."""
        started, before = time.monotonic(), view.newest if view else None
        columns, metadata, is_described = prepare(self.source, self.log, self.table, before, facts, what)
        if view is None:
            view = self.log.confirm(self.log.create_log())
            is_described = False  # before the log was created, the folder may have been deleted with the file
            if view:
                self.log.check(view)  # an adoption creates the log of a folder that has files
        if view is None or view.newest != before:
            return None
        job = self._job(view, columns, what)
        retries_before = retry_counter().of_thread
        try:
            if (staged := self._stage_files(view, facts, what, job)) is None:
                return None
            # Only after the rows have been checked, because Fabric reports a table without data as an error, and
            # published keys can never be changed.
            if not is_described:
                metadata_files.ensure(self.log.store, self.log.folder, metadata)
            if not self.source.is_unchanged(facts):
                discard(self.log, view, job.batch)
                return None
            if staged.part and isinstance(what, Snapshot):
                from mirrorfeed.publish.change_sources.load_division import with_published_rows  # few tables are large

                part = with_published_rows(str(self.table.source), what.version, staged.part, staged.files)
                what = replace(what, part=part)
        except Exception:
            discard(self.log, view, job.batch)
            raise
        if isinstance(what, KeyRepair) and not staged.files:
            self.is_done = True
            return None
        retries = retry_counter().of_thread - retries_before + staged.retries
        seconds = time.monotonic() - started
        record = self._new_record(view, facts, what, job, staged, seconds)
        self.result.measured[record.batch] = _measure(what, facts, record, staged, seconds, retries)
        return view, record

    def _job(self, view: View, columns: tuple[Column, ...], what: Publication) -> StagingJob:
        keys = self.table.target_keys
        return StagingJob(
            store=self.log.store,
            folder=f"{self.log.folder}/{log_folder(view.log_id)}",
            record_number=view.number + 1,
            batch=uuid.uuid4().hex if view.newest else self.log.create_start_marker(view),
            columns=columns,
            keys=keys,
            with_marker=bool(keys) and not isinstance(what, Snapshot) and not self.table.delivery.appends,
            output=self.table.output,
            delivery=self.table.delivery,
        )

    def _stage_files(self, view: View, facts: Facts, what: Publication, job: StagingJob) -> Staged | None:
        """Stage the files of a publication. Returns None if a comparison found no changes."""
        if isinstance(what, ComparisonStart):
            staged: Staged | None = cast("ComparisonSource", self.source).store_hashes(what, facts, job)
        else:
            staged = self.source.stage(what, facts, self.table, job)
        if staged is None:
            assert view.newest is not None
            nothing_new = NothingNew(view.newest.to_version_inclusive)
            self.result.latest, self.result.decision, self.is_done = nothing_new.version, str(nothing_new), True
            return None
        self.result.differed = staged.differed or self.result.differed
        self.result.source_note = staged.note or self.result.source_note
        if self.table.output.by_time:
            names = [file.staged for file in staged.files]
            self.log.check_times(view, names, names[len(names) - staged.corrections :])
        return staged

    def _new_record(
        self, view: View, facts: Facts, what: Publication, job: StagingJob, staged: Staged, seconds: float
    ) -> Record:
        table, version, first = self.table, what.to_version_inclusive, view.next_file_number
        source_id, partitions, committed = facts.table_id, facts.partitions, facts.commit_time(version)
        part = what.part if isinstance(what, Snapshot) else None
        if isinstance(what, KeyRepair) and view.newest:
            committed = published_version(view.newest).committed
        elif part and view.newest:  # the facts are those of a later version
            before = published_version(view.newest)
            source_id, partitions, committed = before.table_id, before.partitions, before.committed
        return Record(
            number=job.record_number,
            batch=job.batch,
            time=utc_now().isoformat(timespec="milliseconds"),
            source=str(table.source),
            source_id=source_id,
            from_version_exclusive=what.from_version_exclusive,
            to_version_inclusive=version,
            columns=job.columns,
            keys=job.keys,
            next_file_number=first + len(staged.files),
            files=tuple(replace(file, number=number) for number, file in enumerate(staged.files, first)),
            extension=table.output.extension,
            partitions=partitions,
            follows=view.reference,
            build=this_build(),
            selection=table.selection,
            source_columns=source_types(self.source.schema(version, facts)) if table.selection else None,
            committed=None if committed is None else committed.isoformat(timespec="milliseconds"),
            key_digest=table.selection.key_digest if table.selection else None,
            delivery=table.delivery,
            read=None if staged.rows_read is None else FullRead(staged.rows_read, round(seconds, 3)),
            load=part,
            format=PART_FORMAT if part else 1,
        )

    def record(self, view: View, record: Record) -> View | None:
        """Add a log record to the table's log. Returns the log after the write, or None if the log was deleted."""
        started = time.monotonic()
        self.result.sent[record.batch] = view.log_id, record
        after = self.log.add_record(view, record)
        self.result.measured[record.batch]["record_seconds"] = time.monotonic() - started
        return after

    def finish(self, view: View | None) -> View | None:
        """Give all staged files of the newest record their final names. Then delete old records and unneeded files.
        Updates `self.result`. Returns the log after the renames, or None if there is no log."""
        earlier, started, renamed = len(self.result.records), time.monotonic(), list[Record]()
        if view:
            self._report_sent(view)
            view = finish_publication(self.log, view, renamed.append)
        if view is None:
            self.result.published_version = self.result.load = None
            return None
        self._report_sent(view)
        for record in renamed:
            if record not in self.result.records:  # added by a run that ended before it renamed all files
                add_record(self.result, record)
        for record in self.result.records[-1:]:
            self.result.measured.setdefault(record.batch, {}).setdefault("rename_seconds", time.monotonic() - started)
        # Publishers that were writing when this log was created may have left folders of other logs. Search for these
        # folders after the records 1, 2, 4, 8 and so on: frequently at first, rarely later.
        others = len(self.result.records) > earlier and view.number & (view.number - 1) == 0
        self.result.cleanup_error = (
            clean_up(self.log, view, self.table.log_retention_records, others=others) or self.result.cleanup_error
        )
        self.result.published_version = view.newest.complete_version if view.newest else None
        self.result.load = view.newest.progress if view.newest else None
        return view

    def _report_sent(self, view: View) -> None:
        """Add the log records in `self.result.sent` to `self.result.records` if the table's log contains them.
        `view` is the state of the table's log after the run tried to add these log records."""
        for batch, (log_id, record) in list(self.result.sent.items()):
            if log_id == view.log_id and record.number > view.number:
                continue  # the creation may still take effect
            del self.result.sent[batch]
            if log_id == view.log_id and view.is_linked and self.log.contains(view, record):
                add_record(self.result, record)
                self.result.decision = ""
                self.on_step(self.result)


def _measure(
    what: Publication, facts: Facts, record: Record, staged: Staged, seconds: float, retries: int
) -> dict[str, Any]:
    """Return the measurements of a record for `TableResult.measured`."""
    measured: dict[str, Any] = {
        "stage_seconds": seconds,
        "lag_versions": facts.latest - record.to_version_inclusive,
        "retries": retries,
    }
    if staged.look_up_seconds:
        measured["look_up_seconds"] = staged.look_up_seconds
    if not (isinstance(what, WithinVersion) or (isinstance(what, Snapshot) and what.continues)):
        measured["lag_seconds"] = max(0.0, (record.at - facts.commits[0].timestamp).total_seconds())
    return measured


def utc_now() -> datetime:
    return datetime.now(UTC)
