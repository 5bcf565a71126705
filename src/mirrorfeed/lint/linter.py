"""Gathers what the rules judge, one table after another, in bounded memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mirrorfeed.landing import log as records
from mirrorfeed.landing.log import Record
from mirrorfeed.landing.names import (
    LOG,
    LOG_ID,
    METADATA,
    PROCESSED,
    is_ignored,
    is_log_id,
    log_folder,
    record_name,
    record_number,
    staged_record_number,
)
from mirrorfeed.landing.partner import PARTNER_EVENTS
from mirrorfeed.landing.spelled import load
from mirrorfeed.lint.facts import Contents, DataFile, Folder, Log, Table, Unreadable, Zone
from mirrorfeed.lint.findings import Finding
from mirrorfeed.lint.metadata_file import Settings, metadata_among, read_metadata
from mirrorfeed.lint.parquet_process import ParquetProcess
from mirrorfeed.lint.rules import judge_table, judge_zone
from mirrorfeed.lint.rules.files import PARQUET, form_of
from mirrorfeed.lint.rules.leftovers import SCRATCH
from mirrorfeed.lint.rules.zone import places
from mirrorfeed.lint.text_reader import text_contents
from mirrorfeed.stores import Entry, NotThere, Store

_TABLE_DEPTH = 2


@dataclass(frozen=True, slots=True)
class Report:
    tables: int
    findings: tuple[Finding, ...]

    @property
    def conforms(self) -> bool:
        """Advice alone does not speak against it."""
        return not any(finding.counts for finding in self.findings)


def lint(store: Store) -> Report:
    """Judges the landing zone that is the store's root, one table after another."""
    zone = look_at_zone(store)
    found = judge_zone(zone)
    where = places(zone)
    with ParquetProcess() as parquet:
        for place in where:
            found += judge_table(look_at_table(store, place.path, parquet))
    return Report(len(where), tuple(found))


def look_at_zone(store: Store) -> Zone:
    entries = store.list("")
    names = [entry.name for entry in entries if not entry.is_folder]
    return Zone(
        tuple(names),
        tuple(_folder(store, entry.name, 1) for entry in entries if entry.is_folder and not is_ignored(entry.name)),
        _read(store, PARTNER_EVENTS) if PARTNER_EVENTS in names else None,
        _names(store, SCRATCH),
    )


def _folder(store: Store, path: str, depth: int) -> Folder:
    entries = store.list(path)
    inner = [entry.name for entry in entries if entry.is_folder and not is_ignored(entry.name)]
    return Folder(
        path,
        tuple(entry.name for entry in entries if not entry.is_folder),
        tuple(_folder(store, f"{path}/{name}", depth + 1) for name in inner) if depth < _TABLE_DEPTH else (),
    )


def look_at_table(store: Store, folder: str, parquet: ParquetProcess) -> Table:
    entries = store.list(folder)
    plain = [entry for entry in entries if not entry.is_folder]
    metadata_name = metadata_among(entry.name for entry in plain)
    metadata = _read(store, f"{folder}/{metadata_name}") if metadata_name else None
    settings, _ = read_metadata(metadata, folder)
    data = [entry for entry in plain if not is_ignored(entry.name) and entry.name != metadata_name]
    log = _log(store, folder) if any(entry.name == LOG for entry in entries) else None
    # Listed after the log and before the processed files, so that a file renamed or consumed meanwhile is not missed.
    in_place = _names(store, folder) if log and log.newest else ()
    return Table(
        folder,
        metadata,
        metadata_name or METADATA,
        files=tuple(_data_file(store, folder, entry, settings, parquet) for entry in data),
        folders=tuple(entry.name for entry in entries if entry.is_folder and not is_ignored(entry.name)),
        ignored=tuple(entry.name for entry in entries if is_ignored(entry.name)),
        in_place=tuple(name for name in in_place if not is_ignored(name)),
        processed={name: where for where in PROCESSED for name in _names(store, f"{folder}/{where}")},
        scratch=_names(store, f"{folder}/{SCRATCH}"),
        log=log,
    )


def _data_file(store: Store, folder: str, entry: Entry, settings: Settings, parquet: ParquetProcess) -> DataFile:
    inside: Contents | Unreadable | None = None
    form = form_of(entry.name, settings)
    if entry.size and form:
        try:
            with store.open_read(f"{folder}/{entry.name}") as file:
                inside = (
                    parquet.contents(file, entry.size, settings.keys)
                    if form == PARQUET
                    else text_contents(file, entry.name, settings)
                )
        except NotThere:  # the service has taken it since it was listed
            inside = None
    return DataFile(entry.name, entry.size, entry.modified, inside)


def _log(store: Store, folder: str) -> Log:
    entries = store.list(f"{folder}/{LOG}")
    folders = tuple(entry.name for entry in entries if entry.is_folder)
    data = _read(store, f"{folder}/{LOG_ID}")
    if data is None:
        return Log(None, f"{LOG_ID}: it is not there" if folders else None)
    try:
        log_id = load(data)["log_id"]
        if not is_log_id(log_id):
            raise ValueError(f"{log_id!r} is not an id")
    except (ValueError, TypeError, KeyError) as error:
        return Log(None, f"{LOG_ID}: it names no log ({error!r})")
    names = _names(store, f"{folder}/{log_folder(log_id)}")
    newest, fault, too_new = _newest(store, folder, log_id, names)
    return Log(
        log_id,
        fault,
        too_new,
        newest,
        tuple(name for name in _names(store, f"{folder}/{log_folder(log_id)}") if staged_record_number(name)),
        tuple(name for name in folders if name != log_id),
    )


def _newest(
    store: Store, folder: str, log_id: str, names: Sequence[str]
) -> tuple[Record | None, str | None, str | None]:
    """The newest record, or what is wrong with it, or that only a newer version can tell."""
    numbers = [number for name in names if (number := record_number(name))]
    path = f"{log_folder(log_id)}/{record_name(max(numbers))}" if numbers else None
    data = _read(store, f"{folder}/{path}") if path else None
    if data is None:
        return None, None, None
    try:
        return records.parse(data, f"{folder}/{path}"), None, None
    except records.RecordUnreadable as fault:
        return None, f"{path}: {fault.reason}", None
    except records.RecordTooNew as newer:
        return None, None, f"{path}: format {newer.found}"


def _names(store: Store, folder: str) -> tuple[str, ...]:
    return tuple(entry.name for entry in store.list(folder) if not entry.is_folder)


def _read(store: Store, path: str) -> bytes | None:
    try:
        return store.read(path)
    except NotThere:
        return None
