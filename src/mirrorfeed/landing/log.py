"""The log beside the files: one record is one publication. Complete in itself, so the newest is the state."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any

from mirrorfeed.errors import Terminal
from mirrorfeed.landing.schema import Column
from mirrorfeed.landing.selection import Selection
from mirrorfeed.landing.spelled import load

FORMAT, SELECTED, READ_WHOLE = 2, 3, 4
"""2: each record says what it follows. 3: what is published is a part of the source, and which one; older releases, who
would publish all, do not go on from it. 4: all of a source without a feed was read for it, and what that took."""


@dataclass(frozen=True, slots=True)
class PublishedFile:
    staged: str
    """Its name in the log's folder until it is renamed."""
    number: int
    """Its final name is this number."""
    rows: Mapping[str, int]
    """By what they do: insert, update, delete, upsert."""
    bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Follows:
    """The record before, so that a log without its beginning is not taken for one whose old records were removed."""

    number: int
    batch: str
    etag: str
    """As its file had it then. Where it has another, the batch decides."""


@dataclass(frozen=True, slots=True)
class WholeRead:
    """What it took to read all of a source that has no feed."""

    rows: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Record:
    number: int
    batch: str
    """Made up anew for every try, so that a publisher knows its own record from another's."""
    time: str
    source: str
    source_id: str
    from_version_exclusive: int | None
    """None: a snapshot. The same as the last: a repair, of rows of a version that was published before."""
    to_version_inclusive: int
    columns: tuple[Column, ...]
    keys: tuple[str, ...]
    next_file_number: int
    files: tuple[PublishedFile, ...] = ()
    extension: str = "parquet"
    """Of all data files of the table."""
    partitions: tuple[str, ...] | None = None
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


class RecordUnreadable(Terminal):
    """A record of the table's log in the landing zone is damaged, so it is not known for sure what is published."""

    code = "MF3201"

    def __init__(self, address: str, reason: str) -> None:
        self.address, self.reason = address, reason

    def what(self) -> str:
        return f"The publication record {self.address} cannot be read: {self.reason}."

    def next(self) -> str:
        return (
            "Nothing is published on a guess. Restore the file if someone changed it; otherwise start the table"
            " again with `mirrorfeed rebuild`."
        )


class RecordTooNew(Terminal):
    """A newer mirrorfeed published here, and this one does not know the form of its records."""

    code = "MF3202"

    def __init__(self, address: str, found: int) -> None:
        self.address, self.found = address, found

    def what(self) -> str:
        return f"The publication record {self.address} has format {self.found}; this version knows format {READ_WHOLE}."

    def next(self) -> str:
        return "Install a newer mirrorfeed."


def parse(data: bytes, address: str) -> Record:
    """The record in these bytes; `address` is for the errors."""
    try:
        spelled = load(data)
    except ValueError as error:
        raise RecordUnreadable(address, f"it is not JSON ({error})") from error
    if not isinstance(spelled, dict) or not isinstance(spelled.get("format"), int):
        raise RecordUnreadable(address, "it names no format")
    if spelled["format"] > READ_WHOLE:
        raise RecordTooNew(address, spelled["format"])
    try:
        return _record(spelled)
    except (KeyError, TypeError, ValueError) as error:
        raise RecordUnreadable(address, f"a field is missing or wrong ({error!r})") from error


def _record(spelled: dict[str, Any]) -> Record:
    columns = tuple(Column(**column) for column in spelled.pop("columns"))
    files = tuple(PublishedFile(**file) for file in spelled.pop("files"))
    names = {name: tuple(spelled[name]) for name in ("keys", "partitions") if spelled.get(name) is not None}
    follows = Follows(**spelled["follows"]) if spelled.get("follows") else None
    selection = _selection(spelled["selection"]) if spelled.get("selection") else None
    read = WholeRead(**spelled["read"]) if spelled.get("read") else None
    made = {"columns": columns, "files": files, "follows": follows, "selection": selection, "read": read}
    record = Record(**{**spelled, **names, **made})
    last = record.next_file_number - 1
    if [file.number for file in files] != list(range(last - len(files) + 1, last + 1)):
        raise ValueError("the numbers of its files do not lead up to next_file_number")
    return record


def _selection(spelled: dict[str, Any]) -> Selection:
    listed = {name: tuple(spelled[name]) for name in ("columns", "except_columns") if spelled[name] is not None}
    found = Selection(**{**spelled, **listed})
    _ = found.condition, [found.cast_of(name) for name in found.cast]
    return found
