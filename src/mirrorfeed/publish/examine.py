"""Whether the files of a table's newest publication are those that its record names. Changes nothing."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace

from mirrorfeed.display.humanize import counted
from mirrorfeed.errors import MirrorfeedError
from mirrorfeed.feed.ranges import Range
from mirrorfeed.landing.log import PublishedFile, Record
from mirrorfeed.landing.names import log_folder, published_name
from mirrorfeed.publish.commit import TableLog
from mirrorfeed.stores import NotThere, Store

_BLOCK = 2**20


@dataclass(frozen=True, slots=True)
class Place:
    """Where a file of a record may stand, and what stands there."""

    address: str
    found: str | None
    """In words; None if nothing is there."""
    is_the_file: bool = False
    consumed: bool = False
    """Whether nothing is there because Fabric has consumed the file; of final names only."""


@dataclass(frozen=True, slots=True)
class Examined:
    log: str
    """The address of the log's folder."""
    records: tuple[Record, ...]
    """Those that are kept, the newest first."""
    follows_on: bool
    """Whether the newest follows the one before it."""
    places: tuple[Place, ...]
    """Of each file of the newest record, its staged name and its final one."""
    lost: MirrorfeedError | None = None
    """Published files that are gone, and that Fabric is not known to have consumed."""

    @property
    def as_recorded(self) -> bool:
        """Whether nothing is there that the log does not account for, and no published file is gone."""
        return self.follows_on and not self.lost and all(place.is_the_file for place in self.places if place.found)


def published(record: Record) -> str:
    """What a record published, in words."""
    after, last = record.from_version_exclusive, record.to_version_inclusive
    if after is None:
        return f"snapshot at version {last}"
    if record.read:
        return f"version {last}, {counted(record.read.rows, 'row')} compared"
    return f"repair at version {last}" if record.repairs else str(Range(after, last))


def examine(store: Store, folder: str) -> Examined | None:
    """Reads each file of the newest publication that is there; None of a folder without a log."""
    log = TableLog(store, folder)
    view = log.look()
    if view is None:
        return None
    mine = f"{folder}/{log_folder(view.log_id)}"
    lost = log.lost(view)
    places: list[Place] = []
    for file in view.newest.files if view.newest else ():
        staged = _place(store, f"{mine}/{file.staged}", file)
        final = _place(store, f"{folder}/{published_name(file.number, file.staged)}", file)
        consumed = not (staged.found or final.found or (lost and file.number in lost.numbers))
        places += [staged, replace(final, consumed=consumed)]
    return Examined(store.address(mine), tuple(log.records(view)), view.follows_on, tuple(places), lost)


def _place(store: Store, path: str, file: PublishedFile) -> Place:
    address, size, digest = store.address(path), 0, hashlib.sha256()
    try:
        with store.open_read(path) as source:
            while block := source.read(_BLOCK):
                size += len(block)
                digest.update(block)
    except NotThere:
        return Place(address, None)
    if size != file.bytes:
        return Place(address, f"not the file: it has {counted(size, 'byte')}, and the record says {file.bytes:,}")
    if digest.hexdigest() != file.sha256:
        return Place(address, f"not the file: it has the {size:,} bytes of the record and another checksum")
    return Place(address, f"the file, {counted(size, 'byte')}, with the checksum of the record", is_the_file=True)
