"""The log of a table's publications: create it, read it, and add a record, which commits a publication.

After every write, the log is read again, because a write can succeed although the HTTP client reports an error.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta

from mirrorfeed.errors import TerminalError
from mirrorfeed.landing import names
from mirrorfeed.landing.errors import DamagedFileError
from mirrorfeed.landing.log_record import Record, missing_files, parse
from mirrorfeed.landing.strict_json import parse_json
from mirrorfeed.publish import errors
from mirrorfeed.publish.table_log import metadata_files
from mirrorfeed.publish.table_log.rename_and_clean_up import discard
from mirrorfeed.publish.table_log.view import View, check, marks_in
from mirrorfeed.storage import READ_LIMIT, Entry, Store
from mirrorfeed.storage.errors import PathMissingError, StorageUnavailableError
from mirrorfeed.storage.request_retries import NewFile, retry_new, try_write

_ATTEMPTS = 20
"""Maximum attempts to read or create the log while other publishers change it, before `concurrent_changes` is raised.
"""
_CLOCK_DIFFERENCE = timedelta(minutes=1)
"""Longest time by which the clock of the storage may go back, so that publishing again is worth a try."""


@dataclass
class TableLog:
    """The log of one table. Reads each record only once, because records never change."""

    store: Store
    folder: str
    """Path of the table's folder in the store."""
    _known: dict[tuple[str, int, str], Record] = field(default_factory=dict)
    """Cache of records by log id, record number and ETag."""

    def read_latest(self) -> View | None:
        """Read the newest record and the names of staged files, from one listing. Returns None if there is no log.
        One listing can be wrong. Call `confirm` with the result before you change files or report an error."""
        for _ in range(_ATTEMPTS):
            log_id = self.current_id()
            view = self._view(log_id) if log_id else None
            if view or log_id is None:
                return view
        raise errors.concurrent_changes(address=self._address())

    def confirm(self, view: View, *, data: bool = True) -> View | None:
        """Check a view with a second listing of the log. Returns a copy of `view` that has `confirmed` set to True.

        Returns None if the log records or the log id have changed. If `data` is True, lists the published files again
        for the copy's field `data`. If `data` is False, also returns None if the copy has `empty` staged files.
        """
        if data:
            listed = self.store.list(self.folder)
            files = self._files(listed, processed=view.newest is None)
            view = replace(view, entries=tuple(listed), data=tuple(path for path, _ in files))
        # Use the staged files of the second listing: at that time, the log was certainly valid.
        entries = self.entries(view.log_id)
        if _etags(entries) != view.records or self.current_id() != view.log_id:
            return None
        confirmed = replace(view, staged=_staged(entries), confirmed=True)
        return None if confirmed.empty and not data else confirmed

    def read_view(self) -> View | None:
        """Read the log and the names of published files. Repeats the read until a second listing of the log shows the
        same log records. Returns None if there is no log. Raises `concurrent_changes` if too many attempts fail."""
        for _ in range(_ATTEMPTS):
            view = self.read_latest()
            if view is None or (view := self.confirm(view)):
                return view
        raise errors.concurrent_changes(address=self._address())

    def create_log(self, *, adopts: bool = False) -> View:
        """Create the log and return it. If another publisher creates a log first, returns that log.
        Call this only after a read that found no log. Raises an error if the table's folder has visible files, except
        with `adopts`."""
        # Each attempt sends one request with a new id. A repeated request could create `log.json` again after the
        # table's folder was deleted, and a record could then be added to the deleted log.
        for _ in range(_ATTEMPTS):
            if view := retry_new(self.store, lambda: self._create_log(adopts)):
                return view
        raise errors.concurrent_changes(address=self._address())

    def _create_log(self, adopts: bool) -> View | None:
        """Create `log.json` with one request, and return the log. The file may exist already: then return the log with
        the id in this file. Returns None if the file was deleted before this function read it."""
        if not adopts:
            self.check_unclaimed()
        log_id = uuid.uuid4().hex
        content = json.dumps({"log_id": log_id}).encode()
        failure = try_write(self.store.create_once, f"{self.folder}/{names.LOG_ID}", content)
        if failure is None:
            return View(log_id)  # if the file was not created, `confirm` returns None
        view = self.read_latest()
        if view is None and isinstance(failure, StorageUnavailableError):
            raise failure
        return view

    def check_unclaimed(self) -> None:
        """Raise an error if the table's folder has no `log.json`, but has files that Fabric does not ignore.
        Raises an error also if Fabric has consumed these files and moved them to a subfolder."""
        files = self._all_files()
        # Another publisher that started in the meantime created its log before its files, so the log is found.
        if not files or self.current_id() is not None or self._all_files() != files:
            return
        if lost := self._find_lost_log():
            raise errors.log_id_missing(
                folder=self._address(), log_id=lost[0], number=lost[1].number, time=lost[1].time
            )
        check(View("", data=tuple(path for path, _ in files)), self._address())

    def visible_files(self) -> tuple[str, ...]:
        """Return the names of the files and folders in the table's folder that Fabric does not ignore, and the paths of
        data files that Fabric has moved to a subfolder."""
        return tuple(path for path, _ in self._all_files())

    def check(self, view: View) -> errors.LastFileMissingWarning | None:
        """Check that the log records and the files in `view` match. Returns None if they match.

        `view` must come from `confirm` or `read_view`: they list the log twice, because one listing can be wrong.
        Returns the warning `LastFileMissingWarning` if published files are missing and Fabric may have consumed them.
        Raises `PublishedFilesLostError` if Fabric cannot have consumed the missing files. Raises another error for any
        other mismatch.
        """
        check(view, self._address())
        lost = self.find_lost_files(view)
        if isinstance(lost, errors.PublishedFilesLostError):
            raise lost
        return lost

    def find_lost_files(self, view: View) -> errors.PublishedFilesLostError | errors.LastFileMissingWarning | None:
        """Return an error if published files are missing in `view`, or None if no file is missing.

        Returns `PublishedFilesLostError` if Fabric cannot have consumed the missing files, and `LastFileMissingWarning`
        if Fabric may have consumed them. `view` must come from `confirm` or `read_view`: they list the log twice.
        """
        if not missing_files(view.last_renamed, view.numbers):
            return None
        # A listing is not a snapshot, so a second read decides: before that read, all files up to `view.last_renamed`
        # had their final names. The subfolders of processed files are listed after the table's folder, so a file that
        # Fabric moves in the meantime is found in a subfolder.
        second = self.read_view()
        if second is None or second.log_id != view.log_id:
            return None
        entries = [entry for place in names.PROCESSED for entry in self.store.list(f"{self.folder}/{place}")]
        missing = missing_files(
            view.last_renamed,
            second.numbers,
            [number for entry in entries if (number := names.data_number(entry.name, None))],
            newest_first=self.records(second),
            by_time=metadata_files.is_read_by_time(self.store, self.folder),
        )
        if not missing or self.current_id() != view.log_id:  # the folder may have been deleted after the second read
            return None
        if second.numbers:
            return errors.PublishedFilesLostError(address=self._address(), numbers=missing)
        return errors.LastFileMissingWarning(address=self._address(), numbers=missing)

    def add_record(self, view: View, new: Record) -> View | None:
        """Commit a publication: add the log record `new` to the table's log. Returns the log after the write.

        Checks the returned log with a second listing, like `confirm`. Returns None if the log was deleted. Another
        publisher may have added a record first, so call `contains` to check that the log has `new`. Raises an error if
        the log then still has no record with the number `new.number`, or if the log and the files do not match.
        """
        content = new.to_json()
        if len(content) > READ_LIMIT:
            discard(self, view, new.batch)
            raise errors.too_many_files(address=self._address(), files=len(new.files), mib=READ_LIMIT // 2**20)
        path = f"{self.folder}/{names.log_folder(view.log_id)}/{names.record_name(new.number)}"

        def create() -> None:
            if etag := self.store.create(path, content):
                self._known[view.log_id, new.number, etag] = new  # so that the record is not read again

        failure = try_write(create)
        # The log id was read before the request. `confirm` reads the id again.
        latest = self._view(view.log_id)
        after = self.confirm(replace(latest, data=view.data), data=False) if latest else None
        if (after := after or self.read_view()) is None:
            return None
        if after.log_id == view.log_id and after.number < new.number:
            raise failure or errors.concurrent_changes(address=self._address())
        self.check(after)
        return after

    def create_start_marker(self, view: View) -> str:
        """Create the start marker of a log, an empty file. The first log record is valid only if this file exists.
        Returns the batch id in the name of the start marker. The first log record must have the same batch id."""
        # After the table's folder was deleted, a repeated request can create `log.json` again. Then the start marker is
        # missing, so a first record in the deleted log is not valid.
        folder = f"{self.folder}/{names.log_folder(view.log_id)}"
        with NewFile(self.store, lambda: f"{folder}/{names.start_marker_name(uuid.uuid4().hex)}") as marker:
            return marker.name.partition(".")[0]

    def contains(self, view: View, sent: Record) -> bool:
        """Return whether the log has `sent`. Returns False if another publisher wrote the record of this number."""
        newest = view.newest
        if newest is None or newest.number < sent.number:
            return False
        if newest.number == sent.number:
            return newest.batch == sent.batch
        for record in self.records(view):
            if record.number == sent.number + 1:
                return record.follows is not None and record.follows.batch == sent.batch
        return False  # the next record was deleted as an old record, so `sent` was created too late

    def records(self, view: View) -> Iterator[Record]:
        """Yield the records in `view`, newest first. Stops at a record that was deleted after `view` was read."""
        for number, etag in reversed(list(view.records.items())):
            try:
                yield self._record(view.log_id, number, etag)
            except PathMissingError:  # deleted as an old record in the meantime
                return

    def check_times(self, view: View, staged: Collection[str], corrections: Collection[str] = ()) -> None:
        """Check that the files in `staged` are newer than all published files. Raises `equal_file_times` if they are
        not, and `storage_clock_behind` if a new attempt would fail again for more than a minute.

        The files in `corrections` are also in `staged`. They must be newer than the other files in `staged`, because
        their rows must be applied last. Use this check only if Fabric reads files in the order of modification time.
        """
        # A rename keeps the modification time or makes it later.
        entries = self.store.list(self.folder)
        published = [entry.modified for entry in entries if not entry.is_folder and not names.is_ignored(entry.name)]
        new = {entry.name: entry.modified for entry in self.entries(view.log_id) if entry.name in staged}
        later = [new.pop(name) for name in corrections]
        if published and new and max(published) - min(new.values()) > _CLOCK_DIFFERENCE:
            from mirrorfeed.display.grid import utc_minute

            newest, first = utc_minute(max(published)), utc_minute(min(new.values()))
            raise errors.storage_clock_behind(address=self._address(), published=newest, new=first)
        for before, after in ((published, new.values()), (new.values(), later)):
            if before and after and min(after) <= max(before):
                raise errors.equal_file_times(address=self._address())

    def _view(self, log_id: str) -> View | None:
        """Read a log with one listing. Returns None if one of its two newest records was deleted during the read."""
        entries = self.entries(log_id)
        etags, newest, is_linked = _etags(entries), None, True
        start_markers = tuple(entry.name for entry in entries if names.is_start_marker(entry.name))
        if etags:
            number, etag = max(etags.items())
            try:
                newest = self._record(log_id, number, etag)
                is_linked = self._is_linked(log_id, newest, etags, start_markers)
            except PathMissingError:
                return None
        return View(log_id, newest, etags, is_linked, _staged(entries), start_markers, marks=marks_in(entries))

    def _is_linked(self, log_id: str, newest: Record, etags: dict[int, str], start_markers: Collection[str]) -> bool:
        before = newest.follows
        if before is None:
            return names.start_marker_name(newest.batch) in start_markers
        etag = etags.get(before.number)
        if etag is None:
            return False
        return etag == before.etag or self._record(log_id, before.number, etag).batch == before.batch

    def _record(self, log_id: str, number: int, etag: str) -> Record:
        if (log_id, number, etag) not in self._known:
            path = f"{self.folder}/{names.log_folder(log_id)}/{names.record_name(number)}"
            record = parse(self.store.read(path), self.store.address(path))
            if record.number != number:
                raise DamagedFileError(address=self.store.address(path), reason=f"it is record {record.number}")
            self._known[log_id, number, etag] = record
        return self._known[log_id, number, etag]

    def _find_lost_log(self) -> tuple[str, Record] | None:
        """Return id and newest record of the log with the latest publication, without reading `log.json`.
        Returns None if the folder has no log with a record that can be read."""
        logs: list[tuple[str, Record]] = []
        for entry in self.store.list(f"{self.folder}/{names.LOG}"):
            if entry.is_folder and names.is_log_id(entry.name):
                with suppress(TerminalError):  # skip logs that cannot be read
                    if (view := self._view(entry.name)) and view.newest:
                        logs.append((entry.name, view.newest))
        return max(logs, key=lambda log: log[1].at, default=None)

    def _all_files(self) -> list[tuple[str, str]]:
        return self._files(self.store.list(self.folder), processed=True)

    def _files(self, entries: Sequence[Entry], *, processed: bool) -> list[tuple[str, str]]:
        """Return the names and ETags of those `entries` of the table's folder that Fabric does not ignore.
        If `processed` is True, also returns the data files that Fabric has consumed and moved to a subfolder. For
        these files, the name includes the subfolder (`_ProcessedFiles/…`), and the ETag is an empty text."""
        files = [(entry.name, entry.etag) for entry in entries if not names.is_ignored(entry.name)]
        for place in [entry.name for entry in entries if processed and entry.is_folder]:
            if place in names.PROCESSED:
                moved = self.store.list(f"{self.folder}/{place}")
                files += [(f"{place}/{entry.name}", "") for entry in moved if names.data_number(entry.name, None)]
        return files

    def current_id(self) -> str | None:
        """Return the log id in `log.json`, or None if there is no such file."""
        path = f"{self.folder}/{names.LOG_ID}"
        try:
            value = parse_json(self.store.read(path))
        except PathMissingError:
            return None
        except ValueError as error:
            raise DamagedFileError(address=self.store.address(path), reason=str(error)) from error
        log_id = value.get("log_id") if isinstance(value, dict) else None
        if not (isinstance(log_id, str) and names.is_log_id(log_id)):
            raise DamagedFileError(address=self.store.address(path), reason="it does not contain a log id")
        return log_id

    def entries(self, log_id: str) -> list[Entry]:
        """Return the files in the folder of a log, for example records and staged files."""
        return [entry for entry in self.store.list(f"{self.folder}/{names.log_folder(log_id)}") if not entry.is_folder]

    def _address(self) -> str:
        return self.store.address(self.folder)


def _etags(entries: list[Entry]) -> dict[int, str]:
    return {number: entry.etag for entry in entries if (number := names.record_number(entry.name)) is not None}


def _staged(entries: list[Entry]) -> dict[str, int]:
    return {entry.name: entry.size for entry in entries if names.staged_record_number(entry.name)}
