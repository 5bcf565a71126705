"""What a look at a table's folder showed, and what in it forbids to go on. Values alone: storage is asked elsewhere."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from mirrorfeed.display.humanize import a_few, counted
from mirrorfeed.errors import Terminal, Transient
from mirrorfeed.feed.ranges import Finding
from mirrorfeed.landing.consumed import last_renamed
from mirrorfeed.landing.log import PublishedFile, Record
from mirrorfeed.landing.names import (
    LOG_ID,
    begun_name,
    data_number,
    is_ignored,
    log_folder,
    published_name,
    staged_record_number,
)
from mirrorfeed.stores import Entry

_START_AGAIN = "start the table again with `mirrorfeed rebuild`"
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
        raise BeginningMissing(view.newest, f"{address}/{log_folder(view.log_id)}")
    for name in view.data:
        number = data_number(name, view.extension)
        if number is None:
            raise ForeignFile(f"{address}/{name}")
        if number >= view.next_file_number:
            raise NumbersDisagree(f"{address}/{name}", view.next_file_number)
    # The service would take files under these numbers for those that it has taken.
    for path in view.processed:
        raise NumbersDisagree(f"{address}/{path}", view.next_file_number)
    for file in view.unfinished:
        staged, final = f"{address}/{log_folder(view.log_id)}/{file.staged}", published_name(file.number, file.staged)
        if final in view.data:
            raise FinalNameTaken(f"{address}/{final}", staged)
        if view.staged[file.staged] != file.bytes:
            raise StagedFileDamaged(staged, view.staged[file.staged], file.bytes)


class BeginningMissing(Finding):
    """The log of the table in the landing zone has lost its beginning: what it tells may not be what Fabric has."""

    code = "MF3206"

    def __init__(self, newest: Record, address: str) -> None:
        super().__init__(newest.source)
        self.number, self.address = newest.number, address

    def what(self) -> str:
        return (
            f"What came before record {self.number} in {self.address} is not there: the table's folder was deleted"
            " while it was being published, or files of it were removed."
        )

    def next(self) -> str:
        return f"Nothing of it counts as published: {_START_AGAIN}. `on_gap: reseed` does that by itself."


class FinalNameTaken(Terminal):
    """Two files claim the same name in the landing zone. Neither is overwritten, and the table waits."""

    code = "MF3207"

    def __init__(self, address: str, staged: str) -> None:
        self.address, self.staged = address, staged

    def what(self) -> str:
        return f"{self.address} is there, and so is {self.staged}, to which its name was given."

    def next(self) -> str:
        return (
            "Nothing is overwritten. `mirrorfeed log` says of each whether it is the file that the record names, by"
            " size and checksum: remove the one that is not, then publish again."
        )


class StagedFileDamaged(Terminal):
    """A file that waits to be published is not whole. It is not published, and the table waits."""

    code = "MF3208"

    def __init__(self, address: str, found: int, expected: int) -> None:
        self.address, self.found, self.expected = address, found, expected

    def what(self) -> str:
        found = counted(self.found, "byte")
        return f"{self.address} has {found}, and its record says {self.expected:,}. It is not published."

    def next(self) -> str:
        return (
            "`mirrorfeed log` says whether the whole file stands under its final name: then remove the staged one and"
            f" publish again. Otherwise {_START_AGAIN}."
        )


class ForeignFile(Terminal):
    """Somebody else put a file into the table's folder. Fabric might read it, so the table waits."""

    code = "MF3209"

    def __init__(self, address: str) -> None:
        self.address = address

    def what(self) -> str:
        return f"{self.address} is not one of the files that a publisher of this table writes."

    def next(self) -> str:
        return "Remove it, or give it a name that starts with an underscore, then publish again."


class NumbersDisagree(Terminal):
    """The table's folder holds numbered files of which its log knows nothing: two publishers write there, or the log
    was lost."""

    code = "MF3210"

    def __init__(self, address: str, expected: int) -> None:
        self.address, self.expected = address, expected

    def what(self) -> str:
        if self.expected == 1:
            return f"{self.address} is there, and the table has no log that says what it holds."
        return f"{self.address} is there, and the log gave out numbers only up to {self.expected - 1}."

    def next(self) -> str:
        return (
            "Another publisher writes here, or the log was lost. Give this table a folder of its own, or start it again"
            " with `mirrorfeed rebuild`."
        )


class LogLost(Terminal):
    """The file that names the table's log was removed, while the log itself is still there."""

    code = "MF3211"

    def __init__(self, folder: str, log_id: str, newest: Record) -> None:
        self.folder, self.log_id, self.number, self.time = folder, log_id, newest.number, newest.time

    def what(self) -> str:
        return (
            f"{self.folder}/{LOG_ID} is gone, which names the table's log. The log {self.log_id} is there, up to record"
            f" {self.number} of {self.time}."
        )

    def next(self) -> str:
        return (
            f'Put the file back, with the content {{"log_id": "{self.log_id}"}}, and publish again; if that log is not'
            f" the one of the files that are there, {_START_AGAIN}."
        )


class FilesLost(Terminal):
    """Published files were removed from the landing zone before Fabric consumed them. Their rows are missing from the
    mirror, and nothing more is published, because Fabric waits for a missing number."""

    code = "MF3216"

    def __init__(self, address: str, numbers: Sequence[int]) -> None:
        self.address, self.numbers = address, tuple(numbers)

    def what(self) -> str:
        names = [str(number) for number in self.numbers]
        files, were, them = ("file", "was", "it") if len(names) == 1 else ("files", "were", "them")
        return f"Published {files} {a_few(names)} of {self.address} {were} removed before Fabric consumed {them}."

    def next(self) -> str:
        return (
            "Restore the same files under the same names if you can: OneLake keeps deleted files for seven days unless"
            f" set otherwise. If you cannot, {_START_AGAIN}."
        )


class LastFileGone(Transient):
    """The last data file of a table was removed from the landing zone. Fabric leaves that file in place, so somebody
    else removed it, and the folder does not show whether Fabric had consumed it. Publication goes on."""

    code = "MF3217"

    def __init__(self, address: str, numbers: Sequence[int]) -> None:
        self.address, self.numbers = address, tuple(numbers)

    def what(self) -> str:
        return (
            f"No data file is left in {self.address}. Fabric leaves the last one, so somebody removed file"
            f" {self.numbers[-1]}, perhaps before Fabric consumed it."
        )

    def next(self) -> str:
        return f"Compare the mirror with `mirrorfeed verify`. If rows are missing, {_START_AGAIN}."
