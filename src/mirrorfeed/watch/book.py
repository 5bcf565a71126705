"""The book of who has been told what: numbered pages beside the landing zone's tables, each whole, the newest counts.

A page is created if absent, and nothing that a call answers is believed: who wrote it is read again. Before messages go
out, a page says who sends them and until when; a run that finds such a page sends nothing. So a message goes out once,
unless its sender dies before it could write that it is out: then once more, when its time is over.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from typing import Any

from mirrorfeed.errors import MirrorfeedError, Terminal, Transient, named
from mirrorfeed.landing.names import record_name, record_number
from mirrorfeed.landing.spelled import load
from mirrorfeed.stores import AlreadyThere, NotThere, Store, StoreUnavailable
from mirrorfeed.watch.telling import Entry, Message, after, messages, observe
from mirrorfeed.watch.troubles import Look

FOLDER = "_mirrorfeed/alerts"
"""Readers of a landing zone ignore it."""
LEASE = timedelta(minutes=10)
_ENDING = timedelta(minutes=2)
"""Before its end no message is begun: the page that says what is out is still to be written."""
_KEPT, _LOOKS = 10, 5
_FORMAT = 1

Send = Callable[[Message], None]
"""Tells somebody, or raises."""


@dataclass(frozen=True, slots=True)
class Page:
    number: int = 0
    run: str = ""
    """Who wrote it."""
    until: datetime | None = None
    """For so long that run sends what this page leaves to be told; None: nobody does."""
    entries: tuple[Entry, ...] = ()


@dataclass(frozen=True, slots=True)
class Told:
    sent: tuple[Message, ...] = ()
    failed: tuple[tuple[str, MirrorfeedError], ...] = ()
    """Who could not be told, and why: they are told by a later run."""
    other: bool = False
    """Whether another run was telling, so that this one told nothing."""


def tell(
    store: Store, look: Look, to: Mapping[str, Send], run: str, clock: Callable[[], datetime], folder: str = FOLDER
) -> Told:
    """Tells each of `to` what is new for it. Where nothing is, nothing is written."""
    page, now = _newest(store, folder), clock()
    if page.until is not None and now < page.until:
        return Told(other=True)
    entries = observe(page.entries, look, now)
    due = messages(entries, to, now)
    if not due:
        settled = after(entries, (), to)
        if settled != page.entries:
            _add(store, folder, Page(page.number + 1, run, None, settled))
        return Told()
    if not _add(store, folder, Page(page.number + 1, run, now + LEASE, entries)):
        return Told(other=True)
    sent: list[Message] = []
    failed: dict[str, MirrorfeedError] = {}
    for message in due:
        if message.to in failed or clock() > now + LEASE - _ENDING:
            continue
        try:
            to[message.to](message)
            sent.append(message)
        except Exception as error:  # the page below is still to say what is out
            failed[message.to] = named(f"Telling {message.to}", error)
    _add(store, folder, Page(page.number + 2, run, None, after(entries, sent, to)))
    _tidy(store, folder, page.number + 2)
    return Told(tuple(sent), tuple(failed.items()))


def _newest(store: Store, folder: str) -> Page:
    for _ in range(_LOOKS):
        number = max((record_number(each.name) or 0 for each in store.list(folder)), default=0)
        if not number:
            return Page()
        path = f"{folder}/{record_name(number)}"
        try:
            return _parse(store.read(path), store.address(path))
        except NotThere:  # tidied away meanwhile: there are newer ones
            continue
    raise PagesKeepGoing(store.address(folder))


def _add(store: Store, folder: str, page: Page) -> bool:
    """Whether this page is the newest now: whatever the call answered."""
    trouble: Exception | None = None
    try:
        store.create(f"{folder}/{record_name(page.number)}", _spell(page))
    except (AlreadyThere, StoreUnavailable) as error:
        trouble = error
    found = _newest(store, folder)
    if found.number < page.number and trouble:
        raise trouble
    return (found.number, found.run) == (page.number, page.run)


def _tidy(store: Store, folder: str, newest: int) -> None:
    with suppress(MirrorfeedError):
        old = [number for each in store.list(folder) if (number := record_number(each.name))]
        for number in old:
            if number <= newest - _KEPT:
                store.remove(f"{folder}/{record_name(number)}")


def _spell(page: Page) -> bytes:
    told = {"format": _FORMAT, **asdict(page)}
    return json.dumps(told, ensure_ascii=False, indent=1, default=lambda moment: moment.isoformat()).encode()


def _parse(data: bytes, address: str) -> Page:
    try:
        told: dict[str, Any] = load(data)
        if told["format"] != _FORMAT:
            raise ValueError(f"it has format {told['format']}")
        entries = tuple(
            Entry(
                **{**each, "since": _moment(each["since"]), "over": _moment(each["over"]), "told": tuple(each["told"])}
            )
            for each in told["entries"]
        )
        return Page(told["number"], told["run"], _moment(told["until"]), entries)
    except (ValueError, KeyError, TypeError) as error:
        raise PageUnreadable(address, str(error)) from error


def _moment(text: str | None) -> Any:
    return None if text is None else datetime.fromisoformat(text)


class PageUnreadable(Terminal):
    """The record of who was told of which trouble is damaged."""

    code = "MF8101"

    def __init__(self, address: str, reason: str) -> None:
        self.address, self.reason = address, reason

    def what(self) -> str:
        return f"{self.address}, which says who was told of which trouble, cannot be read: {self.reason}."

    def next(self) -> str:
        return "Remove the folder that it is in: what is in trouble then is told once more, and nothing else is lost."


class PagesKeepGoing(Transient):
    """Several runs tell of troubles at once, and this one told nothing."""

    code = "MF8102"

    def __init__(self, address: str) -> None:
        self.address = address

    def what(self) -> str:
        return f"Other runs keep writing to {self.address}, which says who was told of which trouble."

    def next(self) -> str:
        return "Nothing was told by this run; the next one does."
