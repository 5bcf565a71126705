"""The state of a table's folder at one read, and the check whether its files match its log. No storage calls."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from mirrorfeed.landing import names
from mirrorfeed.landing.log_record import File, PreviousRecord, Record, last_renamed
from mirrorfeed.publish import errors
from mirrorfeed.storage import Entry

_MIN_RECORDS = 2
"""The newest record and the one before. With fewer records, a log with missing records would look pruned."""


@dataclass(frozen=True, slots=True)
class View:
    """State of a table's folder, from one listing of its log or, once confirmed, from two listings that agree."""

    log_id: str
    newest: Record | None = None
    records: Mapping[int, str] = field(default_factory=dict)
    """ETags of the records by number, in ascending order."""
    is_linked: bool = True
    """True if the record before the newest exists and is the one that the newest record refers to. For a first record:
    true if the start marker of its publisher exists."""
    staged: Mapping[str, int] = field(default_factory=dict)
    """Sizes of staged files of all records."""
    start_markers: tuple[str, ...] = ()
    """Names of the empty files that publishers create before they stage files for a first record."""
    confirmed: bool = False
    data: tuple[str, ...] = ()
    """Names of files that Fabric does not ignore, listed before the second listing of the log."""
    processed: tuple[str, ...] = ()
    """Data files that Fabric has moved after processing. Only for a table without a record."""

    @property
    def unfinished(self) -> tuple[File, ...]:
        """Files of the newest record that are not renamed yet."""
        repeated = self._repeated() if self.confirmed else ()
        files = self.newest.files if self.newest else ()
        return tuple(file for file in files if file.staged in self.staged and file not in repeated)

    @property
    def empty(self) -> tuple[File, ...]:
        """Files of the newest record that are staged with size 0, although the record has another size."""
        files = self.newest.files if self.newest else ()
        return tuple(file for file in files if file.bytes and self.staged.get(file.staged) == 0)

    def _repeated(self) -> list[File]:
        """Return files that a repeated request created again, empty, after the original file was renamed.

        Fabric keeps the last file that it consumed. So if a file was renamed, its number or a higher one is in the
        folder. Only a confirmed view shows this: its listing of the folder is older than its listing of the log.
        """
        highest = max(self.numbers, default=0)
        return [file for file in self.empty if file.number <= highest]

    @property
    def last_renamed(self) -> int:
        """Highest number of a file that has its final name, or 0."""
        return last_renamed(self.newest, [file.staged for file in self.unfinished]) if self.newest else 0

    @property
    def number(self) -> int:
        """Number of the newest record, or 0 before the first."""
        return self.newest.number if self.newest else 0

    @property
    def reference(self) -> PreviousRecord | None:
        """Reference to the newest record, which the next record contains."""
        newest = self.newest
        return PreviousRecord(newest.number, newest.batch, self.records[newest.number]) if newest else None

    @property
    def next_file_number(self) -> int:
        return self.newest.next_file_number if self.newest else 1

    @property
    def extension(self) -> str | None:
        """Extension of the data files, or None before the first record."""
        return self.newest.extension if self.newest else None

    @property
    def numbers(self) -> list[int]:
        """Numbers of the data files that still exist."""
        return [number for name in self.data if (number := names.data_number(name, self.extension))]

    def leftovers(self) -> list[str]:
        """Return files that can never be published, because a record has their number but does not name them."""
        if self.newest is None:
            return []
        needed = {file.staged for file in self.unfinished}
        if self.number == 1:
            needed.add(names.start_marker_name(self.newest.batch))
        staged = [name for name in self.staged if (names.staged_record_number(name) or self.number + 1) <= self.number]
        return [name for name in (*staged, *self.start_markers) if name not in needed]

    def old_records(self, keep: int) -> list[int]:
        return list(self.records)[: -max(_MIN_RECORDS, keep)]


def published_names(entries: list[Entry]) -> tuple[str, ...]:
    """Return the names that Fabric does not ignore."""
    return tuple(entry.name for entry in entries if not names.is_ignored(entry.name))


def check(view: View, address: str) -> None:
    """Raise an error if the files in the folder do not match the log. `address` is the folder's address."""
    if view.newest and not view.is_linked:
        raise errors.RecordsMissing(
            table=view.newest.source, number=view.newest.number, address=f"{address}/{names.log_folder(view.log_id)}"
        )
    for name in view.data:
        number = names.data_number(name, view.extension)
        if number is None:
            raise errors.ForeignFile(address=f"{address}/{name}")
        if number >= view.next_file_number:
            raise errors.FileNumberConflict(address=f"{address}/{name}", expected=view.next_file_number)
    # Fabric would skip new files with these numbers, because it has consumed these numbers.
    for path in view.processed:
        raise errors.FileNumberConflict(address=f"{address}/{path}", expected=view.next_file_number)
    for file in view.unfinished:
        staged = f"{address}/{names.log_folder(view.log_id)}/{file.staged}"
        final = names.published_name(file.number, file.staged)
        if final in view.data:
            raise errors.FinalNameTaken(address=f"{address}/{final}", staged=staged)
        if view.staged[file.staged] != file.bytes:
            raise errors.StagedFileDamaged(address=staged, found=view.staged[file.staged], expected=file.bytes)
