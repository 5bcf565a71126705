"""One pass over one table folder: apply the next files in order, then set processed files aside."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from enum import StrEnum
from pathlib import Path

import pyarrow.compute as pc

from mirrorfeed.display.rows import Row, counted, first_names, row, shown
from mirrorfeed.errors import MirrorfeedError, with_code, wrap_error
from mirrorfeed.lint.column_rules import KEYLESS, NO_KEY, UNSUPPORTED
from mirrorfeed.lint.specification import DELETE, Settings
from mirrorfeed.mirror.errors import FileRefused, FolderReplaced, KeysChanged, TypeChanged
from mirrorfeed.mirror.local_replica.file_reader import FileRows, added_columns, in_shape_of, read_rows, with_types
from mirrorfeed.mirror.local_replica.landing_zone import (
    Queue,
    TableFolder,
    by_number,
    by_time,
    data_files,
    delete_old,
    read_settings,
    set_aside,
    tables_in,
)
from mirrorfeed.mirror.local_replica.mirrored_table import (
    Mirror,
    check_values,
    create_mirror,
    drop,
    mirror_path,
    net_change,
    open_mirror,
)
from mirrorfeed.storage import Entry, Store
from mirrorfeed.storage.local_folder import resolve


class State(StrEnum):
    REPLICATING = "replicating"
    WAITING = "waiting for a gap"
    FAILED = "failed"
    DROPPED = "dropped"


_MARKERS = {0: "insert", 1: "update", 2: "delete", 4: "upsert"}


def _by_marker(rows: Mapping[int, int]) -> str:
    return ", ".join(counted(count, _MARKERS[marker]) for marker, count in rows.items() if count)


@row
class TableReport(Row):
    """Result of one pass over a table."""

    table: str = shown("table")
    state: State = shown("state")
    """`replicating`, `waiting for a gap`, `failed` or `dropped`."""
    files: int = shown("files", default=0)
    rows: Mapping[int, int] = shown("rows", _by_marker, default_factory=dict)
    """Number of applied rows by row marker."""
    message: str = ""
    error: MirrorfeedError | None = None
    """Error of this pass. A table that an earlier pass stopped has only a message."""

    @property
    def ok(self) -> bool:
        """True if the table did not fail."""
        return self.state is not State.FAILED

    def remarks(self) -> Sequence[str]:
        text = with_code(self.error) if self.error else self.message
        return (f"{self.table}: {text}",) if text else ()


def failed_report(table: str, error: MirrorfeedError) -> TableReport:
    return TableReport(table, State.FAILED, message=str(error), error=error)


class TableCycle:
    """One pass over one table. Use each instance once."""

    def __init__(self, zone: Store, target: str, folder: TableFolder) -> None:
        self._zone, self._target, self._folder = zone, target, folder
        self._files = 0
        self._rows: Counter[int] = Counter()
        self._notes: list[str] = []

    def run(self, now: datetime) -> TableReport:
        try:
            return self._report(*self._run(now))
        except Exception as caught:  # the engine can raise any error, and the other tables continue
            error = wrap_error(f"Replicating {self._folder.table}", caught)
            return self._report(State.FAILED, str(error), error)

    def _run(self, now: datetime) -> tuple[State, str]:
        place = mirror_path(self._target, self._folder)
        resolve("write", self._target, f"{place.parent.name}/{place.name}")
        mirror = open_mirror(place)
        if mirror is not None and mirror.etag != self._folder.etag:
            drop(place, self._target)
            mirror = None
            self._notes.append(
                "The folder was created again, so the mirrored table was dropped and is replicated again."
            )
        if mirror is not None and mirror.stopped:
            return State.FAILED, mirror.stopped
        settings = read_settings(self._zone, self._folder.path)
        if mirror is not None:
            if mirror.keys and mirror.keys != settings.keys:
                raise KeysChanged(table=self._folder.table, before=mirror.keys, now=settings.keys or ("none",))
            if settings.keys and not mirror.keys:
                mirror.set_keys(settings.keys)
        files = data_files(self._zone.list(self._folder.path))
        if settings.by_time:
            queue = by_time(files, mirror.processed(file.name for file in files) if mirror else frozenset())
        else:
            queue = by_number(files, mirror.applied() if mirror else 0, self._zone.address(self._folder.path))
        done = list(queue.done)
        failure: MirrorfeedError | None = None
        for file in queue.ready:
            try:
                mirror = self._apply(mirror, place, file, settings)
            except MirrorfeedError as error:
                failure = error
                break
            done.append(file)
        # Files applied before a failure are set aside as usual. If both fail, the first error is raised.
        with suppress(*([MirrorfeedError] if failure else [])):
            if mirror is not None:
                self._confirm_folder()
                for name in set_aside(self._zone, self._folder.path, done):
                    self._notes.append(f"{name} was already applied, so it was not read again.")
                delete_old(self._zone, self._folder.path, mirror.place, now)
        if failure is not None:
            raise failure
        if queue.missing is not None:
            return State.WAITING, _waiting(queue)
        return State.REPLICATING, "" if done else "No file is published yet."

    def _apply(self, mirror: Mirror | None, place: Path, file: Entry, settings: Settings) -> Mirror | None:
        """Apply the file and return the mirror. Returns None if no column has a type yet, because then there is no
        table."""
        path = f"{self._folder.path}/{file.name}"
        address = self._zone.address(path)
        with self._zone.open_read(path) as source:
            content = read_rows(source.read(), file.name, address, settings)
        self._confirm_folder()
        _check_keys(mirror, content, settings.keys, address)
        schema = with_types(content.rows.schema)
        if mirror is None and not schema.names and not content.rows.num_rows:
            self._notes.append(
                f"All values in {file.name} are NULL, so the column types are unknown. The mirrored table is not"
                f" created yet."
            )
            return None
        if mirror is None:
            mirror = create_mirror(place, self._folder, schema, settings.keys)
        else:
            try:
                new = added_columns(mirror.schema, content.rows.schema, self._folder.table, address)
            except TypeChanged as error:
                mirror.stop(str(error))
                raise
            if new:
                mirror.add_columns(new)
        rows = in_shape_of(mirror.schema, content.rows)
        markers = content.markers
        written = rows if markers is None else rows.filter(pc.not_equal(markers, DELETE))
        check_values(mirror.schema, written, address)
        if markers is None:
            mirror.append(rows, file.name, settings.by_time)
        else:
            change = net_change(mirror.read_columns(settings.keys), rows, markers, settings.keys)
            if change.removes:
                mirror.replace(change.remaining, change.added, file.name, settings.by_time)
            else:
                mirror.append(change.added, file.name, settings.by_time)
        self._files += 1
        self._rows.update(content.counts())
        return mirror

    def _confirm_folder(self) -> None:
        """Raise `FolderReplaced` unless the folder of this pass still exists, so that the data read is from this
        folder."""
        listed = tables_in(self._zone.list(self._folder.parent), self._folder.schema)
        if self._folder not in listed:
            raise FolderReplaced(table=self._folder.table, address=self._zone.address(self._folder.path))

    def _report(self, state: State, message: str, error: MirrorfeedError | None = None) -> TableReport:
        text = " ".join(filter(None, [*self._notes, message]))
        return TableReport(self._folder.table, state, self._files, dict(sorted(self._rows.items())), text, error)


def _check_keys(mirror: Mirror | None, content: FileRows, keys: Sequence[str], address: str) -> None:
    """Raise an error unless the file has the keys.

    Rows also need a column with a type, and changes need keys with a type, in this or an earlier file.
    """
    names = content.rows.column_names
    if not keys and content.markers is not None:
        raise FileRefused(finding=KEYLESS.finding(address, kinds="updates, deletes or upserts"))
    if missing := [key for key in keys if key not in names]:
        hint = f"it has {first_names([repr(name) for name in names], 5)}"
        raise FileRefused(finding=NO_KEY.finding(address, key=missing[0], hint=hint))
    known = {*with_types(content.rows.schema).names, *(mirror.schema.names if mirror else ())}
    needed = keys if content.markers is not None else names[:1] if not known else ()
    if content.rows.num_rows and (typeless := [name for name in needed if name not in known]):
        type_ = content.rows.schema.field(typeless[0]).type
        raise FileRefused(finding=UNSUPPORTED.finding(address, column=typeless[0], type=type_))


def _waiting(queue: Queue) -> str:
    count = len(queue.waiting)
    later = (
        (f"{queue.waiting[0].name} waits")
        if count == 1
        else (f"{count} files wait, the first is {queue.waiting[0].name}")
    )
    return f"File {queue.missing:020} is missing; {later}."
