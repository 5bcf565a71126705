"""Check a landing zone: read the facts of one table after another, apply the rules and report the findings."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from mirrorfeed.display.humanize import counted
from mirrorfeed.landing import record as records
from mirrorfeed.landing.errors import DamagedFile, RecordTooNew
from mirrorfeed.landing.names import (
    LOG,
    LOG_ID,
    is_log_id,
    log_folder,
    record_name,
    record_number,
    staged_record_number,
)
from mirrorfeed.landing.record import Record
from mirrorfeed.lint.facts import Broken, Contents, DataFile, Folder, Log, Table, Unreadable, Zone
from mirrorfeed.lint.findings import Finding, Severity
from mirrorfeed.lint.metadata_file import Settings, find_metadata_name, load_object, read_metadata
from mirrorfeed.lint.parquet_process import ParquetProcess
from mirrorfeed.lint.rules import check_table, check_zone
from mirrorfeed.lint.rules.files import PARQUET, form_of
from mirrorfeed.lint.rules.folders import find_tables
from mirrorfeed.lint.specification import METADATA, PARTNER_EVENTS, PROCESSED, SCRATCH, is_ignored
from mirrorfeed.lint.text_reader import text_contents
from mirrorfeed.storage import Entry, NotThere, Store, UnreadableFile
from mirrorfeed.storage.errors import SymbolicLink

_TABLE_DEPTH = 2


@dataclass(frozen=True, slots=True)
class Report:
    tables: int
    findings: tuple[Finding, ...]

    @property
    def summary(self) -> str:
        """The number of tables, and of findings by severity."""
        counts = Counter(finding.severity for finding in self.findings)
        numbers = [
            f"{counts[each]:,} advice" if each is Severity.ADVICE else counted(counts[each], each)
            for each in Severity
            if counts[each]
        ]
        return f"{counted(self.tables, 'table')}: {', '.join(numbers or ['no findings'])}"


def lint(store: Store) -> Report:
    """Check the landing zone at the root of the store. One table's facts are in memory at a time."""
    zone = _read_zone(store)
    findings = check_zone(zone)
    tables = find_tables(zone)
    with ParquetProcess() as parquet:
        for table in tables:
            findings += check_table(_read_table(store, table.path, parquet))
    return Report(len(tables), tuple(findings))


def _read_zone(store: Store) -> Zone:
    entries = store.list("")
    names = [entry.name for entry in entries if not entry.is_folder]
    return Zone(
        tuple(names),
        tuple(
            _read_folder(store, entry.name, 1) for entry in entries if entry.is_folder and not is_ignored(entry.name)
        ),
        _read(store, PARTNER_EVENTS) if PARTNER_EVENTS in names else None,
        _names(store, SCRATCH),
    )


def _read_folder(store: Store, path: str, depth: int) -> Folder:
    entries = store.list(path)
    inner = [entry.name for entry in entries if entry.is_folder and not is_ignored(entry.name)]
    return Folder(
        path,
        tuple(entry.name for entry in entries if not entry.is_folder),
        tuple(_read_folder(store, f"{path}/{name}", depth + 1) for name in inner) if depth < _TABLE_DEPTH else (),
    )


def _read_table(store: Store, folder: str, parquet: ParquetProcess) -> Table:
    entries = store.list(folder)
    plain = [entry for entry in entries if not entry.is_folder]
    metadata_name = find_metadata_name(entry.name for entry in plain)
    metadata = _read(store, f"{folder}/{metadata_name}") if metadata_name else None
    settings = Settings() if metadata is None else read_metadata(metadata)[0]
    data = [entry for entry in plain if not is_ignored(entry.name) and entry.name != metadata_name]
    log = _read_log(store, folder) if any(entry.name == LOG for entry in entries) else None
    # Listed after the log and before the processed files, so that a file renamed or consumed meanwhile is not missed.
    in_place = _names(store, folder) if log and log.newest else ()
    return Table(
        folder,
        metadata,
        metadata_name or METADATA,
        files=tuple(_read_file(store, folder, entry, settings, parquet) for entry in data),
        folders=tuple(entry.name for entry in entries if entry.is_folder and not is_ignored(entry.name)),
        ignored=tuple(entry.name for entry in entries if is_ignored(entry.name)),
        in_place=tuple(name for name in in_place if not is_ignored(name)),
        processed={name: where for where in PROCESSED for name in _names(store, f"{folder}/{where}")},
        scratch=_names(store, f"{folder}/{SCRATCH}"),
        log=log,
    )


def _read_file(store: Store, folder: str, entry: Entry, settings: Settings, parquet: ParquetProcess) -> DataFile:
    content: Contents | Unreadable | None = None
    form = form_of(entry.name, settings)
    if entry.size and form:
        try:
            with store.open_read(f"{folder}/{entry.name}") as file:
                content = (
                    parquet.contents(file, entry.size, settings.keys)
                    if form == PARQUET
                    else text_contents(file, entry.name, settings)
                )
        except NotThere:  # Fabric has consumed it since it was listed
            content = None
        except (UnreadableFile, SymbolicLink) as error:
            content = Unreadable(Broken.UNSAFE, error.reason)
    return DataFile(entry.name, entry.size, entry.modified, content)


def _read_log(store: Store, folder: str) -> Log:
    entries = _entries(store, f"{folder}/{LOG}")
    folders = tuple(entry.name for entry in entries if entry.is_folder)
    data = _read(store, f"{folder}/{LOG_ID}")
    if data is None:
        return Log(None, f"{LOG_ID}: it is missing" if folders else None)
    try:
        log_id = load_object(data)["log_id"]
        if not is_log_id(log_id):
            raise ValueError(f"{log_id!r} is not an id")
    except (ValueError, TypeError, KeyError) as error:
        return Log(None, f"{LOG_ID}: it has no id of a log ({error!r})")
    if log_id not in folders and any(entry.name == log_id for entry in entries):
        return Log(None, f"{log_folder(log_id)}: it is not a folder")
    path = f"{folder}/{log_folder(log_id)}"
    newest, fault, too_new = _newest_record(store, folder, log_id)
    staged = tuple(name for name in _names(store, path) if staged_record_number(name))
    return Log(log_id, fault, too_new, newest, staged, tuple(name for name in folders if name != log_id))


def _newest_record(store: Store, folder: str, log_id: str) -> tuple[Record | None, str | None, str | None]:
    """Return the newest record, why it cannot be read, and its format if only a newer version can read it."""
    numbers = [number for name in _names(store, f"{folder}/{log_folder(log_id)}") if (number := record_number(name))]
    path = f"{log_folder(log_id)}/{record_name(max(numbers))}" if numbers else None
    data = _read(store, f"{folder}/{path}") if path else None
    if data is None:
        return None, None, None
    try:
        return records.parse(data, f"{folder}/{path}"), None, None
    except DamagedFile as fault:
        return None, f"{path}: {fault.reason}", None
    except RecordTooNew as newer:
        return None, None, f"{path}: format {newer.found}"


def _names(store: Store, folder: str) -> tuple[str, ...]:
    return tuple(entry.name for entry in _entries(store, folder) if not entry.is_folder)


def _entries(store: Store, folder: str) -> list[Entry]:
    """Return the entries of a folder. Symbolic links are not followed."""
    try:
        return store.list(folder)
    except SymbolicLink:
        return []


def _read(store: Store, path: str) -> bytes | None:
    """Return the content, or None if the file is missing. Empty if it cannot be read, so that each rule reports it."""
    try:
        return store.read(path)
    except NotThere:
        return None
    except (UnreadableFile, SymbolicLink):
        return b""
