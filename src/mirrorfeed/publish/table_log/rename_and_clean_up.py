"""Rename the staged files of the newest record to their final names, and delete files that no publication needs.

The renames make a publication visible to Fabric. They also complete a publication of an earlier run that ended early.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from mirrorfeed.errors import MirrorfeedError
from mirrorfeed.landing import names
from mirrorfeed.publish.errors import concurrent_changes
from mirrorfeed.storage.request_retries import WRITE_ERRORS

if TYPE_CHECKING:
    from mirrorfeed.landing.log_record import Record
    from mirrorfeed.publish.table_log import TableLog
    from mirrorfeed.publish.table_log.view import View

_MIN_RECORDS = 2
"""Minimum number of records to keep. The record before the newest one must exist, so it is never deleted."""


def finish_publication(
    log: TableLog, view: View | None = None, on_rename: Callable[[Record], None] = lambda _: None
) -> View | None:
    """Give the staged files of the newest log record their final names. Returns the log after the renames, or None if
    there is no log. Without `view`, reads the log first. Raises an error if log and files differ, or a rename fails.
    Each time before it renames files, calls `on_rename` with their record."""
    before: tuple[str, ...] = ()
    failure: Exception | None = None
    while view := view or log.read_latest():
        if view.is_linked and not view.unfinished:
            return view
        if not view.confirmed:
            view = log.confirm(view)
            continue
        log.check(view)
        assert view.newest is not None
        staged = tuple(file.staged for file in view.unfinished)
        if staged == before:
            raise failure or concurrent_changes(address=log.store.address(log.folder))
        on_rename(view.newest)
        before, failure, log_path = staged, None, f"{log.folder}/{names.log_folder(view.log_id)}"
        for file in view.unfinished:
            final = f"{log.folder}/{names.published_name(file.number, file.staged)}"
            try:
                log.store.rename(f"{log_path}/{file.staged}", final)
            except WRITE_ERRORS as error:
                failure = error
                break  # never rename a file before the files with lower numbers
        view = log.confirm(view, data=failure is not None)
    return None


def clean_up(log: TableLog, view: View, log_retention_records: int, *, others: bool) -> MirrorfeedError | None:
    """Delete old records, and staged files that can never be published. Returns the first error, or None.
    Keeps the newest `log_retention_records`, and at least two. With `others`, also deletes logs that are not in use."""
    old_records = list(view.records)[: -max(_MIN_RECORDS, log_retention_records)]
    failure = _remove(log, view.log_id, [*view.leftovers(), *map(names.record_name, old_records)])
    try:
        if others:
            _remove_other_logs(log, view.log_id)
    except MirrorfeedError as error:
        failure = failure or error
    return failure


def discard(log: TableLog, view: View, batch: str) -> None:
    """Delete the files of an attempt to publish whose log record was never written. Ignores errors.
    The files are the staged files with the id `batch`, and the empty file that marks the start of a log, if any."""
    with suppress(MirrorfeedError):
        files = [entry.name for entry in log.entries(view.log_id)]
        start_marker = names.start_marker_name(batch)
        _remove(log, view.log_id, [name for name in files if name == start_marker or names.staged_batch(name) == batch])


def _remove(log: TableLog, log_id: str, files: Sequence[str]) -> MirrorfeedError | None:
    failure: MirrorfeedError | None = None
    for name in files:
        try:
            log.store.remove(f"{log.folder}/{names.log_folder(log_id)}/{name}")
        except MirrorfeedError as error:
            failure = failure or error
    return failure


def _remove_other_logs(log: TableLog, log_id: str) -> None:
    folders = [entry.name for entry in log.store.list(f"{log.folder}/{names.LOG}") if entry.is_folder]
    others = [name for name in folders if names.is_log_id(name) and name != log_id]
    # If the table's folder was deleted and created again since `log_id` was read, one of the other logs may be the
    # valid one. A log that existed before `log.json` contained `log_id` never becomes valid again.
    if others and log.current_id() == log_id:
        for name in others:
            folder = f"{log.folder}/{names.log_folder(name)}"
            if all(names.is_log_file(entry.name) and not entry.is_folder for entry in log.store.list(folder)):
                log.store.remove_folder(folder)
