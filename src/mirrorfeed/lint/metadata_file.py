"""Read `_metadata.json` of any publisher: its settings, and its deviations from the specification.

After a deviation, a setting has its clear meaning or else its default, so that data files can still be checked. `lint`
reports all deviations. The replica refuses a file whose meaning is not clear.
"""

from __future__ import annotations

import codecs
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple

from mirrorfeed.lint import metadata_rules as rules
from mirrorfeed.lint.metadata_rules import OPTION_NAMES, OPTIONS, TIMESTAMPS
from mirrorfeed.lint.specification import DATA_TYPES, METADATA, Finding, Rule

MAX_KEYS = 4
_KEYS = ("keyColumns", "KeyColumns")
"""The second spelling is in the specification's sample of delimited text."""
_FORMATS = ("DelimitedText", "CSV", "Parquet")
_PROPERTIES = (
    *(*_KEYS, "fileDetectionStrategy", "isUpsertDefaultRowMarker"),
    *("FileFormat", "FileExtension", "FileFormatTypeProperties", "SchemaDefinition"),
)
_ENCODING = "utf-8"
_NOT_CHARACTERS = ("idna", "punycode", "unicode-escape", "raw-unicode-escape", "mbcs", "oem")
"""Codecs of Python that escape characters, or differ between machines."""
_FLAGS = {"true": True, "false": False}
_ESCAPES = {r"\r\n": "\r\n", r"\n": "\n", r"\r": "\r", r"\t": "\t"}


@dataclass(frozen=True, slots=True)
class DeclaredColumn:
    name: str
    type: str
    nullable: bool = True


@dataclass(frozen=True, slots=True)
class Dialect:
    """Options of delimited text. An empty `quote` or `escape` is none."""

    row: str = "\r\n"
    column: str = ","
    quote: str = '"'
    escape: str = "\\"
    null: str = ""
    encoding: str = _ENCODING


@dataclass(frozen=True, slots=True)
class Settings:
    keys: tuple[str, ...] = ()
    by_time: bool = False
    upserts: bool = False
    """Whether rows without a marker are upserts."""
    text: bool | None = None
    """True for delimited text, False for Parquet, None if FileFormat is not set."""
    extension: str = "csv"
    dialect: Dialect = field(default_factory=Dialect)
    declared: tuple[DeclaredColumn, ...] | None = None
    """Columns of SchemaDefinition. Some publishers list the row marker among them."""


class Deviation(NamedTuple):
    finding: Finding
    is_clear: bool
    """Whether the file still has only one possible meaning, which the settings contain."""


class _DuplicateProperty(ValueError):
    pass


def find_metadata_name(names: Iterable[str]) -> str | None:
    """Return the metadata file of a table, or a file with almost its name, in another case or without `_` or suffix."""
    near = [name for name in names if name.lower().removeprefix("_").removesuffix(".json") == "metadata"]
    return METADATA if METADATA in near else min(near, default=None)


def read_metadata(data: bytes, file: str = METADATA) -> tuple[Settings, list[Deviation]]:
    """Return the settings of a table, and the deviations of its metadata, in `file`, from the specification."""
    try:
        found = load_object(data)
    except ValueError as fault:
        return Settings(), [Deviation(rules.UNREADABLE.finding(file, reason=fault), False)]
    reader = _Reader(file)
    return reader.settings(found), reader.deviations


def load_object(data: bytes) -> dict[str, Any]:
    """Parse a JSON object. Raise ValueError with the reason if the bytes hold anything else."""
    if not data.strip():
        raise ValueError("it is empty")
    try:
        found = json.loads(data, object_pairs_hook=_without_duplicates)
    except _DuplicateProperty:
        raise
    except RecursionError as error:
        raise ValueError("it is not JSON (values are nested too deep)") from error
    except ValueError as error:
        raise ValueError(f"it is not JSON ({error})") from error
    if not isinstance(found, dict):
        raise ValueError(f"it holds {describe(found)}, not an object")
    return found


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    names = [name for name, _ in pairs]
    if duplicate := next((name for at, name in enumerate(names) if name in names[:at]), None):
        raise _DuplicateProperty(f"it has the property {duplicate!r} twice")
    return dict(pairs)


def describe(value: object) -> str:
    """Describe a JSON value by its type, with the value if it is short."""
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, list):
        return "a list"
    text = json.dumps(value, ensure_ascii=False)
    return f"the {'text' if isinstance(value, str) else 'value'} {text if len(text) <= 60 else text[:57] + '…'}"


class _Reader:
    def __init__(self, file: str) -> None:
        self._file = file
        self.deviations: list[Deviation] = []

    def settings(self, found: Mapping[str, Any]) -> Settings:
        found = self._known(found, _PROPERTIES, rules.UNKNOWN)
        keys, declared = self._keys(found), self._declared(found)
        columns = {column.name for column in declared or ()}
        if declared and (absent := [key for key in keys if key not in columns]):
            self._report(rules.KEY_UNDECLARED, True, keys=absent)
        strategy = found.get("fileDetectionStrategy")
        self._value(found, "fileDetectionStrategy", None, rules.DETECTION, (TIMESTAMPS,).__contains__)
        by_time = isinstance(strategy, str) and strategy.lower() == TIMESTAMPS.lower()
        upserts = self._value(
            found, "isUpsertDefaultRowMarker", False, rules.UPSERT_TYPE, lambda value: isinstance(value, bool), _FLAGS
        )
        if upserts and not any(found.get(name) for name in _KEYS):
            self._report(rules.UPSERT_KEYLESS, True)
        form = self._value(found, "FileFormat", None, rules.FORMAT, _FORMATS.__contains__)
        extension, dialect = self._extension(found, form), self._dialect(found)
        if found.get("FileFormat", "CSV") == "CSV" and (extension, dialect.column) != ("csv", ","):
            setting = f"The extension {extension!r}" if extension != "csv" else f"The separator {dialect.column!r}"
            self._report(rules.FORMAT_UNSAID, True, setting=setting)
        text = None if form is None else form != "Parquet"
        return Settings(keys, by_time, upserts, text, extension, dialect, declared)

    def _report(self, rule: Rule, is_clear: bool = False, **values: object) -> None:
        self.deviations.append(Deviation(rule.finding(self._file, **values), is_clear))

    def _known(self, found: Mapping[str, Any], names: Sequence[str], unknown: Rule) -> Mapping[str, Any]:
        """Return the properties by their correct names. A name in another case counts, to report each mistake once."""
        known = {name: value for name, value in found.items() if name in names}
        for name in [name for name in found if name not in names]:
            if near := next((each for each in names if each.lower() == name.lower()), None):
                self._report(rules.MISSPELLED, name=near, spelled=name)
                known.setdefault(near, found[name])
            else:
                self._report(unknown, True, name=name, problem=f"has the option {name!r}, which does not exist")
        return known

    def _value(
        self,
        found: Mapping[str, Any],
        name: str,
        default: Any,
        rule: Rule,
        is_valid: Callable[[Any], object],
        meanings: Mapping[str, Any] = MappingProxyType({}),
        allowed: str = "",
    ) -> Any:
        """Return the value of a property. `meanings` has other spellings of valid values, which are also reported."""
        value = found.get(name, default)
        if name not in found or is_valid(value):
            return value
        is_clear = value is None or (isinstance(value, str) and value.lower() in meanings)
        spelled = describe(value)
        self._report(rule, is_clear, option=name, value=spelled, problem=f"is {spelled}", allowed=allowed)
        return meanings[value.lower()] if is_clear and value is not None else default

    def _keys(self, found: Mapping[str, Any]) -> tuple[str, ...]:
        names = [name for name in _KEYS if name in found]
        if not names:
            return ()
        keys = found[names[0]]
        if len(names) == 2:
            self._report(rules.KEYS_TWICE, keys == found[names[1]], problem="It has both 'keyColumns' and 'KeyColumns'")
        if not isinstance(keys, list):
            self._report(rules.KEYS_TYPE, keys is None, name=names[0], problem=f"is {describe(keys)}, not a list")
            return ()
        if wrong := [key for key in keys if not isinstance(key, str) or not key]:
            self._report(
                rules.KEYS_TYPE, name=names[0], problem=f"lists {describe(wrong[0])}, which is not a column's name"
            )
            return ()
        first: dict[str, int] = {}
        if twice := [key for at, key in enumerate(keys) if first.setdefault(key.casefold(), at) != at]:
            self._report(rules.KEYS_TWICE, problem=f"{names[0]} lists {twice[0]!r} twice")
        if len(keys) > MAX_KEYS:
            self._report(rules.MANY_KEYS, True, count=len(keys))
        return tuple(keys[at] for at in first.values())

    def _extension(self, found: Mapping[str, Any], form: str | None) -> str:
        if "FileExtension" not in found and form == "DelimitedText":
            self._report(rules.EXTENSION, value="not set, and FileFormat is DelimitedText")
        extension: str = self._value(
            found,
            "FileExtension",
            "csv",
            rules.EXTENSION,
            lambda value: isinstance(value, str) and value.strip(".") and value == value.strip(),
        )
        if extension.startswith("."):
            self._report(rules.EXTENSION, True, value=f"{describe(extension)}, with the dot")
        return extension.lstrip(".").lower()

    def _dialect(self, found: Mapping[str, Any]) -> Dialect:
        options = self._value(
            found, "FileFormatTypeProperties", None, rules.OPTIONS_TYPE, lambda value: isinstance(value, dict)
        )
        if options is None:
            return Dialect()
        options = self._known(options, OPTION_NAMES, rules.OPTIONS_TYPE)
        if "FirstRowAsHeader" not in options:
            self._report(rules.HEADER, True, value="not set")
        self._value(options, "FirstRowAsHeader", True, rules.HEADER, lambda value: value is True, {"true": True})
        row, column, quote, escape = (self._option(options, name, allowed) for name, allowed in OPTIONS.items())
        null = self._value(options, "NullValue", "", rules.OPTION_VALUE, lambda value: isinstance(value, str))
        encoding = self._value(options, "Encoding", _ENCODING, rules.OPTION_VALUE, python_encoding)
        return Dialect(row, column, quote, escape, null, python_encoding(encoding) or _ENCODING)

    def _option(self, options: Mapping[str, Any], name: str, values: Sequence[str]) -> str:
        """Some publishers spell a line break or a tab as a backslash and a letter."""
        meanings = {spelled: value for spelled, value in _ESCAPES.items() if value in values}
        allowed = f"Allowed are {', '.join(map(json.dumps, values))}."
        return str(self._value(options, name, values[0], rules.OPTION_VALUE, values.__contains__, meanings, allowed))

    def _declared(self, found: Mapping[str, Any]) -> tuple[DeclaredColumn, ...] | None:
        if "SchemaDefinition" not in found:
            return None
        definition = found["SchemaDefinition"]
        columns = definition.get("Columns") if isinstance(definition, dict) else None
        if not isinstance(columns, list) or not columns:
            self._report(rules.DEFINITION, definition is None, problem="SchemaDefinition has no list of Columns")
            return None
        declared = list(self._columns(columns))
        seen: set[str] = set()
        for column in declared:
            if column.name.casefold() in seen:
                self._report(rules.DEFINITION, problem=f"SchemaDefinition declares {column.name!r} twice")
            seen.add(column.name.casefold())
        return tuple(declared) if len(declared) == len(columns) else None

    def _columns(self, columns: list[Any]) -> Iterator[DeclaredColumn]:
        for at, column in enumerate(columns, 1):
            name = column.get("Name") if isinstance(column, dict) else None
            if not isinstance(name, str) or not name:
                self._report(rules.DEFINITION, problem=f"Column {at} of SchemaDefinition has no Name")
                continue
            if odd := sorted(set(column) - {"Name", "DataType", "IsNullable"}):
                self._report(
                    rules.DEFINITION, True, problem=f"Column {name!r} of SchemaDefinition has the property {odd[0]!r}"
                )
            type_, nullable = column.get("DataType"), column.get("IsNullable", True)
            if type_ not in DATA_TYPES:
                self._report(rules.DATA_TYPE, column=name, value=describe(type_))
            if not isinstance(nullable, bool):
                problem = f"IsNullable of {name!r} is {describe(nullable)}, not true or false"
                nullable = _FLAGS.get(str(nullable).lower())
                self._report(rules.DEFINITION, nullable is not None, problem=problem)
            yield DeclaredColumn(name, str(type_), nullable is not False)


def python_encoding(name: object) -> str | None:
    """Return Python's name of a text encoding, or None."""
    if not isinstance(name, str):
        return None
    plain = name.lower().removesuffix(" without bom")
    try:
        "".encode(plain)  # fails for codecs such as hex
        codecs.getincrementaldecoder(plain)
        found = codecs.lookup(plain).name.replace("_", "-")
    except (LookupError, ValueError):
        return None
    return None if found in _NOT_CHARACTERS else plain
