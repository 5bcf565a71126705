"""The position of each mirror: the newest record of a table, and the records that the mirror may show."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mirrorfeed.config.model import Config, Table, zone_of
from mirrorfeed.landing.record import Record, possible_positions
from mirrorfeed.publish.log.table_log import TableLog


@dataclass(frozen=True, slots=True)
class MirrorPosition:
    newest: Record | None = None
    """The newest publication. None before the first one."""
    candidates: tuple[Record, ...] = ()
    """The records that the mirror may show, in descending order."""
    waiting: int = 0
    """Files that Fabric has not consumed, without one that it may have consumed."""


def mirror_positions(config: Config, names: Sequence[str] = ()) -> list[tuple[Table, MirrorPosition]]:
    """Read the position of each table from its log."""
    store, found = zone_of(config), []
    for table in config.select(names):
        log = TableLog(store, table.target.folder)
        position = MirrorPosition()
        if view := log.read_view():
            candidates = possible_positions(
                log.records(view), view.numbers, by_time=table.file_order == "modified_time"
            )
            position = MirrorPosition(view.newest, candidates, max(0, len(view.numbers) - 1))
        found.append((table, position))
    return found
