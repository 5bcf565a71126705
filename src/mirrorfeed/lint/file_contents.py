"""Read the columns of Parquet and text files, count row markers and NULLs, and find text that is not valid UTF-8.

Reads only the footer and the needed columns of a Parquet file: key columns, the row marker, text columns, and columns
that must not be NULL. A child process reads Parquet files, because the Parquet library can crash on a damaged file.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from mirrorfeed.errors import first_line
from mirrorfeed.lint.delimited_text import UnreadableText
from mirrorfeed.lint.duplicate_keys import KeyIndex, key_rows
from mirrorfeed.lint.file_rules import UNREADABLE, UNSAFE
from mirrorfeed.lint.landing_zone import TYPELESS, Contents, Unreadable
from mirrorfeed.lint.specification import MARKER, MARKER_TEXTS, TRUNCATED, FileColumn, LintFinding, Settings
from mirrorfeed.lint.text_reader import TextReader, is_text, lacks_value

_BATCH = 64 * 1024
_MAX_MARKERS = 1000
"""Maximum number of different row markers to count separately. All others are counted as `other values`."""
_MAX_MARKER_LENGTH = 100
_BINARY = (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_fixed_size_binary)
_TYPE_NAMES = {
    "INT96": "timestamp",
    "BYTE_ARRAY": "binary",
    "FIXED_LEN_BYTE_ARRAY": "binary",
    "ENUM": "string",
    "JSON": "string",
    "BSON": "binary",
    "UNKNOWN": TYPELESS,
}
"""Type names in findings, by Parquet type. Other types have their Parquet name in lower case."""


def read_parquet(
    file: BinaryIO,
    size: int,
    keys: tuple[str, ...],
    required: frozenset[str],
    emit: Callable[[bytes], None] | None = None,
) -> Contents | Unreadable:
    """Return column names, column types and counts of a Parquet file, or the reason why the file cannot be read.

    `size` is the size of the file in bytes. Counts the rows, the row markers, and the NULLs in the columns `keys` and
    `required`. Calls `emit`, if set, for each Arrow batch with all key columns. The bytes for `emit` contain two values
    for each row: a hash of the key, and then the row marker.

    Call this function only in a child process, because the Parquet library can crash.
    """
    if unreadable := _check_ends(file, size):
        return unreadable
    try:
        parquet = pq.ParquetFile(file, pre_buffer=False)
        columns = tuple(_columns(parquet))
        if _reaches_past_end(parquet.metadata, size):
            return Unreadable(TRUNCATED, "its footer refers to data after its end")
        codecs = frozenset(chunk.compression for chunk in _chunks(parquet.metadata))
        names = _columns_to_read(parquet.schema_arrow, keys, required)
        batches = parquet.iter_batches(_BATCH, columns=names, use_threads=False) if names else ()
        counts = _count_values(batches, keys, required, emit)
        return Contents(columns, parquet.metadata.num_rows, codecs, **counts)
    except MemoryError:
        return Unreadable(UNSAFE, "reading it takes too much memory")
    except UnicodeDecodeError:
        return Unreadable(UNREADABLE, "a text in its footer is not UTF-8")
    except Exception as error:  # a damaged file can raise any error
        return Unreadable(UNREADABLE, first_line(str(error)))


def _check_ends(file: BinaryIO, size: int) -> Unreadable | None:
    """Return None if a file starts and ends like an unencrypted Parquet file, or else the reason why it does not."""
    head = file.read(4)
    file.seek(max(0, size - 4), os.SEEK_SET)
    tail = file.read(4)
    file.seek(0)
    if b"PARE" in (head, tail):
        return Unreadable(UNREADABLE, "its footer cannot be read without a key")
    if head != b"PAR1":
        return Unreadable(UNREADABLE, "it does not begin like a Parquet file")
    return None if size >= 12 and tail == b"PAR1" else Unreadable(TRUNCATED, "its footer is missing")


def _chunks(metadata: Any) -> Iterator[Any]:
    for group in range(metadata.num_row_groups):
        row_group = metadata.row_group(group)
        yield from (row_group.column(at) for at in range(row_group.num_columns))


def _reaches_past_end(metadata: Any, size: int) -> bool:
    """Return True if the Parquet footer `metadata` refers to more data than a file of `size` bytes can contain."""
    data_size = unclaimed = size - 8 - metadata.serialized_size
    for chunk in _chunks(metadata):
        length = max(0, chunk.total_compressed_size)
        unclaimed -= length
        start = min(filter(None, (chunk.dictionary_page_offset, chunk.data_page_offset)), default=0)
        if unclaimed < 0 or start + length > data_size:
            return True
    return False


def _columns(parquet: Any) -> Iterator[FileColumn]:
    """Yield the top-level columns with their Parquet types, not with the types of an Arrow schema in the file."""
    leaf = 0
    for field in parquet.schema_arrow:
        type_ = field.type
        if pa.types.is_nested(type_):
            kind = "struct" if pa.types.is_struct(type_) else "map" if pa.types.is_map(type_) else "list"
            yield FileColumn(field.name, kind, field.nullable)
        else:
            column = parquet.schema.column(leaf)
            yield FileColumn(field.name, _type_name(column), column.max_definition_level > 0)
        leaf += _count_leaves(type_)


def _count_leaves(type_: Any) -> int:
    if isinstance(type_, pa.BaseExtensionType):
        return _count_leaves(type_.storage_type)
    if not pa.types.is_nested(type_):
        return 1
    return sum(_count_leaves(type_.field(at).type) for at in range(type_.num_fields))


def _type_name(column: Any) -> str:
    logical = column.logical_type
    facts = json.loads(logical.to_json())
    match logical.type:
        case "INT":
            return f"{'' if facts['isSigned'] else 'u'}int{facts['bitWidth']}"
        case "DECIMAL":
            return f"decimal({facts['precision']}, {facts['scale']})"
        case "TIMESTAMP":
            return "timestamp" if facts["isAdjustedToUTC"] else "timestamp_ntz"
    name = str(column.physical_type if logical.type == "NONE" else logical.type)
    return _TYPE_NAMES.get(name, name.lower())


def _columns_to_read(schema: Any, keys: tuple[str, ...], required: frozenset[str]) -> list[str]:
    """Return the names of the columns to read from a Parquet file. Leaves out names that occur more than once.

    Includes key columns, the row marker, text columns, and columns in `required` that are nullable in `schema`.
    """
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


def read_text(file: BinaryIO, path: str, settings: Settings, index: KeyIndex | None = None) -> Contents | Unreadable:
    """Return column names, column types and counts of a text file, or the reason why the file cannot be read.

    Counts the rows, the row markers, and the NULLs in key columns. The findings in `Contents.faults` show `path`. If
    `index` is set, adds the keys of the rows to `index`. After each call with an `index`, the caller must call
    `index.end`."""
    faults: dict[str, LintFinding] = {}
    reader = TextReader(file, path, settings, lambda finding: faults.setdefault(finding.code, finding))
    try:
        counts = _count_values(reader.batches(), settings.keys, emit=index.add if index else None)
    except UnreadableText as error:
        return Unreadable(error.rule, str(error))
    except OSError as error:
        return Unreadable(UNREADABLE, str(error).rstrip("."))
    return Contents(reader.columns, max(0, reader.rows - 1), faults=tuple(faults.values()), **counts)


def _count_values(
    batches: Iterable[Any],
    keys: tuple[str, ...],
    required: frozenset[str] = frozenset(),
    emit: Callable[[bytes], None] | None = None,
) -> dict[str, Any]:
    """Count row markers and NULLs, and find invalid UTF-8. Return the results as keyword arguments for `Contents`.

    Ignores columns with a repeated name. Calls `emit`, if set, with the keys of each Arrow batch with all key columns.
    """
    markers, null_keys, missing_values = Counter[str](), Counter[str](), Counter[str]()
    widest_keys, invalid_texts = dict[str, int](), dict[str, int]()
    rows = first_unknown_marker = 0
    for batch in batches:
        names = [name for name in batch.schema.names if batch.schema.get_field_index(name) >= 0]
        for name in names:
            values = _decoded(batch.column(name))
            if is_text(values.type) and name not in invalid_texts and (at := _first_invalid(values)) is not None:
                invalid_texts[name] = rows + at + 1
            if name == MARKER:
                for each in pc.value_counts(values):
                    text = _marker_text(each["values"])
                    if text not in (*MARKER_TEXTS, "NULL") and not first_unknown_marker:
                        first_unknown_marker = rows + pc.index(values, each["values"]).as_py() + 1
                    is_counted = text in markers or len(markers) < _MAX_MARKERS
                    markers[text if is_counted else "other values"] += each["counts"].as_py()
            elif name in keys:
                null_keys[name] += values.null_count
                if is_text(values.type) or any(is_kind(values.type) for is_kind in _BINARY):
                    longest = pc.max(pc.binary_length(values)).as_py() or 0
                    widest_keys[name] = max(widest_keys.get(name, 0), longest)
            if name in required:
                missing_values[name] += pc.sum(lacks_value(values, batch)).as_py() or 0
        rows += batch.num_rows
        if emit and keys and set(keys) <= set(names):
            emit(_key_rows(batch, keys))
    return {
        "markers": dict(markers),
        "first_unknown_marker": first_unknown_marker,
        "null_keys": dict(+null_keys),
        "widest_keys": widest_keys,
        "invalid_texts": invalid_texts,
        "missing_values": dict(+missing_values),
    }


def _marker_text(value: Any) -> str:
    if not value.is_valid:
        return "NULL"
    # The bytes of a text need not be valid UTF-8.
    text = value.as_buffer().to_pybytes().decode(errors="backslashreplace") if is_text(value.type) else value.as_py()
    return str(text)[:_MAX_MARKER_LENGTH]


def _key_rows(batch: Any, keys: tuple[str, ...]) -> bytes:
    """Return bytes that contain two values for each row of an Arrow batch: a hash of the key, and then the row marker.

    Returns empty bytes if Python cannot represent a value.
    """
    try:
        columns = [_comparable(_decoded(batch.column(name))).to_pylist() for name in keys]
        markers = batch.column(MARKER).to_pylist() if batch.schema.get_field_index(MARKER) >= 0 else None
    except (pa.ArrowException, ValueError, OverflowError):
        return b""
    return key_rows(zip(*columns, strict=True), markers)


def _comparable(values: Any) -> Any:
    """Convert text to bytes, and dates and times to integers, so that Python can compare any values in key columns."""
    # Python has no `str` for text that is not valid UTF-8, and no dates after the year 9999.
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
