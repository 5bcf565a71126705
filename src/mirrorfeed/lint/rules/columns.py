"""Rules for columns: names, types, changes from one file to the next, keys, and the row marker."""

from __future__ import annotations

import re
from collections.abc import Iterator

from mirrorfeed.display.humanize import counted
from mirrorfeed.landing.names import fold
from mirrorfeed.lint.facts import TYPELESS, Column, Contents, DataFile, Table
from mirrorfeed.lint.findings import REBUILD, Finding, advice, error, listed, warning
from mirrorfeed.lint.metadata_file import Settings
from mirrorfeed.lint.rules.files import number_of
from mirrorfeed.lint.specification import DATA_TYPES, MARKER, MARKERS

WIDE = 128
_PLAIN = "boolean int8 int16 int32 int64 float double string binary date timestamp timestamp_ntz uuid"
_TYPES = frozenset([*_PLAIN.split(), *DATA_TYPES])
_DECIMAL = re.compile(r"decimal\((\d+), (\d+)\)")
_INEXACT = frozenset({"float", "double", "Single", "Double"})
_VALUES = frozenset(map(str, MARKERS))
_INT32 = frozenset({"int32", "Int32", TYPELESS})  # a marker without a type has no values, and its own finding
_INTEGERS = frozenset({"int8", "int16", "int64", "uint8", "uint16", "uint32", "uint64", "Int16", "Int64"})

NAME_TWICE = error(
    "MF401",
    "A data file has two columns whose names differ in case only, or not at all.",
    "Give each column its own name. Column names in the mirror are case-insensitive.",
)
OTHER_CASE = error(
    "MF402",
    "The name of a column differs in case from earlier files.",
    "Spell the column as in earlier files.",
)
UNSUPPORTED = error(
    "MF403",
    "A column has a type that a mirrored table cannot hold.",
    "Write nested values as JSON text, decimals with at most 38 digits, and other values with a simple type.",
)
DRIFT = error(
    "MF404",
    "The type of a column differs from earlier files, which stops the table.",
    f"Write the old type. To change it, {REBUILD}.",
)
GONE = warning(
    "MF405",
    "A column of earlier files is missing, so it is NULL in new rows of the mirror.",
    f"Keep the column, and write NULL if there is no value. If it was renamed, {REBUILD}.",
)
REQUIRED_GONE = error(
    "MF406",
    "A column is missing that is not nullable in the mirror.",
    "Keep publishing the column, or rebuild the table: the merge fails without it.",
)
NO_KEY = error(
    "MF407", "A data file lacks a key column.", "Write the key columns into every file, spelled as in _metadata.json."
)
NULL_KEY = error(
    "MF408",
    "Rows have NULL in a key column.",
    "Give every row a key. Updates of rows without one insert duplicates.",
)
NO_COLUMNS = error(
    "MF409",
    "A data file has no columns, or a column without a name.",
    "Write the columns of the table, each with a name.",
)
UNDECLARED = error(
    "MF410",
    "A data file has columns that `SchemaDefinition` does not declare.",
    f"SchemaDefinition does not allow new columns. Leave it out, or {REBUILD}.",
)
NO_TYPE = warning(
    "MF411",
    "A column has no type in a file because all its values are NULL.",
    "Give the writer a schema. A writer that infers types from values finds none in a column of NULLs.",
)
WIDE_KEY = advice(
    "MF451",
    "Values of a key column are wide.",
    "Choose narrow key columns if the source has them, because each merge compares them.",
)
INEXACT_KEY = advice(
    "MF452",
    "A key column has a type without exact equality, such as a float.",
    "Choose a key with exact equality, such as an integer or text.",
)
NOT_LAST = error(
    "MF501",
    "The row marker is not the last column, or the file has it more than once.",
    f"Write {MARKER} as the last column.",
)
FIRST = warning(
    "MF502",
    "The row marker is the first column, as in an older edition of the specification.",
    f"Write {MARKER} as the last column. Only an older edition of the specification has it first.",
)
MISSPELLED = error(
    "MF503",
    "The name of a column is almost that of the row marker, so the column is data.",
    f"Name the column {MARKER}: under another name it is data and every row is an insert.",
)
WIDTH = warning(
    "MF504",
    "The row marker is an integer that does not have 32 bits.",
    "Write the marker as int32. Whether other integers work everywhere is unknown.",
)
VALUE = error(
    "MF505",
    "The row marker has an unknown value.",
    "Write 0 for an insert, 1 for an update, 2 for a delete or 4 for an upsert.",
)
NULL = error(
    "MF506", "The row marker is NULL in some rows.", "Give every row a marker, or leave the column out of the file."
)
KEYLESS = error(
    "MF507",
    "Rows are marked as updates, deletes or upserts, and the table has no keys.",
    "Set keyColumns in _metadata.json, or publish inserts only.",
)
TYPE = error("MF508", "The row marker is not an integer.", "Write the marker as int32.")
FIRST_LOAD = advice(
    "MF551",
    "The first file marks every row as an insert, which makes the initial load slower.",
    "Leave the marker out of the initial load. Fabric reads files without it faster.",
)


def check_columns(folder: str, files: list[DataFile], settings: Settings) -> Iterator[Finding]:
    """Check the files in the order in which Fabric applies them."""
    # Some publishers declare the row marker, which is not a column of the table.
    plain = [one for one in settings.declared or () if one.name != MARKER]
    declared = {fold(one.name): Column(one.name, one.type, one.nullable) for one in plain}
    known, typeless, advised = dict(declared), set[str](), False
    for file in files:
        contents = file.content
        if not isinstance(contents, Contents) or (contents.faults and not contents.columns):
            continue  # not read, or text with a fault in its header
        path = f"{folder}/{file.name}"
        columns = [column for column in contents.columns if fold(column.name) != fold(MARKER)]
        yield from _check_names(path, columns)
        yield from _check_types(path, contents.columns, typeless)
        yield from _check_keys(path, columns, contents, settings)
        advice = [] if advised else _key_advice(path, columns, contents, settings)
        advised = advised or bool(advice)
        yield from advice
        undeclared = [column.name for column in columns if column.name.strip() and fold(column.name) not in declared]
        if settings.declared is not None and undeclared:
            yield UNDECLARED.finding(path, f"SchemaDefinition does not declare {listed(undeclared)}.")
        yield from _check_changes(path, columns, contents, known, settings)


def _check_names(path: str, columns: list[Column]) -> Iterator[Finding]:
    if not columns:
        yield NO_COLUMNS.finding(path, "The file has no columns besides the row marker.")
    if any(not column.name.strip() for column in columns):
        yield NO_COLUMNS.finding(path, "The file has a column without a name.")
    seen: dict[str, str] = {}
    for column in columns:
        other = seen.setdefault(fold(column.name), column.name)
        if other is not column.name and column.name.strip():
            how = "twice" if other == column.name else f"also as {other!r}"
            yield NAME_TWICE.finding(path, f"The file has the column {column.name!r} {how}.")


def _check_types(path: str, columns: tuple[Column, ...], typeless: set[str]) -> Iterator[Finding]:
    """Report each column without a type once, also the row marker."""
    for column in columns:
        decimal = _DECIMAL.fullmatch(column.type or "")
        if column.type == TYPELESS:
            if fold(column.name) not in typeless:
                yield NO_TYPE.finding(path, f"The column {column.name!r} has no type in this file.")
            typeless.add(fold(column.name))
        elif fold(column.name) != fold(MARKER) and not (
            column.type is None or column.type in _TYPES or (decimal and int(decimal[1]) <= 38)
        ):
            what = f"The column {column.name!r} has the type {column.type}, which a mirrored table cannot store."
            yield UNSUPPORTED.finding(path, what)


def _check_keys(path: str, columns: list[Column], contents: Contents, settings: Settings) -> Iterator[Finding]:
    names = [column.name for column in columns]
    declared = None if settings.declared is None else {column.name for column in settings.declared}
    for key in settings.keys:
        # Rules of the metadata file report a key that is not declared.
        if key not in names and (declared is None or key in declared):
            near = [name for name in names if fold(name) == fold(key)]
            hint = f"it spells it {near[0]!r}" if near else f"it has {listed(names)}"
            yield NO_KEY.finding(path, f"The file does not have the key column {key!r}; {hint}.")
    for key, rows in contents.null_keys.items():
        yield NULL_KEY.finding(path, f"The key column {key!r} is NULL in {rows:,} of {contents.rows:,} rows.")


def _key_advice(path: str, columns: list[Column], contents: Contents, settings: Settings) -> list[Finding]:
    inexact = [column for column in columns if column.name in settings.keys and column.type in _INEXACT]
    return [
        *(
            WIDE_KEY.finding(path, f"The key column {key!r} has values of up to {width:,} bytes.")
            for key, width in contents.widest_keys.items()
            if width > WIDE
        ),
        *(INEXACT_KEY.finding(path, f"The key column {one.name!r} has the type {one.type}.") for one in inexact),
    ]


def _check_changes(
    path: str, columns: list[Column], contents: Contents, known: dict[str, Column], settings: Settings
) -> Iterator[Finding]:
    """Compare with the columns of earlier files, and update `known`. A change is reported only in its file."""
    here: dict[str, Column] = {}
    for column in columns:
        if column.name.strip():
            here.setdefault(fold(column.name), column)
    keys = {fold(key) for key in settings.keys}
    for name, column in here.items():
        before = known.get(name, column)
        if before.name != column.name and name not in keys:
            yield OTHER_CASE.finding(path, f"The column {column.name!r} was {before.name!r} before.")
        if before.type != column.type and all(one.type not in (None, TYPELESS) for one in (before, column)):
            what = f"The column {column.name!r} was {before.type} and is {column.type} from this file on."
            yield DRIFT.finding(path, what)
    only_deletes = set(contents.markers) == {"2"}
    for name in [name for name in known if not only_deletes and name not in here and name not in keys]:
        column = known.pop(name)
        rule, how = (GONE, "") if column.nullable else (REQUIRED_GONE, ", which is not nullable,")
        yield rule.finding(path, f"The column {column.name!r}{how} is not in this file; it was before.")
    known.update({name: column for name, column in here.items() if column.type != TYPELESS or name not in known})


def check_markers(table: Table, files: list[DataFile], settings: Settings) -> Iterator[Finding]:
    published = {column.name for column in table.log.newest.columns} if table.log and table.log.newest else set[str]()
    for file in files:
        if isinstance(file.content, Contents):
            path = f"{table.folder}/{file.name}"
            yield from _check_marker_column(path, file.content, published)
            yield from _check_marker_values(path, file.content, settings)
            if number_of(file.name) == 1 and set(file.content.markers) == {"0"} and not settings.upserts:
                yield FIRST_LOAD.finding(path, "The first file marks every row as an insert.")


def _check_marker_column(path: str, contents: Contents, published: set[str]) -> Iterator[Finding]:
    names = [column.name for column in contents.columns]
    for name in names:
        if name not in published and name != MARKER and name.strip("_").lower() == MARKER.strip("_").lower():
            yield MISSPELLED.finding(path, f"The file has a column {name!r}, which is not {MARKER!r}.")
    if MARKER not in names:
        return
    at = names.index(MARKER)
    if names.count(MARKER) > 1:
        yield NOT_LAST.finding(path, f"{MARKER} is there {names.count(MARKER)} times.")
    elif at == 0 and len(names) > 1:
        yield FIRST.finding(path, f"{MARKER} is the first of {len(names)} columns.")
    elif at < len(names) - 1:
        yield NOT_LAST.finding(path, f"{MARKER} is column {at + 1} of {len(names)}.")
    type_ = contents.columns[at].type
    if type_ not in (None, *_INT32):
        yield (WIDTH if type_ in _INTEGERS else TYPE).finding(path, f"{MARKER} has the type {type_}.")


def _check_marker_values(path: str, contents: Contents, settings: Settings) -> Iterator[Finding]:
    odd = {value: rows for value, rows in contents.markers.items() if value not in (*_VALUES, "NULL")}
    if odd:
        yield VALUE.finding(path, f"{MARKER} is {listed(sorted(odd))} in {counted(sum(odd.values()), 'row')}.")
    if rows := contents.markers.get("NULL"):
        yield NULL.finding(path, f"{MARKER} is NULL in {rows:,} of {contents.rows:,} rows.")
    changes = {value: rows for value, rows in contents.markers.items() if value in _VALUES - {"0"}}
    if changes and not settings.keys:
        kinds = ", ".join(f"{counted(rows, 'row')} marked {value}" for value, rows in sorted(changes.items()))
        yield KEYLESS.finding(path, f"The table has no key columns, and the file has {kinds}.")
