"""Rules for `_metadata.json`, which its reader checks."""

from __future__ import annotations

from collections.abc import Mapping

from mirrorfeed.lint.specification import DATA_TYPES, REBUILD, advice, error, warning

TIMESTAMPS = "LastUpdateTimeFileDetection"
OPTIONS: Mapping[str, tuple[str, ...]] = {
    "RowSeparator": ("\r\n", "\n", "\r"),
    "ColumnSeparator": (",", ";", "|", "\t"),
    "QuoteCharacter": ('"', "'", ""),
    "EscapeCharacter": ("\\", "/", '"', ""),
}
"""Allowed values of options. The first is the default."""
OPTION_NAMES = ("FirstRowAsHeader", *OPTIONS, "NullValue", "Encoding")

UNREADABLE = error(
    "MF203",
    "It cannot be read: {reason}.",
    "Write the file again as one JSON object.",
    "A table's `_metadata.json` is not one JSON object.",
)
MISSPELLED = error(
    "MF204",
    "The property {name!r} is spelled {spelled!r}, so Fabric ignores it.",
    "Spell the property as in the specification.",
)
UNKNOWN = warning(
    "MF205", "The property {name!r} is not in the specification.", "Remove the property, or correct its name."
)
KEYS_TYPE = error(
    "MF206",
    "{name} {problem}.",
    'Set a list of column names: `"keyColumns": ["C1", "C2"]`.',
    "keyColumns is not a list of names.",
)
KEYS_TWICE = error(
    "MF207", "{problem}.", "List each key column once.", "keyColumns lists a column twice, or in two spellings."
)
DETECTION = error(
    "MF208",
    "fileDetectionStrategy is {value}.",
    f'Set "{TIMESTAMPS}", or remove the property to read files by number.',
    "fileDetectionStrategy has a value that is not in the specification.",
)
UPSERT_TYPE = error(
    "MF209",
    "isUpsertDefaultRowMarker is {value}.",
    "Set `true` or `false`, without quotes.",
    "isUpsertDefaultRowMarker is neither true nor false.",
)
UPSERT_KEYLESS = error(
    "MF210",
    "isUpsertDefaultRowMarker is true, but there are no key columns.",
    "Set keyColumns, or remove isUpsertDefaultRowMarker.",
)
FORMAT = error(
    "MF211",
    "FileFormat is {value}.",
    'Set "DelimitedText", or remove the property if files are Parquet or plain CSV.',
    "FileFormat has a value that is not in the specification.",
)
EXTENSION = error(
    "MF212",
    "FileExtension is {value}.",
    'Set the suffix of the data files without its dot, such as "tsv".',
    "FileExtension is missing, or is not a suffix of a file name.",
)
OPTIONS_TYPE = error(
    "MF213",
    "FileFormatTypeProperties {problem}.",
    f"Set an object with only these options: {', '.join(OPTION_NAMES)}.",
    "FileFormatTypeProperties is not an object, or has an unknown option.",
)
OPTION_VALUE = error(
    "MF214",
    "{option} is {value}.{allowed:more}",
    "Set a value that the specification allows, and write the files accordingly.",
    "An option of delimited text has a value that is not in the specification.",
)
HEADER = error(
    "MF215",
    "FirstRowAsHeader is {value}, but mirroring needs column names in the first row.",
    "Set FirstRowAsHeader to true, and write the column names into the first row of each file.",
)
DEFINITION = error(
    "MF216",
    "{problem}.",
    'Set `{"Columns": [{"Name": "C1", "DataType": "Int32", "IsNullable": true}, …]}`.',
    "SchemaDefinition does not have the form of the specification.",
)
DATA_TYPE = error(
    "MF217",
    "The DataType of {column!r} is {value}.",
    f"Declare one of {', '.join(DATA_TYPES)}.",
    "SchemaDefinition declares a type that is not in the specification.",
)
KEY_UNDECLARED = error(
    "MF218",
    "SchemaDefinition does not declare the key {keys:names}.",
    "Declare the key column in SchemaDefinition under exactly the same name.",
)
FORMAT_UNSAID = error(
    "MF219",
    "{setting} is set, but FileFormat is not DelimitedText.",
    'Set `"FileFormat": "DelimitedText"`. Without it, files are read as CSV.',
)
MANY_KEYS = advice(
    "MF251",
    "There are {count} key columns, and each merge compares all of them.",
    f"Tables with fewer than five narrow key columns merge fastest. To change them, {REBUILD}.",
)
