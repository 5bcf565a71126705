"""Local replica: applies a landing zone to Delta tables like Fabric. Written from the specification alone."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from mirrorfeed.errors import MirrorfeedError, Transient
from mirrorfeed.lint.specification import SCHEMA_SUFFIX
from mirrorfeed.mirror.errors import NotOurs, SamePlace
from mirrorfeed.mirror.local_replica.landing_zone import TableFolder, schemas_in, tables_in
from mirrorfeed.mirror.local_replica.mirrored_table import (
    delete_dropped,
    drop,
    find_delta_tables,
    mirror_path,
    open_mirror,
)
from mirrorfeed.mirror.local_replica.table_cycle import State, TableCycle, TableReport, failed_report
from mirrorfeed.storage import Store

__all__ = ["Replica", "State", "TableReport", "passes"]


@dataclass(frozen=True)
class Replica:
    """Applies a landing zone to the Delta tables `<target>/<schema>/<table>`. The default schema is `dbo`.

    Stores all its state in the target. Only one replica at a time may use a target.
    """

    zone: Store
    target: str
    clock: Callable[[], datetime] = lambda: datetime.now(UTC)

    def step(self) -> list[TableReport]:
        """Make one pass over all tables. A failed table is reported and does not stop the others."""
        delete_dropped(self.target)
        folders = self._folders()
        places = Counter(mirror_path(self.target, folder) for folder in folders)
        dropped = [place for place in find_delta_tables(self.target) if place not in places]
        reports = [report for place in dropped if (report := self._drop(place))]
        for folder in folders:
            if places[mirror_path(self.target, folder)] > 1:
                error = SamePlace(table=folder.table, place=str(mirror_path(self.target, folder)))
                reports.append(failed_report(folder.table, error))
            else:
                reports.append(TableCycle(self.zone, self.target, folder).run(self.clock()))
        return sorted(reports, key=lambda report: report.table)

    def _folders(self) -> list[TableFolder]:
        root = self.zone.list("")
        folders = tables_in(root, None)
        for schema in schemas_in(root):
            folders += tables_in(self.zone.list(f"{schema}{SCHEMA_SUFFIX}"), schema)
        return folders

    def _drop(self, place: Path) -> TableReport | None:
        table = f"{place.parent.name}.{place.name}"
        try:
            mirror = open_mirror(place)
            if mirror is None:
                return None
            table = mirror.folder.replace(f"{SCHEMA_SUFFIX}/", ".")
            drop(place, self.target)
        except NotOurs:
            return None
        except MirrorfeedError as error:
            return failed_report(table, error)
        return TableReport(table, State.DROPPED, message="Its folder was deleted.")


def passes(
    replica: Replica, poll: float, stop: Callable[[], bool], wait: Callable[[float], None] = time.sleep
) -> Iterator[list[TableReport] | Transient]:
    """Make passes every `poll` seconds until `stop` returns True.

    Yields the reports of each pass, or a transient error of listing the landing zone.
    """
    while not stop():
        try:
            yield replica.step()
        except Transient as error:
            yield error
        if not stop():
            wait(poll)
