"""What a look at a table's folder showed, and what in it forbids to go on. Values alone: storage is asked elsewhere."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from mirrorfeed.landing.consumed_files import last_renamed
from mirrorfeed.landing.names import (
    begun_name,
    data_number,
    is_ignored,
    log_folder,
    published_name,
    staged_record_number,
)
from mirrorfeed.landing.record import PublishedFile, Record
from mirrorfeed.publish.errors import FileNumberConflict, FinalNameTaken, ForeignFile, RecordsMissing, StagedFileDamaged
from mirrorfeed.storage import Entry

_LEAST_KEPT = 2
"""The newest record and the one that it follows: with less, a log without its beginning would look pruned."""


@dataclass(frozen=True, slots=True)
class View:
    """A table's folder as one listing of its log showed it, or, once it is confirmed, two that agree."""

    log_id: str
    newest: Record | None = None
    records: Mapping[int, str] = field(default_factory=dict)
    """The ETags of the records by their numbers, the oldest first."""
    follows_on: bool = True
    """Whether the record before the newest is there, and is the one that the newest says it follows. For a first
    record: whether the empty file is there that its publisher created before it staged anything."""
    staged: Mapping[str, int] = field(default_factory=dict)
    """The sizes of files in the log's folder that have no final name yet, of any record."""
    begun: tuple[str, ...] = ()
    """The empty files that publishers created before they staged files for a first record."""
    confirmed: bool = False
    data: tuple[str, ...] = ()
    """What stood under other than ignored names when the view was confirmed, seen before the log was."""
    processed: tuple[str, ...] = ()
    """Of a table without a record, the data files that the service has put aside."""

    @property
    def unfinished(self) -> tuple[PublishedFile, ...]:
        """Files of the newest record that are still to be renamed."""
        repeated = self.repeated() if self.confirmed else ()
        files = self.newest.files if self.newest else ()
        return tuple(file for file in files if file.staged in self.staged and file.staged not in repeated)

    @property
    def empty(self) -> tuple[PublishedFile, ...]:
        """Files of the newest record whose staged names are there and empty, although the record says otherwise."""
        files = self.newest.files if self.newest else ()
        return tuple(file for file in files if file.bytes and self.staged.get(file.staged) == 0)

    def repeated(self) -> tuple[str, ...]:
        """Staged names that were created again, empty, by a repeated request after their files had been renamed.

        Fabric leaves the last file that it took. So if a file was renamed, its number or a later one is in the folder.
        Only a confirmed view shows this: its listing of the folder is older than its listing of the log.
        """
        given = max(self.numbers, default=0)
        return tuple(file.staged for file in self.empty if file.number <= given)

    @property
    def last_renamed(self) -> int:
        """The highest number whose file has its final name; 0 if none."""
        return last_renamed(self.newest, [file.staged for file in self.unfinished]) if self.newest else 0

    @property
    def number(self) -> int:
        """Of the newest record; 0 before the first."""
        return self.newest.number if self.newest else 0

    @property
    def next_file_number(self) -> int:
        return self.newest.next_file_number if self.newest else 1

    @property
    def extension(self) -> str | None:
        """Of the table's data files; None before a first record."""
        return self.newest.extension if self.newest else None

    @property
    def numbers(self) -> list[int]:
        """Of the data files that are left."""
        return [number for name in self.data if (number := data_number(name, self.extension))]

    def leftovers(self) -> list[str]:
        """Staged files that can never be published, for a record has their number and does not name them."""
        named = {file.staged for file in self.unfinished}
        reached = (name for name in self.staged if (staged_record_number(name) or self.number + 1) <= self.number)
        begun = [
            name for name in self.begun if self.newest and (self.number > 1 or name != begun_name(self.newest.batch))
        ]
        return [*(name for name in reached if name not in named), *begun]

    def old_records(self, keep: int) -> list[int]:
        return list(self.records)[: -max(_LEAST_KEPT, keep)]


def data_in(entries: list[Entry]) -> tuple[str, ...]:
    return tuple(entry.name for entry in entries if not is_ignored(entry.name))


def check(view: View, address: str) -> None:
    """Refuses a folder that holds more or less than its log accounts for; `address` is the folder's."""
    if view.newest and not view.follows_on:
        raise RecordsMissing(
            table=view.newest.source, number=view.newest.number, address=f"{address}/{log_folder(view.log_id)}"
        )
    for name in view.data:
        number = data_number(name, view.extension)
        if number is None:
            raise ForeignFile(address=f"{address}/{name}")
        if number >= view.next_file_number:
            raise FileNumberConflict(address=f"{address}/{name}", expected=view.next_file_number)
    # The service would take files under these numbers for those that it has taken.
    for path in view.processed:
        raise FileNumberConflict(address=f"{address}/{path}", expected=view.next_file_number)
    for file in view.unfinished:
        staged, final = f"{address}/{log_folder(view.log_id)}/{file.staged}", published_name(file.number, file.staged)
        if final in view.data:
            raise FinalNameTaken(address=f"{address}/{final}", staged=staged)
        if view.staged[file.staged] != file.bytes:
            raise StagedFileDamaged(address=staged, found=view.staged[file.staged], expected=file.bytes)
