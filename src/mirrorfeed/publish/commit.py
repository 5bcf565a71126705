"""The driver's side of publication: look at a table's log, finish what the newest record says, add a record.

No answer of a changing call is believed, good or bad: the storage client repeats calls by itself, so a call that took
effect may come back as refused, and a lost answer says nothing. What counts is what the next look shows.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ParamSpec

from mirrorfeed.errors import Terminal, Transient
from mirrorfeed.landing import log, metadata
from mirrorfeed.landing.log import Record
from mirrorfeed.landing.names import (
    LOG,
    LOG_ID,
    METADATA,
    PROCESSED,
    data_number,
    is_ignored,
    is_log_id,
    log_folder,
    published_name,
    record_name,
    record_number,
    staged_record_number,
)
from mirrorfeed.stores import AlreadyThere, NotThere, Store, StoreUnavailable

Arguments = ParamSpec("Arguments")
_LOOKS = 20
"""How often a look is begun again while others change the table, before it is left to a later run."""


@dataclass(frozen=True, slots=True)
class View:
    """A table's folder as two equal looks showed it."""

    log_id: str
    newest: Record | None
    records: tuple[int, ...]
    staged: tuple[str, ...]
    """Files in the log's folder that have no final name yet, of any record."""
    data: tuple[str, ...]
    """What stands under other than ignored names, seen before the record was."""
    processed: tuple[str, ...] = ()
    """Of a table without a record, the data files that the service has put aside."""

    @property
    def unfinished(self) -> tuple[log.PublishedFile, ...]:
        """Files of the newest record that are still to be renamed."""
        files = self.newest.files if self.newest else ()
        return tuple(file for file in files if file.staged in self.staged)

    @property
    def next_number(self) -> int:
        return self.newest.number + 1 if self.newest else 1

    @property
    def next_file_number(self) -> int:
        return self.newest.next_file_number if self.newest else 1

    @property
    def extension(self) -> str | None:
        """Of the table's data files; None before a first record."""
        return self.newest.extension if self.newest else None


class KeepsChanging(Transient):
    def __init__(self, address: str) -> None:
        self.address = address

    def what(self) -> str:
        return f"Other publishers keep changing {self.address}."

    def next(self) -> str:
        return "Publish again later, and let one publisher at a time do it."


class LogUnreadable(Terminal):
    def __init__(self, address: str) -> None:
        self.address = address

    def what(self) -> str:
        return f"{self.address} does not name a log."

    def next(self) -> str:
        return "Restore the file, or start the table again with `mirrorfeed rebuild`."


class FinalNameTaken(Terminal):
    def __init__(self, address: str, staged: str) -> None:
        self.address, self.staged = address, staged

    def what(self) -> str:
        return f"{self.address} is there, and is not the file {self.staged} that this name was given to."

    def next(self) -> str:
        return "Find out who wrote it. It is never overwritten; once it is removed, publishing goes on."


class ForeignFile(Terminal):
    def __init__(self, address: str) -> None:
        self.address = address

    def what(self) -> str:
        return f"{self.address} is not one of the files that a publisher of this table writes."

    def next(self) -> str:
        return "Remove it, or give it a name that starts with an underscore, then publish again."


class NumbersDisagree(Terminal):
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


class TimesTie(Transient):
    def __init__(self, address: str) -> None:
        self.address = address

    def what(self) -> str:
        return f"Files for {self.address} have no later storage time than those that are there, so no order among them."

    def next(self) -> str:
        return "Nothing of them is published. Publish again a moment later."


def look(store: Store, folder: str) -> View:
    """The log's id, its newest record and what is staged, at one moment; makes the log if there is none."""
    trouble: Exception | None = None
    for _ in range(_LOOKS):
        log_id = _log_id(store, folder)
        if log_id is not None:
            view = _view(store, folder, log_id)
            if view:
                return view
        elif isinstance(trouble, StoreUnavailable):
            raise trouble
        else:
            new = json.dumps({"log_id": uuid.uuid4().hex}).encode()
            trouble = _unbelieved(store.create, f"{folder}/{LOG_ID}", new)
    raise KeepsChanging(store.address(folder))


def without_log(store: Store, folder: str) -> View:
    """What a look would show of a folder that has no log yet."""
    return View("", None, (), (), _data(store, folder), _processed(store, folder))


def peek(store: Store, folder: str) -> View | None:
    """The same without making anything: None where there is no log."""
    return look(store, folder) if has_log(store, folder) else None


def has_log(store: Store, folder: str) -> bool:
    return _log_id(store, folder) is not None


def records(store: Store, folder: str, view: View) -> Iterator[Record]:
    """The records that are kept, the newest first."""
    if view.newest is not None:
        yield view.newest
    for number in reversed(view.records[:-1]):
        path = f"{folder}/{log_folder(view.log_id)}/{record_name(number)}"
        try:
            yield log.parse(store.read(path), store.address(path))
        except NotThere:  # pruned meanwhile
            return


def _view(store: Store, folder: str, log_id: str) -> View | None:
    """What two looks show alike, or None if the log changed between them."""
    data = _data(store, folder)
    records = _records(_log_names(store, folder, log_id))
    newest = None
    if records:
        path = f"{folder}/{log_folder(log_id)}/{record_name(records[-1])}"
        try:
            newest = log.parse(store.read(path), store.address(path))
        except NotThere:
            return None
        if newest.number != records[-1]:
            raise log.RecordUnreadable(store.address(path), f"it says that it is record {newest.number}")
    processed = () if records else _processed(store, folder)
    # What is staged may change meanwhile: of it the second listing counts, for the record is of both moments.
    again = _log_names(store, folder, log_id)
    if records != _records(again) or _log_id(store, folder) != log_id:
        return None
    staged = tuple(name for name in again if staged_record_number(name))
    return View(log_id, newest, tuple(records), staged, data, processed)


def _data(store: Store, folder: str) -> tuple[str, ...]:
    return tuple(entry.name for entry in store.list(folder) if not is_ignored(entry.name))


def _processed(store: Store, folder: str) -> tuple[str, ...]:
    paths = (f"{place}/{entry.name}" for place in PROCESSED for entry in store.list(f"{folder}/{place}"))
    return tuple(path for path in paths if data_number(path.rpartition("/")[2], None))


def settle(store: Store, folder: str) -> View:
    """Looks, and finishes the newest publication: until a look shows nothing of it staged."""
    before: tuple[str, ...] = ()
    trouble: Exception | None = None
    while True:
        view = look(store, folder)
        left = tuple(file.staged for file in view.unfinished)
        if not left:
            break
        for file in view.unfinished:
            final = published_name(file.number, file.staged)
            if final in view.data:
                raise FinalNameTaken(store.address(f"{folder}/{final}"), file.staged)
        if left == before:
            raise trouble or KeepsChanging(store.address(folder))
        before = left
        trouble = _rename_in_order(store, folder, view)
    check_data(store, folder, view)
    return view


def _rename_in_order(store: Store, folder: str, view: View) -> Exception | None:
    """A later file never overtakes an earlier one: the first that does not move ends it."""
    for file in view.unfinished:
        staged = f"{folder}/{log_folder(view.log_id)}/{file.staged}"
        final = f"{folder}/{published_name(file.number, file.staged)}"
        if trouble := _unbelieved(store.rename, staged, final):
            return trouble
    return None


def check_data(store: Store, folder: str, view: View) -> None:
    """Refuses a folder that holds more than this log accounts for."""
    for name in view.data:
        number = data_number(name, view.extension)
        if number is None:
            raise ForeignFile(store.address(f"{folder}/{name}"))
        if number >= view.next_file_number:
            raise NumbersDisagree(store.address(f"{folder}/{name}"), view.next_file_number)
    # The service would take files under these numbers for those that it has taken.
    for path in view.processed:
        raise NumbersDisagree(store.address(f"{folder}/{path}"), view.next_file_number)


def tidy(store: Store, folder: str, view: View, keep_records: int) -> None:
    """Removes what can never be published: leftovers up to the newest record, other logs, old records."""
    newest = view.newest.number if view.newest else 0
    mine = f"{folder}/{log_folder(view.log_id)}"
    for name in view.staged:
        if (staged_record_number(name) or newest + 1) <= newest:
            store.remove(f"{mine}/{name}")
    for number in view.records[:-keep_records]:
        store.remove(f"{mine}/{record_name(number)}")
    names = [entry.name for entry in store.list(f"{folder}/{LOG}") if entry.is_folder]
    others = [name for name in names if is_log_id(name) and name != view.log_id]
    # If the table's folder was deleted and made again since the look, one of them is the log in force. A log that was
    # there before `log.json` named this one never comes back.
    if others and _log_id(store, folder) == view.log_id:
        for name in others:
            store.remove_folder(f"{folder}/{log_folder(name)}")


def ensure_metadata(store: Store, folder: str, wanted: Mapping[str, Any]) -> None:
    """Writes `_metadata.json` before the first data file, or adds keys to one that has none."""
    path = f"{folder}/{METADATA}"
    trouble: Exception | None = None
    for _ in range(_LOOKS):
        found = _metadata(store, folder)
        if found is not None and metadata.goes_on_from(found, wanted, store.address(path)):
            return
        if isinstance(trouble, StoreUnavailable):
            raise trouble
        # Replaced rather than removed and made again: a removal that takes effect late would take the new file away.
        write = store.create if found is None else store.replace
        trouble = _unbelieved(write, path, metadata.to_json({**(found or {}), **wanted}))
    raise KeepsChanging(store.address(path))


def check_metadata(store: Store, folder: str, wanted: Mapping[str, Any]) -> None:
    """Refuses a `_metadata.json` that sets something else than what is wanted."""
    if (found := _metadata(store, folder)) is not None:
        metadata.goes_on_from(found, wanted, store.address(f"{folder}/{METADATA}"))


def _metadata(store: Store, folder: str) -> dict[str, Any] | None:
    path = f"{folder}/{METADATA}"
    try:
        return metadata.parse(store.read(path), store.address(path))
    except NotThere:
        return None


def check_times(store: Store, folder: str, view: View, staged: Collection[str]) -> None:
    """Refuses staged files that are not younger, by the storage's own times, than all that the service may still read.

    A rename keeps the time or makes it later, so the files that are published by this are read after those.
    """
    there = [entry.modified for entry in store.list(folder) if not entry.is_folder and not is_ignored(entry.name)]
    new = [entry.modified for entry in store.list(f"{folder}/{log_folder(view.log_id)}") if entry.name in staged]
    if there and new and min(new) <= max(there):
        raise TimesTie(store.address(folder))


def record(store: Store, folder: str, view: View, new: Record) -> bool:
    """The commit: whether this record, and not another publisher's, is the newest. Raises if its number is still free,
    for then nobody got on, and what was staged would be staged again and again."""
    path = f"{folder}/{log_folder(view.log_id)}/{record_name(new.number)}"
    trouble = _unbelieved(store.create, path, new.to_json())
    after = look(store, folder)
    if after.log_id == view.log_id and after.next_number == new.number:
        raise trouble or KeepsChanging(store.address(folder))
    return after.newest is not None and after.newest.batch == new.batch


def _log_id(store: Store, folder: str) -> str | None:
    path = f"{folder}/{LOG_ID}"
    try:
        spelled = json.loads(store.read(path))
        log_id = spelled["log_id"]
        if not (isinstance(log_id, str) and is_log_id(log_id)):
            raise LogUnreadable(store.address(path))
        return log_id
    except NotThere:
        return None
    except (ValueError, KeyError, TypeError) as error:
        raise LogUnreadable(store.address(path)) from error


def _log_names(store: Store, folder: str, log_id: str) -> list[str]:
    return [entry.name for entry in store.list(f"{folder}/{log_folder(log_id)}") if not entry.is_folder]


def _records(names: list[str]) -> list[int]:
    return sorted(number for number in map(record_number, names) if number is not None)


def _unbelieved(call: Callable[Arguments, None], *args: Arguments.args, **kwargs: Arguments.kwargs) -> Exception | None:
    """Makes a call whose answer decides nothing, for the caller looks again; the answer is for messages alone."""
    try:
        call(*args, **kwargs)
    except (AlreadyThere, NotThere, StoreUnavailable) as error:
        return error
    return None
