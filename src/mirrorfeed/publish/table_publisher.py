"""Publish one table: read the state, perform one step, and read the state again.

Steps: finish an earlier publication, clean up, decide, stage files, add a record. The source is behind a protocol, so
that tests run this loop without Spark and with a fault at every call.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from mirrorfeed.config.model import Table
from mirrorfeed.landing.errors import KeysChanged
from mirrorfeed.landing.log_record import FullRead, Record
from mirrorfeed.landing.names import METADATA, log_folder
from mirrorfeed.publish.errors import RowsRefused
from mirrorfeed.publish.files.staging_job import BadRows, StagingJob
from mirrorfeed.publish.next_publication import (
    decide_next,
    decide_repair,
    deselected_columns,
    last_version,
    metadata_of,
    next_columns,
    repair_columns,
)
from mirrorfeed.publish.result import TableResult, add_record, range_errors
from mirrorfeed.publish.table_log import TableLog, metadata_files
from mirrorfeed.publish.table_log.rename_and_clean_up import clean_up, discard, finish_publication
from mirrorfeed.publish.table_log.view import View
from mirrorfeed.runtime.version import this_build
from mirrorfeed.source.errors import Finding, SourceRecreated
from mirrorfeed.source.snapshot_or_range import (
    Decision,
    Facts,
    NothingNew,
    PublishRanges,
    Range,
    Repair,
    TakeSnapshot,
)
from mirrorfeed.source.table_info import check_retention
from mirrorfeed.storage import Store
from mirrorfeed.storage.request_retries import retry_counter

if TYPE_CHECKING:
    from mirrorfeed.publish.sources import ChangeSource


def publish(
    source: ChangeSource,
    store: Store,
    table: Table,
    result: TableResult | None = None,
    on_step: Callable[[TableResult], None] = lambda _: None,
    stop: Callable[[], bool] = lambda: False,
    now: Callable[[], datetime] = lambda: datetime.now(UTC),
    clock: Callable[[], float] = time.monotonic,
    repair_keys: Any = None,
) -> TableResult:
    """Publish all versions up to the newest version at the start. With `repair_keys`, publish the rows of these keys
    again.

    `stop` takes effect between two records, when no file is left to rename. Raises findings and refusals.

    A repair is an ordinary record at the published version. Each key is published as it is in the source at that
    version. So an unnecessary key changes nothing, and the next publication corrects a key that changes in the
    meantime.
    """
    log, result, goal = TableLog(store, table.target.folder), result or TableResult(str(table.target)), None
    run, view, repairs = _Run(source, log, table, result, on_step, now, clock), None, repair_keys is not None
    while True:
        view = run.finish(view or (log.read_view() if repairs else log.read_latest()))
        if goal is not None and result.published_version is not None and result.published_version >= goal:
            return result
        # A repair that this run found and finished belongs to another run.
        if repairs and any(each.is_repair and "lag_versions" in result.measured[each.batch] for each in result.records):
            return result
        if stop():
            return result
        facts: Facts
        decision: Decision | Repair
        if repairs:
            facts, decision = decide_repair(source, table, view, repair_keys)
        else:
            facts, decision = decide_next(source, table, view)
        result.latest = None if isinstance(decision, SourceRecreated) else facts.latest
        result.decision = str(decision)
        if isinstance(decision, NothingNew | Repair):
            run.check_unchanged(view)
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
        if isinstance(decision, Finding):
            raise decision
        on_step(result)
        what: Range | int | Repair
        match decision:
            case TakeSnapshot(version):
                what = version
            case PublishRanges(ranges):
                what = ranges[0]
            case Repair():
                what = decision
        reads = what.version if isinstance(what, Repair) else what
        with range_errors(str(table.source), reads, facts.commits, table.selection):
            try:
                staged = run.stage(view, facts, what)
            except BadRows as error:
                raise RowsRefused(table=str(table.source), range=reads, rows=error.rows) from None
        if isinstance(staged, NothingNew):
            result.latest, result.decision = staged.version, str(staged)
            return result
        if staged and repairs and not staged[1].files:
            return result
        view = run.commit(*staged) if staged else None


@dataclass
class _Run:
    """The steps of publishing a table."""

    source: ChangeSource
    log: TableLog
    table: Table
    result: TableResult
    on_step: Callable[[TableResult], None]
    now: Callable[[], datetime]
    clock: Callable[[], float]

    def commit(self, view: View, record: Record) -> View | None:
        """Add the record. Returns the view after it, or None if the log is gone."""
        started = self.clock()
        self.result.sent[record.batch] = view.log_id, record
        after = self.log.add_record(view, record)
        self.result.measured[record.batch]["record_seconds"] = self.clock() - started
        return after

    def finish(self, view: View | None) -> View | None:
        """Rename the remaining files of the newest publication, report sent records that a view shows, and clean up.

        Returns None if there is no log.
        """
        earlier, started, found = len(self.result.records), self.clock(), view
        if view:
            self._report_sent(view)
            view = finish_publication(self.log, view)
        if view is None:
            self.result.published_version = None
            return None
        self._report_sent(view)
        left = found.newest if found and found.unfinished else None
        if left and left not in self.result.records:  # added by a run that ended before reporting the record
            add_record(self.result, left)
        for record in self.result.records[-1:]:
            self.result.measured.setdefault(record.batch, {}).setdefault("rename_seconds", self.clock() - started)
        # Publishers that were writing when this log was created left folders of other logs. Search for these folders
        # after the records 1, 2, 4, 8 and so on: frequently at first, rarely later.
        others = len(self.result.records) > earlier and view.number & (view.number - 1) == 0
        self.result.cleanup_error = (
            clean_up(self.log, view, self.table.log_retention_records, others=others) or self.result.cleanup_error
        )
        self.result.published_version = view.newest.to_version_inclusive if view.newest else None
        return view

    def _report_sent(self, view: View) -> None:
        """Add records that this or an earlier attempt sent, once a view shows that they are in the log."""
        for batch, (log_id, record) in list(self.result.sent.items()):
            if log_id == view.log_id and record.number > view.number:
                continue  # the creation may still take effect
            del self.result.sent[batch]
            if log_id == view.log_id and view.is_linked and self.log.contains(view, record):
                add_record(self.result, record)
                self.result.decision = ""
                self.on_step(self.result)

    def check_unchanged(self, view: View | None) -> None:
        """Raise an error if the configured keys or the row selection differ from those of the last publication, even if
        there are no new changes."""
        newest = view.newest if view else None
        if newest and newest.keys and newest.keys != self.table.target_keys:
            address = self.log.store.address(f"{self.log.folder}/{METADATA}")
            raise KeysChanged(address=address, published=newest.keys, wanted=self.table.target_keys)
        if newest:
            deselected_columns(self.table, newest)

    def stage(
        self, view: View | None, facts: Facts, what: Range | int | Repair
    ) -> tuple[View, Record] | NothingNew | None:
        """Stage the files, and prepare the record that publishes them.

        Returns None if another table now has the name of the source, or another publisher was first. If no record
        follows, the staged files are deleted.

        Without a view there is no log yet. `_metadata.json` is written only after the rows have been checked: Fabric
        reports a table without data as an error, and keys that do not fit the rows could never be changed.
        """
        started, table, source, version = self.clock(), self.table, self.source, last_version(what)
        keys, folder = table.target_keys, self.log.folder
        before = view.newest if view else None
        if isinstance(what, Repair):
            assert before is not None
            columns = repair_columns(table, before, version)
            source.check(version, facts)
        else:
            columns = next_columns(source, table, before, facts, version)
            source.check(what, facts)
        gets_keys = before and keys and not before.keys and table.validate_keys != "none"
        if before and gets_keys and (bad := source.bad_keys(before.to_version_inclusive, table)):
            raise RowsRefused(table=str(table.source), range=before.to_version_inclusive, rows=bad)
        wanted = metadata_of(table, columns)
        described = metadata_files.check(self.log.store, folder, wanted)
        view = view or self.log.confirm(self.log.create_log())
        if view is None or view.newest != before:
            return None
        job = StagingJob(
            store=self.log.store,
            folder=f"{folder}/{log_folder(view.log_id)}",
            record_number=view.number + 1,
            batch=uuid.uuid4().hex if view.newest else self.log.create_start_marker(view),
            columns=columns,
            keys=keys,
            with_marker=bool(keys) and not isinstance(what, int),
            output=table.output,
        )
        repeated = retry_counter().of_thread
        try:
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
                metadata_files.ensure(self.log.store, folder, wanted, first=view.newest is None)
            same = source.is_unchanged(facts)
        except Exception:
            discard(self.log, view, job.batch)
            raise
        if not same:
            discard(self.log, view, job.batch)
            return None
        repeated = retry_counter().of_thread - repeated
        first, seconds = view.next_file_number, self.clock() - started
        files = tuple(replace(file, number=number) for number, file in enumerate(staged.files, first))
        optional: dict[str, Any] = {}
        if selection := table.selection:
            columns_then = source.source_columns(version, facts)
            optional = {"selection": selection, "source_columns": columns_then}
        if staged.rows_read is not None:
            optional["read"] = FullRead(staged.rows_read, round(seconds, 3))
        record = Record(
            number=job.record_number,
            batch=job.batch,
            time=self.now().isoformat(timespec="milliseconds"),
            source=str(table.source),
            source_id=facts.table_id,
            from_version_exclusive=None if isinstance(what, int) else what.from_version_exclusive,
            to_version_inclusive=version,
            columns=columns,
            keys=keys,
            next_file_number=first + len(files),
            files=files,
            extension=table.output.extension,
            partitions=facts.partitions,
            follows=view.reference,
            build=this_build(),
            **optional,
        )
        self.result.measured[record.batch] = measured = {
            "stage_seconds": seconds,
            "lag_versions": facts.latest - version,
            "retries": repeated + staged.retries,
        }
        if staged.look_up_seconds:
            measured["look_up_seconds"] = staged.look_up_seconds
        if not isinstance(what, Repair):
            measured["lag_seconds"] = max(0.0, (record.at - facts.commits[0].timestamp).total_seconds())
        return view, record
