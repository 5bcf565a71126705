"""The log of a table: read the table's state, and add a record, which commits a publication.

The response of a write is never trusted. Clients repeat requests on their own, so a write that succeeded may be
reported as failed, and a lost response shows nothing. Only the next read shows the state.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace

from mirrorfeed.errors import Terminal
from mirrorfeed.landing import names
from mirrorfeed.landing.errors import DamagedFile
from mirrorfeed.landing.log_record import Record, missing_files, parse
from mirrorfeed.landing.strict_json import parse_json
from mirrorfeed.publish import errors
from mirrorfeed.publish.table_log import metadata_files
from mirrorfeed.publish.table_log.rename_and_clean_up import discard
from mirrorfeed.publish.table_log.view import View, check, published_names
from mirrorfeed.storage import READ_LIMIT, Entry, Store
from mirrorfeed.storage.errors import NotThere, StoreUnavailable
from mirrorfeed.storage.request_retries import open_new, retry_new, try_write

_ATTEMPTS = 20
"""Maximum number of reads while other publishers change the table. After that, the run fails, and a later run
continues."""


@dataclass
class TableLog:
    """The log in a table's folder. Records never change, so each is read once."""

    store: Store
    folder: str
    _known: dict[tuple[str, int, str], Record] = field(default_factory=dict)
    """Records by log id, number and ETag."""

    def read_latest(self) -> View | None:
        """Read the newest record and the staged files. Returns None if there is no log.

        This is sufficient to find that there is nothing to do. Call `confirm` before you change or refuse anything.
        """
        for _ in range(_ATTEMPTS):
            log_id = self.current_id()
            view = self._view(log_id) if log_id else None
            if view or log_id is None:
                return view
        raise errors.ConcurrentChanges(address=self._address())

    def confirm(self, view: View, *, data: bool = True) -> View | None:
        """Read the log again, and return the view with the staged files and, with `data`, the published files.

        Returns None if the log changed since the first read, however long ago. Without `data`, also returns None if a
        staged file is empty, because only the published files show the reason.
        """
        if data:
            entries = self.store.list(self.folder)
            processed = () if view.newest else self._processed(entries)
            view = replace(view, data=published_names(entries), processed=processed)
        # Use the staged files of the second listing: at that time, the log was certainly valid.
        entries = self.entries(view.log_id)
        if _etags(entries) != view.records or self.current_id() != view.log_id:
            return None
        confirmed = replace(view, staged=_staged(entries), confirmed=True)
        return None if confirmed.empty and not data else confirmed

    def read_view(self) -> View | None:
        """Read and confirm the state without changes. Returns None if there is no log."""
        for _ in range(_ATTEMPTS):
            view = self.read_latest()
            if view is None or (view := self.confirm(view)):
                return view
        raise errors.ConcurrentChanges(address=self._address())

    def create_log(self) -> View:
        """Create the log if no other publisher uses the folder. Call this method only if a read has shown no log.

        Each attempt has a new id and sends one request. A repeated request could restore the id after the folder was
        deleted, while its publisher is about to add a record.
        """
        for _ in range(_ATTEMPTS):
            if view := retry_new(self.store, self._create_log):
                return view
        raise errors.ConcurrentChanges(address=self._address())

    def _create_log(self) -> View | None:
        """Create `log.json` once. Returns None if another publisher's log existed first and is gone again."""
        self.check_unclaimed()
        log_id = uuid.uuid4().hex
        content = json.dumps({"log_id": log_id}).encode()
        failure = try_write(self.store.create_once, f"{self.folder}/{names.LOG_ID}", content)
        if failure is None:
            return View(log_id)  # if the response is wrong, `confirm` fails
        view = self.read_latest()
        if view is None and isinstance(failure, StoreUnavailable):
            raise failure
        return view

    def check_unclaimed(self) -> None:
        """Raise an error if a folder without a log has data files, of another publisher or of a lost log."""
        files = self._files()
        # If another publisher started in the meantime, its log is older than all of its files.
        if not files or self.current_id() is not None or self._files() != files:
            return
        if lost := self._find_lost_log():
            raise errors.LogIdMissing(folder=self._address(), log_id=lost[0], number=lost[1].number, time=lost[1].time)
        data = tuple(path for path, _ in files if "/" not in path)
        processed = tuple(path for path, _ in files if "/" in path)
        check(View("", data=data, processed=processed), self._address())

    def check(self, view: View) -> errors.LastFileMissing | None:
        """Raise an error if the files do not match the log. Returns a warning that does not stop the publication."""
        check(view, self._address())
        lost = self.find_lost_files(view)
        if isinstance(lost, errors.FilesLost):
            raise lost
        return lost

    def find_lost_files(self, view: View) -> errors.FilesLost | errors.LastFileMissing | None:
        """Find published files that are missing although Fabric may not have consumed them.

        Makes requests only if the confirmed view suggests missing files. A listing is not a snapshot, so a second read
        decides: before that read, all files up to `view.last_renamed` had their final names. Processed files are listed
        after data files, so a file that Fabric moves in the meantime is listed among them.
        """
        if not missing_files(view.last_renamed, view.numbers).numbers:
            return None
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
        if not missing.numbers:
            return None
        error = errors.FilesLost if missing.lost else errors.LastFileMissing
        return error(address=self._address(), numbers=missing.numbers)

    def add_record(self, view: View, new: Record) -> View | None:
        """Create the record, which is the commit, and read the state to see which publisher's record is the newest.

        Returns None if the log is gone. Raises an error if no record with the number exists: no publisher made
        progress, and staging again could repeat this forever.
        """
        if len(new.to_json()) > READ_LIMIT:
            discard(self, view, new.batch)
            raise errors.TooManyFiles(address=self._address(), files=len(new.files), mib=READ_LIMIT // 2**20)
        path = f"{self.folder}/{names.log_folder(view.log_id)}/{names.record_name(new.number)}"
        failure = try_write(self._create_record, view.log_id, path, new)
        # The log id was read before the request. `confirm` reads the id again.
        latest = self._view(view.log_id)
        after = self.confirm(replace(latest, data=view.data), data=False) if latest else None
        if (after := after or self.read_view()) is None:
            return None
        if after.log_id == view.log_id and after.number < new.number:
            raise failure or errors.ConcurrentChanges(address=self._address())
        self.check(after)
        return after

    def create_start_marker(self, view: View) -> str:
        """Create an empty file with one request, before files are staged for a first record. Returns the batch id.

        If the folder is deleted later, the record is invalid, even if a repeated request restores `log.json`.
        """
        folder = f"{self.folder}/{names.log_folder(view.log_id)}"
        path, file = open_new(self.store, lambda: f"{folder}/{names.start_marker_name(uuid.uuid4().hex)}")
        file.close()
        return path.rpartition("/")[2].partition(".")[0]

    def contains(self, view: View, sent: Record) -> bool:
        """Return whether the log contains this record, and not another publisher's record with the same number."""
        newest = view.newest
        if newest is None or newest.number < sent.number:
            return False
        if newest.number == sent.number:
            return newest.batch == sent.batch
        for record in self.records(view):
            if record.number == sent.number + 1:
                return record.follows is not None and record.follows.batch == sent.batch
        return False  # the next record was pruned, so a record with this number was created too late

    def records(self, view: View) -> Iterator[Record]:
        """Read the stored records in descending order."""
        for number, etag in reversed(list(view.records.items())):
            try:
                yield self._record(view.log_id, number, etag)
            except NotThere:  # pruned in the meantime
                return

    def check_times(self, view: View, staged: Collection[str], corrections: Collection[str] = ()) -> None:
        """Raise an error unless the order of modification times is the order in which Fabric must read the files.

        Staged files must be younger than all files that Fabric may still read, and corrections younger than the other
        staged files. A rename keeps the time or makes it later.
        """
        entries = self.store.list(self.folder)
        published = [entry.modified for entry in entries if not entry.is_folder and not names.is_ignored(entry.name)]
        new = {entry.name: entry.modified for entry in self.entries(view.log_id) if entry.name in staged}
        later = [new.pop(name) for name in corrections]
        for before, after in ((published, new.values()), (new.values(), later)):
            if before and after and min(after) <= max(before):
                raise errors.EqualFileTimes(address=self._address())

    def _view(self, log_id: str) -> View | None:
        """Return the view of a log from one listing, or None if its newest records were deleted in the meantime."""
        entries = self.entries(log_id)
        etags, newest, is_linked = _etags(entries), None, True
        start_markers = tuple(entry.name for entry in entries if names.is_start_marker(entry.name))
        if etags:
            number, etag = max(etags.items())
            try:
                newest = self._record(log_id, number, etag)
                is_linked = self._is_linked(log_id, newest, etags, start_markers)
            except NotThere:
                return None
        return View(log_id, newest, etags, is_linked, _staged(entries), start_markers)

    def _create_record(self, log_id: str, path: str, new: Record) -> None:
        """Create the record, and remember its content by its ETag, so that the record need not be read."""
        if etag := self.store.create(path, new.to_json()):
            self._known[log_id, new.number, etag] = new

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
                raise DamagedFile(address=self.store.address(path), reason=f"it is record {record.number}")
            self._known[log_id, number, etag] = record
        return self._known[log_id, number, etag]

    def _find_lost_log(self) -> tuple[str, Record] | None:
        """Return the id and the newest record of the log with the latest publication. For a missing `log.json`."""
        logs: list[tuple[str, Record]] = []
        for entry in self.store.list(f"{self.folder}/{names.LOG}"):
            if entry.is_folder and names.is_log_id(entry.name):
                with suppress(Terminal):  # skip logs that cannot be read
                    if (view := self._view(entry.name)) and view.newest:
                        logs.append((entry.name, view.newest))
        return max(logs, key=lambda log: log[1].at, default=None)

    def _files(self) -> list[tuple[str, str]]:
        """Return names and ETags of the files that Fabric reads, and paths of the files that Fabric has processed."""
        entries = self.store.list(self.folder)
        data = [(entry.name, entry.etag) for entry in entries if not names.is_ignored(entry.name)]
        return [*data, *((path, "") for path in self._processed(entries))]

    def _processed(self, entries: list[Entry]) -> tuple[str, ...]:
        """Return the paths, below the table's folder, of the data files that Fabric has moved after processing."""
        places = [entry.name for entry in entries if entry.is_folder and entry.name in names.PROCESSED]
        paths = (f"{place}/{entry.name}" for place in places for entry in self.store.list(f"{self.folder}/{place}"))
        return tuple(path for path in paths if names.data_number(path.rpartition("/")[2], None))

    def current_id(self) -> str | None:
        """Return the id in `log.json`, or None if there is no log."""
        path = f"{self.folder}/{names.LOG_ID}"
        try:
            value = parse_json(self.store.read(path))
        except NotThere:
            return None
        except ValueError as error:
            raise DamagedFile(address=self.store.address(path), reason=str(error)) from error
        log_id = value.get("log_id") if isinstance(value, dict) else None
        if not (isinstance(log_id, str) and names.is_log_id(log_id)):
            raise DamagedFile(address=self.store.address(path), reason="it does not contain a log id")
        return log_id

    def entries(self, log_id: str) -> list[Entry]:
        """Return the records, staged files and start markers in the folder of a log."""
        return [entry for entry in self.store.list(f"{self.folder}/{names.log_folder(log_id)}") if not entry.is_folder]

    def _address(self) -> str:
        return self.store.address(self.folder)


def _etags(entries: list[Entry]) -> dict[int, str]:
    return {number: entry.etag for entry in entries if (number := names.record_number(entry.name)) is not None}


def _staged(entries: list[Entry]) -> dict[str, int]:
    return {entry.name: entry.size for entry in entries if names.staged_record_number(entry.name)}
