"""What is in a Parquet file: from its footer, and from the keys and the marker alone, read in batches."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterator
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from mirrorfeed.landing.lint.facts import TYPELESS, Broken, Column, Contents, Unreadable
from mirrorfeed.landing.lint.metadata import Settings
from mirrorfeed.landing.schema import MARKER

_BATCH = 64 * 1024
_MOST_VALUES = 1000
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


def parquet_contents(file: BinaryIO, size: int, settings: Settings) -> Contents | Unreadable:
    if outside := _outside(file, size):
        return outside
    try:
        parquet = pq.ParquetFile(file, pre_buffer=False)
        columns = tuple(_columns(parquet))
        if _reaches_past_end(parquet.metadata, size):
            return Unreadable(Broken.TRUNCATED, "its footer names data that would lie behind its end")
        markers, nulls, widest = _values(parquet, settings.keys, [column.name for column in columns])
    except (pa.ArrowException, OSError) as error:
        return Unreadable(Broken.FOREIGN, str(error).splitlines()[0].rstrip("."))
    return Contents(columns, parquet.metadata.num_rows, _codecs(parquet.metadata), markers, nulls, widest)


def _outside(file: BinaryIO, size: int) -> Unreadable | None:
    """What the first and last bytes say."""
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


def _codecs(metadata: Any) -> frozenset[str]:
    return frozenset(chunk.compression for chunk in _chunks(metadata))


def _reaches_past_end(metadata: Any, size: int) -> bool:
    end = size - 8 - metadata.serialized_size
    return any(
        min(filter(None, (chunk.dictionary_page_offset, chunk.data_page_offset)), default=0)
        + chunk.total_compressed_size
        > end
        for chunk in _chunks(metadata)
    )


def _columns(parquet: Any) -> Iterator[Column]:
    """The top-level columns. Parquet's own types, for those that Arrow notes in the file are not seen by others."""
    leaf = 0
    for field in parquet.schema_arrow:
        leaves = _leaves(field.type)
        if pa.types.is_nested(field.type):
            yield Column(field.name, _nested(field.type), field.nullable)
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


def _nested(type_: Any) -> str:
    for test, name in ((pa.types.is_struct, "struct"), (pa.types.is_map, "map")):
        if test(type_):
            return name
    return "list"


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


def _values(
    parquet: Any, keys: tuple[str, ...], names: list[str]
) -> tuple[dict[str, int], dict[str, int], dict[str, int]]:
    """Rows by marker, and by key column the rows without a value and the longest value. One batch in memory."""
    wanted = [name for name in (*keys, MARKER) if names.count(name) == 1]
    markers, nulls, widest = Counter[str](), Counter[str](), dict[str, int]()
    if not wanted:
        return markers, nulls, widest
    for batch in parquet.iter_batches(_BATCH, columns=wanted, use_threads=False):
        for name in wanted:
            values = batch.column(batch.schema.get_field_index(name))
            if name == MARKER:
                markers.update(_counted(values, markers))
                continue
            nulls[name] += values.null_count
            if pa.types.is_dictionary(values.type):
                values = values.dictionary_decode()
            if pa.types.is_string(values.type) or pa.types.is_large_string(values.type) or _is_binary(values.type):
                longest = pc.max(pc.binary_length(values)).as_py() or 0
                widest[name] = max(widest.get(name, 0), longest)
    return markers, {name: rows for name, rows in nulls.items() if rows}, widest


def _is_binary(type_: Any) -> bool:
    return bool(pa.types.is_binary(type_) or pa.types.is_large_binary(type_) or pa.types.is_fixed_size_binary(type_))


def _counted(values: Any, known: Counter[str]) -> dict[str, int]:
    """Values in words. A column of many is not a marker: from some number on the rest is counted as one."""
    found: dict[str, int] = Counter()
    for one in pc.value_counts(values):
        value, rows = one["values"].as_py(), one["counts"].as_py()
        text = "NULL" if value is None else str(value)
        found[text if text in known or len(known) + len(found) < _MOST_VALUES else "other values"] += rows
    return found
