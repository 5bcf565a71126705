"""A file that Spark wrote, held against what files of its table are: nothing about an engine's writer is assumed."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from mirrorfeed.landing.row_markers import Marker
from mirrorfeed.landing.schema import MARKER
from mirrorfeed.publish.files.arrow_types import arrow_schema
from mirrorfeed.publish.files.staging_job import StagingJob, markers_in

_BATCH_ROWS = 2**14
_SPELLING = ("is_from_converted_type", "force_set_converted_type")
"""Not what a type is, but how the file says it."""


@dataclass(frozen=True)
class FileCheck:
    file: pq.ParquetFile
    rows: dict[int | None, int]
    """By marker, from the file's own footer and column."""
    differs: str
    """In what it is not as Spark was to write it; empty: in nothing."""
    anew: bool
    """Whether it is to be made anew: for that, or as it is to have another form."""

    def batches(self) -> Any:
        """Its rows in bounded memory, in the types of the landing zone."""
        return self.file.iter_batches(batch_size=_BATCH_ROWS)


def look(file: BinaryIO, job: StagingJob) -> FileCheck:
    """Raises what pyarrow does where it is no whole Parquet file."""
    # In nanoseconds, times of INT96 before 1677 and after 2262 would overflow.
    found = pq.ParquetFile(file, coerce_int96_timestamp_unit="us")
    rows = _markers(found) if job.with_marker else {None: found.metadata.num_rows}
    rows = {marker: count for marker, count in rows.items() if count}
    differs = _difference(found, arrow_schema(job.columns, with_marker=job.with_marker))
    # Where rows without a marker are upserts, a file of upserts alone leaves it out.
    without = job.with_marker and job.output.upserts_by_default and set(rows) <= {Marker.UPSERT.value}
    return FileCheck(found, rows, differs, bool(differs) or without or job.output.delimited is not None)


def _markers(file: pq.ParquetFile) -> dict[int | None, int]:
    """What statistics do not tell is read."""
    metadata, counts = file.metadata, dict[int | None, int]()
    place = metadata.num_columns - 1
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        known = group.column(place).statistics
        if known is not None and known.has_min_max and known.min == known.max and known.null_count == 0:
            found: dict[int | None, int] = {known.min: group.num_rows}
        else:
            found = markers_in(file.read_row_group(number, columns=[MARKER]))
        for marker, count in found.items():
            counts[marker] = counts.get(marker, 0) + count
    return counts


def _difference(file: pq.ParquetFile, wanted: pa.Schema) -> str:
    found, expected = _columns(file), _expected(wanted)
    if [name for name, _ in found] != [name for name, _ in expected]:
        return "the columns"
    pairs = zip(found, expected, strict=True)
    return next((f"column {name!r} as {has}" for (name, has), (_, should) in pairs if has != should), "")


def _expected(wanted: pa.Schema) -> Sequence[tuple[str, str]]:
    """What files of this schema are that are written here."""
    file = io.BytesIO()
    pq.ParquetWriter(file, wanted).close()
    return _columns(pq.ParquetFile(file))


def _columns(file: pq.ParquetFile) -> Sequence[tuple[str, str]]:
    found = []
    for place in range(len(file.schema)):
        column = file.schema.column(place)
        rule = "OPTIONAL" if column.max_definition_level == 1 else "REQUIRED"
        length = f"({column.length})" if column.length else ""
        logical = json.loads(column.logical_type.to_json())
        meant = {name: value for name, value in logical.items() if name not in _SPELLING}
        named = meant.pop("Type")
        facts = ", ".join(f"{name} {value}" for name, value in meant.items())
        form = "" if named == "None" else f" {named}" + (f" ({facts})" if facts else "")
        found.append((column.path, f"{rule} {column.physical_type}{length}{form}"))
    return tuple(found)
