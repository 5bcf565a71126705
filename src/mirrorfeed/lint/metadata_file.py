"""`_metadata.json`: what it sets, and what is wrong with it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from mirrorfeed.landing.encodings import is_text_encoding
from mirrorfeed.landing.names import METADATA
from mirrorfeed.landing.spelled import load as spelled_in
from mirrorfeed.lint.findings import REBUILD, Finding, advice, error, listed, warning

MOST_KEYS = 4
TIMESTAMPS = "LastUpdateTimeFileDetection"
DATA_TYPES = (
    *("Double", "Single", "Int16", "Int32", "Int64", "DateTime"),
    *("IDate", "ITime", "String", "Boolean", "ByteArray"),
)
_FORMATS = ("DelimitedText", "CSV", "Parquet")
_KNOWN = (
    *("keyColumns", "fileDetectionStrategy", "isUpsertDefaultRowMarker"),
    *("FileFormat", "FileExtension", "FileFormatTypeProperties", "SchemaDefinition"),
)
_ALLOWED: Mapping[str, tuple[str, ...] | None] = {
    "FirstRowAsHeader": None,
    "RowSeparator": ("\r\n", "\n", "\r"),
    "ColumnSeparator": (",", ";", "|", "\t"),
    "QuoteCharacter": ('"', "'", ""),
    "EscapeCharacter": ("\\", "/", '"', ""),
    "NullValue": None,
    "Encoding": None,
}

MISSING = error(
    "MF201",
    "A table's folder has no `_metadata.json`, which says what the keys of the table are.",
    'Add it: `{"keyColumns": ["…"]}`, or `{}` for a table without keys.',
)
MISNAMED = error(
    "MF202",
    "A table's folder has its `_metadata.json` under another spelling.",
    f"Rename it to {METADATA}: the service looks for that name alone.",
)
UNREADABLE = error("MF203", "A table's `_metadata.json` is not one JSON object.", "Write it again as one JSON object.")
MISSPELLED = error(
    "MF204",
    "A property of `_metadata.json` is there under a spelling that the service does not see.",
    "Spell the property as the specification does; another spelling is not seen.",
)
UNKNOWN = warning(
    "MF205",
    "A property of `_metadata.json` is none that the specification knows.",
    "Remove the property, or correct its name.",
)
KEYS_TYPE = error(
    "MF206",
    "`keyColumns` is not a list of names.",
    'Give the names of the key columns as a list of strings: `"keyColumns": ["C1", "C2"]`.',
)
KEYS_TWICE = error("MF207", "`keyColumns` names a column more than once.", "Name each key column once.")
DETECTION = error(
    "MF208",
    "`fileDetectionStrategy` has a value that the specification does not know.",
    f'Set "{TIMESTAMPS}", or remove the property to have files read by number.',
)
UPSERT_TYPE = error(
    "MF209", "`isUpsertDefaultRowMarker` is neither true nor false.", "Set `true` or `false`, without quotes."
)
UPSERT_KEYLESS = error(
    "MF210",
    "Rows are to be upserts by default, and the table has no keys.",
    "Set keyColumns, or remove isUpsertDefaultRowMarker: an upsert needs keys.",
)
FORMAT = error(
    "MF211",
    "`FileFormat` has a value that the specification does not know.",
    'Set "DelimitedText", or remove the property where files are Parquet or plain CSV.',
)
EXTENSION = error(
    "MF212",
    "`FileExtension` is no suffix of a file name.",
    'Set the suffix of the data files without its dot, like "tsv".',
)
OPTIONS_TYPE = error(
    "MF213",
    "The options of delimited text are not given as the specification has them.",
    f"Give an object with options among {', '.join(_ALLOWED)}.",
)
OPTION_VALUE = error(
    "MF214",
    "An option of delimited text has a value that the specification does not list.",
    "Set a value that the specification lists, and write the files accordingly.",
)
HEADER = error(
    "MF215",
    "The files are said to be without column names in their first row, which mirroring needs.",
    "Set FirstRowAsHeader to true, and put the column names in each file's first row.",
)
DEFINITION = error(
    "MF216",
    "`SchemaDefinition` has not the form that the specification has.",
    'Give `{"Columns": [{"Name": "C1", "DataType": "Int32", "IsNullable": true}, …]}`.',
)
DATA_TYPE = error(
    "MF217",
    "`SchemaDefinition` declares a type that the specification does not know.",
    f"Declare one of {', '.join(DATA_TYPES)}.",
)
KEY_UNDECLARED = error(
    "MF218",
    "A key column is not declared in `SchemaDefinition`.",
    "Declare the key column in SchemaDefinition under the very same name.",
)
FORMAT_UNSAID = error(
    "MF219",
    "Options of delimited text are set, and `FileFormat` does not say that the files are of it.",
    'Set `"FileFormat": "DelimitedText"`: without it files are taken for CSV.',
)
MANY_KEYS = advice(
    "MF251",
    "The table has many key columns, and each merge compares all of them.",
    f"Fewer than five narrow key columns merge best; to change them, {REBUILD}.",
)


@dataclass(frozen=True, slots=True)
class Declared:
    name: str
    type: str
    nullable: bool


@dataclass(frozen=True, slots=True)
class Dialect:
    """How the text of delimited files is to be read."""

    row: str = "\r\n"
    column: str = ","
    quote: str = '"'
    escape: str = "\\"
    null: str = ""
    encoding: str = "utf-8"


@dataclass(frozen=True, slots=True)
class Settings:
    """What a table's metadata sets; where it is wrong, the default, so that the files can be judged all the same."""

    keys: tuple[str, ...] = ()
    by_time: bool = False
    upserts: bool = False
    text: bool | None = None
    """True: FileFormat says delimited text; False: it says Parquet; None: it does not say."""
    extension: str = "csv"
    dialect: Dialect = field(default_factory=Dialect)
    declared: tuple[Declared, ...] | None = None


class _Twice(ValueError):
    """A property that stands in an object twice."""


def metadata_among(names: Iterable[str]) -> str | None:
    """The file that is a table's metadata, or was meant to be: its name differs in case, or lacks `_` or the suffix."""
    near = [name for name in names if name.lower().removeprefix("_").removesuffix(".json") == "metadata"]
    return METADATA if METADATA in near else min(near, default=None)


def read_metadata(data: bytes | None, folder: str, name: str = METADATA) -> tuple[Settings, list[Finding]]:
    """The settings in a table's metadata, found under this name, and what is wrong with it."""
    file = f"{folder}/{name}"
    if data is None:
        return Settings(), [MISSING.broken(file, "The table's folder has no _metadata.json.")]
    found = [] if name == METADATA else [MISNAMED.broken(file, f"The file is named {name!r}.")]
    try:
        spelled = load(data)
    except ValueError as fault:
        return Settings(), [*found, UNREADABLE.broken(file, f"It cannot be read: {fault}.")]
    reader = _Reader(file, spelled)
    settings = reader.read()
    return settings, found + reader.found


def load(data: bytes) -> dict[str, Any]:
    """The JSON object in these bytes, or ValueError with the reason."""
    if not data.strip():
        raise ValueError("it is empty")
    try:
        spelled = spelled_in(data, _object)
    except _Twice:
        raise
    except ValueError as error:
        raise ValueError(f"it is not JSON ({error})") from error
    if not isinstance(spelled, dict):
        raise ValueError(f"it holds {kind(spelled)}, not an object")
    return spelled


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    names = [name for name, _ in pairs]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise _Twice(f"the property {twice[0]!r} stands in it twice")
    return dict(pairs)


def kind(value: object) -> str:
    """A JSON value's type in words, with the value where it is short."""
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, list):
        return "a list"
    text = json.dumps(value, ensure_ascii=False)
    return f"the {'text' if isinstance(value, str) else 'value'} {text if len(text) <= 60 else text[:57] + '…'}"


class _Reader:
    def __init__(self, file: str, spelled: dict[str, Any]) -> None:
        self._file, self._spelled = file, spelled
        self.found: list[Finding] = []

    def read(self) -> Settings:
        self._names()
        keys, declared = self._keys(), self._declared()
        self._keys_declared(keys, declared)
        by_time, upserts = self._by_time(), self._upserts(keys)
        text = self._format()
        extension, dialect = self._extension(text), self._dialect()
        said = self._spelled.get("FileFormat", "CSV")
        if said == "CSV" and (extension != "csv" or dialect.column != ","):
            how = f"the extension {extension!r}" if extension != "csv" else f"the separator {dialect.column!r}"
            but = "its FileFormat is not DelimitedText" if "FileFormat" in self._spelled else "no FileFormat"
            self._say(FORMAT_UNSAID, f"It sets {how}, but {but}.")
        return Settings(keys, by_time, upserts, text, extension, dialect, declared)

    def _say(self, rule: Any, what: str) -> None:
        self.found.append(rule.broken(self._file, what))

    def _names(self) -> None:
        """Says which are wrong, and goes on with what a wrong case stands for, lest one slip make many findings."""
        for name in list(self._spelled):
            if name in _KNOWN or name == "KeyColumns":
                continue
            if near := [known for known in _KNOWN if known.lower() == name.lower()]:
                self._say(MISSPELLED, f"It spells {near[0]!r} as {name!r}.")
                self._spelled.setdefault(near[0], self._spelled[name])
            else:
                self._say(UNKNOWN, f"The property {name!r} is not one that the specification names.")

    def _keys(self) -> tuple[str, ...]:
        both = [name for name in ("keyColumns", "KeyColumns") if name in self._spelled]
        if not both:
            return ()
        if len(both) == 2:
            self._say(KEYS_TWICE, "It has both 'keyColumns' and 'KeyColumns'.")
        keys = self._spelled[both[0]]
        if not isinstance(keys, list):
            self._say(KEYS_TYPE, f"{both[0]} is {kind(keys)}, not a list.")
            return ()
        if wrong := [key for key in keys if not isinstance(key, str) or not key]:
            self._say(KEYS_TYPE, f"{both[0]} lists {kind(wrong[0])}, which is not a column's name.")
            return ()
        seen = [key.casefold() for key in keys]
        if twice := [key for at, key in enumerate(keys) if key.casefold() in seen[:at]]:
            self._say(KEYS_TWICE, f"{both[0]} lists {twice[0]!r} twice.")
        if len(keys) > MOST_KEYS:
            self._say(MANY_KEYS, f"It sets {len(keys)} key columns.")
        return tuple(key for at, key in enumerate(keys) if key.casefold() not in seen[:at])

    def _by_time(self) -> bool:
        value = self._spelled.get("fileDetectionStrategy")
        if "fileDetectionStrategy" in self._spelled and value != TIMESTAMPS:
            self._say(DETECTION, f"fileDetectionStrategy is {kind(value)}.")
        return isinstance(value, str) and value.lower() == TIMESTAMPS.lower()

    def _upserts(self, keys: tuple[str, ...]) -> bool:
        value = self._spelled.get("isUpsertDefaultRowMarker", False)
        if not isinstance(value, bool):
            self._say(UPSERT_TYPE, f"isUpsertDefaultRowMarker is {kind(value)}.")
        elif value and not keys and not self._spelled.get("keyColumns", self._spelled.get("KeyColumns")):
            self._say(UPSERT_KEYLESS, "isUpsertDefaultRowMarker is true, and there are no key columns.")
        return value is True

    def _format(self) -> bool | None:
        value = self._spelled.get("FileFormat")
        if "FileFormat" not in self._spelled:
            return None
        if value not in _FORMATS:
            self._say(FORMAT, f"FileFormat is {kind(value)}.")
        return value != "Parquet"

    def _extension(self, text: bool | None) -> str:
        value = self._spelled.get("FileExtension")
        if "FileExtension" not in self._spelled:
            if text and self._spelled["FileFormat"] == "DelimitedText":
                self._say(EXTENSION, "FileFormat is DelimitedText, and FileExtension is not set.")
            return "csv"
        if not isinstance(value, str) or not value.strip(".") or value != value.strip():
            self._say(EXTENSION, f"FileExtension is {kind(value)}.")
            return "csv"
        if value.startswith("."):
            self._say(EXTENSION, f"FileExtension is {kind(value)}, with the dot.")
        return value.lstrip(".").lower()

    def _dialect(self) -> Dialect:
        options = self._spelled.get("FileFormatTypeProperties")
        if "FileFormatTypeProperties" not in self._spelled:
            return Dialect()
        if not isinstance(options, dict):
            self._say(OPTIONS_TYPE, f"FileFormatTypeProperties is {kind(options)}.")
            return Dialect()
        good: dict[str, Any] = {}
        for name, value in options.items():
            known = self._option(name)
            if known and self._option_good(known, value):
                good.setdefault(known, value)
        if "firstrowasheader" not in (name.lower() for name in options):
            self._say(HEADER, "FileFormatTypeProperties does not set FirstRowAsHeader.")
        default = Dialect()
        return Dialect(
            good.get("RowSeparator", default.row),
            good.get("ColumnSeparator", default.column),
            good.get("QuoteCharacter", default.quote),
            good.get("EscapeCharacter", default.escape),
            good.get("NullValue", default.null),
            python_encoding(good.get("Encoding", default.encoding)) or default.encoding,
        )

    def _option(self, name: str) -> str | None:
        """The option that a name stands for."""
        if name in _ALLOWED:
            return name
        if near := [known for known in _ALLOWED if known.lower() == name.lower()]:
            self._say(MISSPELLED, f"It spells {near[0]!r} as {name!r}.")
            return near[0]
        self._say(OPTIONS_TYPE, f"FileFormatTypeProperties has the option {name!r}, which there is not.")
        return None

    def _option_good(self, name: str, value: Any) -> bool:
        if name == "FirstRowAsHeader":
            if value is not True:
                self._say(HEADER, f"FirstRowAsHeader is {kind(value)}.")
            return True
        allowed = _ALLOWED[name]
        good = isinstance(value, str) and (allowed is None or value in allowed)
        if not good or (name == "Encoding" and python_encoding(value) is None):
            choice = f" Allowed are {', '.join(json.dumps(one) for one in allowed)}." if allowed else ""
            self._say(OPTION_VALUE, f"{name} is {kind(value)}.{choice}")
            return False
        return True

    def _declared(self) -> tuple[Declared, ...] | None:
        definition = self._spelled.get("SchemaDefinition")
        if "SchemaDefinition" not in self._spelled:
            return None
        columns = definition.get("Columns") if isinstance(definition, dict) else None
        if not isinstance(columns, list) or not columns:
            self._say(DEFINITION, "SchemaDefinition has no list of Columns.")
            return None
        found = list(self._columns(columns))
        seen: set[str] = set()
        for column in found:
            if column.name.casefold() in seen:
                self._say(DEFINITION, f"SchemaDefinition declares {column.name!r} twice.")
            seen.add(column.name.casefold())
        return tuple(found) if len(found) == len(columns) else None

    def _columns(self, columns: list[Any]) -> Iterator[Declared]:
        for at, column in enumerate(columns, 1):
            name = column.get("Name") if isinstance(column, dict) else None
            if not isinstance(name, str) or not name:
                self._say(DEFINITION, f"Column {at} of SchemaDefinition has no Name.")
                continue
            if odd := sorted(set(column) - {"Name", "DataType", "IsNullable"}):
                self._say(DEFINITION, f"Column {name!r} of SchemaDefinition has {listed(odd)}.")
            if column.get("DataType") not in DATA_TYPES:
                self._say(DATA_TYPE, f"The DataType of {name!r} is {kind(column.get('DataType'))}.")
            nullable = column.get("IsNullable", True)
            if not isinstance(nullable, bool):
                self._say(DEFINITION, f"IsNullable of {name!r} is {kind(nullable)}, not true or false.")
            yield Declared(name, str(column.get("DataType")), nullable is not False)

    def _keys_declared(self, keys: tuple[str, ...], declared: tuple[Declared, ...] | None) -> None:
        if declared is None:
            return
        names = {column.name for column in declared}
        if absent := [key for key in keys if key not in names]:
            self._say(KEY_UNDECLARED, f"SchemaDefinition does not declare the key {listed(absent)}.")


def python_encoding(name: object) -> str | None:
    """What Python calls an encoding; None if it knows none of this name."""
    if not isinstance(name, str):
        return None
    plain = name.lower().removesuffix(" without bom")
    return plain if is_text_encoding(plain) else None
