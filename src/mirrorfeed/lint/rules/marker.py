"""The row marker: where it stands, how it is written, and which values it has."""

from __future__ import annotations

from collections.abc import Iterator

from mirrorfeed.display.humanize import counted
from mirrorfeed.landing.schema import MARKER
from mirrorfeed.lint.facts import TYPELESS, Contents, DataFile, Table
from mirrorfeed.lint.findings import Finding, advice, error, listed, warning
from mirrorfeed.lint.metadata_file import Settings
from mirrorfeed.lint.rules.files import number_of

VALUES = frozenset({"0", "1", "2", "4"})
_RIGHT = frozenset({"int32", "Int32", TYPELESS})  # without a type there is no value: that is a finding of its own
_INTEGERS = frozenset({"int8", "int16", "int64", "uint8", "uint16", "uint32", "uint64", "Int16", "Int64"})

NOT_LAST = error(
    "MF501", "The row marker is not the last column, or is there more than once.", f"Write {MARKER} as the last column."
)
FIRST = warning(
    "MF502",
    "The row marker is the first column, as only an older edition of the specification has it.",
    f"Write {MARKER} as the last column; only an older edition of the specification has it first.",
)
MISSPELLED = error(
    "MF503",
    "A column is named almost as the row marker, and is taken for data.",
    f"Name the column {MARKER}: under another name it is data, and every row is an insert.",
)
WIDTH = warning(
    "MF504",
    "The row marker is an integer of another width than 32 bits.",
    "Write the marker as int32, which works everywhere; of other integers that is not known.",
)
VALUE = error(
    "MF505",
    "The row marker has a value that means nothing.",
    "Write 0 for an insert, 1 for an update, 2 for a delete, 4 for an upsert.",
)
NULL = error(
    "MF506", "The row marker is NULL in some rows.", "Give every row a marker, or leave the column out of the file."
)
KEYLESS = error(
    "MF507",
    "Rows are marked as updates, deletes or upserts, and the table has no keys.",
    "Set keyColumns in _metadata.json, or publish inserts only: nothing says which rows are meant.",
)
TYPE = error("MF508", "The row marker is no whole number.", "Write the marker as a number, of type int32.")
FIRST_LOAD = advice(
    "MF551",
    "The first file marks every row as an insert, which makes the first load slower.",
    "Leave the marker out of the first load: files without it are taken in faster.",
)


def judge_markers(table: Table, files: list[DataFile], settings: Settings) -> list[Finding]:
    found: list[Finding] = []
    known = {column.name for column in table.log.newest.columns} if table.log and table.log.newest else set()
    for file in files:
        if isinstance(file.inside, Contents):
            path = f"{table.folder}/{file.name}"
            found += _column(path, file.inside, known)
            found += _values(path, file.inside, settings)
            if number_of(file.name) == 1 and set(file.inside.markers) == {"0"} and not settings.upserts:
                found.append(FIRST_LOAD.broken(path, "The first file marks every row as an insert."))
    return found


def _column(path: str, contents: Contents, known: set[str]) -> Iterator[Finding]:
    """Known are the columns of the table, by its log."""
    names = [column.name for column in contents.columns]
    for name in names:
        if name not in known and name != MARKER and name.strip("_").lower() == MARKER.strip("_").lower():
            yield MISSPELLED.broken(path, f"The file has a column {name!r}, which is not {MARKER!r}.")
    if MARKER not in names:
        return
    at = names.index(MARKER)
    if names.count(MARKER) > 1:
        yield NOT_LAST.broken(path, f"{MARKER} is there {names.count(MARKER)} times.")
    elif at == 0 and len(names) > 1:
        yield FIRST.broken(path, f"{MARKER} is the first of {len(names)} columns.")
    elif at < len(names) - 1:
        yield NOT_LAST.broken(path, f"{MARKER} is column {at + 1} of {len(names)}.")
    type_ = contents.columns[at].type
    if type_ is not None and type_ not in _RIGHT:
        yield (WIDTH if type_ in _INTEGERS else TYPE).broken(path, f"{MARKER} has the type {type_}.")


def _values(path: str, contents: Contents, settings: Settings) -> Iterator[Finding]:
    odd = {value: rows for value, rows in contents.markers.items() if value not in VALUES and value != "NULL"}
    if odd:
        yield VALUE.broken(path, f"{MARKER} is {listed(sorted(odd))} in {counted(sum(odd.values()), 'row')}.")
    if rows := contents.markers.get("NULL"):
        yield NULL.broken(path, f"{MARKER} is NULL in {rows:,} of {contents.rows:,} rows.")
    changes = {value: rows for value, rows in contents.markers.items() if value in VALUES - {"0"}}
    if changes and not settings.keys:
        kinds = ", ".join(f"{counted(rows, 'row')} marked {value}" for value, rows in sorted(changes.items()))
        yield KEYLESS.broken(path, f"The table has no key columns, and the file has {kinds}.")
