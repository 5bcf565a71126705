"""Formats of a data file that is being written: Parquet, and delimited text, compressed as a whole."""

from __future__ import annotations

import codecs
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from mirrorfeed.landing.output_format import Delimited
from mirrorfeed.landing.schema import MARKER
from mirrorfeed.publish.files.delimited_text import Texts
from mirrorfeed.publish.files.snappy import SnappyFrames


class Form(Protocol):
    def write(self, group: pa.Table) -> None:
        """Append rows. Afterwards the sink has nearly all of their bytes."""
        ...

    def close(self) -> None:
        """End the content of the file. The sink stays open."""
        ...


class ParquetForm:
    """Every group becomes a row group, with statistics."""

    def __init__(self, sink: Any, schema: pa.Schema, compression: str) -> None:
        # Dictionaries cost time and bytes where most values differ, as numbers do.
        repeating = [
            field.name
            for field in schema
            if pa.types.is_string(field.type) or pa.types.is_date(field.type) or field.name == MARKER
        ]
        self._writer = pq.ParquetWriter(sink, schema, compression=compression, use_dictionary=repeating)

    def write(self, group: pa.Table) -> None:
        self._writer.write_table(group, row_group_size=max(1, group.num_rows))

    def close(self) -> None:
        self._writer.close()


class TextForm:
    def __init__(self, sink: Any, schema: pa.Schema, compression: str, form: Delimited) -> None:
        self._encoding = form.encoding
        self._texts, self._encoder = Texts(form), codecs.getincrementalencoder(form.encoding)()
        self._sink: Any = _OpenSink(sink)
        if compression == "snappy":
            self._sink = SnappyFrames(self._sink)
        elif compression != "none":
            self._sink = pa.CompressedOutputStream(self._sink, compression)
        self._sink.write(self._encoder.encode(self._texts.header(schema)))

    def write(self, group: pa.Table) -> None:
        """Raises `UnwritableValue`."""
        for batch in group.combine_chunks().to_batches():
            text = self._texts.rows(batch)
            try:
                self._sink.write(self._encoder.encode(text))
            except UnicodeEncodeError:
                self._texts.refuse_unencodable(batch, self._encoding)
                raise
        self._sink.flush()

    def close(self) -> None:
        self._sink.write(self._encoder.encode("", final=True))
        self._sink.close()


class _OpenSink:
    """A sink that stays open when the compressor closes it."""

    closed = False

    def __init__(self, sink: Any) -> None:
        self.write, self.flush, self.tell, self.writable = sink.write, sink.flush, sink.tell, sink.writable

    def close(self) -> None:
        self.closed = True
