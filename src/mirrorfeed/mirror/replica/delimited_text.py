"""Delimited text -> Arrow rows, with the options that `_metadata.json` declares.

Two things the specification leaves open are decided here: a quoted value is never NULL, and without a
SchemaDefinition every column is text. A ByteArray is read as Base64, a DateTime or ITime as a time without zone (one
that carries a zone is turned into UTC).
"""

from __future__ import annotations

import binascii
import re
from collections.abc import Iterable

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from mirrorfeed.mirror.replica.compression import decompressed
from mirrorfeed.mirror.replica.metadata_file import DeclaredColumn, Delimited

_TYPES = {
    "Double": pa.float64(),
    "Single": pa.float32(),
    "Int16": pa.int16(),
    "Int32": pa.int32(),
    "Int64": pa.int64(),
    "IDate": pa.date32(),
    "Boolean": pa.bool_(),
}
"""Types that the parser reads itself; the others are read as text first."""


def read_delimited(data: bytes, form: Delimited, marker: str) -> pa.Table:
    """The rows of a file; `ValueError` or `OSError` with the reason if it is broken.

    The marker column is a number, whether a SchemaDefinition mentions it or not.
    """
    text = decompressed(data).decode(form.encoding).removeprefix("\ufeff").encode()
    separator = form.row_separator.encode()
    if not text:
        raise ValueError("the file is empty")
    breaks = _Breaks(text, separator)
    header = {name: breaks.restored_text(name) for name in _parsed_header(breaks.text, form)}
    _refuse_other_breaks(header.values(), text, form)
    declared = {column.name: _TYPES.get(column.data_type, pa.string()) for column in form.columns or ()}
    declared[marker] = pa.int32()
    types = {spelled: declared.get(name, pa.string()) for spelled, name in header.items()}
    convert_options = csv.ConvertOptions(
        column_types=types,
        null_values=[form.null],
        strings_can_be_null=True,
        quoted_strings_can_be_null=False,
    )
    try:
        # One block: a value in quotes may be long, and a row must not be cut.
        read_options = csv.ReadOptions(block_size=len(breaks.text) + 1)
        rows = csv.read_csv(pa.BufferReader(breaks.text), read_options, _parse_options(form), convert_options)
    except pa.ArrowInvalid as error:
        raise ValueError(breaks.restored_text(str(error))) from error
    rows = breaks.restored(rows).rename_columns([header[name] for name in rows.column_names])
    _refuse_open_quote(rows, text, form)
    return rows


def _parse_options(form: Delimited) -> csv.ParseOptions:
    # A quote inside quotes is written twice where the escape character is the quote itself.
    doubled = form.escape == form.quote
    return csv.ParseOptions(
        delimiter=form.column_separator,
        quote_char=form.quote or False,
        double_quote=doubled and bool(form.quote),
        escape_char=False if doubled or not form.escape else form.escape,
        newlines_in_values=True,
        ignore_empty_lines=False,
    )


def _parsed_header(text: bytes, form: Delimited) -> list[str]:
    options = csv.ReadOptions(block_size=len(text) + 1)
    # The streaming reader gives the names before it has read all rows.
    return list(csv.open_csv(pa.BufferReader(text), options, _parse_options(form)).schema.names)


class _Breaks:
    """Makes the declared row separator the only line break that the parser sees.

    The parser ends a row at any kind of line break. Where the text holds others than the declared one, they are
    replaced by characters that the text does not use, and come back in the values.
    """

    def __init__(self, text: bytes, separator: bytes) -> None:
        self._separator = separator.decode()
        rest = text.replace(separator, b"")
        self._translated = b"\r" in rest or b"\n" in rest
        if self._translated:
            unused = (chr(code) for code in range(0xE000, 0xF8FF) if chr(code).encode() not in text)
            row, self._cr, self._lf = next(unused), next(unused), next(unused)
            text = text.replace(separator, row.encode())
            text = text.replace(b"\r", self._cr.encode()).replace(b"\n", self._lf.encode())
            text = text.replace(row.encode(), b"\n")
            separator = b"\n"
        self.text = text if text.endswith(separator) else text + separator

    def restored_text(self, value: str) -> str:
        if not self._translated:
            return value
        return value.replace("\n", self._separator).replace(self._cr, "\r").replace(self._lf, "\n")

    def restored(self, rows: pa.Table) -> pa.Table:
        if not self._translated:
            return rows
        for place, field in enumerate(rows.schema):
            if pa.types.is_string(field.type):
                column = rows.column(place)
                for mark, original in (("\n", self._separator), (self._cr, "\r"), (self._lf, "\n")):
                    column = pc.replace_substring(column, mark, original)
                rows = rows.set_column(place, field, column)
        return rows


def _refuse_other_breaks(names: Iterable[str], text: bytes, form: Delimited) -> None:
    """A line break in the header is not in a name, unless the name is in quotes: rows end otherwise than declared."""
    for name in names:
        if not re.search(r"[\r\n]", name):
            continue
        found = re.search(r"\r\n|\n|\r", name + form.row_separator)
        if found and not (form.quote and f"{form.quote}{name}{form.quote}".encode() in text):
            raise ValueError(
                f"its header ends in {found[0]!r}, and RowSeparator is {form.row_separator!r}"
                " (a checkout of Git or an editor may have changed the line ends)"
            )


def _refuse_open_quote(rows: pa.Table, text: bytes, form: Delimited) -> None:
    """The parser closes a quote that is open at the end; here it means that the file was cut there."""
    if not form.quote or not rows.num_rows or not pa.types.is_string(rows.schema.field(-1).type):
        return
    last = rows.column(rows.num_columns - 1)[-1].as_py()
    closed = text.removesuffix(form.row_separator.encode()).endswith(form.quote.encode())
    if last is not None and last.endswith(form.row_separator) and not closed:
        raise ValueError("it ends inside a quoted value")


def as_declared(rows: pa.Table, columns: tuple[DeclaredColumn, ...]) -> pa.Table:
    """The rows, without their marker, with the columns and types of a SchemaDefinition; `ValueError` if they differ."""
    unknown = sorted(set(rows.column_names) - {column.name for column in columns})
    if unknown:
        raise ValueError(f"SchemaDefinition does not declare its columns {', '.join(unknown)}")
    left_out = [column.name for column in columns if not column.nullable and column.name not in rows.column_names]
    if left_out:
        raise ValueError(f"it leaves out {', '.join(left_out)}, which SchemaDefinition declares as not nullable")
    values = [_declared_values(rows, column) for column in columns]
    fields = [pa.field(column.name, of.type, column.nullable) for column, of in zip(columns, values, strict=True)]
    return pa.table(values, schema=pa.schema(fields))


def _declared_values(rows: pa.Table, column: DeclaredColumn) -> pa.ChunkedArray:
    present = column.name in rows.column_names
    kind = _TYPES.get(column.data_type, pa.string())
    values = rows[column.name] if present else pa.chunked_array([pa.nulls(rows.num_rows, kind)])
    if column.data_type in ("DateTime", "ITime"):
        return _times(values)
    return _from_base64(values, column.name) if column.data_type == "ByteArray" else values


def _times(texts: pa.ChunkedArray) -> pa.ChunkedArray:
    zoned = pc.match_substring_regex(texts, r"\d(Z|[+-]\d\d(:?\d\d)?)$")
    zoned = pc.and_(zoned, pc.match_substring_regex(texts, r"\d:\d"))  # the end of a date looks like a zone
    plain = pc.cast(pc.if_else(zoned, None, texts), pa.timestamp("us"))
    in_utc = pc.cast(pc.if_else(zoned, texts, None), pa.timestamp("us", "UTC"))
    return pc.coalesce(plain, pc.cast(in_utc, pa.timestamp("us")))


def _from_base64(texts: pa.ChunkedArray, name: str) -> pa.Array:
    """Decodes a whole column at once: four letters give three bytes, and padding is cut off afterwards."""
    filled = pa.concat_arrays(pc.fill_null(texts, "").chunks) if texts.num_chunks else pa.array([], pa.string())
    whole = pc.match_substring_regex(filled, r"^([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$")
    if not pc.all(whole, min_count=0).as_py():
        raise ValueError(f"column {name} is a ByteArray, but holds values that are not Base64")
    letters = _letters(filled)
    sizes = pc.multiply(pc.divide(pc.binary_length(filled), 4), 3)
    offsets = pa.concat_arrays([pa.array([0], pa.int32()), pc.cumulative_sum(sizes).cast(pa.int32())])
    content = pa.py_buffer(binascii.a2b_base64(letters))
    values = pa.Array.from_buffers(pa.binary(), len(filled), [None, offsets.buffers()[1], content])
    shorter, shortest = pc.binary_slice(values, 0, -1), pc.binary_slice(values, 0, -2)
    values = pc.if_else(pc.ends_with(filled, "=="), shortest, pc.if_else(pc.ends_with(filled, "="), shorter, values))
    return pc.if_else(pc.is_valid(texts), values, None)


def _letters(texts: pa.Array) -> bytes:
    """All letters of a column one after another, padding as zeros."""
    replaced = pc.replace_substring(texts, "=", "A")
    joined = pc.binary_join(pa.ListArray.from_arrays(pa.array([0, len(replaced)], pa.int32()), replaced), "")
    return str(joined[0].as_py()).encode()
