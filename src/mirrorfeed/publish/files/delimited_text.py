"""Write data files as delimited text.

A value is quoted if it contains a separator, a quote, an escape character or a line break, starts or ends with a space,
is empty, or equals the text for NULL. A quoted value is never NULL. Without a quote character, separators and line
breaks are escaped, and values that equal the text for NULL are rejected.
"""

from __future__ import annotations

import base64
import codecs
import re
import reprlib
from collections.abc import Sequence
from datetime import date, datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from mirrorfeed.landing.output_format import Delimited
from mirrorfeed.landing.schema import Problem
from mirrorfeed.publish.files.staging_job import BadRow, BadRows, row_text


def _text(value: str) -> pa.Scalar:
    return pa.scalar(value, pa.large_string())


def _plain_text(values: pa.Array) -> pa.Array:
    """Return the values of a column as text, without quotes or escapes. NULL stays NULL."""
    kind = values.type
    if pa.types.is_binary(kind):  # Arrow cannot encode Base64
        texts = [data if data is None else base64.b64encode(data).decode() for data in values.to_pylist()]
        return pa.array(texts, pa.string())
    if pa.types.is_timestamp(kind):
        return values.cast(pa.timestamp("us")).cast(pa.string())  # in UTC
    texts = values.cast(pa.string())
    if pa.types.is_floating(kind):
        for short, spelled in (("nan", "NaN"), ("inf", "Infinity"), ("-inf", "-Infinity")):
            texts = pc.if_else(pc.equal(texts, short), spelled, texts)
    if pa.types.is_decimal(kind) and pc.any(pc.match_substring(texts, "E"), min_count=0).as_py():
        texts = pa.array([None if value is None else f"{value:f}" for value in values.to_pylist()], pa.string())
    return texts


_MAGIC = b"\xff\x06\x00\x00sNaPpY"
_LARGEST = 1 << 16


def checksum(data: bytes) -> int:
    """Return the CRC-32C checksum, masked (rotated and shifted) as the Snappy framing format requires."""
    import google_crc32c  # needed for this format only, and may be missing in a notebook without the wheel

    crc = int(google_crc32c.value(data))
    return (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF


class SnappyFrames:
    """Writer of the Snappy framing format. Each call of `write` compresses and writes all its data."""

    def __init__(self, sink: Any) -> None:
        self._sink, self._codec = sink, pa.Codec("snappy")
        sink.write(_MAGIC)

    def write(self, data: bytes) -> None:
        for start in range(0, len(data), _LARGEST):
            piece = data[start : start + _LARGEST]
            packed = self._codec.compress(piece, asbytes=True)
            kind, body = (0, packed) if len(packed) < len(piece) else (1, piece)
            head = bytes([kind]) + (len(body) + 4).to_bytes(3, "little")
            self._sink.write(head + checksum(piece).to_bytes(4, "little") + body)

    def flush(self) -> None:
        self._sink.flush()

    def close(self) -> None:
        pass


class TextForm:
    """Writer of a file of delimited text with a header line. The file is compressed unless `compression` is `none`.
    `keys` are the key columns, which identify a row in messages."""

    def __init__(self, sink: Any, schema: pa.Schema, compression: str, format_: Delimited, keys: Sequence[str]) -> None:
        self._keys, self._format, self._encoder = keys, format_, codecs.getincrementalencoder(format_.encoding)()
        special = "".join(map(re.escape, (format_.column_separator, format_.quote, format_.escape)))
        self._special = rf"[{special}\r\n]|^[\s\x{{feff}}]|\s$"
        self._sink: Any = sink
        if compression == "snappy":
            self._sink = SnappyFrames(self._sink)
        elif compression != "none":
            self._sink = pa.CompressedOutputStream(self._sink, compression)
        self._sink.write(self._encoder.encode(self._header(schema)))

    def write_table(self, group: pa.Table, _: int) -> None:
        """Append rows. Raises `BadRows` if the text format or its encoding cannot store a value.
        Flushes the file afterwards, so that the caller knows its size, except for a few bytes that `close` adds.
        The second parameter is for Parquet only: `ParquetWriter.write_table` needs the size of a row group."""
        for batch in group.combine_chunks().to_batches():
            self._batch = batch
            text = self._rows(batch)
            try:
                self._sink.write(self._encoder.encode(text))
            except UnicodeEncodeError:
                self._refuse_unencodable(batch)
                raise
        self._sink.flush()

    def close(self) -> None:
        self._sink.write(self._encoder.encode("", final=True))
        self._sink.close()

    def _header(self, schema: pa.Schema) -> str:
        names = self._protect(pa.array(schema.names, pa.string()), "header").to_pylist()
        return self._format.column_separator.join(names) + self._format.row_separator

    def _rows(self, rows: pa.RecordBatch) -> str:
        """Return the rows as text, each followed by a row separator. Raises `BadRows`."""
        if not rows.num_rows:
            return ""
        for at, name in enumerate(rows.schema.names):
            self._refuse_years(rows.column(at), name)
        columns = [self._column(rows.column(at), name) for at, name in enumerate(rows.schema.names)]
        lines = pc.binary_join_element_wise(*columns, _text(self._format.column_separator))
        lines_as_list = pa.LargeListArray.from_arrays(pa.array([0, len(lines)], pa.int64()), lines)
        return str(pc.binary_join(lines_as_list, _text(self._format.row_separator))[0]) + self._format.row_separator

    def _refuse_years(self, values: pa.Array, name: str) -> None:
        """Check that dates and times of column `name` are in the years 1 to 9999. Raises `BadRows`."""
        if not pa.types.is_temporal(values.type):
            return
        bounds = (date.min, date.max) if pa.types.is_date(values.type) else (datetime.min, datetime.max)
        moments = values if pa.types.is_date(values.type) else values.cast(pa.timestamp("us"))
        least, most = (pa.scalar(bound, moments.type) for bound in bounds)
        self._refuse(Problem.YEAR, pc.or_(pc.less(moments, least), pc.greater(moments, most)), values, name)

    def _refuse_unencodable(self, rows: pa.RecordBatch) -> None:
        """Raise `BadRows` for the first value with a character that the encoding does not support."""
        for at, name in enumerate(rows.schema.names):
            for row, value in enumerate(_plain_text(rows.column(at)).to_pylist()):
                try:
                    (value or "").encode(self._format.encoding)
                except UnicodeEncodeError as error:
                    character = error.object[error.start]
                    raise self._bad_rows(Problem.NOT_IN_ENCODING, name, row, character) from None

    def _column(self, values: pa.Array, name: str) -> pa.Array:
        texts = _plain_text(values).cast(pa.large_string())
        if not self._format.quote:
            self._refuse(Problem.LIKE_NULL, pc.equal(texts, self._format.null), texts, name)
        return pc.fill_null(self._protect(texts, name), _text(self._format.null))

    def _protect(self, texts: pa.Array, name: str) -> pa.Array:
        texts = texts.cast(pa.large_string())
        quote, escape = self._format.quote, self._format.escape
        if not quote:
            return self._escaped(texts, name)
        special = pc.match_substring_regex(texts, self._special)
        needs_quotes = pc.or_(pc.or_(special, pc.equal(texts, self._format.null)), pc.equal(texts, ""))
        if not pc.any(needs_quotes, min_count=0).as_py():
            return texts
        if escape:
            inside = pc.replace_substring(texts, escape, escape + escape)
            inside = inside if quote == escape else pc.replace_substring(inside, quote, escape + quote)
        else:
            self._refuse(Problem.NOT_ESCAPABLE, pc.match_substring(texts, quote), texts, name)
            inside = texts
        quoted = pc.binary_join_element_wise(_text(quote), inside, _text(quote), _text(""))
        return pc.if_else(needs_quotes, quoted, texts)

    def _escaped(self, texts: pa.Array, name: str) -> pa.Array:
        separator, escape = self._format.column_separator, self._format.escape
        if not escape:
            broken = pc.match_substring_regex(texts, rf"[{re.escape(separator)}\r\n]")
            self._refuse(Problem.NOT_ESCAPABLE, broken, texts, name)
            return texts
        for character in (escape, separator, "\r", "\n"):
            texts = pc.replace_substring(texts, character, escape + character)
        return texts

    def _refuse(self, reason: Problem, where: pa.Array, values: pa.Array, name: str) -> None:
        """Raise `BadRows` for the first row of column `name` that is True in `where`. No row of the header is, because
        `check_output` has checked the names of the columns."""
        row = pc.index(where, True).as_py()
        if row >= 0:
            raise self._bad_rows(reason, name, row, _plain_text(values.slice(row, 1))[0].as_py())

    def _bad_rows(self, reason: Problem, name: str, row: int, shown: str) -> BadRows:
        key = row_text(self._batch.select(self._keys), row)
        return BadRows(BadRow(reason, f"{key}{', ' if key else ''}column {name!r}: {reprlib.repr(shown)}"))
