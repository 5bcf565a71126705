"""Classes for staging the files of one record: the settings, the resulting files, and rows that cannot be published."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from mirrorfeed.errors import MirrorfeedError
from mirrorfeed.landing.delivery import UPSERT, Delivery
from mirrorfeed.landing.load_part import LoadPart
from mirrorfeed.landing.log_record import File
from mirrorfeed.landing.names import staged_name
from mirrorfeed.landing.output_format import AS_PARQUET, Output
from mirrorfeed.landing.schema import DECIMAL, MARKER, Column, Marker, Problem
from mirrorfeed.storage import Store

if TYPE_CHECKING:
    from mirrorfeed.publish.files.delimited_text import TextForm

_PLAIN: dict[str, pa.DataType] = {
    "boolean": pa.bool_(),
    "byte": pa.int8(),
    "short": pa.int16(),
    "integer": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}
_AROUND = 20
"""Number of bytes to show before and after the first invalid byte of a text."""


def arrow_type(column: Column) -> pa.DataType:
    if decimal := DECIMAL.fullmatch(column.form):
        return pa.decimal128(int(decimal[1]), int(decimal[2]))
    return _PLAIN[column.form]


def row_text(rows: pa.RecordBatch | pa.Table, at: int) -> str:
    """Return the row at position `at` as text for messages, such as `id = 1, name = NULL`."""

    # Arrow formats dates and times, because Python's dates have only years of four digits.
    def one(value: pa.Scalar) -> str:
        if not value.is_valid:
            return "NULL"
        if pa.types.is_string(value.type):
            return shown_text(value.as_buffer().to_pybytes())
        return str(value.cast(pa.string())) if pa.types.is_temporal(value.type) else repr(value.as_py())

    return ", ".join(f"{name} = {one(rows.column(place)[at])}" for place, name in enumerate(rows.schema.names))


def shown_text(data: bytes) -> str:
    """Return UTF-8 bytes as quoted text, for messages. If they are invalid, shows only the part around the error."""
    try:
        return repr(data.decode())
    except UnicodeDecodeError as error:
        begin, end = max(0, error.start - _AROUND), error.start + _AROUND
        part = data[begin:end].decode(errors="backslashreplace")
        return f"'{'…' if begin else ''}{part}{'…' if end < len(data) else ''}'"


def invalid_text(rows: pa.RecordBatch | pa.Table, at: int) -> str:
    """Return name and text of the first column with invalid UTF-8 in row `at`, for messages. Empty if there is none."""
    for place, field in enumerate(rows.schema):
        if pa.types.is_string(field.type):
            try:
                rows.column(place)[at].as_py()
            except UnicodeDecodeError as error:
                return f"column {field.name!r}: {shown_text(error.object)}"
    return ""


def arrow_schema(columns: Sequence[Column], *, with_marker: bool) -> pa.Schema:
    """Return the Arrow schema of a data file, with the marker column as last column if `with_marker` is true.
    All columns are nullable, because the row of a delete has only the keys."""
    fields = [pa.field(column.name, arrow_type(column)) for column in columns]
    return pa.schema([*fields, pa.field(MARKER, pa.int32())] if with_marker else fields)


PROBLEMS_SHOWN = 5
"""Maximum number of rows that an error message lists as rows that cannot be published."""


@dataclass(frozen=True, slots=True)
class BadRow:
    """A row that cannot be published."""

    problem: Problem
    key: str
    """Key of the row as text, empty without keys. If the value of one column is invalid, also its name and value."""


class BadRows(Exception):
    """Internal error: rows cannot be published. Contains the first of these rows.
    Users see `RowsRefusedError` instead."""

    def __init__(self, *rows: BadRow) -> None:
        super().__init__(*rows)
        self.rows = rows


class Staged(NamedTuple):
    """The staged files of one publication."""

    files: Sequence[File]
    """Files in the order in which Fabric must apply them. All file numbers are 0 until the record is created."""
    corrections: int = 0
    """Number of files at the end of `files` that replace rows of the other files. Fabric must apply them last."""
    retries: int = 0
    """Number of storage requests that were retried in other threads."""
    differed: str = ""
    """First difference of Spark's files from the schema of the table, in words. Empty if there was none."""
    rows_read: int | None = None
    """Number of rows of the source if the whole source was read, otherwise None."""
    look_up_seconds: float = 0.0
    """Seconds spent on looking up deleted keys in the source."""
    note: MirrorfeedError | None = None
    """Warning that changes were not read from the change data feed."""
    part: LoadPart | None = None
    """Part of a first load that the files contain. None if the files contain everything."""


@dataclass(frozen=True, slots=True)
class StagingJob:
    """Settings for staging the files of one record. Can be pickled for executors."""

    store: Store
    """The landing zone."""
    folder: str
    """Path of the log's folder in the landing zone. Files are staged in this folder."""
    record_number: int
    """Number of the record that will publish the files."""
    batch: str
    """Random id of this attempt to publish. Part of the name of each staged file."""
    columns: tuple[Column, ...]
    """Columns from the source. The files also have the columns of `delivery`."""
    keys: tuple[str, ...]
    with_marker: bool
    """True if the rows have a marker column."""
    output: Output = AS_PARQUET
    delivery: Delivery = UPSERT
    text_form: type[TextForm] | None = None
    """Class that writes delimited text. None if it can be imported. Executors may not have this package."""

    @property
    def file_columns(self) -> tuple[Column, ...]:
        return (*self.columns, *self.delivery.columns)

    def new_path(self) -> str:
        """Return the path of a new staged file, with a random name.
        Each attempt to write a file needs a new path, because a failed attempt can still create its file later."""
        return f"{self.folder}/{staged_name(self.record_number, self.batch, uuid.uuid4().hex, self.output.extension)}"

    @property
    def log_id(self) -> str:
        return self.folder.rpartition("/")[2]

    @property
    def table(self) -> str:
        """Address of the table's folder in the landing zone."""
        return self.store.address(self.folder.rsplit("/", 2)[0])

    def by_marker(self, counts: dict[int | None, int]) -> dict[str, int]:
        """Convert row counts by marker number to counts by marker name. The number None means rows without a marker."""
        without = "upsert" if self.with_marker and self.output.upserts_by_default else "insert"
        return {without if marker is None else Marker(marker).name.lower(): count for marker, count in counts.items()}


def count_markers(rows: pa.Table | pa.RecordBatch) -> dict[int | None, int]:
    if MARKER not in rows.schema.names:
        return {None: rows.num_rows}
    return {entry["values"]: entry["counts"] for entry in pc.value_counts(rows.column(MARKER)).to_pylist()}


def combine_staged(parts: Iterable[Staged]) -> Staged:
    """Combine parts of one publication: all files in order, the sum of retries, and the first schema difference.
    The other fields of the parts are ignored, for example `corrections`."""
    parts = list(parts)
    differed = next((part.differed for part in parts if part.differed), "")
    files = [file for part in parts for file in part.files]
    return Staged(files, retries=sum(part.retries for part in parts), differed=differed)


def bad_rows(rows: pa.RecordBatch | pa.Table, problem: str, keys: Sequence[str]) -> list[BadRow]:
    """Return up to five of `rows` that cannot be published.

    In `rows`, the column with the name `problem` has the numeric code of the row's `Problem`, or NULL. Rows with
    `Problem.REPLACED_TEXT` are left out, because it is not certain that their text is invalid.
    """
    problems = rows.column(problem)
    if problems.null_count == len(problems):
        return []
    bad = rows.filter(pc.not_equal(problems, Problem.REPLACED_TEXT.value)).slice(0, PROBLEMS_SHOWN)
    shown = []
    for at, each in enumerate(bad.column(problem).to_pylist()):
        parts = [row_text(bad.select(keys), at)]
        if each == Problem.INVALID_TEXT:
            parts.append(invalid_text(bad, at))
        shown.append(BadRow(Problem(each), ", ".join(filter(None, parts))))
    return shown
