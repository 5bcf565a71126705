"""Count facts about the values of a file in batches: row markers, keys, NULLs and invalid text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.compute as pc

from mirrorfeed.lint.delimited_text import TextFault, UnreadableText
from mirrorfeed.lint.duplicate_keys import KeyIndex, key_rows
from mirrorfeed.lint.facts import Contents, Unreadable
from mirrorfeed.lint.metadata_file import Settings
from mirrorfeed.lint.specification import MARKER, Broken, Rule
from mirrorfeed.lint.text_reader import TextReader, is_text, lacks_value

_MAX_VALUES = 1000
_MAX_VALUE_LENGTH = 100
_BINARY = (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_fixed_size_binary)


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
        self._rows = 0

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
