"""Read a data file into rows with Delta types, and their markers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from mirrorfeed.errors import Terminal
from mirrorfeed.lint.metadata_file import Settings
from mirrorfeed.lint.specification import INSERT, MARKER, MARKERS, UPSERT
from mirrorfeed.mirror.replica.column_types import as_delta
from mirrorfeed.mirror.replica.delimited_text import as_declared, read_delimited


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
        raise BrokenFile(address, " ".join(str(error).replace("\r", "\\r").split())) from error
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
    raise UnknownExtension(address, settings.extension)


def _refuse_twice(rows: pa.Table, address: str) -> None:
    names = rows.column_names
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ColumnTwice(address, twice)


def _split(rows: pa.Table, address: str) -> tuple[pa.Table, pa.ChunkedArray | None]:
    """The marker is the last column; an older edition of the specification put it first."""
    if MARKER not in rows.column_names:
        return rows, None
    place = rows.column_names.index(MARKER)
    if place not in (0, rows.num_columns - 1):
        raise MarkerMisplaced(address, place + 1, rows.num_columns)
    markers = rows.column(place)
    if pa.types.is_null(markers.type):  # its writer found no value to infer a type from
        markers = markers.cast(pa.int32())
    if not pa.types.is_integer(markers.type):
        raise UnknownMarker(address, None, str(markers.type))
    known = pc.is_in(markers, pa.array(MARKERS, markers.type))
    if not pc.all(known, min_count=0).as_py():
        row = pc.index(known, False).as_py()
        raise UnknownMarker(address, row + 1, str(markers[row].as_py()))
    return rows.remove_column(place), markers.cast(pa.int32())


class BrokenFile(Terminal):
    """A data file cannot be read, so the table waits at it."""

    code = "MF7006"

    def __init__(self, address: str, reason: str) -> None:
        self.address, self.reason = address, reason

    def what(self) -> str:
        return f"Cannot read {self.address}: {self.reason.rstrip('.')}."

    def next(self) -> str:
        return "Delete it and put a whole file under the same name."


class UnknownExtension(Terminal):
    """A data file has an ending that the table's form does not have."""

    code = "MF7007"

    def __init__(self, address: str, extension: str) -> None:
        self.address, self.extension = address, extension

    def what(self) -> str:
        return f"{self.address} ends neither in .parquet nor in .{self.extension}."

    def next(self) -> str:
        return "Rename it, or declare FileFormat and FileExtension in the table's _metadata.json."


class ColumnTwice(Terminal):
    """A data file names a column twice."""

    code = "MF7008"

    def __init__(self, address: str, columns: list[str]) -> None:
        self.address, self.columns = address, columns

    def what(self) -> str:
        return f"{self.address} has the columns {', '.join(self.columns)} more than once."

    def next(self) -> str:
        return "Delete it and put a file with distinct columns under the same name."


class MarkerMisplaced(Terminal):
    """The row marker of a data file is not its last column."""

    code = "MF7009"

    def __init__(self, address: str, place: int, columns: int) -> None:
        self.address, self.place, self.columns = address, place, columns

    def what(self) -> str:
        return f"{MARKER} is column {self.place} of {self.columns} in {self.address}."

    def next(self) -> str:
        return "Delete the file and put one under the same name where it is the last column."


class UnknownMarker(Terminal):
    """A data file holds a row marker that means nothing."""

    code = "MF7010"

    def __init__(self, address: str, row: int | None, found: str) -> None:
        self.address, self.row, self.found = address, row, found

    def what(self) -> str:
        if self.row is None:
            return f"{MARKER} of {self.address} has the type {self.found}, not a whole number."
        return f"Row {self.row} of {self.address} has the {MARKER} {self.found}."

    def next(self) -> str:
        return "Delete the file and put one under the same name with int32 markers 0, 1, 2 or 4."
