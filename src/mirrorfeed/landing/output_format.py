"""The output format of a table, and the files `_metadata.json` (keys and format) and `_partnerEvents.json`."""

from __future__ import annotations

import codecs
import json
import re
import reprlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, PlainValidator, Strict, TypeAdapter, WithJsonSchema

from mirrorfeed.landing.errors import (
    DamagedFileError,
    column_name_not_writable,
    keys_changed,
    null_as_empty_line,
    setting_changed,
    type_not_declarable,
    upserts_without_keys,
)
from mirrorfeed.landing.schema import Column
from mirrorfeed.landing.strict_json import is_distinct, parse_json, validate

COMPRESSION: Literal["zstd"] = "zstd"
"""Default compression. zstd files are smaller than snappy files and take little more time to write."""

PARQUET = "parquet"
BY_TIME = "LastUpdateTimeFileDetection"
PARTNER_EVENTS = "_partnerEvents.json"
_NO_CHARACTER_SETS = frozenset(("idna", "punycode", "unicode_escape", "raw_unicode_escape", "mbcs", "oem"))
"""Codecs of Python that are not character sets, or that differ between machines."""

_DECLARED = {
    "boolean": "Boolean",
    "byte": "Int16",
    "short": "Int16",
    "integer": "Int32",
    "long": "Int64",
    "float": "Single",
    "double": "Double",
    "string": "String",
    "binary": "ByteArray",
    "date": "IDate",
    "timestamp": "DateTime",
    "timestamp_ntz": "DateTime",
}
"""Value of `DataType` in `_metadata.json` for each column type. Decimals have no `DataType`."""


def _one_of(*allowed: str) -> PlainValidator:
    def check(value: object) -> str:
        if value not in allowed:
            listed = ", ".join(json.dumps(each) for each in allowed)
            raise ValueError(f"must be one of {listed}, not {json.dumps(value, default=repr, ensure_ascii=False)}")
        return str(value)

    return PlainValidator(check, json_schema_input_type=Annotated[str, WithJsonSchema({"enum": allowed})])


def _extension(value: object) -> str:
    if not isinstance(value, str) or not re.fullmatch("[0-9a-z]{1,16}", value) or value == PARQUET:
        raise ValueError(f"must be lower-case letters and digits without a dot, such as tsv, not {value!r}")
    return value


def _encoding(value: object) -> str:
    """Return `value` if it names a character set that Python can decode and encode. Otherwise raises `ValueError`."""
    with suppress(LookupError, ValueError):
        if isinstance(value, str) and codecs.lookup(value).name.replace("-", "_") not in _NO_CHARACTER_SETS:
            "".encode(value)
            codecs.getincrementaldecoder(value)
            codecs.getincrementalencoder(value)
            return value
    raise ValueError(f"{reprlib.repr(value)} is not a supported encoding, such as UTF-8, utf-16 or windows-1252")


@dataclass(frozen=True, slots=True)
class Delimited:
    """Options of delimited text files. An empty `quote` or `escape` means that no such character is used."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    extension: Annotated[str, PlainValidator(_extension, json_schema_input_type=str)] = "csv"
    row_separator: Annotated[str, _one_of("\r\n", "\n", "\r")] = "\r\n"
    column_separator: Annotated[str, _one_of(",", ";", "|", "\t")] = ","
    quote: Annotated[str, _one_of('"', "'", "")] = '"'
    escape: Annotated[str, _one_of("\\", "/", '"', "")] = "\\"
    null: Annotated[str, Strict()] = ""
    """Text that represents NULL."""
    encoding: Annotated[str, PlainValidator(_encoding, json_schema_input_type=str)] = "UTF-8"
    schema_definition: Annotated[bool, Strict()] = True
    """True if `_metadata.json` declares the columns and their types. Then no column can be added."""
    undeclared_types: Literal["refuse", "string"] = "refuse"
    """What to do if Fabric has no `DataType` for the type of a column, such as a decimal. `string` declares the column
    as String, and `refuse` raises an error."""

    def fault(self) -> tuple[str, str] | None:
        """Return the name of an option that makes files unreadable, and the reason. None if all options are valid."""
        if any(mark and mark in self.null for mark in (*"\r\n", self.column_separator, self.quote, self.escape)):
            return "null", f"{self.null!r} contains a separator, a quote, an escape character or a line break"
        if not self.quote and not self.null:
            return "null", "is empty, and without a quote an empty text would look like NULL: set another value"
        return None


@dataclass(frozen=True, slots=True)
class Output:
    """Format of a table's data files, and how Fabric reads the files."""

    delimited: Delimited | None = None
    """Options of delimited text. None means Parquet."""
    by_time: bool = False
    """True if Fabric orders files by modification time, not by number."""
    upserts_by_default: bool = False
    """True if rows without a marker are upserts. Otherwise they are inserts."""
    compression: str = COMPRESSION
    target_file_size: int = 128 * 2**20
    """Target size of a data file in bytes."""

    @property
    def fixes_columns(self) -> bool:
        """True if no column can be added to a published table."""
        return self.delimited is not None and self.delimited.schema_definition

    @property
    def extension(self) -> str:
        return PARQUET if self.delimited is None else self.delimited.extension

    def metadata(self, keys: Sequence[str], columns: Sequence[Column]) -> dict[str, Any]:
        """Return the content of `_metadata.json`. Call `check_output` with the same arguments before."""
        content: dict[str, Any] = {"keyColumns": list(keys)} if keys else {}
        if self.by_time:
            content["fileDetectionStrategy"] = BY_TIME
        if self.upserts_by_default:
            content["isUpsertDefaultRowMarker"] = True
        if text := self.delimited:
            content["FileFormat"] = "DelimitedText"
            content["FileExtension"] = text.extension
            content["FileFormatTypeProperties"] = {
                "FirstRowAsHeader": True,
                "RowSeparator": text.row_separator,
                "ColumnSeparator": text.column_separator,
                "QuoteCharacter": text.quote,
                "EscapeCharacter": text.escape,
                "NullValue": text.null,
                "Encoding": text.encoding,
            }
            if text.schema_definition:
                # Rows of deletes have only keys, so every column is nullable, as in Parquet.
                declared = [
                    {"Name": column.name, "DataType": _DECLARED.get(column.form, "String"), "IsNullable": True}
                    for column in columns
                ]
                content["SchemaDefinition"] = {"Columns": declared}
        return content


AS_PARQUET = Output()


def check_output(table: str, output: Output, columns: Sequence[Column], keys: Sequence[str]) -> None:
    """Check that files in the format `output` can store the columns and keys of a table.

    Raises `upserts_without_keys` if rows without a marker are upserts, but the table has no keys. Raises
    `type_not_declarable` if `_metadata.json` must declare the type of a column, but Fabric has no `DataType` for this
    type. Raises `column_name_not_writable` if the header of a text file cannot contain a column name. Raises
    `null_as_empty_line` if NULL would be written as an empty line.
    """
    if output.upserts_by_default and not keys:
        raise upserts_without_keys(table=table)
    text = output.delimited
    if text is None:
        return
    if text.schema_definition and text.undeclared_types == "refuse":
        for column in columns:
            if column.form not in _DECLARED:
                raise type_not_declarable(table=table, column=column.name, type=column.type)
    special = [text.quote] if text.quote else [text.column_separator, "\r", "\n"]
    for column in columns:
        try:
            column.name.encode(text.encoding)
        except UnicodeEncodeError as error:
            reason = f"it contains a character that {text.encoding} cannot encode"
            raise column_name_not_writable(table=table, column=column.name, reason=reason) from error
        if not text.escape and any(each in column.name for each in special):
            forbidden = "the quote" if text.quote else "a column separator or a line break"
            reason = f"without an escape character, a name cannot contain {forbidden}"
            raise column_name_not_writable(table=table, column=column.name, reason=reason)
    if len(columns) == 1 and not keys and not text.null:
        raise null_as_empty_line(table=table, column=columns[0].name)


class _Metadata(BaseModel):
    """Keys and settings of a table in `_metadata.json`, with the defaults of Fabric's specification."""

    model_config = ConfigDict(strict=True, extra="allow")

    keyColumns: Annotated[tuple[str, ...], AfterValidator(is_distinct)] = ()
    fileDetectionStrategy: str | None = None
    isUpsertDefaultRowMarker: bool = False
    FileFormat: str = "Parquet"
    FileExtension: str | None = None
    FileFormatTypeProperties: dict[str, Any] | None = None
    SchemaDefinition: dict[str, Any] | None = None


_METADATA = TypeAdapter(_Metadata)
_SETTINGS = {name: field.default for name, field in _Metadata.model_fields.items() if name != "keyColumns"}
"""Settings in `_metadata.json` that cannot change after the first publication, with their defaults."""


def to_json(content: Mapping[str, Any]) -> bytes:
    return json.dumps(content, ensure_ascii=False).encode()


def parse_metadata(data: bytes, address: str) -> dict[str, Any]:
    """Return the content of `_metadata.json`. Raises `DamagedFileError` if it is invalid.
    If the file spells `keyColumns` with a capital K, the result has a small k. The error message contains `address`."""
    try:
        value = parse_json(data)
        if isinstance(value, dict) and "KeyColumns" in value:
            value.setdefault("keyColumns", value.pop("KeyColumns"))
        validate(_METADATA, value)
    except ValueError as error:
        raise DamagedFileError(address=address, reason=str(error)) from error
    return dict(value)


def is_up_to_date(existing: Mapping[str, Any], wanted: Mapping[str, Any], address: str) -> bool:
    """Return whether a published `_metadata.json` has the wanted content. Returns False if only the keys are missing.
    Raises `keys_changed` or `setting_changed` if it has other keys or settings, with `address` in the message."""
    published, keys = existing.get("keyColumns", []), wanted.get("keyColumns", [])
    if published and published != keys:
        raise keys_changed(address=address, published=published, wanted=keys)
    for name, default in _SETTINGS.items():
        if existing.get(name, default) != wanted.get(name, default):
            raise setting_changed(address=address, name=name, published=existing.get(name), wanted=wanted.get(name))
    return bool(published == keys)


def partner_events(name: str, source_type: str, source_version: str, information: Mapping[str, Any]) -> dict[str, Any]:
    """Return the content of `_partnerEvents.json`, which describes the publisher and the source."""
    more = {"additionalInformation": dict(information)} if information else {}
    source = {"sourceType": source_type, "sourceVersion": source_version, **more}
    return {"partnerName": name, "sourceInfo": source}


def has_content(data: bytes, wanted: Mapping[str, Any]) -> bool:
    """Return whether JSON data is equal to `wanted`, ignoring whitespace. Returns False if it is not valid JSON."""
    try:
        return bool(parse_json(data) == wanted)
    except ValueError:
        return False
