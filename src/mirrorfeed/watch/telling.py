"""Who has been told what, so that each trouble is one message, and its end another. Pure: a state, a look, a state."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from datetime import datetime

from mirrorfeed.watch.troubles import Look


@dataclass(frozen=True, slots=True)
class Entry:
    """A trouble that is there, or is over and not everybody who was told of it knows."""

    table: str
    kind: str
    what: str
    remedy: str
    since: datetime
    lasting: float = 0.0
    over: datetime | None = None
    told: tuple[str, ...] = ()
    """The names of those who were told that it is there, and not yet that it is over."""

    @property
    def key(self) -> tuple[str, str]:
        return self.table, self.kind


@dataclass(frozen=True, slots=True)
class Message:
    to: str
    entry: Entry

    @property
    def over(self) -> bool:
        return self.entry.over is not None


def observe(entries: Iterable[Entry], look: Look, now: datetime) -> tuple[Entry, ...]:
    """The entries after a look. What comes back before its end was told goes on as it was."""
    there = {each.key: each for each in look.troubles}
    found = []
    for entry in entries:
        if there.pop(entry.key, None) is not None:
            found.append(replace(entry, over=None))
        elif entry.over is not None or look.hides(entry.key):
            found.append(entry)
        elif entry.told:
            found.append(replace(entry, over=now))
    new = (Entry(*each.key, each.what, each.remedy, each.since or now, each.lasting) for each in there.values())
    return (*found, *new)


def messages(entries: Iterable[Entry], to: Collection[str], now: datetime) -> list[Message]:
    """What is to be told to those who are there now. An end is told to those alone who know of the trouble."""
    found = []
    for entry in entries:
        if entry.over is not None:
            names = [name for name in entry.told if name in to]
        elif (now - entry.since).total_seconds() >= entry.lasting:
            names = [name for name in to if name not in entry.told]
        else:
            names = []
        found += [Message(name, entry) for name in names]
    return found


def after(entries: Iterable[Entry], sent: Iterable[Message], to: Collection[str]) -> tuple[Entry, ...]:
    """The entries once these messages are out; nobody waits for those who are no longer there."""
    out = {(each.to, each.entry.key) for each in sent}
    found = []
    for entry in entries:
        now_told = {name for name in to if (name, entry.key) in out}
        if entry.over is None:
            found.append(replace(entry, told=tuple(name for name in to if name in entry.told or name in now_told)))
        elif left := tuple(name for name in entry.told if name in to and name not in now_told):
            found.append(replace(entry, told=left))
    return tuple(found)
