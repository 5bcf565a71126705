"""Lint rules for columns: names, types, changes between files, keys, and the row marker."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from mirrorfeed.display.rows import counted, first_names
from mirrorfeed.landing.names import fold
from mirrorfeed.lint.file_rules import number_of
from mirrorfeed.lint.landing_zone import TYPELESS, Contents, LandingTable
from mirrorfeed.lint.specification import (
    DATA_TYPES,
    MARKER,
    MARKER_TEXTS,
    REBUILD,
    FileColumn,
    LintFinding,
    Settings,
    advice,
    error,
    warning,
)

WIDE = 128
_PLAIN = "boolean int8 int16 int32 int64 float double string binary date timestamp timestamp_ntz uuid"
_TYPES = frozenset([*_PLAIN.split(), *DATA_TYPES])
_DECIMAL = re.compile(r"decimal\((\d+), (\d+)\)")
_INEXACT = frozenset({"float", "double", "Single", "Double"})
_INT32 = frozenset({"int32", "Int32", TYPELESS})  # a marker without a type has no values, and has a separate finding
_INTEGERS = frozenset({"int8", "int16", "int64", "uint8", "uint16", "uint32", "uint64", "Int16", "Int64"})

NAME_TWICE = error(
    "MF401",
    "The file has the column {column!r} {how}.",
    "Give each column a unique name. Column names in the mirror are case-insensitive.",
    "A data file has two columns with the same name, or with names that differ only in case.",
)
OTHER_CASE = error(
    "MF402", "The column {column!r} is spelled {before!r} in earlier files.", "Spell the column as in earlier files."
)
UNSUPPORTED = error(
    "MF403",
    "The column {column!r} has the type {type}. A mirrored table cannot store this type.",
    "Write nested values as JSON text, decimals with at most 38 digits, and other values with a simple type.",
)
DRIFT = error(
    "MF404",
    "The type of column {column!r} changes from {before} to {type} in this file. This stops replication of the table.",
    f"Write the old type. To change the type, {REBUILD}.",
)
GONE = warning(
    "MF405",
    "The column {column!r} is missing in this file, but was in earlier files. New rows have NULL in this column.",
    f"Keep the column, and write NULL if there is no value. If it was renamed, {REBUILD}.",
)
REQUIRED_GONE = error(
    "MF406",
    "The non-nullable column {column!r} is missing in this file, but was in earlier files.",
    f"Write the column into every file, because the merge fails without it. To remove the column, {REBUILD}.",
)
NO_KEY = error(
    "MF407",
    "The file does not have the key column {key!r}: {hint}.",
    "Write the key columns into every file, spelled as in _metadata.json.",
    "A data file lacks a key column.",
)
NULL_KEY = error(
    "MF408",
    "The key column {key!r} is NULL in {count:,} of {rows:count row}.",
    "Give every row a key. Updates of rows without a key insert duplicates.",
)
NO_COLUMNS = error(
    "MF409",
    "The file has {problem}.",
    "Write the columns of the table, each with a name.",
    "A data file has no columns, or a column without a name.",
)
UNDECLARED = error(
    "MF410",
    "SchemaDefinition does not declare {columns:names}.",
    f"With SchemaDefinition, a table cannot get new columns. Remove the column, or declare it and {REBUILD}.",
)
NO_TYPE = warning(
    "MF411",
    "The column {column!r} has no type in this file, because all its values are NULL.",
    "Give the writer a schema. A writer that infers types from values finds no type in a column of NULLs.",
)
NULL_VALUE = error(
    "MF413",
    "The column {column!r} is NULL in {count:count row}, but the first file declares the column as not nullable.",
    f"Publish a value in every row, because the merge fails on NULL. To make the column nullable, {REBUILD}.",
)
WIDE_KEY = advice(
    "MF451",
    "The key column {key!r} has values of up to {width:,} bytes, and each merge compares these values.",
    "If the source has narrower unique columns, use them as keys.",
)
INEXACT_KEY = advice(
    "MF452",
    "The key column {key!r} has the type {type}. Values of this type cannot be compared exactly.",
    "Choose a key of another type, such as an integer or text.",
)
NOT_LAST = error(
    "MF501",
    f"{MARKER} {{problem}}.",
    f"Write {MARKER} as the last column.",
    "The row marker is not the last column, or the file has it more than once.",
)
FIRST = warning(
    "MF502",
    f"{MARKER} is the first of {{count}} columns, not the last.",
    f"Write {MARKER} as the last column. Only an older edition of the specification has the marker first.",
)
MISSPELLED = error(
    "MF503",
    f"The file has the column {{column!r}} instead of {MARKER!r}, so Fabric reads the markers as data.",
    f"Rename the column to {MARKER}. With any other name, Fabric treats every row as an insert.",
)
WIDTH = warning(
    "MF504",
    f"{MARKER} has the type {{type}} instead of int32.",
    "Write the marker as int32. Other integer types may not work everywhere.",
    "The row marker is an integer that does not have 32 bits.",
)
VALUE = error(
    "MF505",
    f"{MARKER} is {{values:names}} in {{count:count row}}, first in row {{first:,}}. It must be 0, 1, 2 or 4.",
    "Write 0 for an insert, 1 for an update, 2 for a delete or 4 for an upsert.",
    "The row marker has an unknown value.",
)
NULL = error(
    "MF506",
    f"{MARKER} is NULL in {{count:,}} of {{rows:count row}}.",
    "Give every row a marker, or write the file without the marker column.",
)
KEYLESS = error(
    "MF507",
    "The table has no key columns, but the file has {kinds}.",
    "Set keyColumns in _metadata.json, or publish inserts only.",
    "Rows are marked as updates, deletes or upserts, but the table has no keys.",
)
TYPE = error("MF508", f"{MARKER} has the type {{type}} instead of int32.", "Write the marker as int32.")
FIRST_LOAD = advice(
    "MF551",
    "The first file marks every row as an insert. This makes the initial load slower.",
    "Write the initial load without the marker column. Fabric reads files without markers faster.",
)


def check_columns(table: LandingTable) -> Iterator[LintFinding]:
    settings = table.settings
    # Some publishers declare the row marker, which is not a column of the table.
    declared = {fold(column.name): column for column in settings.declared or () if column.name != MARKER}
    known, typeless, has_key_advice = dict(declared), set[str](), False
    published = {column.name for column in table.log.newest.columns} if table.log and table.log.newest else set[str]()
    for file in table.files:
        contents = file.content
        if not isinstance(contents, Contents) or (contents.faults and not contents.columns):
            continue  # not read, or text with a fault in its header
        path = f"{table.folder}/{file.name}"
        columns = [column for column in contents.columns if fold(column.name) != fold(MARKER)]
        yield from _check_names(path, columns)
        yield from _check_types(path, contents.columns, typeless)
        yield from _check_values(path, columns, contents, settings)
        if not has_key_advice:
            wide = {key: width for key, width in contents.widest_keys.items() if width > WIDE}
            inexact = [column for column in columns if column.name in settings.keys and column.type in _INEXACT]
            yield from (WIDE_KEY.finding(path, key=key, width=width) for key, width in wide.items())
            yield from (INEXACT_KEY.finding(path, key=column.name, type=column.type) for column in inexact)
            has_key_advice = bool(wide or inexact)
        undeclared = [column.name for column in columns if column.name.strip() and fold(column.name) not in declared]
        if settings.declared is not None and undeclared:
            yield UNDECLARED.finding(path, columns=undeclared)
        yield from _check_changes(path, columns, contents, known, settings)
        yield from _check_marker_column(path, contents, published)
        yield from _check_marker_values(path, contents, settings)
        if number_of(file.name) == 1 and set(contents.markers) == {"0"} and not settings.upserts:
            yield FIRST_LOAD.finding(path)


def _check_names(path: str, columns: list[FileColumn]) -> Iterator[LintFinding]:
    if not columns:
        yield NO_COLUMNS.finding(path, problem="no columns besides the row marker")
    if any(not column.name.strip() for column in columns):
        yield NO_COLUMNS.finding(path, problem="a column without a name")
    seen: dict[str, str] = {}
    for column in columns:
        other = seen.setdefault(fold(column.name), column.name)
        if other is not column.name and column.name.strip():
            how = "twice" if other == column.name else f"also as {other!r}"
            yield NAME_TWICE.finding(path, column=column.name, how=how)


def _check_types(path: str, columns: tuple[FileColumn, ...], typeless: set[str]) -> Iterator[LintFinding]:
    """Yield findings for columns without a type, and for types that a mirrored table cannot store.

    `typeless` has the names of untyped columns that are already reported. This function adds the new ones.
    """
    for column in columns:
        decimal = _DECIMAL.fullmatch(column.type or "")
        if column.type == TYPELESS:
            if fold(column.name) not in typeless:
                yield NO_TYPE.finding(path, column=column.name)
            typeless.add(fold(column.name))
        elif fold(column.name) != fold(MARKER) and not (
            column.type is None or column.type in _TYPES or (decimal and int(decimal[1]) <= 38)
        ):
            yield UNSUPPORTED.finding(path, column=column.name, type=column.type)


def _check_values(
    path: str, columns: list[FileColumn], contents: Contents, settings: Settings
) -> Iterator[LintFinding]:
    declared = settings.keys if settings.declared is None else {column.name for column in settings.declared}
    # Rules of the metadata file report a key that is not declared.
    names = [column.name for column in columns]
    for key in settings.keys:
        if key in declared and key not in names:
            near = [name for name in names if fold(name) == fold(key)]
            hint = f"it spells it {near[0]!r}" if near else f"it has {first_names([repr(name) for name in names], 5)}"
            yield NO_KEY.finding(path, key=key, hint=hint)
    for key, count in contents.null_keys.items():
        yield NULL_KEY.finding(path, key=key, count=count, rows=contents.rows)
    for column, count in contents.missing_values.items():
        yield NULL_VALUE.finding(path, column=column, count=count)


def _check_changes(
    path: str, columns: list[FileColumn], contents: Contents, known: dict[str, FileColumn], settings: Settings
) -> Iterator[LintFinding]:
    """Yield findings for columns that differ from the columns declared in `_metadata.json` or from earlier files.

    `known` maps lower-case names to the declared columns and the columns of earlier files. This function updates
    `known`, so that a change is reported only once. A missing column that is not nullable is reported for every file.
    """
    current, is_first_file = dict[str, FileColumn](), not known
    for column in columns:
        if column.name.strip():
            current.setdefault(fold(column.name), column)
    keys = {fold(key) for key in settings.keys}
    for name, column in current.items():
        before = known.get(name, column)
        if before.name != column.name and name not in keys:
            yield OTHER_CASE.finding(path, column=column.name, before=before.name)
        if before.type != column.type and not {before.type, column.type} & {None, TYPELESS}:
            yield DRIFT.finding(path, column=column.name, before=before.type, type=column.type)
    only_deletes = set(contents.markers) == {"2"}
    for name, column in [(name, known[name]) for name in known if name not in current and name not in keys]:
        if not column.nullable:
            yield REQUIRED_GONE.finding(path, column=column.name)
        elif not only_deletes:
            yield GONE.finding(path, column=column.name)
            del known[name]
    for name, column in current.items():
        if column.type != TYPELESS or name not in known:
            # The first file creates the table. Columns of later files are nullable, because earlier rows lack them.
            nullable = known[name].nullable if name in known else column.nullable or not is_first_file
            known[name] = replace(column, nullable=nullable)


def _check_marker_column(path: str, contents: Contents, published: set[str]) -> Iterator[LintFinding]:
    names = [column.name for column in contents.columns]
    for name in names:
        if name not in published and name != MARKER and name.strip("_").lower() == MARKER.strip("_").lower():
            yield MISSPELLED.finding(path, column=name)
    if MARKER not in names:
        return
    index = names.index(MARKER)
    if names.count(MARKER) > 1:
        yield NOT_LAST.finding(path, problem=f"is in the file {names.count(MARKER)} times")
    elif index == 0 and len(names) > 1:
        yield FIRST.finding(path, count=len(names))
    elif index < len(names) - 1:
        yield NOT_LAST.finding(path, problem=f"is column {index + 1} of {len(names)}, not the last")
    type_ = contents.columns[index].type
    if type_ not in (None, *_INT32):
        yield (WIDTH if type_ in _INTEGERS else TYPE).finding(path, type=type_)


def _check_marker_values(path: str, contents: Contents, settings: Settings) -> Iterator[LintFinding]:
    unknown = {value: rows for value, rows in contents.markers.items() if value not in (*MARKER_TEXTS, "NULL")}
    if unknown:
        yield VALUE.finding(
            path, values=sorted(unknown), count=sum(unknown.values()), first=contents.first_unknown_marker
        )
    if count := contents.markers.get("NULL"):
        yield NULL.finding(path, count=count, rows=contents.rows)
    changes = {value: rows for value, rows in contents.markers.items() if value in MARKER_TEXTS - {"0"}}
    if changes and not settings.keys:
        kinds = ", ".join(f"{counted(rows, 'row')} marked {value}" for value, rows in sorted(changes.items()))
        yield KEYLESS.finding(path, kinds=kinds)
