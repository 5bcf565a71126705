"""`mirrorfeed replicate`: apply the files of a landing zone to local Delta tables, as Fabric does.

Written from the specification of open mirroring. Shares no code with `mirrorfeed.publish`.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from mirrorfeed.display.rows import Row, counted, first_names, row, shown
from mirrorfeed.errors import MirrorfeedError, TransientError, with_code, wrap_error
from mirrorfeed.lint.column_rules import KEYLESS, NO_KEY, UNSUPPORTED
from mirrorfeed.lint.specification import DELETE, SCHEMA_SUFFIX, Settings
from mirrorfeed.mirror.errors import (
    ForeignDeltaTableError,
    TypeChangedError,
    file_breaks_rule,
    folder_replaced,
    mirror_keys_changed,
    two_folders_for_table,
)
from mirrorfeed.mirror.local_replica import landing_zone, mirrored_table
from mirrorfeed.mirror.local_replica.file_reader import FileRows, align_columns, new_columns, read_rows, without_untyped
from mirrorfeed.mirror.local_replica.landing_zone import TableFolder, find_table_folders
from mirrorfeed.mirror.local_replica.mirrored_table import Change, Mirror
from mirrorfeed.storage import Entry, Store
from mirrorfeed.storage.local_folder import resolve


class State(StrEnum):
    REPLICATING = "replicating"
    WAITING = "waiting for a gap"
    FAILED = "failed"
    DROPPED = "dropped"


_MARKERS = {0: "insert", 1: "update", 2: "delete", 4: "upsert"}


def _rows_in_words(rows: Mapping[int, int]) -> str:
    return ", ".join(counted(count, _MARKERS[marker]) for marker, count in rows.items() if count)


@row
class TableReport(Row):
    """Result of one pass of `mirrorfeed replicate` over a table."""

    table: str = shown("table")
    state: State = shown("state")
    """`replicating`, `waiting for a gap` (until a file with a missing number exists), `failed` or `dropped`."""
    files: int = shown("files", default=0)
    rows: Mapping[int, int] = shown("rows", _rows_in_words, default_factory=dict)
    """Number of rows that the pass applied, for each row marker: 0 insert, 1 update, 2 delete, 4 upsert."""
    message: str = ""
    error: MirrorfeedError | None = None
    """Error in this pass, or None. If an earlier pass stopped the table, only `message` contains the reason."""

    @property
    def ok(self) -> bool:
        return self.state is not State.FAILED

    def remarks(self) -> Sequence[str]:
        text = with_code(self.error) if self.error else self.message
        return (f"{self.table}: {text}",) if text else ()


def failed_report(table: str, error: MirrorfeedError) -> TableReport:
    return TableReport(table, State.FAILED, message=str(error), error=error)


class TableCycle:
    """One pass of the replica over the table in `folder`. Create a new instance for each pass."""

    def __init__(self, zone: Store, target: str, folder: TableFolder) -> None:
        self._zone, self._target, self._folder = zone, target, folder
        self._files, self._rows, self._notes = 0, Counter[int](), list[str]()

    def run(self, now: datetime) -> TableReport:
        try:
            return self._report(*self._run(now))
        except Exception as caught:  # the engine can raise any error, and the other tables continue
            error = wrap_error(f"Replicating {self._folder.table}", caught)
            return self._report(State.FAILED, str(error), error)

    def _run(self, now: datetime) -> tuple[State, str]:
        place = mirrored_table.mirror_path(self._target, self._folder)
        resolve("write", self._target, f"{place.parent.name}/{place.name}")
        mirror = mirrored_table.open_mirror(place)
        if mirror is not None and mirror.etag != self._folder.etag:
            mirrored_table.drop(place, self._target)
            mirror = None
            self._notes.append(
                "The folder was created again, so the mirrored table was dropped and is replicated again."
            )
        if mirror is not None and mirror.stopped:
            return State.FAILED, mirror.stopped
        settings = landing_zone.read_settings(self._zone, self._folder.path)
        if mirror is not None:
            if mirror.keys and mirror.keys != settings.keys:
                raise mirror_keys_changed(table=self._folder.table, before=mirror.keys, now=settings.keys or ("none",))
            if settings.keys and not mirror.keys:
                mirror.set_keys(settings.keys)
        files = landing_zone.data_files(self._zone.list(self._folder.path))
        if settings.by_time:
            processed = mirror.processed(file.name for file in files) if mirror else frozenset[str]()
            queue = landing_zone.queue_by_time(files, processed)
        else:
            applied = mirror.applied() if mirror else 0
            queue = landing_zone.queue_by_number(files, applied, self._zone.address(self._folder.path))
        done = list(queue.done)
        try:
            for file in queue.ready:
                mirror = self._apply(mirror, place, file, settings)
                done.append(file)
        except MirrorfeedError:
            with suppress(MirrorfeedError):  # report the error of the file, even if moving the others also fails
                self._move_done(mirror, done, now)
            raise
        self._move_done(mirror, done, now)
        if queue.waiting:
            return State.WAITING, queue.waiting
        return State.REPLICATING, "" if done else "No file is published yet."

    def _apply(self, mirror: Mirror | None, place: Path, file: Entry, settings: Settings) -> Mirror | None:
        """Apply a file and return the mirrored table. If `mirror` is None, creates the table at `place`.

        Returns None if the table cannot be created yet, because the file has no rows and no column with a known type.
        """
        path = f"{self._folder.path}/{file.name}"
        address = self._zone.address(path)
        with self._zone.open_read(path) as source:
            content = read_rows(source.read(), file.name, address, settings)
        self._confirm_folder()
        _check_keys(mirror, content, settings.keys, address)
        schema = without_untyped(content.rows.schema)
        if mirror is None and not schema.names and not content.rows.num_rows:
            self._notes.append(
                f"All values in {file.name} are NULL, so the column types are unknown. The mirrored table is not"
                " created yet."
            )
            return None
        if mirror is None:
            mirror = mirrored_table.create_mirror(place, self._folder, schema, settings.keys)
        else:
            try:
                new = new_columns(mirror.schema, content.rows.schema, self._folder.table, address)
            except TypeChangedError as error:
                mirror.stop(str(error))
                raise
            if new:
                mirror.add_columns(new)
        rows = align_columns(mirror.schema, content.rows)
        markers = content.markers
        written = rows if markers is None else rows.filter(pc.not_equal(markers, DELETE))
        mirrored_table.check_values(mirror.schema, written, address)
        if markers is None:
            change = Change(pa.array([], pa.bool_()), rows)
        else:
            change = mirrored_table.net_change(mirror.read_columns(settings.keys), rows, markers, settings.keys)
        mirror.apply(change, file.name, settings.by_time)
        self._files += 1
        self._rows.update(content.counts())
        return mirror

    def _move_done(self, mirror: Mirror | None, done: Sequence[Entry], now: datetime) -> None:
        """Move the applied files `done` to a subfolder, and delete files that have been there for seven days."""
        if mirror is None:
            return
        self._confirm_folder()
        for name in landing_zone.move_processed(self._zone, self._folder.path, done):
            self._notes.append(f"{name} was already applied, so it was not read again.")
        landing_zone.delete_processed(self._zone, self._folder.path, mirror.place, now)

    def _confirm_folder(self) -> None:
        """Raise `folder_replaced` if the table's folder was deleted or created again since this pass listed it."""
        if self._folder not in landing_zone.tables_in(self._zone.list(self._folder.parent), self._folder.schema):
            raise folder_replaced(table=self._folder.table, address=self._zone.address(self._folder.path))

    def _report(self, state: State, message: str, error: MirrorfeedError | None = None) -> TableReport:
        text = " ".join(filter(None, [*self._notes, message]))
        return TableReport(self._folder.table, state, self._files, dict(sorted(self._rows.items())), text, error)


def _check_keys(mirror: Mirror | None, content: FileRows, keys: Sequence[str], address: str) -> None:
    """Raise `file_breaks_rule` if a file cannot be applied to a table with these `keys`.

    The file must have all key columns. For updates, deletes and upserts, each key column needs a type. For inserts, at
    least one column of any kind needs a type. If the file has no type for a column, the type in `mirror` is enough."""
    names = content.rows.column_names
    if not keys and content.markers is not None:
        raise file_breaks_rule(finding=KEYLESS.finding(address, kinds="updates, deletes or upserts"))
    if missing := [key for key in keys if key not in names]:
        hint = f"it has {first_names([repr(name) for name in names], 5)}"
        raise file_breaks_rule(finding=NO_KEY.finding(address, key=missing[0], hint=hint))
    known = {*without_untyped(content.rows.schema).names, *(mirror.schema.names if mirror else ())}
    needed = keys if content.markers is not None else names[:1] if not known else ()
    if content.rows.num_rows and (typeless := [name for name in needed if name not in known]):
        type_ = content.rows.schema.field(typeless[0]).type
        raise file_breaks_rule(finding=UNSUPPORTED.finding(address, column=typeless[0], type=type_))


@dataclass(frozen=True)
class Replica:
    """Applies the files of the landing zone `zone` to Delta tables `<schema>/<table>` in the folder `target`.

    The default schema is `dbo`. The tables also store which files are applied. Use the folder in one replica at a time.
    """

    zone: Store
    target: str
    clock: Callable[[], datetime] = lambda: datetime.now(UTC)

    def run_pass(self) -> list[TableReport]:
        """Apply the new files of all tables, and return a report for each table, sorted by table.

        Drops mirrored tables whose folder was deleted. If a table fails, its report has the state `failed`, and the
        other tables continue. Raises an error only if the landing zone cannot be listed.
        """
        mirrored_table.delete_dropped(self.target)
        folders = [
            (folder, mirrored_table.mirror_path(self.target, folder)) for folder in find_table_folders(self.zone)
        ]
        places = Counter(place for _, place in folders)
        dropped = [place for place in mirrored_table.find_delta_tables(self.target) if place not in places]
        reports = [report for place in dropped if (report := self._drop(place))]
        for folder, place in folders:
            if places[place] > 1:
                reports.append(failed_report(folder.table, two_folders_for_table(table=folder.table, place=str(place))))
            else:
                reports.append(TableCycle(self.zone, self.target, folder).run(self.clock()))
        return sorted(reports, key=lambda report: report.table)

    def _drop(self, place: Path) -> TableReport | None:
        """Drop a table whose folder was deleted. Return its report, or None if the replica did not create the table."""
        table = f"{place.parent.name}.{place.name}"
        try:
            mirror = mirrored_table.open_mirror(place)
            if mirror is None:
                return None
            table = mirror.folder.replace(f"{SCHEMA_SUFFIX}/", ".")
            mirrored_table.drop(place, self.target)
        except ForeignDeltaTableError:
            return None
        except MirrorfeedError as error:
            return failed_report(table, error)
        return TableReport(table, State.DROPPED, message="Its folder was deleted.")


def run_passes(
    replica: Replica, poll: float, stop: Callable[[], bool], wait: Callable[[float], None] = time.sleep
) -> Iterator[list[TableReport] | TransientError]:
    """Yield the reports of each pass, with `poll` seconds between passes, until `stop` returns True.

    If a pass raises a transient error, yields the error instead of the reports, and continues with the next pass.
    """
    while not stop():
        try:
            yield replica.run_pass()
        except TransientError as error:
            yield error
        if not stop():
            wait(poll)
