"""Records of the log. A record is one publication, and the newest record is the complete state of a table."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Annotated, ClassVar, Final

from pydantic import AfterValidator, Field, TypeAdapter

from mirrorfeed.landing.errors import DamagedFile, RecordTooNew
from mirrorfeed.landing.names import staged_record_number
from mirrorfeed.landing.schema import Column, check_type
from mirrorfeed.landing.selection import Selection
from mirrorfeed.landing.strict_json import CONFIG, Count, TimeText, format_of, is_distinct, parse_json, validate

FORMAT, SELECTED, READ_WHOLE = 2, 3, 4
"""2: has `follows`. 3: has a selection, which older releases cannot continue. 4: has `read`, for a source without a
change data feed."""

_Number = Annotated[int, Field(ge=1)]
_Batch = Annotated[str, Field(pattern=r"^[0-9a-f]+$")]
_Names = Annotated[tuple[str, ...], AfterValidator(is_distinct)]


@dataclass(frozen=True, slots=True)
class File:
    staged: str
    """The name in the folder of the log, before it is renamed."""
    number: _Number
    """The number of the final name."""
    rows: Mapping[str, Count]
    """Rows by insert, update, delete and upsert."""
    bytes: Count
    sha256: str


@dataclass(frozen=True, slots=True)
class Follows:
    """The previous record. Distinguishes a log whose first records are missing from one whose old records expired."""

    number: _Number
    batch: str
    etag: str
    """ETag of its file at that time. If it differs now, the batch decides."""


@dataclass(frozen=True, slots=True)
class WholeRead:
    """Cost of a full read of a source without a change data feed."""

    rows: Count
    seconds: Annotated[float, Field(ge=0)]


@dataclass(frozen=True, slots=True)
class Record:
    __pydantic_config__: ClassVar = CONFIG
    number: _Number
    batch: _Batch
    """Random for each attempt, so that a publisher recognizes its own record."""
    time: TimeText
    source: str
    source_id: str
    from_version_exclusive: Count | None
    """None for a snapshot. Equal to `to_version_inclusive` for a repair of published rows."""
    to_version_inclusive: Count
    columns: tuple[Column, ...]
    keys: _Names
    next_file_number: _Number
    files: tuple[File, ...] = ()
    extension: str = "parquet"
    """Extension of all data files of the table."""
    partitions: _Names | None = None
    """Partition columns of the source. None in old records."""
    follows: Follows | None = None
    """None in the first record, and in records of format 1."""
    build: str | None = None
    """Version of mirrorfeed. None in old records."""
    selection: Selection | None = None
    """None if all columns and rows are published."""
    source_columns: Mapping[str, str] | None = None
    """With a selection: all columns of the source, with short type names."""
    read: WholeRead | None = None
    format: int = field(default=FORMAT)

    def to_json(self) -> bytes:
        spelled = asdict(self)
        if self.selection is None:
            del spelled["selection"], spelled["source_columns"]
        if self.read is None:
            del spelled["read"]
        return json.dumps(spelled, ensure_ascii=False, indent=1).encode()

    @property
    def repairs(self) -> bool:
        return self.from_version_exclusive == self.to_version_inclusive

    @property
    def at(self) -> datetime:
        return datetime.fromisoformat(self.time)


_RECORD: Final = TypeAdapter(Record)


def parse(data: bytes, address: str) -> Record:
    """Parse a record. Raises `DamagedFile` or `RecordTooNew` with `address`."""
    try:
        value = parse_json(data)
        if (found := format_of(value)) > READ_WHOLE:
            raise RecordTooNew(address=address, found=found, known=READ_WHOLE)
        record = validate(_RECORD, value)
        _check(record)
    except ValueError as error:
        raise DamagedFile(address=address, reason=str(error)) from error
    return record


def _check(record: Record) -> None:
    """Raise `ValueError` if fields contradict each other."""
    last, numbers = record.next_file_number - 1, [file.number for file in record.files]
    if numbers != list(range(last - len(numbers) + 1, last + 1)):
        raise ValueError("the numbers of its files do not end before next_file_number")
    is_distinct(tuple(file.staged for file in record.files))
    if odd := [file.staged for file in record.files if staged_record_number(file.staged) is None]:
        raise ValueError(f"{odd[0]!r} is not the name of a staged file")
    is_distinct(tuple(column.name for column in record.columns))
    for column in record.columns:
        if column.nested:
            check_type(parse_json(column.nested))
    if record.source_columns is not None and record.selection is None:
        raise ValueError("it has source_columns and no selection")
    if record.selection:
        _ = record.selection.condition, [record.selection.cast_of(name) for name in record.selection.cast]
