"""Results of the methods of `mirrorfeed.Feed`: frozen values that a notebook shows as tables.

Results and their rows have a property `ok`, and a method `to_dict` that returns JSON values. A field that is unknown or
does not apply is None.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from mirrorfeed.display.rows import DataRow as DataRow
from mirrorfeed.display.rows import Row as Row
from mirrorfeed.display.rows import row, shown
from mirrorfeed.errors import MirrorfeedError, TerminalError
from mirrorfeed.runtime import lazy_names

if TYPE_CHECKING:
    from mirrorfeed.api.changes import Changes as Changes
    from mirrorfeed.api.changes import VersionChanges as VersionChanges
    from mirrorfeed.api.go_live import GoLiveCheck as GoLiveCheck
    from mirrorfeed.api.history_view import HistoryView as HistoryView
    from mirrorfeed.archive.archive_interval import Interval as Interval
    from mirrorfeed.archive.archive_report import Share as Share
    from mirrorfeed.archive.archive_report import Simulation as Simulation
    from mirrorfeed.archive.data_files import DataFile as DataFile
    from mirrorfeed.archive.guarded_table import Recent as Recent
    from mirrorfeed.archive.lifecycle import Lifecycle as Lifecycle
    from mirrorfeed.archive.restore import Restoring as Restoring
    from mirrorfeed.archive.restore_plan import RestorePlan as RestorePlan
    from mirrorfeed.archive.table_maintenance import FileCheck as FileCheck
    from mirrorfeed.archive.table_maintenance import Maintained as Maintained
    from mirrorfeed.display.html import Chart as Chart
    from mirrorfeed.errors import Explanation as Explanation
    from mirrorfeed.history.replay import Replay as Replay
    from mirrorfeed.mirror.fabric.execution_log import TableExecution as TableExecution
    from mirrorfeed.mirror.fabric.status_and_settings import CreatedDatabase as CreatedDatabase
    from mirrorfeed.mirror.fabric.status_and_settings import DatabaseStatus as DatabaseStatus
    from mirrorfeed.mirror.fabric.status_and_settings import Setting as Setting
    from mirrorfeed.mirror.fabric.status_and_settings import TableState as TableState
    from mirrorfeed.mirror.fabric.status_and_settings import TableSync as TableSync
    from mirrorfeed.mirror.local_replica import TableReport as TableReport
    from mirrorfeed.mirror.verify.row_comparison import Difference as Difference
    from mirrorfeed.monitor.alert_channels import Alert as Alert
    from mirrorfeed.monitor.findings import Finding as Finding
    from mirrorfeed.monitor.report import Report as Report
    from mirrorfeed.monitor.status import Status as Status
    from mirrorfeed.orchestration.adopt import AdoptedTable as AdoptedTable
    from mirrorfeed.orchestration.dry_run import Decision as Decision
    from mirrorfeed.orchestration.dry_run import Listed as Listed
    from mirrorfeed.orchestration.histories import Append as Append
    from mirrorfeed.orchestration.histories import History as History
    from mirrorfeed.orchestration.orphaned_targets import DroppedTable as DroppedTable
    from mirrorfeed.orchestration.verify_and_repair import Comparison as Comparison
    from mirrorfeed.orchestration.verify_and_repair import Repair as Repair
    from mirrorfeed.publish.table_log.audit import LogRecord as LogRecord
    from mirrorfeed.publish.table_result import TableResult as TableResult


R = TypeVar("R", bound=Row, covariant=True)


@dataclass(frozen=True, repr=False)
class Result(Sequence[R], Generic[R]):
    """Sequence of the rows that a method returns, with notes about problems that did not stop the method."""

    rows: tuple[R, ...]
    notes: tuple[str, ...] = ()
    summary: str = ""
    """Sentence about the whole result, or the reason why there are no rows. Can be empty."""
    every: bool = field(default=False, repr=False)
    """True to show all rows. If False and more than 20 rows need no attention, a line of text replaces these rows."""

    @property
    def ok(self) -> bool:
        """True if `ok` is True for each entry of `rows`."""
        return all(row.ok for row in self.rows)

    def check(self) -> None:
        """Raise `FailedRowsError` with a description of each row that is not `ok`.
        Does nothing if all rows are `ok`."""
        if bad := tuple(row for row in self.rows if not row.ok):
            raise FailedRowsError(failed=[line for row in bad for line in row.remarks() or [_to_line(row)]])

    def to_dict(self) -> dict[str, Any]:
        """Return `ok`, `rows` and `notes` as JSON values."""
        return {"ok": self.ok, "rows": [row.to_dict() for row in self.rows], "notes": list(self.notes)}

    @overload
    def __getitem__(self, at: int) -> R: ...
    @overload
    def __getitem__(self, at: slice) -> tuple[R, ...]: ...
    def __getitem__(self, at: int | slice) -> R | tuple[R, ...]:
        return self.rows[at]

    def __len__(self) -> int:
        return len(self.rows)

    def __repr__(self) -> str:
        from mirrorfeed.display.terminal import text_of

        return text_of(self.rows, self.notes, self.summary, every=self.every)

    def _repr_html_(self) -> str:
        from mirrorfeed.display.html import html_of

        return html_of(self.rows, self.notes, self.summary, every=self.every)


class FailedRowsError(TerminalError):
    """Raised by `Result.check` if a row is not `ok`."""

    code = "MF1008"
    what = "{failed:lines}"
    failed: Sequence[str]
    meaning = "A result contains failed rows. The message has one line for each of them."

    def message_lines(self) -> Sequence[str]:
        return self.failed


def _to_line(row: Row) -> str:
    values = [cell.value for cell in row.cells().values()]
    return ", ".join(str(value) for value in values if value not in (None, ""))


@row
class Enabled(Row):
    """Result of turning on the change data feed of one source."""

    table: str = shown("table")
    source: str = shown("source")
    feed: str | None = shown("change data feed")
    """Result as text, such as `switched on` or `on already`. None after an error."""
    error: MirrorfeedError | None = None


@row
class PartnerFile(Row):
    """Result of writing `_partnerEvents.json`, the file in the landing zone that describes the publisher."""

    address: str
    written: bool
    """False if the file already existed with the same content."""

    def remarks(self) -> Sequence[str]:
        return (f"{self.address} {'was written' if self.written else 'exists with the same content'}.",)


@row
class Configured(Row):
    """Entry of the configuration file, as shown for a `Feed` in a notebook: target, source and key columns."""

    table: str = shown("table")
    source: str = shown("source")
    keys: tuple[str, ...] = shown("keys")


_HOMES = {
    "api.changes": ["Changes", "VersionChanges"],
    "api.go_live": ["GoLiveCheck"],
    "api.history_view": ["HistoryView"],
    "archive.archive_interval": ["Interval"],
    "archive.archived_files": ["DataFile"],
    "archive.archive_report": ["Share", "Simulation"],
    "archive.guarded_table": ["Recent"],
    "archive.lifecycle": ["Lifecycle"],
    "archive.table_maintenance": ["FileCheck", "Maintained"],
    "archive.restore": ["Restoring"],
    "archive.restore_plan": ["RestorePlan"],
    "display.html": ["Chart"],
    "errors": ["Explanation"],
    "history.replay": ["Replay"],
    "lint.specification": ["LintFinding"],
    "mirror.fabric.execution_log": ["TableExecution"],
    "mirror.fabric.status_and_settings": ["CreatedDatabase", "DatabaseStatus", "Setting", "TableState", "TableSync"],
    "mirror.local_replica": ["TableReport"],
    "mirror.verify.row_comparison": ["Difference"],
    "monitor.alerts": ["Alert"],
    "monitor.findings": ["Finding"],
    "monitor.report": ["Report"],
    "monitor.status": ["Status"],
    "orchestration.dry_run": ["Decision", "Listed"],
    "orchestration.histories": ["Append", "History"],
    "orchestration.adopt": ["AdoptedTable"],
    "orchestration.orphaned_targets": ["DroppedTable"],
    "orchestration.verify_and_repair": ["Comparison", "Repair"],
    "publish.table_result": ["TableResult"],
    "publish.table_log.audit": ["LogRecord"],
}
"""Public classes of each module. A class is imported when it is first used."""
__getattr__ = lazy_names(__name__, _HOMES)
_OWN = ("DataRow", "Enabled", "FailedRowsError", "PartnerFile", "Result", "Row")
__all__ = [*sorted([*_OWN, *chain.from_iterable(_HOMES.values())])]
