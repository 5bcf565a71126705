"""Read the contents of data files as facts.

Parquet files are read in a child process of the linter: the footer and, in batches, keys, row markers and texts.
Delimited text is read in the same process.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from mirrorfeed.errors import first_line
from mirrorfeed.lint.delimited_text import TextFault, UnreadableText
from mirrorfeed.lint.duplicate_keys import KeyIndex, key_rows
from mirrorfeed.lint.landing_zone import TYPELESS, Contents, Unreadable
from mirrorfeed.lint.specification import MARKER, MARKER_TEXTS, Broken, Column, Rule, Settings
from mirrorfeed.lint.text_reader import TextReader, is_text, lacks_value

_BATCH = 64 * 1024
_MAX_VALUES = 1000
_MAX_VALUE_LENGTH = 100
_BINARY = (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_fixed_size_binary)
_PLAIN = {
    "BOOLEAN": "boolean",
    "INT32": "int32",
    "INT64": "int64",
    "INT96": "timestamp",
    "FLOAT": "float",
    "DOUBLE": "double",
    "BYTE_ARRAY": "binary",
    "FIXED_LEN_BYTE_ARRAY": "binary",
}
_LOGICAL = {
    "STRING": "string",
    "ENUM": "string",
    "JSON": "string",
    "BSON": "binary",
    "UUID": "uuid",
    "DATE": "date",
    "UNKNOWN": TYPELESS,
}


def parquet_contents(
    file: BinaryIO,
    size: int,
    keys: tuple[str, ...],
    required: frozenset[str],
    emit: Callable[[bytes], None] | None = None,
) -> Contents | Unreadable:
    """Return the contents, or the reason why they cannot be read. Passes `key_rows` to `emit`.

    Can crash, so only `serve` calls this function.
    """
    if outside := _check_ends(file, size):
        return outside
    try:
        parquet = pq.ParquetFile(file, pre_buffer=False)
        columns = tuple(_columns(parquet))
        if _reaches_past_end(parquet.metadata, size):
            return Unreadable(Broken.TRUNCATED, "its footer refers to data after its end")
        codecs = frozenset(chunk.compression for chunk in _chunks(parquet.metadata))
        facts, checked = ValueFacts(keys, required, emit), _checked_columns(parquet.schema_arrow, keys, required)
        for batch in parquet.iter_batches(_BATCH, columns=checked, use_threads=False) if checked else ():
            facts.add(batch)
        return facts.added_to(Contents(columns, parquet.metadata.num_rows, codecs))
    except MemoryError:
        return Unreadable(Broken.UNSAFE, "reading it takes too much memory")
    except UnicodeDecodeError:
        return Unreadable(Broken.FOREIGN, "a text in its footer is not UTF-8")
    except Exception as error:  # a damaged file can raise any error
        return Unreadable(Broken.FOREIGN, first_line(str(error)))


def _check_ends(file: BinaryIO, size: int) -> Unreadable | None:
    """Check the first and last bytes."""
    head = file.read(4)
    file.seek(max(0, size - 4), os.SEEK_SET)
    tail = file.read(4)
    file.seek(0)
    if b"PARE" in (head, tail):
        return Unreadable(Broken.ENCRYPTED, "its footer cannot be read without a key")
    if head != b"PAR1":
        return Unreadable(Broken.FOREIGN, "it does not begin like a Parquet file")
    return None if size >= 12 and tail == b"PAR1" else Unreadable(Broken.TRUNCATED, "its footer is missing")


def _chunks(metadata: Any) -> Iterator[Any]:
    for group in range(metadata.num_row_groups):
        row_group = metadata.row_group(group)
        yield from (row_group.column(at) for at in range(row_group.num_columns))


def _reaches_past_end(metadata: Any, size: int) -> bool:
    """Return whether a column, or all columns together, would take more than the bytes before the footer."""
    end = left = size - 8 - metadata.serialized_size
    for chunk in _chunks(metadata):
        length = max(0, chunk.total_compressed_size)
        left -= length
        begin = min(filter(None, (chunk.dictionary_page_offset, chunk.data_page_offset)), default=0)
        if left < 0 or begin + length > end:
            return True
    return False


def _columns(parquet: Any) -> Iterator[Column]:
    """Yield the top-level columns with Parquet types, because other readers ignore the types that Arrow adds."""
    leaf = 0
    for field in parquet.schema_arrow:
        leaves = _leaves(field.type)
        if pa.types.is_nested(field.type):
            is_kind = {"struct": pa.types.is_struct(field.type), "map": pa.types.is_map(field.type)}
            name = next((name for name, found in is_kind.items() if found), "list")
            yield Column(field.name, name, field.nullable)
        else:
            column = parquet.schema.column(leaf)
            yield Column(field.name, _type(column), column.max_definition_level > 0)
        leaf += leaves


def _leaves(type_: Any) -> int:
    if isinstance(type_, pa.BaseExtensionType):
        return _leaves(type_.storage_type)
    if not pa.types.is_nested(type_):
        return 1
    return sum(_leaves(type_.field(at).type) for at in range(type_.num_fields))


def _type(column: Any) -> str:
    logical = column.logical_type
    facts = json.loads(logical.to_json())
    match logical.type:
        case "NONE":
            return _PLAIN[column.physical_type]
        case "INT":
            return f"{'' if facts['isSigned'] else 'u'}int{facts['bitWidth']}"
        case "DECIMAL":
            return f"decimal({facts['precision']}, {facts['scale']})"
        case "TIMESTAMP":
            return "timestamp" if facts["isAdjustedToUTC"] else "timestamp_ntz"
        case other:
            return _LOGICAL.get(str(other), str(other).lower())


def _checked_columns(schema: Any, keys: tuple[str, ...], required: frozenset[str]) -> list[str]:
    """Return the columns whose values are read: keys, the row marker, text, and columns that must have values."""
    return [
        field.name
        for field in schema
        if schema.names.count(field.name) == 1
        and (
            field.name in (*keys, MARKER)
            or (field.name in required and field.nullable)
            or is_text(field.type.value_type if pa.types.is_dictionary(field.type) else field.type)
        )
    ]


def text_contents(
    file: BinaryIO, name: str, settings: Settings, index: KeyIndex | None = None
) -> Contents | Unreadable:
    """Return the contents, or the reason why they cannot be read. Adds the keys of the rows to `index`."""
    faults: dict[Rule, TextFault] = {}
    if index:
        index.begin()
    facts = ValueFacts(settings.keys, emit=index.add if index else None)
    reader = TextReader(file, name, settings, lambda fault: faults.setdefault(fault.rule, fault))
    try:
        for batch in reader.batches():
            facts.add(batch)
    except UnreadableText as error:
        return Unreadable(error.why, str(error))
    except OSError as error:
        return Unreadable(Broken.FOREIGN, str(error).rstrip("."))
    rows = max(0, reader.rows - 1)
    return facts.added_to(Contents(reader.columns, rows, faults=tuple(faults.values())))


class ValueFacts:
    """Counts NULL in the `required` columns, and passes the `key_rows` of each batch to `emit`."""

    def __init__(
        self,
        keys: tuple[str, ...],
        required: frozenset[str] = frozenset(),
        emit: Callable[[bytes], None] | None = None,
    ) -> None:
        self._keys, self._required, self._emit = keys, required, emit
        self._markers, self._nulls, self._missing = Counter[str](), Counter[str](), Counter[str]()
        self._widest, self._invalid = dict[str, int](), dict[str, int]()
        self._rows = self._first_odd_marker = 0

    def add(self, batch: Any) -> None:
        """Count the values of the columns whose names occur once."""
        names = [name for name in batch.schema.names if batch.schema.get_field_index(name) >= 0]
        for name in names:
            values = _decoded(batch.column(name))
            if is_text(values.type) and name not in self._invalid and (at := _first_invalid(values)) is not None:
                self._invalid[name] = self._rows + at + 1
            if name == MARKER:
                self._count_markers(values)
            elif name in self._keys:
                self._nulls[name] += values.null_count
                if is_text(values.type) or any(is_kind(values.type) for is_kind in _BINARY):
                    longest = pc.max(pc.binary_length(values)).as_py() or 0
                    self._widest[name] = max(self._widest.get(name, 0), longest)
            if name in self._required:
                self._missing[name] += pc.sum(lacks_value(values, batch)).as_py() or 0
        self._rows += batch.num_rows
        if self._emit and self._keys and set(self._keys) <= set(names):
            self._emit(_key_rows(batch, self._keys))

    def added_to(self, contents: Contents) -> Contents:
        return replace(
            contents,
            markers=dict(self._markers),
            first_unknown_marker=self._first_odd_marker,
            null_keys=dict(+self._nulls),
            widest_keys=self._widest,
            invalid_texts=self._invalid,
            missing_values=dict(+self._missing),
        )

    def _count_markers(self, values: Any) -> None:
        """Count rows by value as text. Above a limit, all other values are counted together."""
        for one in pc.value_counts(values):
            value, rows = one["values"], one["counts"].as_py()
            if not value.is_valid:
                text = "NULL"
            elif is_text(value.type):
                text = value.as_buffer().to_pybytes().decode(errors="backslashreplace")[:_MAX_VALUE_LENGTH]
            else:
                text = str(value.as_py())[:_MAX_VALUE_LENGTH]
            if text not in (*MARKER_TEXTS, "NULL") and not self._first_odd_marker:
                self._first_odd_marker = self._rows + pc.index(values, value).as_py() + 1
            is_known = text in self._markers or len(self._markers) < _MAX_VALUES
            self._markers[text if is_known else "other values"] += rows


def _key_rows(batch: Any, keys: tuple[str, ...]) -> bytes:
    """Return the packed rows of a batch, or no bytes if the values of the keys cannot be compared."""
    try:
        columns = [_comparable(_decoded(batch.column(name))).to_pylist() for name in keys]
        markers = batch.column(MARKER).to_pylist() if batch.schema.get_field_index(MARKER) >= 0 else None
    except (pa.ArrowException, ValueError, OverflowError):
        return b""
    return key_rows(zip(*columns, strict=True), markers)


def _comparable(values: Any) -> Any:
    """Convert values to types that Python supports: bytes for text, and numbers for times."""
    if is_text(values.type):
        return values.cast(pa.large_binary())
    if pa.types.is_temporal(values.type):
        return values.cast(pa.int64() if values.type.bit_width == 64 else pa.int32())
    return values


def _decoded(values: Any) -> Any:
    return values.dictionary_decode() if pa.types.is_dictionary(values.type) else values


def _first_invalid(texts: Any) -> int | None:
    """Return the index of the first text that is not valid UTF-8, or None if all texts are valid."""
    try:
        texts.validate(full=True)
        return None
    except pa.ArrowInvalid:
        for at, text in enumerate(texts.cast(pa.large_binary()).to_pylist()):
            try:
                (text or b"").decode()
            except UnicodeDecodeError:
                return at
        return None
