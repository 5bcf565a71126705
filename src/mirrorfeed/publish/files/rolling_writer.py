"""Write rows to staged files of about the target size, with limited memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from mirrorfeed.landing.log_record import File
from mirrorfeed.landing.schema import MARKER, Marker
from mirrorfeed.publish.files.staging_job import StagingJob, arrow_schema, count_markers
from mirrorfeed.storage.request_retries import NewFile

if TYPE_CHECKING:
    from mirrorfeed.publish.files.delimited_text import TextForm

ROW_GROUP_BYTES = 32 * 2**20
_MIN_PIECE_BYTES = 2**10
"""Minimum size in memory, in bytes, of the pieces into which a batch is split."""
_NEARLY_FULL = 0.9
"""Share of the target size from which a file is closed, because the next row group of the file would be small."""


def write_files(job: StagingJob, batches: Iterable[pa.RecordBatch]) -> list[File]:
    """Write rows to staged files, in order. Returns the files, or an empty list if there are no rows.
    Raises `BadRows` if the file format cannot store a value."""
    files = _Files(job)
    try:
        for batch in batches:
            files.write(batch)
        files.close()
    finally:
        files.close_early()
    return files.written


def write_empty(job: StagingJob) -> File:
    """Write one staged file with the columns of the table and without rows, and return it."""
    files = _Files(job)
    files.open()
    files.close()
    return files.written[0]


def _import_text_form() -> type[TextForm]:
    from mirrorfeed.publish.files.delimited_text import TextForm  # imported late: few tables are text

    return TextForm


class _Files:
    """Writer of staged files of about the target size. Splits and combines batches into row groups."""

    def __init__(self, job: StagingJob) -> None:
        self._job = job
        self._schema = arrow_schema(job.file_columns, with_marker=job.with_marker)
        self._buffer: list[pa.RecordBatch] = []
        self._buffered_bytes = 0
        self._file: NewFile | None = None
        self._form: pq.ParquetWriter | TextForm | None = None
        self._has_marker = job.with_marker
        """True if the open file has a marker column."""
        self._memory_bytes, self._memory_per_file_byte = 0, 1.0
        """Size in memory of the rows in the open file, in total and per byte of the file."""
        self._rows = Counter[str]()
        self.written: list[File] = []

    def write(self, batch: pa.RecordBatch) -> None:
        batch = batch.cast(self._schema) if batch.num_rows else batch
        while batch.num_rows:
            room = self._room()
            rows = -(-max(_MIN_PIECE_BYTES, room) * batch.num_rows // max(1, batch.nbytes))
            piece = batch.slice(0, max(1, rows))
            batch = batch.slice(piece.num_rows)
            self._buffer.append(piece)
            self._buffered_bytes += piece.nbytes
            if piece.nbytes >= room:
                self._write_group()

    def open(self) -> None:
        output = self._job.output
        self._file = NewFile(self._job.store, self._job.new_path)
        schema = arrow_schema(self._job.file_columns, with_marker=self._has_marker)
        if output.delimited is None:
            # Dictionaries cost time and space for columns with mostly distinct values, such as numbers.
            repeating = [
                field.name
                for field in schema
                if pa.types.is_string(field.type) or pa.types.is_date(field.type) or field.name == MARKER
            ]
            compression = output.compression
            self._form = pq.ParquetWriter(self._file, schema, compression=compression, use_dictionary=repeating)
        else:
            text_form = self._job.text_form or _import_text_form()
            self._form = text_form(self._file, schema, output.compression, output.delimited, self._job.keys)
        self._memory_bytes, self._rows = 0, Counter[str]()

    def close(self) -> None:
        self._write_group()
        self._close_file()

    def close_early(self) -> None:
        """After a failure, close the file that is still open, if any, without adding it to `written`."""
        if self._file is not None:
            self._file.close()

    def _room(self) -> int:
        """Return how many bytes of rows can be added until the row group or the file is full. The result is at least 1.
        The bytes are the size of the rows in memory, not in the file."""
        left = self._job.output.target_file_size - (self._file.bytes if self._file else 0)
        return max(1, min(ROW_GROUP_BYTES, int(left * self._memory_per_file_byte)) - self._buffered_bytes)

    def _write_group(self) -> None:
        if not self._buffer:
            return
        group = pa.Table.from_batches(self._buffer, self._schema)
        # If rows without a marker are upserts, a group of only upserts needs no marker column.
        marked = self._job.with_marker
        if marked and self._job.output.upserts_by_default:
            marked = not pc.all(pc.equal(group.column(MARKER), Marker.UPSERT.value)).as_py()
        if marked and not self._has_marker:
            self._close_file()
        if self._form is None:
            self._has_marker = marked
            self.open()
        assert self._form is not None
        assert self._file is not None
        if self._job.with_marker and not self._has_marker:
            group = group.drop_columns([MARKER])
        self._form.write_table(group, max(1, group.num_rows))
        self._rows.update(self._job.by_marker(count_markers(group)))
        self._memory_bytes += self._buffered_bytes
        self._memory_per_file_byte = self._memory_bytes / max(1, self._file.bytes)
        self._buffer, self._buffered_bytes = [], 0
        if self._file.bytes >= self._job.output.target_file_size * _NEARLY_FULL:
            self._close_file()

    def _close_file(self) -> None:
        if self._form is None or self._file is None:
            return
        self._form.close()
        self._file.close()
        self.written.append(File(self._file.name, 0, dict(self._rows), self._file.bytes, self._file.sha256))
        self._form = self._file = None
