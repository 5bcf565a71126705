"""The result of reading a table's log and folder, and a check that both match. This module makes no storage calls."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from mirrorfeed.landing import names
from mirrorfeed.landing.log_record import File, PreviousRecord, Record, last_renamed
from mirrorfeed.publish import errors
from mirrorfeed.storage import Entry


@dataclass(frozen=True)
class View:
    """Result of reading a table's log and listing its data files.
    One listing can be wrong, so `TableLog.confirm` checks a view with a second listing."""

    log_id: str
    newest: Record | None = None
    records: Mapping[int, str] = field(default_factory=dict)
    """ETags of the records by record number, in ascending order."""
    is_linked: bool = True
    """False if the record before `newest` is missing or was replaced, or a first record has no start marker."""
    staged: Mapping[str, int] = field(default_factory=dict)
    """Sizes in bytes of all files that are only staged, by name. Includes files whose record was not created."""
    start_markers: tuple[str, ...] = ()
    """Names of the empty files that publishers create before they stage files for a first record."""
    confirmed: bool = False
    """True if `TableLog.confirm` returned this view, so two listings showed the same records."""
    entries: tuple[Entry, ...] = ()
    """Files and folders in the table's folder, from the listing of `TableLog.confirm` that found `data`."""
    data: tuple[str, ...] = ()
    """Names in the table's folder that Fabric does not ignore.
    If the log has no records, also the paths of data files that Fabric has moved to a subfolder after processing."""
    marks: tuple[int, ...] = ()
    """Numbers of the verification marks, in ascending order."""

    @property
    def unfinished(self) -> tuple[File, ...]:
        """Files of the newest record that must still be renamed to their final names."""
        repeated = self._repeated() if self.confirmed else ()
        files = self.newest.files if self.newest else ()
        return tuple(file for file in files if file.staged in self.staged and file not in repeated)

    @property
    def empty(self) -> tuple[File, ...]:
        """Staged files of the newest record that have 0 bytes, although their size in the record is larger."""
        files = self.newest.files if self.newest else ()
        return tuple(file for file in files if file.bytes and self.staged.get(file.staged) == 0)

    def _repeated(self) -> list[File]:
        """Return the empty staged files that an HTTP client created by mistake: it repeated a request to create a file
        after the file was renamed to its final name. Call this only if `confirmed` is True."""
        # Fabric keeps the last file that it consumed. So if a file was renamed, the table's folder has a file with the
        # same or a higher number. `TableLog.confirm` lists the table's folder before the staged files. So the original
        # file was renamed before the staged files were listed, and a staged file with its name is a repetition.
        if not (empty := self.empty):
            return []
        highest = max(self.numbers, default=0)
        return [file for file in empty if file.number <= highest]

    @property
    def last_renamed(self) -> int:
        """Highest number of a file that has its final name, or 0."""
        return last_renamed(self.newest, [file.staged for file in self.unfinished]) if self.newest else 0

    @property
    def number(self) -> int:
        """Number of the newest record, or 0 if there are no records."""
        return self.newest.number if self.newest else 0

    @property
    def reference(self) -> PreviousRecord | None:
        """Reference to the newest record, to store in the next record. None if the log has no record."""
        newest = self.newest
        return PreviousRecord(newest.number, newest.batch, self.records[newest.number]) if newest else None

    @property
    def next_file_number(self) -> int:
        return self.newest.next_file_number if self.newest else 1

    @property
    def extension(self) -> str | None:
        """Extension of the data files, or None before the first record."""
        return self.newest.extension if self.newest else None

    @cached_property
    def numbers(self) -> list[int]:
        """Numbers of the data files in the table's folder. There can be many thousands of them."""
        extension = self.extension
        return [number for name in self.data if (number := names.data_number(name, extension))]

    def leftovers(self) -> list[str]:
        """Return the names of files in the log's folder that can be deleted. Empty if the log has no record.

        Omits a staged file if it must still be renamed, or if the record number in its name is higher than the number
        of the newest record. While record 1 is the newest record, omits its start marker: the empty file that the
        publisher of record 1 created before the staged files.
        """
        if self.newest is None:
            return []
        needed = {file.staged for file in self.unfinished}
        if self.number == 1:
            needed.add(names.start_marker_name(self.newest.batch))
        staged = [name for name in self.staged if (names.staged_record_number(name) or self.number + 1) <= self.number]
        return [name for name in (*staged, *self.start_markers) if name not in needed]


def marks_in(entries: Iterable[Entry]) -> tuple[int, ...]:
    """Return the numbers of the verification marks among the files of a log's folder."""
    return tuple(number for entry in entries if (number := names.mark_number(entry.name)))


def check(view: View, address: str) -> None:
    """Raise an error if files in `view` do not match its records. `address` is the table's folder, for messages."""
    if view.newest and not view.is_linked:
        raise errors.RecordsMissingError(
            table=view.newest.source, number=view.newest.number, address=f"{address}/{names.log_folder(view.log_id)}"
        )
    extension, expected = view.extension, view.next_file_number
    known = len(view.numbers) == len(view.data) and max(view.numbers, default=0) < expected
    for name in () if known else view.data:  # there can be many thousands
        # Fabric would skip new files with the numbers of processed files.
        number = names.data_number(name.rpartition("/")[2], extension)
        if number is None:
            raise errors.foreign_file(address=f"{address}/{name}")
        if number >= expected:
            raise errors.FileNumberConflictError(address=f"{address}/{name}", expected=expected)
    for file in view.unfinished:
        staged = f"{address}/{names.log_folder(view.log_id)}/{file.staged}"
        final = names.published_name(file.number, file.staged)
        if final in view.data:
            raise errors.final_name_taken(address=f"{address}/{final}", staged=staged)
        if view.staged[file.staged] != file.bytes:
            raise errors.staged_file_damaged(address=staged, found=view.staged[file.staged], expected=file.bytes)
