"""Read a data file into rows with Delta types, and their markers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from mirrorfeed.lint.metadata_file import Settings
from mirrorfeed.lint.specification import INSERT, MARKER, MARKERS, UPSERT
from mirrorfeed.mirror.replica.column_types import as_delta
from mirrorfeed.mirror.replica.delimited_text import as_declared, read_delimited
from mirrorfeed.mirror.replica.errors import BrokenFile, ColumnTwice, MarkerMisplaced, UnknownExtension, UnknownMarker


@dataclass(frozen=True, slots=True)
class FileRows:
    rows: pa.Table
    markers: pa.ChunkedArray | None
    """One per row, int32 and never NULL; None if every row is an insert."""

    def counts(self) -> Mapping[int, int]:
        """Rows by marker."""
        if self.markers is None:
            return {INSERT: self.rows.num_rows} if self.rows.num_rows else {}
        return {count["values"]: count["counts"] for count in pc.value_counts(self.markers).to_pylist()}


def read_rows(data: bytes, name: str, address: str, settings: Settings) -> FileRows:
    """The rows of a file. The end of its name shows the format."""
    try:
        rows = _parsed(data, name, address, settings)
        _refuse_twice(rows, address)
        rows, markers = _split(rows, address)
        if settings.declared is not None and not name.endswith(".parquet"):
            rows = as_declared(rows, settings.declared)
    # Arrow reports broken content as a value that is not valid, or as an input that cannot be read.
    except (ValueError, OSError, pa.ArrowException) as error:
        raise BrokenFile(address=address, reason=" ".join(str(error).replace("\r", "\\r").split())) from error
    rows = as_delta(rows, address)
    if markers is None and settings.upserts:
        markers = pa.chunked_array([pa.repeat(pa.scalar(UPSERT, pa.int32()), rows.num_rows)])
    if markers is not None and not pc.any(pc.not_equal(markers, INSERT), min_count=0).as_py():
        markers = None
    return FileRows(rows, markers)


def _parsed(data: bytes, name: str, address: str, settings: Settings) -> pa.Table:
    if name.endswith(".parquet"):
        return pq.ParquetFile(pa.BufferReader(data), coerce_int96_timestamp_unit="us").read()
    if name.lower().endswith(f".{settings.extension}"):
        return read_delimited(data, name, settings)
    raise UnknownExtension(address=address, extension=settings.extension)


def _refuse_twice(rows: pa.Table, address: str) -> None:
    names = rows.column_names
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ColumnTwice(address=address, columns=twice)


def _split(rows: pa.Table, address: str) -> tuple[pa.Table, pa.ChunkedArray | None]:
    """The marker is the last column; an older edition of the specification put it first."""
    if MARKER not in rows.column_names:
        return rows, None
    place = rows.column_names.index(MARKER)
    if place not in (0, rows.num_columns - 1):
        raise MarkerMisplaced(address=address, place=place + 1, columns=rows.num_columns)
    markers = rows.column(place)
    if pa.types.is_null(markers.type):  # its writer found no value to infer a type from
        markers = markers.cast(pa.int32())
    if not pa.types.is_integer(markers.type):
        raise UnknownMarker(where=address, found=f"of the type {markers.type}, not an integer")
    known = pc.is_in(markers, pa.array(MARKERS, markers.type))
    if not pc.all(known, min_count=0).as_py():
        row = pc.index(known, False).as_py()
        raise UnknownMarker(where=f"Row {row + 1} of {address}", found=str(markers[row].as_py()))
    return rows.remove_column(place), markers.cast(pa.int32())
