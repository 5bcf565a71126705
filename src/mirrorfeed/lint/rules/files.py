"""Rules for data files: their names and numbers, whether they can be read, and the form of delimited text."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from itertools import pairwise

from mirrorfeed.display.humanize import counted
from mirrorfeed.landing.consumed_files import last_renamed, missing_files
from mirrorfeed.landing.names import data_name
from mirrorfeed.lint.delimited_text import Fault
from mirrorfeed.lint.facts import Broken, Contents, DataFile, Table, Unreadable
from mirrorfeed.lint.findings import Finding, advice, error, warning
from mirrorfeed.lint.metadata_file import Settings

PARQUET, TEXT = "parquet", "text"
CODECS = frozenset({"UNCOMPRESSED", "SNAPPY", "GZIP", "ZSTD"})
_NAME = re.compile(r"(.+?)\.([0-9A-Za-z]+)(?:\.(?:gz|gzip|zst|zstd|snappy))?")
_DIGITS = re.compile(r"[0-9]{20}")
_UNFINISHED = re.compile(r"\..*|.*(?:~|\.(?:tmp|temp|part|partial|inprogress|crc|swp|bak))", re.IGNORECASE)

NAME = error(
    "MF301",
    "The name of a data file is not a number of 20 digits from 1 upwards.",
    f"Name data files with 20 digits and their extension, from {data_name(1)}. Stage under names that start with _.",
)
GAP = error(
    "MF302",
    "A number is missing between data files, so Fabric does not read the later ones.",
    "Publish the missing number. Fabric reads no later file before it.",
)
NUMBER_TWICE = error(
    "MF303",
    "Two data files have the same number.",
    "Find out which file has the batch, and delete the other one.",
)
USED_AGAIN = error(
    "MF304",
    "A data file has a number that Fabric has already consumed, so it is never read.",
    "Publish the content under the next free number.",
)
EMPTY = error(
    "MF305",
    "A data file has no bytes, which stops the table.",
    "Delete the file, and write the complete file under the same name.",
)
TRUNCATED = error(
    "MF306",
    "A data file is incomplete, which stops the table.",
    "Delete the file, and write the complete file under the same name.",
)
UNREADABLE = error(
    "MF307",
    "A data file cannot be read, or is encrypted.",
    "Delete the file, and write a readable file under the same name.",
)
FORM = error(
    "MF308",
    "The data files of a table do not all have the format that `_metadata.json` sets.",
    "Write all files of a table in the format that _metadata.json sets.",
)
CODEC = error(
    "MF309",
    "A data file has a compression that Fabric does not read.",
    "Write the file without compression, or with Snappy, GZIP or ZSTD.",
)
UNSAFE = error(
    "MF314",
    "Reading a data file crashes the Parquet library, or takes too much time or memory.",
    "Delete the file, and write a valid file under the same name. Fabric may fail on this one too.",
)
INVALID_TEXT = error(
    "MF315",
    "A text column of a Parquet file has values that are not valid UTF-8, so readers fail.",
    "Correct the values, and write bytes that are not text into a binary column.",
)
NO_FILES = warning(
    "MF310",
    "The folder of a table has no data file, and Fabric fails such a table after some time.",
    "Publish a file with the columns and no rows.",
)
LAST_GONE = warning(
    "MF311",
    "All data files were deleted, also the last one, which shows the next number.",
    "Continue with the number after the last consumed one, and keep the last file.",
)
SUBFOLDER = error(
    "MF312",
    "The folder of a table has a subfolder.",
    "Write data files into the folder of the table, and stage in folders whose names start with _.",
)
UNFINISHED = warning(
    "MF703",
    "The name of a file in the folder of a table is that of an unfinished file.",
    "Delete the file if nothing is writing it. Write under a name that starts with _, then rename.",
)
LOST = error(
    "MF313",
    "A file that mirrorfeed published was removed before Fabric consumed it.",
    "Restore the same file under the same name if you can; otherwise run `mirrorfeed rebuild`.",
)
LATE_START = advice(
    "MF351",
    "The number of the first data file is not 1, and no earlier file is known to be consumed.",
    "If mirroring has not started yet, begin with number 1, because Fabric waits for it.",
)
_TEXT_RULES = {
    Fault.ENCODING: error(
        "MF601",
        "A text file is not in the encoding that `_metadata.json` sets.",
        "Write the file in the Encoding that _metadata.json sets, or correct the setting.",
    ),
    Fault.WIDTH: error(
        "MF602",
        "The number of values in a row of a text file is not the number of columns.",
        "Give every row one value per column. Check ColumnSeparator, and quote values that contain it.",
    ),
    Fault.UNCLOSED: error(
        "MF603",
        "A quote in a text file is not closed.",
        "Close each quote, and escape quotes inside values with EscapeCharacter.",
    ),
    Fault.AFTER_QUOTE: error(
        "MF604",
        "A text file has characters between a closing quote and the next separator.",
        "Escape quotes inside values with EscapeCharacter. If quotes are doubled, set it to the quote.",
    ),
    Fault.LINE_BREAK: error(
        "MF605",
        "Rows of a text file do not end in the RowSeparator of `_metadata.json`.",
        "End rows with RowSeparator (default \\r\\n), and quote values with other line breaks."
        " A checkout of Git or an editor may have changed the line ends, so copy the files unchanged.",
    ),
    Fault.VALUE: error(
        "MF606",
        "A value in a text file does not have the declared type.",
        "Write values in the format of their DataType, and NULL as NullValue.",
    ),
    Fault.NULL: error(
        "MF607",
        "A value in a text file is NULL, and its column is declared as not nullable.",
        "Write a value in every row, or declare the column as nullable from the start.",
    ),
}
_UNREADABLE = {
    Broken.TRUNCATED: (TRUNCATED, "is cut short: {}"),
    Broken.CODEC: (CODEC, "is compressed with {}"),
    Broken.UNSAFE: (UNSAFE, "cannot be read safely: {}"),
    Broken.ENCRYPTED: (UNREADABLE, "is encrypted: {}"),
    Broken.FOREIGN: (UNREADABLE, "cannot be read: {}"),
}


def form_of(name: str, settings: Settings) -> str | None:
    """Return the format of a file by its name and the settings: Parquet, text, or None."""
    match = _NAME.fullmatch(name)
    if not match or _UNFINISHED.fullmatch(name):
        return None
    if match[2] == PARQUET and not settings.text:
        return PARQUET if name.endswith(PARQUET) else None
    return TEXT if match[2] == settings.extension and settings.text is not False else None


def number_of(name: str) -> int | None:
    match = _NAME.fullmatch(name)
    return int(match[1]) or None if match and _DIGITS.fullmatch(match[1]) else None


def sort_files(files: tuple[DataFile, ...], settings: Settings) -> list[DataFile]:
    """Return the files in the order in which Fabric applies them."""
    return sorted(files, key=lambda file: (file.modified, file.name) if settings.by_time else (file.name,))


def check_files(table: Table, settings: Settings) -> Iterator[Finding]:
    for file in table.files:
        path = f"{table.folder}/{file.name}"
        if _UNFINISHED.fullmatch(file.name):
            yield UNFINISHED.finding(path, "The name is that of an unfinished or temporary file.")
        else:
            yield from _check_name(path, file.name, settings)
            yield from _check_content(path, file)
    for name in table.folders:
        yield SUBFOLDER.finding(f"{table.folder}/{name}", "There is a folder inside the table's folder.")
    files = [(file, form) for file in sort_files(table.files, settings) if (form := form_of(file.name, settings))]
    if other := next((file for file, form in files if form != files[0][1]), None):
        yield FORM.finding(f"{table.folder}/{other.name}", "The folder holds Parquet files and delimited text.")
    lost = _lost(table, settings)
    if lost and table.log and table.log.newest:
        path = f"{table.folder}/{data_name(lost[0], table.log.newest.extension)}"
        more = f", together with {counted(len(lost) - 1, 'later file')}" if len(lost) > 1 else ""
        yield LOST.finding(path, f"The file was removed before Fabric consumed it{more}.")
    if not settings.by_time:
        yield from _check_numbers(table, lost)
    if not table.files and not table.processed and not (table.log and table.log.staged):
        yield NO_FILES.finding(table.folder, "The table's folder holds no data file.")


def _check_name(path: str, name: str, settings: Settings) -> Iterator[Finding]:
    match = _NAME.fullmatch(name)
    if not settings.by_time and number_of(name) is None:
        if match and _DIGITS.fullmatch(match[1]):
            what = "The number is 0; the first is 1."
        elif match and match[1].isascii() and match[1].isdigit():
            what = f"The name has {counted(len(match[1]), 'digit')}."
        else:
            what = "The name is not a number of 20 digits and an extension."
        yield NAME.finding(path, what)
    elif form_of(name, settings) is None:
        extension = repr(match[2]) if match else "no extension"
        if settings.text is None:
            expected = "files are Parquet or CSV unless _metadata.json sets another format"
        else:
            expected = f"_metadata.json sets {settings.extension if settings.text else PARQUET!r}"
        yield FORM.finding(path, f"The extension is {extension}, and {expected}.")


def _check_content(path: str, file: DataFile) -> Iterator[Finding]:
    if file.size == 0:
        yield EMPTY.finding(path, "The file has no bytes.")
    elif isinstance(file.content, Unreadable):
        rule, what = _UNREADABLE[file.content.why]
        yield rule.finding(path, f"The file {what.format(file.content.reason)}.")
    elif isinstance(file.content, Contents):
        if odd := sorted(file.content.codecs - CODECS):
            yield CODEC.finding(path, f"Columns are compressed with {', '.join(odd)}.")
        for column, row in file.content.invalid_texts.items():
            what = f"The column {column!r} has a text that is not valid UTF-8 in row {row:,}."
            yield INVALID_TEXT.finding(path, what)


def _lost(table: Table, settings: Settings) -> Sequence[int]:
    """Return the numbers of lost files that mirrorfeed published."""
    if table.log is None or table.log.newest is None:
        return ()
    newest, last = table.log.newest, last_renamed(table.log.newest, table.log.staged)
    in_place, processed = (list(filter(None, map(number_of, names))) for names in (table.in_place, table.processed))
    found = missing_files(last, in_place, processed, newest_first=[newest], by_time=settings.by_time)
    return found.numbers if found.lost else ()


def _check_numbers(table: Table, lost: Collection[int]) -> Iterator[Finding]:
    processed = {number: f"{folder}/{name}" for name, folder in table.processed.items() if (number := number_of(name))}
    paths: dict[int, str] = {}
    for file in table.files:
        if (number := number_of(file.name)) and not _UNFINISHED.fullmatch(file.name):
            path = f"{table.folder}/{file.name}"
            if (other := paths.setdefault(number, path)) != path:
                what = f"The number {number} is also that of {other.rpartition('/')[2]}."
                yield NUMBER_TWICE.finding(path, what)
    last_processed = max(processed, default=0)
    if last_processed and not paths:
        what = f"Number {last_processed} was processed, and no data file is left in the folder."
        yield LAST_GONE.finding(table.folder, what)
    for number in sorted(paths.keys() & processed.keys() - {last_processed}):
        what = f"The number {number} was processed before, as {processed[number]}."
        yield USED_AGAIN.finding(paths[number], what)
    numbers = sorted({*paths, *processed})
    for before, number in pairwise(numbers):  # a lost file has its own finding
        if number in paths and number > before + 1 and before + 1 not in lost:
            one = number == before + 2
            missing = f"number {before + 1} is" if one else f"the numbers {before + 1} to {number - 1} are"
            yield GAP.finding(paths[number], f"Before it, {missing} missing; the last before is {before}.")
    if len(paths) > 1 and numbers[0] > 1 and not processed and table.log is None:
        what = f"The first number is {numbers[0]}, and nothing shows that those before it were processed."
        yield LATE_START.finding(paths[numbers[0]], what)


def check_text(folder: str, files: list[DataFile]) -> Iterator[Finding]:
    for file in files:
        for one in file.content.faults if isinstance(file.content, Contents) else ():
            yield _TEXT_RULES[one.fault].finding(f"{folder}/{file.name}", f"Row {one.row:,}: {one.detail}.")
