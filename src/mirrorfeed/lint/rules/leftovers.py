"""Rules for files left behind by any publisher, and for mirrorfeed's own log."""

from __future__ import annotations

import re
from collections.abc import Iterator

from mirrorfeed.display.humanize import counted
from mirrorfeed.landing.names import LOG, data_name, log_folder
from mirrorfeed.landing.record import Record
from mirrorfeed.lint.facts import Contents, Table
from mirrorfeed.lint.findings import REBUILD, Finding, error, listed, warning
from mirrorfeed.lint.metadata_file import Settings
from mirrorfeed.lint.rules.files import number_of
from mirrorfeed.lint.specification import METADATA, SCRATCH

_STAGED = re.compile(r"_.*\.(?:parquet|csv|tsv|psv|txt)(?:\.\w+)?|_temporary", re.IGNORECASE)

STAGED = warning(
    "MF701",
    "A file was staged next to the data files and never published.",
    "Delete the file if no publisher is running. Fabric ignores it.",
)
IN_SCRATCH = warning(
    "MF702",
    "A file was staged in `_scratchPad` and never published.",
    "Delete the file if no publisher is running.",
)
NEVER_PUBLISHED = warning(
    "MF704",
    "A file that mirrorfeed staged is not in a record, so it is never published.",
    "Run `mirrorfeed publish`, which deletes the file unless another publisher is running.",
)
UNFINISHED = warning(
    "MF705",
    "A publication of mirrorfeed is recorded, and its files do not have their final names yet.",
    "Run `mirrorfeed publish`, which finishes the publication.",
)
OLD_LOG = warning(
    "MF706",
    "The log of an earlier folder of the table is still there.",
    "Run `mirrorfeed publish`, which deletes it.",
)
LOG_FAULT = error(
    "MF707",
    "mirrorfeed's log of the table cannot be read.",
    f"Restore the file if it was changed or removed. Otherwise, {REBUILD}.",
)
OTHER_CONTENT = error(
    "MF708",
    "A published file is not the one that mirrorfeed published under that name.",
    f"A published name is final. Find out who changed the file. To be safe, {REBUILD}.",
)
FOREIGN = error(
    "MF709",
    "A data file is not from the mirrorfeed whose log is in the folder.",
    f"Let only one publisher write to a table. Find out who wrote the file. To be safe, {REBUILD}.",
)
TOO_NEW = warning(
    "MF710",
    "A newer version of mirrorfeed wrote the newest record.",
    "Install a newer mirrorfeed and check again. This version does not check the log.",
)
KEYS_CHANGED = error(
    "MF220",
    "The keys in `_metadata.json` are not those with which mirrorfeed published the table.",
    f"Keys never change after they are set. Restore them, or {REBUILD}.",
)


def check_leftovers(table: Table, settings: Settings) -> Iterator[Finding]:
    staged = re.compile(rf"_.*\.{re.escape(settings.extension)}(?:\.\w+)?", re.IGNORECASE)
    for name in table.ignored:
        if _STAGED.fullmatch(name) or staged.fullmatch(name):
            yield STAGED.finding(f"{table.folder}/{name}", "The file was staged and not published.")
    yield from check_scratch(table.folder, table.scratch)
    yield from _log(table, settings)


def check_scratch(folder: str, names: tuple[str, ...]) -> Iterator[Finding]:
    for name in names:
        path = f"{folder}/{SCRATCH}/{name}" if folder else f"{SCRATCH}/{name}"
        yield IN_SCRATCH.finding(path, "The file was staged and not published.")


def _log(table: Table, settings: Settings) -> Iterator[Finding]:
    log = table.log
    if log is None:
        return
    for name in log.others:
        yield OLD_LOG.finding(f"{table.folder}/{LOG}/{name}", "The folder belongs to a log that is no longer in use.")
    if log.fault:
        where, _, reason = log.fault.partition(": ")
        yield LOG_FAULT.finding(f"{table.folder}/{where}", f"mirrorfeed's log cannot be read: {reason}.")
    if log.too_new:
        where, _, format_ = log.too_new.partition(": ")
        yield TOO_NEW.finding(f"{table.folder}/{where}", f"The record has {format_}, which this version does not know.")
    if log.id is None or log.fault or log.too_new:
        return
    published = {file.staged for file in log.newest.files} if log.newest else set()
    for name in log.staged:
        path = f"{table.folder}/{log_folder(log.id)}/{name}"
        if name in published and log.newest:
            yield UNFINISHED.finding(
                path, f"Record {log.newest.number} publishes the file, and it was not renamed yet."
            )
        else:
            yield NEVER_PUBLISHED.finding(path, "The file was staged, and no record publishes it.")
    if log.newest:
        yield from _against_record(table, settings, log.newest)


def _against_record(table: Table, settings: Settings, record: Record) -> Iterator[Finding]:
    if record.keys and record.keys != settings.keys:
        keys = f"the keys {listed(settings.keys)}" if settings.keys else "no keys"
        what = f"It sets {keys}, and the table was published with {listed(record.keys)}."
        yield KEYS_CHANGED.finding(f"{table.folder}/{METADATA}", what)
    sizes = {file.number: file.bytes for file in record.files}
    for file in table.files:
        number, path = number_of(file.name), f"{table.folder}/{file.name}"
        if number is None:
            continue
        if number >= record.next_file_number:
            last = data_name(record.next_file_number - 1, record.extension) if record.next_file_number > 1 else "none"
            yield FOREIGN.finding(path, f"mirrorfeed's log does not know the file; the last that it published: {last}.")
        elif isinstance(file.content, Contents) and sizes.get(number, file.size) != file.size:
            what = f"The file has {counted(file.size, 'byte')}, and record {record.number} published {sizes[number]:,}."
            yield OTHER_CONTENT.finding(path, what)
