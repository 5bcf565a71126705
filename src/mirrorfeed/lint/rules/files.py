"""Rules for data files: their names and numbers, whether they can be read, and the form of delimited text."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from mirrorfeed.display.humanize import counted
from mirrorfeed.landing.consumed import last_renamed, missing_files
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
    "A data file is not named by a number of 20 digits, from 1 on.",
    f"Name data files by 20 digits and their extension, from {data_name(1)}; stage under names with _.",
)
GAP = error(
    "MF302",
    "A number is missing between data files: the service waits for it.",
    "Publish the missing number: the service waits for it, and every later file waits behind it.",
)
NUMBER_TWICE = error(
    "MF303",
    "Two data files carry the same number.",
    "Publish each number once: find out which file holds the batch, and remove the other.",
)
USED_AGAIN = error(
    "MF304",
    "A data file carries a number that the service has processed already: it will not be read.",
    "Publish the content under the next free number: what was processed is not read again.",
)
EMPTY = error(
    "MF305",
    "A data file has no bytes, and stops the table.",
    "Delete it, and put the whole file under the same name; this one stops the table.",
)
TRUNCATED = error(
    "MF306",
    "A data file is cut short, and stops the table.",
    "Delete it, and put the whole file under the same name; this one stops the table.",
)
UNREADABLE = error(
    "MF307",
    "A data file cannot be read, or is encrypted.",
    "Delete it, and put a file that can be read under the same name.",
)
FORM = error(
    "MF308",
    "The data files of a table are not all of the form that `_metadata.json` says.",
    "Write all files of a table in one form, the one that _metadata.json says.",
)
CODEC = error(
    "MF309",
    "A data file is compressed in a way that the service does not read.",
    "Write it uncompressed, or with Snappy, GZIP or ZSTD.",
)
UNSAFE = error(
    "MF314",
    "Reading a data file crashes the Parquet library, or takes too much time or memory.",
    "Delete it, and put a whole file under the same name; the service may fail on this one too.",
)
INVALID_TEXT = error(
    "MF315",
    "A text column of a Parquet file has values that are not valid UTF-8, on which readers fail.",
    "Correct the values, and write bytes that are no text into a binary column.",
)
NO_FILES = warning(
    "MF310",
    "A table's folder has no data file, and Fabric fails such a table after some time.",
    "Publish a file with the columns and no rows: a table without files ends in an error.",
)
LAST_GONE = warning(
    "MF311",
    "All data files were removed, also the last one, from which the service knows where it is.",
    "Go on from the number after the last processed one, and leave the last file in place.",
)
SUBFOLDER = error(
    "MF312",
    "There is a folder inside a table's folder.",
    "Put data files into the table's folder itself, and stage in folders with _ names.",
)
UNFINISHED = warning(
    "MF703",
    "A file in the table's folder has a name as writers give to what is not finished.",
    "Remove it if nobody is writing it; write under a name that starts with _, then rename.",
)
LOST = error(
    "MF313",
    "A file that mirrorfeed published was removed before Fabric consumed it.",
    "Restore the same file under the same name if you can; otherwise run `mirrorfeed rebuild`.",
)
LATE_START = advice(
    "MF351",
    "The first data file has a later number than 1, and nothing shows that earlier ones were processed.",
    "If mirroring was not started yet, begin with number 1: the service waits for it.",
)
_TEXT_RULES = {
    Fault.ENCODING: error(
        "MF601",
        "A text file is not in the encoding that `_metadata.json` sets.",
        "Write the file in the Encoding that _metadata.json sets, or set the right one.",
    ),
    Fault.WIDTH: error(
        "MF602",
        "A row of a text file has more or fewer values than there are columns.",
        "Give every row one value a column; check ColumnSeparator, and quote values with it.",
    ),
    Fault.UNCLOSED: error(
        "MF603",
        "A quote in a text file is not closed.",
        "Close each quote, and escape quotes inside values with EscapeCharacter.",
    ),
    Fault.AFTER_QUOTE: error(
        "MF604",
        "In a text file something follows a closing quote.",
        "Escape quotes inside values with EscapeCharacter; where they are doubled, set it to the quote itself.",
    ),
    Fault.LINE_BREAK: error(
        "MF605",
        "Rows of a text file end otherwise than `_metadata.json` says.",
        "End rows with the RowSeparator that _metadata.json sets, \\r\\n where it sets none, and quote other breaks."
        " A checkout of Git or an editor may have changed the line ends: copy the files as they were written.",
    ),
    Fault.VALUE: error(
        "MF606",
        "A value in a text file is not of the type that is declared.",
        "Write values in the form of the DataType, and NULL as the NullValue.",
    ),
    Fault.NULL: error(
        "MF607",
        "A value in a text file is NULL where the column is declared as never NULL.",
        "Give the column a value in every row, or declare it as nullable from the start.",
    ),
}


@dataclass(frozen=True, slots=True)
class _Named:
    file: DataFile
    number: int
    extension: str


def form_of(name: str, settings: Settings) -> str | None:
    """What a file of this name holds under these settings: Parquet, text, or neither."""
    match = _NAME.fullmatch(name)
    if not match or _UNFINISHED.fullmatch(name):
        return None
    extension = match[2]
    if extension == PARQUET and not settings.text:
        return PARQUET if name.endswith(PARQUET) else None
    return TEXT if extension == settings.extension and settings.text is not False else None


def in_order(files: tuple[DataFile, ...], settings: Settings) -> list[DataFile]:
    """As the service applies them."""
    if settings.by_time:
        return sorted(files, key=lambda file: (file.modified, file.name))
    return sorted(files, key=lambda file: file.name)


def judge_files(table: Table, settings: Settings) -> list[Finding]:
    found: list[Finding] = []
    named: list[_Named] = []
    for file in table.files:
        if _UNFINISHED.fullmatch(file.name):
            found.append(UNFINISHED.broken(_path(table, file), "The name is that of an unfinished or temporary file."))
            continue
        found += _name(table, file, settings)
        found += _whole(table, file)
        if parsed := _parse(file):
            named.append(parsed)
    found += [
        SUBFOLDER.broken(f"{table.folder}/{name}", "There is a folder inside the table's folder.")
        for name in table.folders
    ]
    found += _mixed(table, settings)
    lost = _lost(table, settings)
    if lost and table.log and table.log.newest:
        path = f"{table.folder}/{data_name(lost[0], table.log.newest.extension)}"
        more = f", together with {counted(len(lost) - 1, 'later file')}" if len(lost) > 1 else ""
        found.append(LOST.broken(path, f"The file was removed before Fabric consumed it{more}."))
    if not settings.by_time:
        found += _numbers(table, named, lost)
    if not table.files and not table.processed and not (table.log and table.log.staged):
        found.append(NO_FILES.broken(table.folder, "The table's folder holds no data file."))
    return found


def number_of(name: str) -> int | None:
    match = _NAME.fullmatch(name)
    return int(match[1]) or None if match and _DIGITS.fullmatch(match[1]) else None


def _parse(file: DataFile) -> _Named | None:
    number = number_of(file.name)
    match = _NAME.fullmatch(file.name)
    return _Named(file, number, match[2]) if number and match else None


def _path(table: Table, file: DataFile) -> str:
    return f"{table.folder}/{file.name}"


def _name(table: Table, file: DataFile, settings: Settings) -> Iterator[Finding]:
    path = _path(table, file)
    match = _NAME.fullmatch(file.name)
    if not settings.by_time and number_of(file.name) is None:
        if match and _DIGITS.fullmatch(match[1]):
            yield NAME.broken(path, "The number is 0; the first is 1.")
            return
        if match and match[1].isascii() and match[1].isdigit():
            how = f"has {counted(len(match[1]), 'digit')}"
        else:
            how = "is not a number of 20 digits and an extension"
        yield NAME.broken(path, f"The name {how}.")
    elif form_of(file.name, settings) is None:
        extension = repr(match[2]) if match else "no extension"
        if settings.text is None:
            said = "files are Parquet or CSV where _metadata.json does not say otherwise"
        else:
            said = f"_metadata.json says {settings.extension if settings.text else PARQUET!r}"
        yield FORM.broken(path, f"The extension is {extension}, and {said}.")


def _whole(table: Table, file: DataFile) -> Iterator[Finding]:
    path = _path(table, file)
    if file.size == 0:
        yield EMPTY.broken(path, "The file has no bytes.")
    elif isinstance(file.inside, Unreadable):
        reason = file.inside.reason
        if file.inside.why is Broken.TRUNCATED:
            yield TRUNCATED.broken(path, f"The file is cut short: {reason}.")
        elif file.inside.why is Broken.CODEC:
            yield CODEC.broken(path, f"The file is compressed with {reason}.")
        elif file.inside.why is Broken.UNSAFE:
            yield UNSAFE.broken(path, f"The file cannot be read safely: {reason}.")
        elif file.inside.why is Broken.ENCRYPTED:
            yield UNREADABLE.broken(path, f"The file is encrypted: {reason}.")
        else:
            yield UNREADABLE.broken(path, f"The file cannot be read: {reason}.")
    elif isinstance(file.inside, Contents):
        if odd := sorted(file.inside.codecs - CODECS):
            yield CODEC.broken(path, f"Columns are compressed with {', '.join(odd)}.")
        for column, row in file.inside.invalid_texts.items():
            what = f"The column {column!r} has a text that is not valid UTF-8 in row {row:,}."
            yield INVALID_TEXT.broken(path, what)


def _mixed(table: Table, settings: Settings) -> Iterator[Finding]:
    """Parquet and CSV side by side, where the metadata leaves both open."""
    forms = {form: file for file in reversed(in_order(table.files, settings)) if (form := form_of(file.name, settings))}
    if len(forms) == 2:
        later = max(forms.values(), key=lambda file: in_order(table.files, settings).index(file))
        yield FORM.broken(_path(table, later), "The folder holds Parquet files and delimited text.")


def _lost(table: Table, settings: Settings) -> Sequence[int]:
    """The numbers of files that our log says were published, and that are lost."""
    log = table.log
    if log is None or log.newest is None:
        return ()
    in_place, processed = (
        [number for name in names if (number := number_of(name))] for names in (table.in_place, table.processed)
    )
    last = last_renamed(log.newest, log.staged)
    found = missing_files(last, in_place, processed, newest_first=[log.newest], by_time=settings.by_time)
    return found.numbers if found.lost else ()


def _numbers(table: Table, named: list[_Named], lost: Collection[int]) -> Iterator[Finding]:
    processed = {number: f"{folder}/{name}" for name, folder in table.processed.items() if (number := number_of(name))}
    by_number: dict[int, _Named] = {}
    for one in named:
        if one.number in by_number:
            other = by_number[one.number].file.name
            yield NUMBER_TWICE.broken(_path(table, one.file), f"The number {one.number} is also that of {other}.")
        by_number.setdefault(one.number, one)
    last_processed = max(processed, default=0)
    if last_processed and not by_number:
        what = f"Number {last_processed} was processed, and no data file is left in the folder."
        yield LAST_GONE.broken(table.folder, what)
    for number in sorted(by_number.keys() & processed.keys() - {last_processed}):
        what = f"The number {number} was processed before, as {processed[number]}."
        yield USED_AGAIN.broken(_path(table, by_number[number].file), what)
    yield from _gaps(table, by_number, set(processed), lost)


def _gaps(table: Table, by_number: dict[int, _Named], processed: set[int], lost: Collection[int]) -> Iterator[Finding]:
    """Missing numbers, except those that are reported as lost."""
    numbers = sorted(by_number)
    before: int | None = None
    for number in sorted({*numbers, *processed}):
        if number in by_number and before is not None and number > before + 1 and before + 1 not in lost:
            one = number == before + 2
            missing = f"number {before + 1} is" if one else f"the numbers {before + 1} to {number - 1} are"
            what = f"Before it, {missing} missing; the last before is {before}."
            yield GAP.broken(_path(table, by_number[number].file), what)
        before = number
    if len(numbers) > 1 and numbers[0] > 1 and not processed and table.log is None:
        what = f"The first number is {numbers[0]}, and nothing shows that those before it were processed."
        yield LATE_START.broken(_path(table, by_number[numbers[0]].file), what)


def judge_text(folder: str, files: list[DataFile]) -> Iterator[Finding]:
    for file in files:
        if isinstance(file.inside, Contents):
            for one in file.inside.faults:
                yield _TEXT_RULES[one.fault].broken(f"{folder}/{file.name}", f"Row {one.row:,}: {one.detail}.")
