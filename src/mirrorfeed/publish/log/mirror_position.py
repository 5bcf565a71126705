"""Where the mirror of each table may stand: what was published last, and how much of it the service has taken."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mirrorfeed.config import Config, Table
from mirrorfeed.config.landing_zone import zone_of
from mirrorfeed.landing.consumed_files import may_stand_at
from mirrorfeed.landing.record import Record
from mirrorfeed.publish.log.table_log import TableLog
from mirrorfeed.storage import Store


@dataclass(frozen=True, slots=True)
class MirrorPosition:
    newest: Record | None = None
    """What was published last; None before a first publication."""
    candidates: tuple[Record, ...] = ()
    """Where the mirror may stand, the newest first."""
    waiting: int = 0
    """Files that the service has not taken, leaving out one that it may have."""


def mirror_positions(config: Config, names: Sequence[str] = ()) -> list[tuple[Table, MirrorPosition]]:
    """What each table's log says was published, and how much of it the service has taken."""
    store = zone_of(config)
    return [(table, _standing(store, table)) for table in config.select(names)]


def _standing(store: Store, table: Table) -> MirrorPosition:
    log = TableLog(store, table.target.folder)
    view = log.read_view()
    if view is None:
        return MirrorPosition()
    numbers, records = view.numbers, log.records(view)
    candidates = may_stand_at(records, numbers, by_time=table.file_order == "modified_time")
    return MirrorPosition(view.newest, candidates, max(0, len(numbers) - 1))
