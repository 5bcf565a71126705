"""Publish one table in a loop. Each pass publishes at most one snapshot, range or repair.

A pass reads the log and gives the staged files of the newest record their final names. Then it deletes old files,
decides what to publish, stages the files and adds a record to the log.

The source is a protocol (`ChangeSource`), so that tests run the loop without Spark and inject a fault at every call.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, cast

from mirrorfeed.config.model import Table
from mirrorfeed.landing.log_record import FullRead, Record
from mirrorfeed.landing.names import log_folder
from mirrorfeed.landing.selection import source_types
from mirrorfeed.publish.files.staging_job import Staged, StagingJob
from mirrorfeed.publish.next_publication import (
    check_unchanged,
    decide_next,
    decide_repair,
    prepare,
    published_version,
)
from mirrorfeed.publish.publication_errors import publication_errors
from mirrorfeed.publish.table_log import TableLog, metadata_files
from mirrorfeed.publish.table_log.rename_and_clean_up import clean_up, discard, finish_publication
from mirrorfeed.publish.table_log.view import View
from mirrorfeed.publish.table_result import TableResult, add_record
from mirrorfeed.runtime.version import this_build
from mirrorfeed.source.errors import BlockingFinding, SourceRecreated
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


def publish(
    source: ChangeSource,
    store: Store,
    table: Table,
    result: TableResult | None = None,
    on_step: Callable[[TableResult], None] = lambda _: None,
    stop: Callable[[], bool] = lambda: False,
    now: Callable[[], datetime] = lambda: datetime.now(UTC),
    repair_keys: Any = None,
) -> TableResult:
    """Publish all versions that exist at the start or, with `repair_keys`, the rows of these keys again.

    Returns `result`, or a new result if it is None. The result is updated during the run, and passed to `on_step`
    before files are staged and after a log record is added. If `stop` returns True, the run ends after the current
    publication. Raises a subclass of `BlockingFinding` if the source cannot be published, and another `MirrorfeedError`
    for any other failure.

    `repair_keys` is a Spark DataFrame with the key columns and, optionally, the column `DELETE_FIRST`. A repair reads
    the rows of these keys at the published version of the source, and adds one log record.
    """
    log, result, goal = TableLog(store, table.target.folder), result or TableResult(str(table.target)), None
    run, view, repairs = _Run(source, log, table, result, on_step, now), None, repair_keys is not None
    while True:
        view = run.finish(view or (log.read_view() if repairs else log.read_latest()))
        if goal is not None and result.published_version is not None and result.published_version >= goal:
            return result
        # A repair without `lag_versions` belongs to an earlier run. This run only finished its renames.
        if repairs and any(each.is_repair and "lag_versions" in result.measured[each.batch] for each in result.records):
            return result
        if stop():
            return result
        step: tuple[Facts, Decision | KeyRepair | ComparisonStart]
        step = decide_repair(source, table, view, repair_keys) if repairs else decide_next(source, table, view)
        facts, decision = step
        result.latest = None if isinstance(decision, SourceRecreated) else facts.latest
        result.decision = str(decision)
        if isinstance(decision, NothingNew | WithinVersion):
            check_unchanged(log, table, view.newest if view else None)
        else:
            goal = facts.latest if goal is None else goal
            if view and view.newest and facts.commits and not result.records:
                waited = (now() - facts.commits[0].timestamp).total_seconds()
                result.retention_warning = check_retention(str(table.source), facts.properties, waited)
        if isinstance(decision, NothingNew):
            return result
        if view:
            view = log.confirm(view)
            if view is None or view.unfinished:  # the first listing may show a record without its files
                continue
            result.missing_file_warning = log.check(view) or result.missing_file_warning
        if isinstance(decision, BlockingFinding):
            raise decision
        on_step(result)
        what = decision.first if isinstance(decision, PublishRanges) else decision
        with publication_errors(str(table.source), what, facts.commits, table.selection):
            staged = run.stage(view, facts, what)
        if isinstance(staged, NothingNew):
            result.latest, result.decision = staged.version, str(staged)
            return result
        if staged and repairs and not staged[1].files:
            return result
        view = run.commit(*staged) if staged else None


@dataclass
class _Run:
    """One run that publishes one table. The methods are the steps of the run, and update its result `result`."""

    source: ChangeSource
    log: TableLog
    table: Table
    result: TableResult
    on_step: Callable[[TableResult], None]
    now: Callable[[], datetime]

    def commit(self, view: View, record: Record) -> View | None:
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
            self.result.published_version = None
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
        self.result.published_version = view.newest.to_version_inclusive if view.newest else None
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

    def stage(self, view: View | None, facts: Facts, what: Publication) -> tuple[View, Record] | NothingNew | None:
        """Stage the files of a publication, and build its log record. Returns the log and the record to add to the log.

        If `view` is None, creates the log. Returns `NothingNew` if a table with `changes: compare` has no changes.
        Returns None if another publisher has changed the log, or if another table has replaced the source."""
        # `_metadata.json` is written only after the rows have been checked, because Fabric reports a table without data
        # as an error, and published keys can never be changed.
        started, table, source, version = time.monotonic(), self.table, self.source, what.to_version_inclusive
        keys, folder = table.target_keys, self.log.folder
        before = view.newest if view else None
        columns, wanted, described = prepare(source, self.log, table, before, facts, what)
        if view is None:
            view = self.log.confirm(self.log.create_log())
            described = False  # before the log was created, the folder may have been deleted with the file
        if view is None or view.newest != before:
            return None
        job = StagingJob(
            store=self.log.store,
            folder=f"{folder}/{log_folder(view.log_id)}",
            record_number=view.number + 1,
            batch=uuid.uuid4().hex if view.newest else self.log.create_start_marker(view),
            columns=columns,
            keys=keys,
            with_marker=bool(keys) and not isinstance(what, Snapshot),
            output=table.output,
        )
        retries_before = retry_counter().of_thread
        try:
            if isinstance(what, ComparisonStart):
                staged: Staged | None = cast("ComparisonSource", source).store_hashes(what, facts, job)
            else:
                staged = source.stage(what, facts, table, job)
            if staged is None:
                assert before is not None
                return NothingNew(before.to_version_inclusive)
            self.result.differed = staged.differed or self.result.differed
            self.result.source_note = staged.note or self.result.source_note
            if table.output.by_time:
                names = [file.staged for file in staged.files]
                self.log.check_times(view, names, names[len(names) - staged.corrections :])
            if not described:
                metadata_files.ensure(self.log.store, folder, wanted)
            if not source.is_unchanged(facts):
                discard(self.log, view, job.batch)
                return None
        except Exception:
            discard(self.log, view, job.batch)
            raise
        retries = retry_counter().of_thread - retries_before + staged.retries
        first, seconds = view.next_file_number, time.monotonic() - started
        files = tuple(replace(file, number=number) for number, file in enumerate(staged.files, first))
        repaired = published_version(before) if before and isinstance(what, KeyRepair) else None
        committed = repaired.committed if repaired else facts.commit_time(version)
        record = Record(
            number=job.record_number,
            batch=job.batch,
            time=self.now().isoformat(timespec="milliseconds"),
            source=str(table.source),
            source_id=facts.table_id,
            from_version_exclusive=what.from_version_exclusive,
            to_version_inclusive=version,
            columns=columns,
            keys=keys,
            next_file_number=first + len(files),
            files=files,
            extension=table.output.extension,
            partitions=facts.partitions,
            follows=view.reference,
            build=this_build(),
            selection=table.selection,
            source_columns=source_types(source.schema(version, facts)) if table.selection else None,
            committed=None if committed is None else committed.isoformat(timespec="milliseconds"),
            read=None if staged.rows_read is None else FullRead(staged.rows_read, round(seconds, 3)),
        )
        self.result.measured[record.batch] = measured = {
            "stage_seconds": seconds,
            "lag_versions": facts.latest - version,
            "retries": retries,
        }
        if staged.look_up_seconds:
            measured["look_up_seconds"] = staged.look_up_seconds
        if not isinstance(what, WithinVersion):
            measured["lag_seconds"] = max(0.0, (record.at - facts.commits[0].timestamp).total_seconds())
        return view, record
