"""The two forms of a data file that is being written: Parquet, and delimited text, compressed as a whole."""

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
        """Appends rows; when it returns, the sink has all of their bytes but for a few."""
        ...

    def close(self) -> None:
        """Ends the file's content; the sink stays open."""
        ...


class ParquetForm:
    """Every group becomes a row group, with statistics."""

    def __init__(self, sink: Any, schema: pa.Schema, compression: str) -> None:
        # Dictionaries cost time and bytes where most values differ, as numbers do.
        repeating = [field.name for field in schema if _repeats(field)]
        self._writer = pq.ParquetWriter(sink, schema, compression=compression, use_dictionary=repeating)

    def write(self, group: pa.Table) -> None:
        self._writer.write_table(group, row_group_size=max(1, group.num_rows))

    def close(self) -> None:
        self._writer.close()


def _repeats(field: pa.Field) -> bool:
    return bool(pa.types.is_string(field.type) or pa.types.is_date(field.type)) or field.name == MARKER


class TextForm:
    def __init__(self, sink: Any, schema: pa.Schema, compression: str, form: Delimited) -> None:
        self._encoding = form.encoding
        self._texts, self._encoder = Texts(form), codecs.getincrementalencoder(form.encoding)()
        self._sink = _compressed(sink, compression)
        self._sink.write(self._encoder.encode(self._texts.header(schema)))

    def write(self, group: pa.Table) -> None:
        """Or `UnwritableValue`."""
        for batch in group.combine_chunks().to_batches():
            text = self._texts.rows(batch)
            try:
                self._sink.write(self._encoder.encode(text))
            except UnicodeEncodeError:
                self._texts.refuse_lacking(batch, self._encoding)
                raise
        self._sink.flush()

    def close(self) -> None:
        self._sink.write(self._encoder.encode("", final=True))
        self._sink.close()


class _Kept:
    """A sink that the text may close and that stays open all the same."""

    closed = False

    def __init__(self, sink: Any) -> None:
        self.write, self.flush, self.tell, self.writable = sink.write, sink.flush, sink.tell, sink.writable

    def close(self) -> None:
        self.closed = True


def _compressed(sink: Any, compression: str) -> Any:
    kept = _Kept(sink)
    if compression == "none":
        return kept
    return SnappyFrames(kept) if compression == "snappy" else pa.CompressedOutputStream(kept, compression)
