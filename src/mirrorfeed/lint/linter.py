"""`mirrorfeed lint`: read the folders and tables of a landing zone, apply the rules and report the findings."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import chain

from mirrorfeed.display.rows import counted, first_names, size
from mirrorfeed.landing import log_record as records
from mirrorfeed.landing.errors import DamagedFileError, RecordTooNewError
from mirrorfeed.landing.names import (
    LOG,
    LOG_ID,
    is_log_id,
    log_folder,
    record_name,
    record_number,
    staged_record_number,
)
from mirrorfeed.lint import folder_rules
from mirrorfeed.lint.column_rules import check_columns
from mirrorfeed.lint.duplicate_keys import KeyIndex
from mirrorfeed.lint.file_rules import PARQUET, UNSAFE, check_files, form_of, number_of
from mirrorfeed.lint.isolated_parquet_reader import IsolatedParquetReader
from mirrorfeed.lint.landing_zone import Contents, Folder, LandingFile, LandingTable, Log, Unreadable
from mirrorfeed.lint.metadata_file import find_metadata_name, read_metadata
from mirrorfeed.lint.specification import (
    MARKER,
    METADATA,
    PARTNER_EVENTS,
    PROCESSED,
    SCRATCH,
    LintFinding,
    LintSeverity,
    Settings,
    is_ignored,
    load_object,
)
from mirrorfeed.storage import Entry, Store
from mirrorfeed.storage.errors import PathMissingError, SymbolicLinkError, UnreadableFileError

MAX_BYTES_BY_DEFAULT = 64 << 20
"""Maximum bytes of a table's data files for which lint searches for duplicate keys by default."""


def lint(store: Store, check_keys: bool = False) -> tuple[list[LintFinding], list[str], str]:
    """Check all tables of a landing zone. Return the findings, notes, and a summary of one line.

    Searches for duplicate keys in tables with at most 64 MiB of data files. If `check_keys` is set, searches in all
    tables. Raises `parquet_reader_not_started` if the process that reads Parquet files cannot start.
    """
    root = _read_folder(store, "")
    folders, findings, notes, unchecked = folder_rules.find_tables(root), list[LintFinding](), list[str](), list[str]()
    partner_events = _read(store, PARTNER_EVENTS) if PARTNER_EVENTS in root.files else None
    if partner_events is None:
        notes.append(f"The landing zone has no {PARTNER_EVENTS} that describes the publisher.")
    else:
        findings += folder_rules.check_partner_events(partner_events)
    findings += [folder_rules.STAGED.finding(f"{SCRATCH}/{name}") for name in _names(store, SCRATCH)]
    findings += folder_rules.check_folders(root)
    with IsolatedParquetReader() as parquet:
        for folder in folders:
            table = _read_table(store, folder.path, parquet, check_keys)
            findings += check_table(table)
            unchecked += [] if table.are_keys_checked else [table.folder]
    if unchecked:
        notes.append(
            f"Duplicate keys were not checked in {counted(len(unchecked), 'table')} with more than"
            f" {size(MAX_BYTES_BY_DEFAULT)}: {first_names(unchecked)}."
            " Use --check-keys to check all tables."
        )
    return findings, notes, _summary(len(folders), findings)


def lint_table(store: Store, folder: str) -> list[LintFinding]:
    """Check one table of a landing zone. Raises `parquet_reader_not_started` like `lint`."""
    with IsolatedParquetReader() as parquet:
        return check_table(_read_table(store, folder, parquet, False))


def _summary(tables: int, findings: list[LintFinding]) -> str:
    """Return one line, such as `3 tables: 1 error, 2 advice`."""
    counts = Counter(finding.severity for finding in findings)
    numbers = [
        f"{counts[each]:,} advice" if each is LintSeverity.ADVICE else counted(counts[each], each)
        for each in LintSeverity
        if counts[each]
    ]
    return f"{counted(tables, 'table')}: {', '.join(numbers or ['no findings'])}"


def check_table(table: LandingTable) -> list[LintFinding]:
    """Return the findings for a table, its metadata file and its data files, sorted by path."""
    rules = check_files, check_columns, folder_rules.check_leftovers
    findings = [*table.findings, *chain.from_iterable(check(table) for check in rules)]
    return sorted(findings, key=lambda finding: finding.file)


def _read_folder(store: Store, path: str, depth: int = 2) -> Folder:
    """Read a folder of the landing zone and its subfolders, down to `depth` levels below it."""
    entries = store.list(path)
    inner = [entry.name for entry in entries if entry.is_folder and not is_ignored(entry.name)]
    paths = [f"{path}/{name}" if path else name for name in inner if depth]
    return Folder(
        path,
        tuple(entry.name for entry in entries if not entry.is_folder),
        tuple(_read_folder(store, each, depth - 1) for each in paths),
    )


def _read_table(store: Store, folder: str, parquet: IsolatedParquetReader, check_keys: bool) -> LandingTable:
    entries = store.list(folder)
    metadata_name = find_metadata_name(entry.name for entry in entries if not entry.is_folder)
    settings, findings = _read_settings(store, folder, metadata_name)
    visible = [entry for entry in entries if not is_ignored(entry.name)]
    data = [entry for entry in visible if not entry.is_folder and entry.name != metadata_name]
    log = _read_log(store, folder, findings) if any(entry.name == LOG for entry in entries) else None
    has_only_log = log is not None and log.newest is None and not visible
    is_unpublished = has_only_log and [each.code for each in findings] == [folder_rules.MISSING.code]
    # List after the log and before the processed files, to find files that are renamed or consumed in the meantime.
    in_place = _names(store, folder) if log and log.newest else ()
    are_keys_checked = check_keys or not settings.keys or sum(entry.size for entry in data) <= MAX_BYTES_BY_DEFAULT
    files, last = list[LandingFile](), 0
    required: frozenset[str] | None = None
    with KeyIndex(settings.upserts) as index:
        index_to_fill = index if settings.keys and are_keys_checked else None
        for entry in sorted(data, key=lambda each: (each.modified if settings.by_time else None, each.name)):
            path, number = f"{folder}/{entry.name}", number_of(entry.name) or 0
            if not settings.by_time and number != last + 1:
                index.end("", None)  # a file is missing, and could contain deletes
            last = number
            to_check = required or frozenset()
            content = _read_content(store, path, entry.size, settings, parquet, to_check, index_to_fill)
            if required is None and isinstance(content, Contents):  # the first file creates the table
                not_null = frozenset(column.name for column in content.columns if not column.nullable)
                required = not_null - {*settings.keys, MARKER}
            rows = content.rows if isinstance(content, Contents) and not content.faults else None
            index.end(path, rows)
            files.append(LandingFile(entry.name, entry.size, content))
        findings += index.findings()
    return LandingTable(
        folder,
        settings,
        () if is_unpublished else tuple(findings),
        files=tuple(files),
        folders=tuple(entry.name for entry in visible if entry.is_folder),
        ignored=tuple(entry.name for entry in entries if is_ignored(entry.name)),
        in_place=tuple(name for name in in_place if not is_ignored(name)),
        processed={name: where for where in PROCESSED for name in _names(store, f"{folder}/{where}")},
        scratch=_names(store, f"{folder}/{SCRATCH}"),
        log=log,
        is_unpublished=is_unpublished,
        are_keys_checked=are_keys_checked,
    )


def _read_settings(store: Store, folder: str, name: str | None) -> tuple[Settings, list[LintFinding]]:
    path = f"{folder}/{name}"
    data = _read(store, path) if name else None
    if data is None:
        return Settings(), [folder_rules.MISSING.finding(f"{folder}/{METADATA}")]
    settings, deviations = read_metadata(data, path)
    misnamed = [folder_rules.MISNAMED.finding(path, name=name)] if name != METADATA else []
    return settings, [*misnamed, *(deviation.finding for deviation in deviations)]


def _read_content(
    store: Store,
    path: str,
    size: int,
    settings: Settings,
    parquet: IsolatedParquetReader,
    required: frozenset[str],
    index: KeyIndex | None,
) -> Contents | Unreadable | None:
    form = form_of(path.rpartition("/")[2], settings)
    if not size or not form:
        return None
    try:
        with store.open_read(path) as file:
            if form == PARQUET:
                return parquet.read(file, size, settings.keys, required, index)
            from mirrorfeed.lint.file_contents import read_text  # slow to import

            return read_text(file, path, settings, index)
    except PathMissingError:
        return None  # Fabric consumed the file after it was listed
    except (UnreadableFileError, SymbolicLinkError) as error:
        return Unreadable(UNSAFE, error.reason)


def _read_log(store: Store, folder: str, findings: list[LintFinding]) -> Log | None:
    """Return the log of a table. Adds a finding to `findings` if `log.json` or the newest record cannot be read.

    `log.json` contains the id of the log. The id is also the name of the log's folder. Returns None if the table has no
    `log.json`, or if the id is missing or invalid.
    """
    entries, path = _entries(store, f"{folder}/{LOG}"), f"{folder}/{LOG_ID}"
    folders = [entry.name for entry in entries if entry.is_folder]
    log: Log | None = None
    try:
        data = _read(store, path)
        if data is None:
            if not folders:
                return None
            raise ValueError("it is missing")
        log_id = load_object(data).get("log_id")
        if not isinstance(log_id, str) or not is_log_id(log_id):
            raise ValueError("it has no id of a log")
        path = place = f"{folder}/{log_folder(log_id)}"
        if log_id not in folders and any(entry.name == log_id for entry in entries):
            raise ValueError("it is not a folder")
        log = Log(log_id, others=tuple(name for name in folders if name != log_id))
        numbers = filter(None, map(record_number, _names(store, place)))
        path = f"{place}/{record_name(max(numbers, default=1))}"
        data = _read(store, path)
        newest = None if data is None else records.parse(data, path)
        log = replace(log, newest=newest, staged=tuple(filter(staged_record_number, _names(store, place))))
    except ValueError as error:
        findings.append(folder_rules.LOG_FAULT.finding(path, reason=error))
    except DamagedFileError as error:
        findings.append(folder_rules.LOG_FAULT.finding(path, reason=error.reason))
    except RecordTooNewError as error:
        findings.append(folder_rules.TOO_NEW.finding(path, format=error.found))
    return log


def _names(store: Store, folder: str) -> tuple[str, ...]:
    return tuple(entry.name for entry in _entries(store, folder) if not entry.is_folder)


def _entries(store: Store, folder: str) -> list[Entry]:
    """Return the files and folders in a folder, or nothing if the folder is missing or a symbolic link."""
    try:
        return store.list(folder)
    except SymbolicLinkError:
        return []


def _read(store: Store, path: str) -> bytes | None:
    """Return the content of a file, or None if the file is missing.

    Returns empty content for a symbolic link and for a file that the store refuses to read. All callers report empty
    content as invalid.
    """
    try:
        return store.read(path)
    except PathMissingError:
        return None
    except (UnreadableFileError, SymbolicLinkError):
        return b""
