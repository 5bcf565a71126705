"""Read delimited text as Arrow columns with the types declared in `_metadata.json`, for lint and the local replica."""

from __future__ import annotations

import binascii
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.compute as pc

from mirrorfeed.display.rows import counted
from mirrorfeed.lint.delimited_text import (
    ENCODING,
    NULL,
    VALUE,
    WIDTH,
    Unsplittable,
    decode,
    decompress,
    split,
)
from mirrorfeed.lint.specification import DELETE, MARKER, FileColumn, LintFinding, LintRule, Settings

ARROW_TYPES: dict[str | None, pa.DataType] = {
    "Double": pa.float64(),
    "Single": pa.float32(),
    "Int16": pa.int16(),
    "Int32": pa.int32(),
    "Int64": pa.int64(),
    "DateTime": pa.timestamp("us"),
    "IDate": pa.date32(),
    "ITime": pa.timestamp("us"),
    "String": pa.string(),
    "Boolean": pa.bool_(),
    "ByteArray": pa.binary(),
}
"""Arrow type for each `DataType` in `_metadata.json`. The row marker and undeclared columns are text."""
_BATCH = 1 << 14


@dataclass
class TextReader:
    """Reader of one file of delimited text. Stops at the first text that cannot be decoded or split into values."""

    file: BinaryIO
    path: str
    """Path to show in findings. Ends in the name of the file."""
    settings: Settings
    report: Callable[[LintFinding], object]
    """Function that is called with each violation of a rule. It can raise an error to stop reading."""
    allow_line_breaks: bool = False
    """True if values without quotes can contain line breaks other than the row separator."""
    columns: tuple[FileColumn, ...] = field(default=(), init=False)
    """Columns of the header with their declared types. Empty until `batches` has read the header."""
    rows: int = field(default=0, init=False)
    """Number of rows read, including the header."""

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows in batches, with at least one batch if the file has a header.

        Columns have their declared types. A column with an invalid value stays text in its batch. Raises
        `OSError` or its subclass `UnreadableText` if the file cannot be decompressed.
        """
        rows = self._rows()
        while True:
            batch = list(islice(rows, _BATCH))
            if self.columns:
                yield self._typed([number for number, _ in batch], [row for _, row in batch])
            if len(batch) < _BATCH:
                return

    def _rows(self) -> Iterator[tuple[int, list[str | None]]]:
        """Yield the number and values of each row below the header. Skips and reports rows of the wrong length."""
        dialect = self.settings.dialect
        text = decode(decompress(self.file, self.path), dialect.encoding)
        try:
            for row in split(text, dialect, allow_line_breaks=self.allow_line_breaks):
                self.rows += 1
                if self.rows == 1:
                    self.columns = self._header([name or "" for name in row])
                elif len(row) == len(self.columns):
                    yield self.rows, row
                else:
                    detail = f"it has {counted(len(row), 'value')}, and the header has {len(self.columns)}"
                    self._report(WIDTH, self.rows, detail)
        except Unsplittable as stopped:
            self._report(stopped.rule, stopped.row, stopped.detail)
        except UnicodeError as error:
            self._report(ENCODING, self.rows + 1, f"it is not {dialect.encoding} ({error})")

    def _report(self, rule: LintRule, row: int, detail: str) -> None:
        self.report(rule.finding(self.path, row=row, detail=detail))

    def _header(self, names: list[str]) -> tuple[FileColumn, ...]:
        known = [column for column in self.settings.declared or () if column.type in ARROW_TYPES]
        declared = {column.name.casefold(): column for column in known}
        return tuple(replace(declared.get(name.casefold(), FileColumn(name, None)), name=name) for name in names)

    def _typed(self, numbers: list[int], rows: list[list[str | None]]) -> pa.RecordBatch:
        values = zip(*rows, strict=True) if rows else [()] * len(self.columns)
        arrays = [pa.array(column, pa.string()) for column in values]
        texts = pa.RecordBatch.from_arrays(arrays, [column.name for column in self.columns])
        faults: list[tuple[int, LintRule, str]] = []
        for index, column in enumerate(self.columns):
            if column.type is None or column.name == MARKER:
                continue
            try:
                arrays[index] = _cast(texts[index], ARROW_TYPES[column.type])
            except ValueError:
                at, text = _first_invalid(texts[index], ARROW_TYPES[column.type])
                faults.append((at, VALUE, f"{column.name!r} is {text[:40]!r}, which is not of type {column.type}"))
            if not column.nullable and column.name not in self.settings.keys:
                missing = pc.indices_nonzero(lacks_value(texts[index], texts))
                detail = f"{column.name!r} is NULL, and is declared as not nullable"
                faults += [(at, NULL, detail) for at in missing[:1].to_pylist()]
        for at, rule, detail in sorted(faults, key=lambda fault: fault[0]):
            self._report(rule, numbers[at], detail)
        return pa.RecordBatch.from_arrays(arrays, texts.schema.names)


def _cast(texts: pa.Array, type_: pa.DataType) -> pa.Array:
    """Convert texts to a type. Raises `ValueError` if a text is not a value of this type."""
    if pa.types.is_string(type_):
        return texts
    if pa.types.is_binary(type_):
        data = [text and binascii.a2b_base64(text, strict_mode=True) for text in texts.to_pylist()]
        return pa.array(data, type_)
    return _times(texts) if pa.types.is_timestamp(type_) else pc.cast(pc.ascii_trim(texts, " \t"), type_)


def _times(texts: pa.Array) -> pa.Array:
    """Convert texts to timestamps in UTC. Raises `ValueError` if a text is not a time.

    The Arrow type of the result has no time zone. A time without a date gets the date 1970-01-01.
    """
    texts = pc.replace_substring_regex(texts, r"^(\d\d:)", r"1970-01-01 \1")
    texts = pc.replace_substring_regex(texts, r"(\.\d{6})\d+", r"\1")
    zoned = pc.match_substring_regex(texts, r"\d(Z|[+-]\d\d(:?\d\d)?)$")
    zoned = pc.and_(zoned, pc.match_substring_regex(texts, r"\d:\d"))  # the end of a date looks like a time zone
    plain = pc.cast(pc.if_else(zoned, None, texts), pa.timestamp("us"))
    in_utc = pc.cast(pc.if_else(zoned, texts, None), pa.timestamp("us", "UTC"))
    return pc.coalesce(plain, pc.cast(in_utc, pa.timestamp("us")))


def _first_invalid(texts: pa.Array, type_: pa.DataType) -> tuple[int, str]:
    for at, text in enumerate(texts.to_pylist()):
        try:
            _cast(pa.array([text], pa.string()), type_)
        except ValueError:
            return at, text
    raise AssertionError("one of the texts is invalid")


def lacks_value(values: Any, batch: Any) -> Any:
    """Return a Boolean array with one entry for each row of `batch`. `values` is the array of one column of `batch`.

    The entry is True if the row has NULL in this column and is not a delete.
    """
    is_missing, index = pc.is_null(values), batch.schema.get_field_index(MARKER)
    if index < 0:
        return is_missing
    markers = batch.column(index)
    if not pa.types.is_integer(markers.type) and not is_text(markers.type):
        return is_missing
    delete = pa.scalar(str(DELETE) if is_text(markers.type) else DELETE, markers.type)
    return pc.and_(is_missing, pc.fill_null(pc.not_equal(markers, delete), True))


def is_text(type_: Any) -> bool:
    return bool(pa.types.is_string(type_) or pa.types.is_large_string(type_))
