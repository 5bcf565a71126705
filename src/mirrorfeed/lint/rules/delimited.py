"""Delimited text that goes against its own options."""

from __future__ import annotations

from collections.abc import Iterator

from mirrorfeed.lint.facts import Contents, DataFile, Fault
from mirrorfeed.lint.findings import Finding, error

_RULES = {
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


def judge_text(folder: str, files: list[DataFile]) -> Iterator[Finding]:
    for file in files:
        if isinstance(file.inside, Contents):
            for one in file.inside.faults:
                yield _RULES[one.fault].broken(f"{folder}/{file.name}", f"Row {one.row:,}: {one.detail}.")
