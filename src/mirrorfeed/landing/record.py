"""The log beside the files: one record is one publication. Complete in itself, so the newest is the state."""

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
"""2: each record says what it follows. 3: what is published is a part of the source, and which one; older releases, who
would publish all, do not go on from it. 4: all of a source without a feed was read for it, and what that took."""

_Number = Annotated[int, Field(ge=1)]
_Batch = Annotated[str, Field(pattern=r"^[0-9a-f]+$")]
_Names = Annotated[tuple[str, ...], AfterValidator(is_distinct)]


@dataclass(frozen=True, slots=True)
class PublishedFile:
    staged: str
    """Its name in the log's folder until it is renamed."""
    number: _Number
    """Its final name is this number."""
    rows: Mapping[str, Count]
    """By what they do: insert, update, delete, upsert."""
    bytes: Count
    sha256: str


@dataclass(frozen=True, slots=True)
class Follows:
    """The record before, so that a log without its beginning is not taken for one whose old records were removed."""

    number: _Number
    batch: str
    etag: str
    """As its file had it then. Where it has another, the batch decides."""


@dataclass(frozen=True, slots=True)
class WholeRead:
    """What it took to read all of a source that has no feed."""

    rows: Count
    seconds: Annotated[float, Field(ge=0)]


@dataclass(frozen=True, slots=True)
class Record:
    __pydantic_config__: ClassVar = CONFIG
    number: _Number
    batch: _Batch
    """Made up anew for every try, so that a publisher knows its own record from another's."""
    time: TimeText
    source: str
    source_id: str
    from_version_exclusive: Count | None
    """None: a snapshot. The same as the last: a repair, of rows of a version that was published before."""
    to_version_inclusive: Count
    columns: tuple[Column, ...]
    keys: _Names
    next_file_number: _Number
    files: tuple[PublishedFile, ...] = ()
    extension: str = "parquet"
    """Of all data files of the table."""
    partitions: _Names | None = None
    """The source's partition columns; None in records of before they were kept."""
    follows: Follows | None = None
    """None in a first record, and in records of format 1."""
    build: str | None = None
    """Which mirrorfeed wrote it; None in records of before that was kept."""
    selection: Selection | None = None
    """What of the source is published; None: all."""
    source_columns: Mapping[str, str] | None = None
    """With a selection: all columns of the source, and their types in short."""
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
    """The record in these bytes, `DamagedFile` or `RecordTooNew`; `address` is for the errors."""
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
        raise ValueError("the numbers of its files do not lead up to next_file_number")
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
