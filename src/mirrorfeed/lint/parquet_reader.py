"""Read the content of a Parquet file: its footer and, in batches, its keys, markers and texts."""

from __future__ import annotations

import base64
import io
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from mirrorfeed.errors import first_line
from mirrorfeed.lint.facts import TYPELESS, Contents, Unreadable
from mirrorfeed.lint.metadata_file import Column
from mirrorfeed.lint.specification import MARKER, Broken
from mirrorfeed.lint.text_reader import is_text
from mirrorfeed.lint.value_facts import ValueFacts

_BATCH = 64 * 1024
_MEMORY = 4 << 30
_PART = 256 << 10
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


def serve() -> None:
    """Process the requests of `ParquetProcess` until standard input ends."""
    _limit("RLIMIT_AS", _MEMORY)
    _limit("RLIMIT_CORE", 0)  # a core file would contain rows
    requests, answers = sys.stdin.buffer, sys.stdout.buffer
    answers.write(b"ready\n")
    answers.flush()
    for line in requests:
        request = json.loads(line)
        # The parent ends slow requests. This limit is for a child whose parent was killed.
        _limit("RLIMIT_CPU", int(time.process_time()) + request["seconds"])
        file = io.BufferedReader(_Remote(requests, answers, request["size"]), _PART)

        def emit(rows: bytes) -> None:
            answers.write(json.dumps({"key_rows": base64.b64encode(rows).decode()}).encode() + b"\n")

        keys, required = tuple(request["keys"]), frozenset(request["required"])
        found = parquet_contents(file, request["size"], keys, required, emit if request["key_rows"] else None)
        answers.write(json.dumps(asdict(found), default=list).encode() + b"\n")
        answers.flush()


class _Remote(io.RawIOBase):
    """File object that requests its bytes from the parent process."""

    def __init__(self, answers: BinaryIO, requests: BinaryIO, size: int) -> None:
        self._answers, self._requests, self._size, self._at = answers, requests, size, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._at = offset + {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._size}[whence]
        if self._at < 0:
            raise OSError("the offset is negative")
        return self._at

    def readinto(self, buffer: Any) -> int:
        self._requests.write(json.dumps([self._at, len(buffer)]).encode() + b"\n")
        self._requests.flush()
        length = int.from_bytes(self._answers.read(8), "big")
        buffer[:length] = self._answers.read(length)
        self._at += length
        return length


def _limit(name: str, most: int) -> None:
    """Set a limit of the process, if the operating system has it."""
    with suppress(ImportError, ValueError, OSError):
        import resource

        which = getattr(resource, name)
        hard = resource.getrlimit(which)[1]
        resource.setrlimit(which, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard))


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
            is_named = {"struct": pa.types.is_struct(field.type), "map": pa.types.is_map(field.type)}
            name = next((name for name, found in is_named.items() if found), "list")
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
