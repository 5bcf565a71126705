"""Read the settings in `_metadata.json` of any publisher, and define the lint rules for `_metadata.json`.

An invalid value does not stop the check of data files. If the value can mean only one thing, such as the text "true",
the setting has this meaning. Otherwise, the setting has its default. Lint reports all invalid values. The local replica
refuses the file only if the meaning of a value is not clear.
"""

from __future__ import annotations

import codecs
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from mirrorfeed.lint.specification import (
    DATA_TYPES,
    ENCODING,
    METADATA,
    REBUILD,
    Dialect,
    FileColumn,
    LintFinding,
    LintRule,
    Settings,
    advice,
    describe,
    error,
    load_object,
    warning,
)

MAX_KEYS = 4
_KEYS = ("keyColumns", "KeyColumns")
"""Names of the property with the keys. The second name is from the specification's sample of delimited text."""
_PROPERTIES = (
    *(*_KEYS, "fileDetectionStrategy", "isUpsertDefaultRowMarker"),
    *("FileFormat", "FileExtension", "FileFormatTypeProperties", "SchemaDefinition"),
)
_NOT_CHARACTERS = ("idna", "punycode", "utf-7", "unicode-escape", "raw-unicode-escape", "mbcs", "oem")
"""Codecs of Python that are not character encodings, or that depend on the machine."""
_MEANINGS = {"true": True, "false": False, r"\r\n": "\r\n", r"\n": "\n", r"\r": "\r", r"\t": "\t"}
"""Texts that some publishers write, and the values that they mean."""

TIMESTAMPS = "LastUpdateTimeFileDetection"
OPTIONS: Mapping[str, tuple[str, ...]] = {
    "RowSeparator": ("\r\n", "\n", "\r"),
    "ColumnSeparator": (",", ";", "|", "\t"),
    "QuoteCharacter": ('"', "'", ""),
    "EscapeCharacter": ("\\", "/", '"', ""),
}
"""Options of delimited text with their allowed values, the default first."""
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
KEYS = error(
    "MF206",
    "{problem}.",
    'Set a list of column names, each name once: `"keyColumns": ["C1", "C2"]`.',
    "keyColumns is not a list of names or lists a column twice, or the file has both keyColumns and KeyColumns.",
)
UPSERT_KEYLESS = error(
    "MF210",
    "isUpsertDefaultRowMarker is true, but there are no key columns.",
    "Set keyColumns, or remove isUpsertDefaultRowMarker.",
)
EXTENSION = error(
    "MF212",
    "FileExtension is {value}. A file suffix without its dot is expected.",
    'Set the suffix of the data files without its dot, such as "tsv".',
    "FileExtension is missing, or is not a suffix of a file name.",
)
OPTIONS_TYPE = error(
    "MF213",
    "FileFormatTypeProperties {problem}.",
    f"Set an object with only these options: {', '.join(OPTION_NAMES)}.",
    "FileFormatTypeProperties is not an object, or has an unknown option.",
)
VALUE = error(
    "MF214",
    "{name} is {value}, but the specification does not allow this value.{allowed:more}",
    "Set a value that the specification allows, and write the files accordingly.",
    "A setting has a value that is not in the specification.",
)
_FIXES = {
    "KeyColumns": "Remove KeyColumns, and list all key columns in keyColumns.",
    "fileDetectionStrategy": f'Set "{TIMESTAMPS}", or remove the property to read files by number.',
    "isUpsertDefaultRowMarker": "Set `true` or `false`, without quotes.",
    "FileFormat": 'Set "DelimitedText", or remove the property if files are Parquet or plain CSV.',
}
"""Fixes for findings about these properties, instead of the fix of the rule."""
HEADER = error(
    "MF215",
    "FirstRowAsHeader is {value}, but must be true: Fabric needs the column names in the first row.",
    "Set FirstRowAsHeader to true, and write the column names into the first row of each file.",
)
DEFINITION = error(
    "MF216",
    "{problem}.",
    'Set `{"Columns": [{"Name": "C1", "DataType": "Int32", "IsNullable": true}, …]}`.'
    f" The types are {', '.join(DATA_TYPES)}.",
    "SchemaDefinition does not have the form of the specification.",
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
    "The table has {count} key columns, and each merge compares all of them.",
    f"Tables with fewer than five narrow key columns merge fastest. To change the keys, {REBUILD}.",
)


class Deviation(NamedTuple):
    finding: LintFinding
    is_clear: bool
    """True if the deviating value can have only one meaning. The settings then have this meaning."""


def find_metadata_name(names: Iterable[str]) -> str | None:
    """Return the name of the metadata file: `_metadata.json` or, if `names` does not contain it, a similar name.

    A similar name has other upper or lower case, no `_`, or no `.json`. Returns None if `names` contains neither.
    """
    similar = [name for name in names if name.lower().removeprefix("_").removesuffix(".json") == "metadata"]
    return METADATA if METADATA in similar else min(similar, default=None)


def read_metadata(data: bytes, file: str = METADATA) -> tuple[Settings, list[Deviation]]:
    """Return the settings in the metadata file with the content `data`, and its deviations from the specification.
    `Deviation.finding` shows the path `file`. If `data` is not a JSON object, the settings are defaults."""
    try:
        properties = load_object(data)
    except ValueError as fault:
        return Settings(), [Deviation(UNREADABLE.finding(file, reason=fault), False)]
    reader = _Reader(file)
    return reader.settings(properties), reader.deviations


class _Reader:
    def __init__(self, file: str) -> None:
        self._file = file
        self.deviations: list[Deviation] = []

    def settings(self, properties: Mapping[str, Any]) -> Settings:
        properties = self._known(properties, _PROPERTIES, UNKNOWN)
        keys, declared = self._keys(properties), self._declared(properties)
        columns = {column.name for column in declared or ()}
        if declared and (undeclared := [key for key in keys if key not in columns]):
            self._report(KEY_UNDECLARED, True, keys=undeclared)
        strategy = properties.get("fileDetectionStrategy")
        self._choice(properties, "fileDetectionStrategy", [TIMESTAMPS], None)
        by_time = isinstance(strategy, str) and strategy.lower() == TIMESTAMPS.lower()
        upserts = self._choice(properties, "isUpsertDefaultRowMarker", [True, False], False)
        if upserts and not any(properties.get(name) for name in _KEYS):
            self._report(UPSERT_KEYLESS, True)
        form = self._choice(properties, "FileFormat", ["DelimitedText", "CSV", "Parquet"], None)
        extension, dialect = self._extension(properties, form), self._dialect(properties)
        if properties.get("FileFormat", "CSV") == "CSV" and (extension, dialect.column) != ("csv", ","):
            setting = f"The extension {extension!r}" if extension != "csv" else f"The separator {dialect.column!r}"
            self._report(FORMAT_UNSAID, True, setting=setting)
        text = None if form is None else form != "Parquet"
        return Settings(keys, by_time, upserts, text, extension, dialect, declared)

    def _report(self, rule: LintRule, is_clear: bool = False, **values: object) -> None:
        self.deviations.append(Deviation(rule.finding(self._file, **values), is_clear))

    def _known(self, properties: Mapping[str, Any], names: Sequence[str], unknown: LintRule) -> Mapping[str, Any]:
        """Return the properties in `names`, and report all others with the rule `unknown`. If a name differs
        only in upper and lower case, reports the name as misspelled and returns the property with the right name."""
        known = {name: value for name, value in properties.items() if name in names}
        for name in [name for name in properties if name not in names]:
            if correct := next((each for each in names if each.lower() == name.lower()), None):
                self._report(MISSPELLED, name=correct, spelled=name)
                # With the right name, no other rule reports the property as missing.
                known.setdefault(correct, properties[name])
            else:
                self._report(unknown, True, name=name, problem=f"has the option {name!r}, which does not exist")
        return known

    def _value(
        self,
        properties: Mapping[str, Any],
        name: str,
        default: Any,
        rule: LintRule,
        is_valid: Callable[[Any], object],
        meanings: Mapping[str, Any] = {},
        allowed: str = "",
    ) -> Any:
        """Return the value of a property, or `default` if the property is missing, null or invalid.

        Reports an invalid value with `rule`. The finding shows the sentence `allowed`. `meanings` maps invalid values,
        in lower case, to the values to return instead of `default`.
        """
        value = properties.get(name, default)
        if name not in properties or is_valid(value):
            return value
        is_clear = value is None or (isinstance(value, str) and value.lower() in meanings)
        text = describe(value)
        self._report(rule, is_clear, name=name, value=text, problem=f"is {text}", allowed=allowed)
        return meanings[value.lower()] if is_clear and value is not None else default

    def _keys(self, properties: Mapping[str, Any]) -> tuple[str, ...]:
        names = [name for name in _KEYS if name in properties]
        if not names:
            return ()
        keys = properties[names[0]]
        if len(names) == 2:
            rule = replace(KEYS, fix=_FIXES["KeyColumns"])
            self._report(rule, keys == properties[names[1]], problem="It has both 'keyColumns' and 'KeyColumns'")
        if not isinstance(keys, list):
            self._report(KEYS, keys is None, problem=f"{names[0]} is {describe(keys)}, not a list")
            return ()
        if wrong := [key for key in keys if not isinstance(key, str) or not key]:
            self._report(KEYS, problem=f"{names[0]} lists {describe(wrong[0])}, which is not a column's name")
            return ()
        first: dict[str, int] = {}
        if repeated := [key for at, key in enumerate(keys) if first.setdefault(key.casefold(), at) != at]:
            self._report(KEYS, problem=f"{names[0]} lists {repeated[0]!r} twice")
        if len(keys) > MAX_KEYS:
            self._report(MANY_KEYS, True, count=len(keys))
        return tuple(keys[at] for at in first.values())

    def _extension(self, properties: Mapping[str, Any], form: str | None) -> str:
        if "FileExtension" not in properties and form == "DelimitedText":
            self._report(EXTENSION, value="not set, but FileFormat is DelimitedText")
        extension: str = self._value(
            properties,
            "FileExtension",
            "csv",
            EXTENSION,
            lambda value: isinstance(value, str) and value.strip(".") and value == value.strip(),
        )
        if extension.startswith("."):
            self._report(EXTENSION, True, value=f"{describe(extension)}, with the dot")
        return extension.lstrip(".").lower()

    def _dialect(self, properties: Mapping[str, Any]) -> Dialect:
        options = self._value(
            properties, "FileFormatTypeProperties", None, OPTIONS_TYPE, lambda value: isinstance(value, dict)
        )
        if options is None:
            return Dialect()
        options = self._known(options, OPTION_NAMES, OPTIONS_TYPE)
        if "FirstRowAsHeader" not in options:
            self._report(HEADER, True, value="not set")
        self._value(options, "FirstRowAsHeader", True, HEADER, lambda value: value is True, {"true": True})
        row, column, quote, escape = (self._choice(options, name, each, each[0]) for name, each in OPTIONS.items())
        null = self._value(options, "NullValue", "", VALUE, lambda value: isinstance(value, str))
        encoding = self._value(options, "Encoding", ENCODING, VALUE, python_encoding)
        return Dialect(row, column, quote, escape, null, python_encoding(encoding) or ENCODING)

    def _choice(self, properties: Mapping[str, Any], name: str, values: Sequence[object], default: Any) -> Any:
        """Return the value of a property, or `default` if the property is missing or its value is not in `values`.

        Some publishers write a text instead of a value, such as "true" instead of true. This text counts as the value
        that it means. Adds a finding for the text, and for any other value that is not in `values`.
        """
        texts = [json.dumps(value) for value in values]
        meanings = {text: value for text, value in _MEANINGS.items() if value in values}
        allowed = f"Allowed values: {', '.join(texts)}."
        rule = replace(VALUE, fix=_FIXES.get(name, VALUE.fix))
        return self._value(properties, name, default, rule, lambda value: json.dumps(value) in texts, meanings, allowed)

    def _declared(self, properties: Mapping[str, Any]) -> tuple[FileColumn, ...] | None:
        if "SchemaDefinition" not in properties:
            return None
        definition = properties["SchemaDefinition"]
        columns = definition.get("Columns") if isinstance(definition, dict) else None
        if not isinstance(columns, list) or not columns:
            self._report(DEFINITION, definition is None, problem="SchemaDefinition has no list of Columns")
            return None
        declared = list(self._columns(columns))
        seen: set[str] = set()
        for column in declared:
            if column.name.casefold() in seen:
                self._report(DEFINITION, problem=f"SchemaDefinition declares {column.name!r} twice")
            seen.add(column.name.casefold())
        return tuple(declared) if len(declared) == len(columns) else None

    def _columns(self, columns: list[Any]) -> Iterator[FileColumn]:
        for at, column in enumerate(columns, 1):
            name = column.get("Name") if isinstance(column, dict) else None
            if not isinstance(name, str) or not name:
                self._report(DEFINITION, problem=f"Column {at} of SchemaDefinition has no Name")
                continue
            if unknown := sorted(set(column) - {"Name", "DataType", "IsNullable"}):
                problem = f"Column {name!r} of SchemaDefinition has the unknown property {unknown[0]!r}"
                self._report(DEFINITION, True, problem=problem)
            type_, nullable = column.get("DataType"), column.get("IsNullable", True)
            if type_ not in DATA_TYPES:
                problem = f"The DataType of column {name!r} is {describe(type_)}, which is not in the specification"
                self._report(DEFINITION, problem=problem)
            if not isinstance(nullable, bool):
                problem = f"IsNullable of {name!r} is {describe(nullable)}, not true or false"
                nullable = {"true": True, "false": False}.get(str(nullable).lower())
                self._report(DEFINITION, nullable is not None, problem=problem)
            yield FileColumn(name, str(type_), nullable is not False)


def python_encoding(name: object) -> str | None:
    """Convert the name of a text encoding to a name that Python accepts. Returns None for an unsupported encoding."""
    if not isinstance(name, str):
        return None
    plain = name.lower().removesuffix(" without bom")
    try:
        "".encode(plain)  # fails for codecs such as hex
        codecs.getincrementaldecoder(plain)
        codec = codecs.lookup(plain).name.replace("_", "-")
    except (LookupError, ValueError):
        return None
    return None if codec in _NOT_CHARACTERS else plain
