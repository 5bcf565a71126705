"""Tables that were published and that the configuration does not name any more. They are left alone until dropped."""

from __future__ import annotations

from mirrorfeed.config import Config
from mirrorfeed.errors import Terminal
from mirrorfeed.landing.names import BadTarget, Target
from mirrorfeed.publish import commit
from mirrorfeed.stores import Store

_SCHEMA = ".schema"


class StillConfigured(Terminal):
    def __init__(self, table: str, path: str) -> None:
        self.table, self.path = table, path

    def what(self) -> str:
        return f"{self.table} is in {self.path}, so the next run would publish it again."

    def next(self) -> str:
        return "Take it out of the file first. To publish it anew, run `mirrorfeed rebuild` instead."


class NotPublishedHere(Terminal):
    def __init__(self, table: str, place: str) -> None:
        self.table, self.place = table, place

    def what(self) -> str:
        return f"{self.place} is not there, or nothing in it shows that mirrorfeed published {self.table}."

    def next(self) -> str:
        return "`mirrorfeed status` names the tables that can be dropped. What others wrote is theirs to remove."


def strays(store: Store, config: Config) -> list[Target]:
    """The tables with a log of ours in the landing zone that are no target of the configuration."""
    configured = {table.target.fold() for table in config.tables}
    return [target for target in _published(store) if target.fold() not in configured]


def check_droppable(store: Store, config: Config, target: Target) -> None:
    if target.fold() in {table.target.fold() for table in config.tables}:
        raise StillConfigured(str(target), config.path)
    if not commit.has_log(store, target.folder):
        raise NotPublishedHere(str(target), store.address(target.folder))


def _published(store: Store) -> list[Target]:
    found: list[Target] = []
    for entry in store.list(""):
        if not entry.is_folder:
            continue
        schema, tables = None, [entry.name]
        if entry.name.endswith(_SCHEMA):
            schema = entry.name.removesuffix(_SCHEMA)
            tables = [below.name for below in store.list(entry.name) if below.is_folder]
        for table in tables:
            try:
                target = Target(schema, table)
            except BadTarget:  # no table of ours is called so
                continue
            if commit.has_log(store, target.folder):
                found.append(target)
    return found
