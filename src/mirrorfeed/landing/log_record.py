"""Records of a table's log, one for each publication. Functions to find the published files that Fabric has consumed.

Fabric consumes files in order, and moves all consumed files except the last one to a subfolder for seven days.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Annotated, ClassVar, Final

from pydantic import AfterValidator, Field, TypeAdapter

from mirrorfeed.landing.delivery import UPSERT, Delivery
from mirrorfeed.landing.errors import DamagedFileError, RecordTooNewError
from mirrorfeed.landing.load_part import LoadPart, LoadProgress
from mirrorfeed.landing.names import staged_record_number
from mirrorfeed.landing.schema import Column, check_type
from mirrorfeed.landing.selection import EVERYTHING, Selection
from mirrorfeed.landing.strict_json import CONFIG, Count, TimeText, format_of, is_distinct, parse_json, validate

FORMAT = PART_FORMAT = 2
"""Newest format, which only parts of a first load have. Other records have format 1. A release that does not know the
newest format must not take such a part for a complete load."""

_Number = Annotated[int, Field(ge=1)]
_Names = Annotated[tuple[str, ...], AfterValidator(is_distinct)]


@dataclass(frozen=True, slots=True)
class File:
    """Data file of a publication."""

    staged: str
    """Name of the staged file, in the folder of the log."""
    number: _Number
    """Number in the final name of the file."""
    rows: Mapping[str, Count]
    """Number of rows for each row marker: insert, update, delete or upsert."""
    bytes: Count
    sha256: str


@dataclass(frozen=True, slots=True)
class PreviousRecord:
    """Reference to the previous record of a log. With it, publishers detect missing records."""

    number: _Number
    batch: str
    etag: str
    """ETag of the previous record's file. If it has changed, an equal `batch` shows that the record is the same."""


@dataclass(frozen=True, slots=True)
class FullRead:
    """Number of rows and duration of a full read of a source without a change data feed."""

    rows: Count
    seconds: Annotated[float, Field(ge=0)]


@dataclass(frozen=True, slots=True)
class Record:
    """One publication in a table's log: a snapshot, a range of versions, or a repair (some rows published again)."""

    __pydantic_config__: ClassVar = CONFIG
    number: _Number
    batch: Annotated[str, Field(pattern=r"^[0-9a-f]+$")]
    """Random id of the publication attempt. With this id, a publisher recognizes its own record."""
    time: TimeText
    source: str
    source_id: str
    from_version_exclusive: Count | None
    """Last version before the published range. None for a snapshot. Equal to `to_version_inclusive` for a repair, and
    for the record between a publication from the change data feed and the first comparison."""
    to_version_inclusive: Count
    columns: tuple[Column, ...]
    keys: _Names
    next_file_number: _Number
    files: tuple[File, ...] = ()
    extension: str = "parquet"
    """Extension of all data files of the table."""
    partitions: _Names = ()
    """Partition columns of the source."""
    follows: PreviousRecord | None = None
    """Reference to the previous record. None in the first record."""
    build: str | None = None
    """Version of mirrorfeed that wrote the record."""
    selection: Selection | None = None
    """Selected columns and rows. None if the whole source is published."""
    source_columns: Mapping[str, str] | None = None
    """Type of each source column, such as "long" or "struct". None if the whole source is published."""
    committed: TimeText | None = None
    """Commit time of the source's version `to_version_inclusive`. None if the source was compared row by row."""
    read: FullRead | None = None
    """Rows and duration of the full read of the source, if it was compared row by row. Otherwise None.
    If not None, `source_id` and the versions of the record belong to the table of row hashes, not to the source."""
    key_digest: str | None = None
    """Digest of the secret for hashes, with which a change of the secret is found. None if no column is hashed."""
    load: LoadPart | None = None
    """Part of a first load, if the load has several parts. Then all parts are of version `to_version_inclusive`."""
    delivery: Delivery = UPSERT
    """Delivery mode. `columns` and `keys` do not contain the columns that the mode adds."""
    format: int = 1

    def to_json(self) -> bytes:
        fields = asdict(self)
        if self.selection is None:
            del fields["selection"], fields["source_columns"]
        else:
            del fields["selection"]["hash_key"], fields["selection"]["tags"]
            if not self.selection.transform:
                del fields["selection"]["transform"]
        for name in ("committed", "read", "key_digest", "load"):
            if fields[name] is None:
                del fields[name]
        if self.delivery == UPSERT:
            del fields["delivery"]
        return json.dumps(fields, ensure_ascii=False, indent=1).encode()

    @property
    def is_repair(self) -> bool:
        return self.from_version_exclusive == self.to_version_inclusive

    @property
    def is_adoption(self) -> bool:
        """True if another publisher wrote the files up to this record, and the log continues its folder."""
        return self.follows is None and self.next_file_number > len(self.files) + 1

    @property
    def complete_version(self) -> int | None:
        """Version of the source that is completely published. None while parts of a first load are missing."""
        return self.to_version_inclusive if self.load is None or self.load.is_last else None

    @property
    def progress(self) -> LoadProgress | None:
        """Published share of a first load whose other parts are missing. Otherwise None."""
        return None if self.load is None or self.load.is_last else self.load.progress

    @property
    def rows(self) -> Counter[str]:
        """Number of rows in all files for each row marker: insert, update, delete and upsert."""
        return sum((Counter(file.rows) for file in self.files), Counter[str]())

    @property
    def size(self) -> int:
        """Total size of the record's files in bytes."""
        return sum(file.bytes for file in self.files)

    @property
    def at(self) -> datetime:
        return datetime.fromisoformat(self.time)


_RECORD: Final = TypeAdapter(Record)


def parse(data: bytes, address: str) -> Record:
    """Parse a record file. Raises `DamagedFileError`, or `RecordTooNewError` for a newer format. Messages contain
    `address`.
    """
    try:
        value = parse_json(data)
        if (number := format_of(value)) > FORMAT:
            raise RecordTooNewError(address=address, found=number, known=FORMAT)
        record = validate(_RECORD, value)
        _check(record)
    except ValueError as error:
        raise DamagedFileError(address=address, reason=str(error)) from error
    return record


def _check(record: Record) -> None:
    """Check that the fields of a record do not contradict each other. Raises `ValueError` if they do."""
    last, numbers = record.next_file_number - 1, [file.number for file in record.files]
    if numbers != list(range(last - len(numbers) + 1, last + 1)):
        raise ValueError("the numbers of its files do not end before next_file_number")
    is_distinct(tuple(file.staged for file in record.files))
    if invalid := [file.staged for file in record.files if staged_record_number(file.staged) is None]:
        raise ValueError(f"{invalid[0]!r} is not the name of a staged file")
    is_distinct(tuple(column.name for column in record.columns))
    for column in record.columns:
        if column.nested:
            check_type(parse_json(column.nested))
    if (record.load is not None) != (record.format == PART_FORMAT):
        raise ValueError(f"only a part of a load has format {PART_FORMAT}")
    if record.load:
        record.load.check()
        if record.from_version_exclusive is not None:
            raise ValueError("it has a load, and is not a snapshot")
    if record.source_columns is not None and record.selection is None:
        raise ValueError("it has source_columns and no selection")
    if record.selection:
        _ = record.selection.condition, [record.selection.cast_of(name) for name in record.selection.cast]
        _ = [record.selection.transformation_of(name) for name in record.selection.transform]


def possible_positions(
    newest_first: Iterable[Record], in_place: Collection[int], staged: Collection[int] = (), *, by_time: bool
) -> tuple[Record, ...]:
    """Return the candidates for the last log record that Fabric has consumed completely, newest first.

    Fabric has consumed all published files that are no longer in the table's folder, and at most one file in the
    folder. So if the oldest log record with files in the folder has only one file there, this record and the previous
    record can be candidates. Returns an empty tuple if each record has a file that Fabric has not consumed.

    - `newest_first`: the log records of the table.
    - `in_place`: numbers of the files in the table's folder.
    - `staged`: numbers of recorded files that must still be renamed. Fabric cannot have consumed their record.
    - `by_time`: Fabric orders files by modification time. Then it can consume the files of one record in any order.
    """
    oldest_file = min(in_place, default=None)
    possible: list[Record] = []
    newest_without_files: Record | None = None
    for record in newest_first:
        last = record.next_file_number - 1
        if any(file.number in staged for file in record.files):
            continue
        if by_time and [file.number for file in record.files if file.number in in_place] == [oldest_file]:
            oldest_file = last
        if oldest_file is None or last < oldest_file:
            return (*possible, record)
        if last == oldest_file and not possible:
            possible.append(newest_without_files or record)
        newest_without_files = None if record.files else newest_without_files or record
    return tuple(possible)


def missing_files(
    published: int,
    in_place: Collection[int],
    processed: Collection[int] = (),
    *,
    newest_first: Iterable[Record] = (),
    by_time: bool = False,
) -> tuple[int, ...]:
    """Return the numbers of published files that are missing in the table's folder. Omits files known to be consumed.

    If `in_place` is empty, Fabric may have consumed the returned files. Otherwise, Fabric has consumed none of them.

    - `published`: highest number of a published file.
    - `in_place`: numbers of the files in the table's folder. Fabric leaves the last consumed file there.
    - `processed`: numbers of the consumed files that Fabric moved to a subfolder.
    - `newest_first`: the log records of the table, used only with `by_time`.
    - `by_time`: Fabric orders files by modification time. Then the files of one publication have no known order.
    """
    last_moved = max(processed, default=0)
    # A file is moved after the next file is consumed.
    consumed = last_moved + 1 if last_moved and last_moved not in in_place else last_moved
    reached = max(min(in_place, default=0), consumed)
    present = set(in_place)
    numbers = tuple(number for number in range(reached + 1, published + 1) if number not in present)
    if by_time and in_place and numbers:
        first_numbers = {file.number: record.files[0].number for record in newest_first for file in record.files}
        numbers = tuple(number for number in numbers if first_numbers.get(number, 0) > reached)
    return numbers


def last_renamed(newest: Record, staged: Collection[str]) -> int:
    """Return the highest number of a file that already has its final name, or 0 if there is no file with a final name.

    Files get their final names in the order of their numbers. `newest` is the newest record. `staged` has the staged
    names of the files that do not have their final names yet.
    """
    waiting = (file.number for file in newest.files if file.staged in staged)
    return min(waiting, default=newest.next_file_number) - 1


def unselected_columns(table: str, newest: Record, now: Selection | None) -> list[str]:
    """Return the names of the columns of the record `newest` that the configured selection `now` no longer selects.

    Raises `selection_changed` if `where`, the secret for hashes, or the name, cast or transformation of a column
    changed, or if an excluded column is now selected. Raises `column_tags_changed` if only transformations by tag
    changed. Raises an error if the secret cannot be read.
    """
    old, new = newest.selection or EVERYTHING, now or EVERYTHING
    if old == new and not new.has_hashes:
        return []
    from mirrorfeed.landing.selection_changes import compare_selections  # imported late: few tables need it

    return compare_selections(table, newest, old, new)
