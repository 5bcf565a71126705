"""`mirrorfeed replicate`: apply the files of a landing zone to local Delta tables, as Fabric does.

Written from the specification of open mirroring, without code of the publisher.
"""

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
from mirrorfeed.mirror.local_replica import mirrored_table
from mirrorfeed.mirror.local_replica.landing_zone import find_table_folders
from mirrorfeed.mirror.local_replica.table_cycle import State, TableCycle, TableReport, failed_report
from mirrorfeed.storage import Store

__all__ = ["Replica", "State", "TableReport", "run_passes"]


@dataclass(frozen=True)
class Replica:
    """Applies the files of the landing zone `zone` to Delta tables, `<target>/<schema>/<table>`.

    The default schema is `dbo`. All progress is stored in `target`. Only one replica at a time may use the same target.
    """

    zone: Store
    target: str
    clock: Callable[[], datetime] = lambda: datetime.now(UTC)

    def run_pass(self) -> list[TableReport]:
        """Apply the new files of all tables, and return a report for each table, sorted by table.

        Drops mirrored tables whose folder was deleted. A failed table does not stop the other tables; its report has an
        error or a message. Raises an error of the store if the landing zone cannot be listed.
        """
        mirrored_table.delete_dropped(self.target)
        folders = [
            (folder, mirrored_table.mirror_path(self.target, folder)) for folder in find_table_folders(self.zone)
        ]
        places = Counter(place for _, place in folders)
        dropped = [place for place in mirrored_table.find_delta_tables(self.target) if place not in places]
        reports = [report for place in dropped if (report := self._drop(place))]
        for folder, place in folders:
            if places[place] > 1:
                reports.append(failed_report(folder.table, SamePlace(table=folder.table, place=str(place))))
            else:
                reports.append(TableCycle(self.zone, self.target, folder).run(self.clock()))
        return sorted(reports, key=lambda report: report.table)

    def _drop(self, place: Path) -> TableReport | None:
        """Drop a mirrored table whose folder was deleted, and return the report.

        Returns None if there is no table, or if the replica did not create the table.
        """
        table = f"{place.parent.name}.{place.name}"
        try:
            mirror = mirrored_table.open_mirror(place)
            if mirror is None:
                return None
            table = mirror.folder.replace(f"{SCHEMA_SUFFIX}/", ".")
            mirrored_table.drop(place, self.target)
        except NotOurs:
            return None
        except MirrorfeedError as error:
            return failed_report(table, error)
        return TableReport(table, State.DROPPED, message="Its folder was deleted.")


def run_passes(
    replica: Replica, poll: float, stop: Callable[[], bool], wait: Callable[[float], None] = time.sleep
) -> Iterator[list[TableReport] | Transient]:
    """Yield the reports of one pass after another, with `poll` seconds in between, until `stop` returns True.

    If the landing zone cannot be listed, yields the transient error instead of the reports, and continues.
    """
    while not stop():
        try:
            yield replica.run_pass()
        except Transient as error:
            yield error
        if not stop():
            wait(poll)
