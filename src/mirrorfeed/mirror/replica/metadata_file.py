"""`_metadata.json` of a table folder: its text -> checked values."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from mirrorfeed.errors import Terminal
from mirrorfeed.landing.encodings import is_text_encoding

MARKER = "__rowMarker__"
DATA_TYPES = frozenset(
    ("Double", "Single", "Int16", "Int32", "Int64", "DateTime", "IDate", "ITime", "String", "Boolean", "ByteArray")
)


@dataclass(frozen=True, slots=True)
class DeclaredColumn:
    name: str
    data_type: str
    nullable: bool = True


@dataclass(frozen=True, slots=True)
class Delimited:
    """How delimited text is written; an empty `quote` or `escape` means that there is none."""

    extension: str = "csv"
    row_separator: str = "\r\n"
    column_separator: str = ","
    quote: str = '"'
    escape: str = "\\"
    null: str = ""
    encoding: str = "UTF-8"
    columns: tuple[DeclaredColumn, ...] | None = None
    """Those of the table. Some publishers list the marker too, which is none."""


@dataclass(frozen=True, slots=True)
class Metadata:
    keys: tuple[str, ...] = ()
    by_time: bool = False
    upsert_by_default: bool = False
    delimited: Delimited = Delimited()


def parse_metadata(content: bytes, address: str) -> Metadata:
    """The values that a `_metadata.json` declares, or `BadMetadata`. Unknown fields are left alone."""
    try:
        fields = json.loads(content.decode("utf-8-sig"))
    except ValueError as error:
        raise BadMetadata(address, f"it is not JSON ({error})") from error
    except RecursionError as error:
        raise BadMetadata(address, "it is nested too deep") from error
    if not isinstance(fields, dict):
        raise BadMetadata(address, "it is not a JSON object")
    return _Reader(address).metadata(fields)


_ESCAPES = {r"\r\n": "\r\n", r"\n": "\n", r"\r": "\r", r"\t": "\t"}


class _Reader:
    def __init__(self, address: str) -> None:
        self._address = address

    def metadata(self, fields: dict[str, Any]) -> Metadata:
        strategy = fields.get("fileDetectionStrategy")
        if strategy not in (None, "LastUpdateTimeFileDetection"):
            raise self._bad(f"fileDetectionStrategy is {strategy!r}, not 'LastUpdateTimeFileDetection'")
        return Metadata(
            keys=self._keys(fields),
            by_time=strategy is not None,
            upsert_by_default=self._flag(fields, "isUpsertDefaultRowMarker", False),
            delimited=self._delimited(fields),
        )

    def _keys(self, fields: dict[str, Any]) -> tuple[str, ...]:
        # The service's own sample for delimited text spells the field with a capital letter.
        spellings = [fields[name] for name in ("keyColumns", "KeyColumns") if fields.get(name) is not None]
        for keys in spellings:
            if not isinstance(keys, list) or not all(isinstance(key, str) and key for key in keys):
                raise self._bad(f"keyColumns is {keys!r}, not a list of column names")
            if len(set(keys)) < len(keys):
                raise self._bad(f"keyColumns {keys!r} names a column twice")
        if len(spellings) > 1 and spellings[0] != spellings[1]:
            raise self._bad(f"keyColumns is {spellings[0]!r}, but KeyColumns is {spellings[1]!r}")
        return tuple(spellings[0]) if spellings else ()

    def _delimited(self, fields: dict[str, Any]) -> Delimited:
        kind = fields.get("FileFormat")
        if kind not in (None, "CSV", "DelimitedText", "Parquet"):  # CSV is what is meant where nothing is said
            raise self._bad(f"FileFormat is {kind!r}, not 'DelimitedText', 'CSV' or 'Parquet'")
        extension = self._text(fields, "FileExtension", "" if kind == "DelimitedText" else "csv").removeprefix(".")
        if not extension:
            raise self._bad("FileFormat is 'DelimitedText', but FileExtension is missing")
        properties = fields.get("FileFormatTypeProperties") or {}
        if not isinstance(properties, dict):
            raise self._bad(f"FileFormatTypeProperties is {properties!r}, not an object")
        if not self._flag(properties, "FirstRowAsHeader", True):
            raise self._bad("FirstRowAsHeader must be true")
        encoding = self._text(properties, "Encoding", "UTF-8")
        if not is_text_encoding(encoding):
            raise self._bad(f"Encoding is {encoding!r}, which is not known")
        return Delimited(
            extension,
            self._choice(properties, "RowSeparator", "\r\n", ("\r\n", "\n", "\r")),
            self._choice(properties, "ColumnSeparator", ",", (",", ";", "|", "\t")),
            self._choice(properties, "QuoteCharacter", '"', ('"', "'", "")),
            self._choice(properties, "EscapeCharacter", "\\", ("\\", "/", '"', "")),
            self._text(properties, "NullValue", ""),
            encoding,
            self._columns(fields.get("SchemaDefinition")),
        )

    def _columns(self, definition: Any) -> tuple[DeclaredColumn, ...] | None:
        if definition is None:
            return None
        listed = definition.get("Columns") if isinstance(definition, dict) else None
        if not isinstance(listed, list) or not listed:
            raise self._bad("SchemaDefinition has no list of Columns")
        columns = tuple(self._column(column) for column in listed)
        if len({column.name for column in columns}) < len(columns):
            raise self._bad("SchemaDefinition declares a column twice")
        return tuple(column for column in columns if column.name != MARKER)

    def _column(self, column: Any) -> DeclaredColumn:
        if not isinstance(column, dict) or not isinstance(column.get("Name"), str) or not column["Name"]:
            raise self._bad(f"SchemaDefinition declares {column!r}, which has no Name")
        if column.get("DataType") not in DATA_TYPES:
            raise self._bad(
                f"column {column['Name']} is declared as {column.get('DataType')!r}, not as one of "
                f"{', '.join(sorted(DATA_TYPES))}"
            )
        return DeclaredColumn(column["Name"], column["DataType"], self._flag(column, "IsNullable", True))

    def _text(self, fields: dict[str, Any], name: str, default: str) -> str:
        value = fields.get(name)
        if value is not None and not isinstance(value, str):
            raise self._bad(f"{name} is {value!r}, not a text")
        return default if value is None else value

    def _choice(self, fields: dict[str, Any], name: str, default: str, allowed: tuple[str, ...]) -> str:
        value = self._text(fields, name, default)
        value = _ESCAPES.get(value, value)  # some writers spell a line break as a backslash and a letter
        if value not in allowed:
            raise self._bad(f"{name} is {value!r}, not one of {', '.join(map(repr, allowed))}")
        return value

    def _flag(self, fields: dict[str, Any], name: str, default: bool) -> bool:
        value = fields.get(name, default)
        if isinstance(value, str) and value.lower() in ("true", "false"):
            return value.lower() == "true"
        if not isinstance(value, bool):
            raise self._bad(f"{name} is {value!r}, not true or false")
        return value

    def _bad(self, reason: str) -> BadMetadata:
        return BadMetadata(self._address, reason)


class BadMetadata(Terminal):
    """The table's `_metadata.json` cannot be used."""

    code = "MF7005"

    def __init__(self, address: str, reason: str) -> None:
        self.address, self.reason = address, reason

    def what(self) -> str:
        return f"Cannot use {self.address}: {self.reason}."

    def next(self) -> str:
        return "Correct the file; the table goes on with the next pass."
