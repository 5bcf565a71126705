"""Lint rules for data files: names, file numbers, format, and files that cannot be read."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from itertools import pairwise

from mirrorfeed.display.rows import counted
from mirrorfeed.landing.log_record import last_renamed, missing_files
from mirrorfeed.landing.names import LOG, data_name
from mirrorfeed.lint.landing_zone import Contents, LandingFile, LandingTable, Unreadable
from mirrorfeed.lint.specification import CODEC, TRUNCATED, LintFinding, Settings, advice, error, warning

PARQUET, TEXT = "parquet", "text"
CODECS = frozenset({"UNCOMPRESSED", "SNAPPY", "GZIP", "ZSTD"})
_NAME = re.compile(r"(.+?)\.([0-9A-Za-z]+)(?:\.(?:gz|gzip|zst|zstd|snappy))?")
_DIGITS = re.compile(r"[0-9]{20}")
_UNFINISHED = re.compile(r"\..*|.*(?:~|\.(?:tmp|temp|part|partial|inprogress|crc|swp|bak))", re.IGNORECASE)

NAME = error(
    "MF301",
    "The file name must be a 20-digit number greater than 0 and an extension.",
    f"Number data files from {data_name(1)} upwards. Stage files under names that start with _.",
)
GAP = error(
    "MF302",
    "{missing} missing before this file. The previous number is {before}.",
    "Publish a file with the missing number. Until then, Fabric reads no later file.",
    "A number is missing between data files, so Fabric does not read the later ones.",
)
NUMBER_TWICE = error(
    "MF303",
    "The file has the same number ({number}) as {other}.",
    "Find out which of the two files contains the correct rows, and delete the other one.",
)
USED_AGAIN = error(
    "MF304",
    "Fabric already consumed the number {number}, as {other}, so it never reads this file.",
    "Publish the content of this file under the next free number.",
)
UNREADABLE = error(
    "MF307",
    "The file cannot be read: {reason}.",
    "Delete the file, and write a readable file under the same name.",
)
FORM = error(
    "MF308",
    "{problem}.",
    "Write all files of a table in the format that _metadata.json sets.",
    "The data files of a table do not all have the format that `_metadata.json` sets.",
)
UNSAFE = error(
    "MF314",
    "The file cannot be read safely: {reason}.",
    "Delete the file, and write a valid file under the same name. Fabric may also fail to read this file.",
    "Reading a data file crashes the Parquet library, or takes too much time or memory.",
)
INVALID_TEXT = error(
    "MF315",
    "The column {column!r} has a value that is not valid UTF-8, first in row {row:,}. Readers fail on such values.",
    "Correct the values. Write bytes that are not text into a binary column.",
)
NOT_PUBLISHED = warning(
    "MF316",
    "mirrorfeed has not published the table yet: its first publication was refused, failed or is still running.",
    "Run `mirrorfeed publish`, or drop the table with `mirrorfeed drop`. Fabric may treat any folder as a table.",
)
NO_FILES = warning(
    "MF310",
    "The folder of the table has no data file. After some time, Fabric reports such a table as failed.",
    "Publish a file, which may have columns and no rows.",
)
LAST_GONE = warning(
    "MF311",
    "Fabric consumed number {number}, but the folder has no data file left that shows the next number.",
    "Continue with the number after the last consumed number. Do not delete the last file of a table.",
)
SUBFOLDER = error(
    "MF312",
    "The folder of the table contains another folder.",
    "Write data files directly into the folder of the table. Stage files in folders whose names start with _.",
)
UNFINISHED = warning(
    "MF703",
    "The file has the name of an unfinished or temporary file.",
    "If no process is writing the file, delete it. Write files under names that start with _, then rename them.",
)
LOST = error(
    "MF313",
    "The file was removed before Fabric consumed it{more}.",
    "If you can, restore the same file under the same name. Otherwise run `mirrorfeed rebuild`.",
    "A file that mirrorfeed published was removed before Fabric consumed it.",
)
LATE_START = advice(
    "MF351",
    "The first number is {number}, and nothing shows that Fabric consumed earlier numbers.",
    "If mirroring has not started yet, begin with number 1, because Fabric waits for number 1.",
)


def form_of(name: str, settings: Settings) -> str | None:
    """Return the format of a data file, `PARQUET` or `TEXT`, by its name and the settings of the table.

    Returns None for a temporary file, or if the extension does not match the settings.
    """
    match = _NAME.fullmatch(name)
    if not match or _UNFINISHED.fullmatch(name):
        return None
    if match[2] == PARQUET and not settings.text:
        return PARQUET if name.endswith(PARQUET) else None
    return TEXT if match[2] == settings.extension and settings.text is not False else None


def number_of(name: str) -> int | None:
    """Return the 20-digit number in the name of a data file, or None for the number 0 and for any other name."""
    match = _NAME.fullmatch(name)
    return int(match[1]) or None if match and _DIGITS.fullmatch(match[1]) else None


def check_files(table: LandingTable) -> Iterator[LintFinding]:
    settings = table.settings
    for file in table.files:
        path = f"{table.folder}/{file.name}"
        if _UNFINISHED.fullmatch(file.name):
            yield UNFINISHED.finding(path)
        else:
            yield from _check_name(path, file.name, settings)
            yield from _check_content(path, file)
    for name in table.folders:
        yield SUBFOLDER.finding(f"{table.folder}/{name}")
    files = [(file, form) for file in table.files if (form := form_of(file.name, settings))]
    if other := next((file for file, form in files if form != files[0][1]), None):
        problem = "The folder has Parquet files and delimited text"
        yield FORM.finding(f"{table.folder}/{other.name}", problem=problem)
    lost: Sequence[int] = ()
    if table.log and (newest := table.log.newest):
        last = last_renamed(newest, table.log.staged)
        in_place, processed = ([*filter(None, map(number_of, names))] for names in (table.in_place, table.processed))
        missing = missing_files(last, in_place, processed, newest_first=[newest], by_time=settings.by_time)
        if missing and in_place:
            lost = missing
            more = f", together with {counted(len(lost) - 1, 'later file')}" if len(lost) > 1 else ""
            yield LOST.finding(f"{table.folder}/{data_name(lost[0], newest.extension)}", more=more)
    if not settings.by_time:
        yield from _check_numbers(table, lost)
    if table.is_unpublished:
        yield NOT_PUBLISHED.finding(table.folder)
    elif not table.files and not table.processed and not (table.log and table.log.staged):
        yield NO_FILES.finding(table.folder)


def _check_name(path: str, name: str, settings: Settings) -> Iterator[LintFinding]:
    if not settings.by_time and number_of(name) is None:
        yield NAME.finding(path)
    elif form_of(name, settings) is None:
        match = _NAME.fullmatch(name)
        extension = repr(match[2]) if match else "no extension"
        if settings.text is None:
            expected = "files are Parquet or CSV unless _metadata.json sets another format"
        else:
            expected = f"_metadata.json sets {settings.extension if settings.text else PARQUET!r}"
        yield FORM.finding(path, problem=f"The extension is {extension}, and {expected}")


def _check_content(path: str, file: LandingFile) -> Iterator[LintFinding]:
    content = file.content
    if file.size == 0:
        yield TRUNCATED.finding(path, reason="it has 0 bytes")
    elif isinstance(content, Unreadable):
        yield content.rule.finding(path, reason=content.reason, codec=content.reason)
    elif isinstance(content, Contents):
        if unknown := sorted(content.codecs - CODECS):
            yield CODEC.finding(path, codec=", ".join(unknown))
        for column, row in content.invalid_texts.items():
            yield INVALID_TEXT.finding(path, column=column, row=row)
        yield from content.faults


def _check_numbers(table: LandingTable, lost: Collection[int]) -> Iterator[LintFinding]:
    processed = {number: f"{folder}/{name}" for name, folder in table.processed.items() if (number := number_of(name))}
    paths: dict[int, str] = {}
    for file in table.files:
        if (number := number_of(file.name)) and not _UNFINISHED.fullmatch(file.name):
            path = f"{table.folder}/{file.name}"
            if (other := paths.setdefault(number, path)) != path:
                yield NUMBER_TWICE.finding(path, number=number, other=other.rpartition("/")[2])
    last_processed = max(processed, default=0)
    if last_processed and not paths:
        yield LAST_GONE.finding(table.folder, number=last_processed)
    for number in sorted(paths.keys() & processed.keys() - {last_processed}):
        yield USED_AGAIN.finding(paths[number], number=number, other=processed[number])
    numbers = sorted({*paths, *processed})
    for before, number in pairwise(numbers):  # LOST already reports the numbers in `lost`
        if number in paths and number > before + 1 and before + 1 not in lost:
            is_one = number == before + 2
            missing = f"Number {before + 1} is" if is_one else f"The numbers {before + 1} to {number - 1} are"
            yield GAP.finding(paths[number], missing=missing, before=before)
    if len(paths) > 1 and numbers[0] > 1 and not processed and LOG not in table.ignored:
        yield LATE_START.finding(paths[numbers[0]], number=numbers[0])
