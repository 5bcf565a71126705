"""What files are made of and for, and what is told of each that was sent."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from mirrorfeed.landing.names import staged_name
from mirrorfeed.landing.output_format import AS_PARQUET, Output
from mirrorfeed.landing.row_markers import Marker, Problem
from mirrorfeed.landing.schema import MARKER, Column
from mirrorfeed.publish.files.arrow_types import invalid_text, told
from mirrorfeed.storage.create_once import NewFile, Sink

PROBLEMS_SHOWN = 5


@dataclass(frozen=True, slots=True)
class StagedFile:
    """One staged file, and what is in it."""

    staged: str
    rows: dict[str, int]
    bytes: int
    sha256: str
    retries: int = 0
    """How often calls to the store were repeated for it."""
    corrects: bool = False
    """Whether its rows replace some of the files before it."""
    differed: str = ""
    """What Spark had written otherwise than files of this table are, so that it was made anew."""


@dataclass(frozen=True, slots=True)
class BadRow:
    """A row that cannot be published, by its key."""

    problem: Problem
    key: str


@dataclass(frozen=True, slots=True)
class StagingJob:
    """Where and how files are written; may travel to executors by pickling."""

    store: Sink
    folder: str
    """The folder of the table's log."""
    record_number: int
    batch: str
    columns: tuple[Column, ...]
    keys: tuple[str, ...]
    with_marker: bool
    compression: str
    target_file_size: int
    output: Output = AS_PARQUET

    def new_path(self) -> str:
        """A staged name that nobody has used: neither a task that is tried again nor a creation that takes effect late
        meets a file of another try."""
        suffix = self.output.suffix(self.compression)
        return f"{self.folder}/{staged_name(self.record_number, self.batch, uuid.uuid4().hex, suffix)}"

    def open(self) -> NewFile:
        return NewFile(self.store, self.new_path)

    @property
    def log_id(self) -> str:
        return self.folder.rpartition("/")[2]

    @property
    def table(self) -> str:
        """The address of its folder in the landing zone."""
        folder, _, _ = self.folder.rsplit("/", 2)  # what is above its log
        return self.store.address(folder)

    def by_marker(self, counts: dict[int | None, int]) -> dict[str, int]:
        """How many rows of each kind, by the numbers of their markers; None stands for rows without one."""
        without = "upsert" if self.with_marker and self.output.upserts_by_default else "insert"
        return {without if marker is None else Marker(marker).name.lower(): count for marker, count in counts.items()}


def markers_in(rows: pa.Table | pa.RecordBatch) -> dict[int | None, int]:
    """How often each marker stands in rows."""
    if MARKER not in rows.schema.names:
        return {None: rows.num_rows}
    return {entry["values"]: entry["counts"] for entry in pc.value_counts(rows.column(MARKER)).to_pylist()}


def bad_rows(rows: pa.RecordBatch | pa.Table, problem: str, keys: Sequence[str]) -> list[BadRow]:
    """The first rows that cannot be published. Of a text that is not valid the column is named as well, if the rows
    have it."""
    found = rows.column(problem)
    if found.null_count == len(found):
        return []
    bad = rows.filter(pc.not_equal(found, Problem.REPLACED_TEXT.value)).slice(0, PROBLEMS_SHOWN)
    shown = []
    for at, each in enumerate(bad.column(problem).to_pylist()):
        parts = [told(bad.select(keys), at)]
        if each == Problem.INVALID_TEXT:
            parts.append(invalid_text(bad, at))
        shown.append(BadRow(Problem(each), ", ".join(filter(None, parts))))
    return shown
