"""Check the files of a table's newest publication. Find out which publication is the newest one in the mirror."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from mirrorfeed.config.model import Config, Table, zone_of
from mirrorfeed.display.rows import MARKERS, Row, counted, nonzero, row, shown, size
from mirrorfeed.errors import MirrorfeedError
from mirrorfeed.landing.log_record import File, Record, possible_positions
from mirrorfeed.landing.names import Target, log_folder, published_name
from mirrorfeed.publish.table_log import TableLog
from mirrorfeed.publish.table_log.view import View
from mirrorfeed.source.snapshot_or_range import Range, Snapshot
from mirrorfeed.storage import Store
from mirrorfeed.storage.errors import PathMissingError


def mirror_positions(config: Config, names: Sequence[str] = ()) -> list[tuple[Table, View | None, tuple[Record, ...]]]:
    """Return each table with its log, and with the log record of the newest publication that its mirror contains.

    The log is None if the table has no log. If two publications can be the newest one in the mirror, returns both log
    records, newest first. Returns no log record if Fabric has not completely consumed any publication, or not all parts
    of a first load. `names` are targets. If `names` is empty, returns all configured tables.
    """
    store, positions = zone_of(config), []
    for table in config.select(names):
        log = TableLog(store, table.target.folder)
        view, candidates = log.read_view(), tuple[Record, ...]()
        if view:
            by_time, staged = table.file_order == "modified_time", [file.number for file in view.unfinished]
            candidates = possible_positions(log.records(view), view.numbers, staged, by_time=by_time)
            candidates = tuple(each for each in candidates if each.complete_version is not None)
        positions.append((table, view, candidates))
    return positions


@dataclass(frozen=True, slots=True)
class FileState:
    """Comparison of the file at `address`, a staged or final address, with the size and checksum in a log record."""

    address: str
    found: str | None
    """Result of the comparison in words, or None if there is no file."""
    is_the_file: bool = False
    """True if size and checksum are those in the record."""
    consumed: bool = False
    """True if there is no file because Fabric consumed it. Always False for the staged address."""


@row
class LogRecord(Row):
    """A publication in the table's log."""

    table: str
    record: int = shown("record", str, right=True)
    """Number of the record in the log."""
    time: str = shown("time", lambda time: time[:19].replace("T", " "))
    what: str = shown("published")
    """Description of the publication: a snapshot, a repair, or versions."""
    from_version_exclusive: int | None
    """Last version before the published range. None for a snapshot. Equal to `to_version_inclusive` for a repair."""
    to_version_inclusive: int
    inserts: int = shown("inserts", nonzero)
    updates: int = shown("updates", nonzero)
    upserts: int = shown("upserts", nonzero)
    deletes: int = shown("deletes", nonzero)
    files: int = shown("files")
    bytes: int = shown("size", size, right=True)
    build: str | None
    """Version of mirrorfeed that wrote the record."""
    places: tuple[FileState, ...] = ()
    """For the newest record: comparison of each file with the record, at the staged and at the final address."""
    error: MirrorfeedError | str | None = None
    """For the newest record: published files that are missing, files that do not match the record, or a missing record.
    None if no problem was found, and for all older records."""


def describe_publication(record: Record) -> str:
    """Return a description of a record for display, such as `snapshot at version 3` or `versions 4 to 7`."""
    after, last = record.from_version_exclusive, record.to_version_inclusive
    if record.is_adoption:
        return f"version {last}, by another publisher"
    if after is None:
        return str(Snapshot(last, record.load))
    if record.read and record.is_repair:
        return f"version {last}, row hashes of {counted(record.read.rows, 'row')}"
    if record.read:
        return f"version {last}, {counted(record.read.rows, 'row')} compared"
    return f"repair at version {last}" if record.is_repair else str(Range(after, last))


def audit_log(store: Store, target: Target) -> tuple[tuple[LogRecord, ...], tuple[str, ...]] | None:
    """Return the publications of a table, newest first, and notes for display. Returns None if there is no log.

    Reads all files of the newest publication completely to compare their checksums with the log record. The first note
    has the address of the log. Each other note has the address of a file that matches the log record, or that Fabric
    has consumed. Problems with files are in `LogRecord.error` of the newest publication.
    """
    log = TableLog(store, target.folder)
    view = log.read_view()
    if view is None:
        return None
    log_path = f"{target.folder}/{log_folder(view.log_id)}"
    lost = log.find_lost_files(view)
    states = _file_states(log, view, log_path, lost.numbers if lost else ())
    problems = [] if view.is_linked else ["The record before the newest one is missing."]
    problems += [f"{state.address}: {state.found}" for state in states if state.found and not state.is_the_file]
    rows = tuple(
        LogRecord(
            table=str(target),
            record=record.number,
            time=record.time,
            what=describe_publication(record),
            from_version_exclusive=record.from_version_exclusive,
            to_version_inclusive=record.to_version_inclusive,
            **{f"{marker}s": record.rows[marker] for marker in MARKERS},
            files=len(record.files),
            bytes=record.size,
            build=record.build,
            places=() if at else tuple(states),
            error=None if at else lost or " ".join(problems) or None,
        )
        for at, record in enumerate(log.records(view))
    )
    notes = [f"{state.address}: {state.found}" for state in states if state.is_the_file]
    notes += [f"{state.address}: consumed and removed by Fabric" for state in states if state.consumed]
    return rows, (f"The log is in {store.address(log_path)}.", *notes)


def _file_states(log: TableLog, view: View, log_path: str, lost: Collection[int]) -> list[FileState]:
    """Return the states of the newest publication's files: of each, under its staged and under its final name."""
    states: list[FileState] = []
    for file in view.newest.files if view.newest else ():
        staged = _file_state(log.store, f"{log_path}/{file.staged}", file)
        final = _file_state(log.store, f"{log.folder}/{published_name(file.number, file.staged)}", file)
        consumed = not (staged.found or final.found or file.number in lost)
        states += [staged, replace(final, consumed=consumed)]
    return states


def _file_state(store: Store, path: str, file: File) -> FileState:
    address, size, digest = store.address(path), 0, hashlib.sha256()
    try:
        with store.open_read(path) as source:
            while block := source.read(2**20):
                size += len(block)
                digest.update(block)
    except PathMissingError:
        return FileState(address, None)
    if size != file.bytes:
        return FileState(address, f"not the file: it has {counted(size, 'byte')}, but the record has {file.bytes:,}")
    if digest.hexdigest() != file.sha256:
        return FileState(address, f"not the file: it has the {size:,} bytes of the record and another checksum")
    return FileState(address, f"the file, {counted(size, 'byte')}, with the checksum of the record", is_the_file=True)
