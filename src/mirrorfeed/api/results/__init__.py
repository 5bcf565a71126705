"""The results of the methods of `mirrorfeed.Feed`: frozen values, which a notebook shows as a table.

Results and their rows have `ok`, and `to_dict` for programs. A field that is unknown or does not apply is None.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mirrorfeed.api.results.base import Failed, Result
    from mirrorfeed.api.results.changes import Changes, VersionChanges
    from mirrorfeed.api.results.publishing import Enabled, Listed, PartnerFile
    from mirrorfeed.archive.archived_files import ArchivedFile
    from mirrorfeed.archive.archived_share import Share, Simulation
    from mirrorfeed.archive.interval import Interval
    from mirrorfeed.archive.lifecycle.base import Lifecycle
    from mirrorfeed.archive.maintenance import FileCheck, Maintained
    from mirrorfeed.archive.restore import Restoring
    from mirrorfeed.archive.restore_plan import RestorePlan
    from mirrorfeed.archive.table import Recent
    from mirrorfeed.display.html import Chart
    from mirrorfeed.display.rows import DataRow, Row
    from mirrorfeed.errors.explain import Explanation
    from mirrorfeed.history.replay import Replay
    from mirrorfeed.lint.findings import Finding as LintFinding
    from mirrorfeed.mirror.fabric.database import CreatedDatabase, DatabaseStatus, TableState, TableSync
    from mirrorfeed.mirror.fabric.definition import Setting
    from mirrorfeed.mirror.replica.table_cycle import TableReport
    from mirrorfeed.mirror.verify.row_comparison import Difference
    from mirrorfeed.monitor.alerts import Alert
    from mirrorfeed.monitor.findings import Finding
    from mirrorfeed.monitor.report_figures import Report
    from mirrorfeed.monitor.status import Status
    from mirrorfeed.orchestration.histories import Append, History
    from mirrorfeed.orchestration.orphans import DroppedTable
    from mirrorfeed.orchestration.table_task import Decision
    from mirrorfeed.orchestration.verification import Comparison, Repair
    from mirrorfeed.publish.log.audit import LogRecord
    from mirrorfeed.publish.result import TableResult

__all__ = [
    "Alert",
    "Append",
    "ArchivedFile",
    "Changes",
    "Chart",
    "Comparison",
    "CreatedDatabase",
    "DataRow",
    "DatabaseStatus",
    "Decision",
    "Difference",
    "DroppedTable",
    "Enabled",
    "Explanation",
    "Failed",
    "FileCheck",
    "Finding",
    "History",
    "Interval",
    "Lifecycle",
    "LintFinding",
    "Listed",
    "LogRecord",
    "Maintained",
    "PartnerFile",
    "Recent",
    "Repair",
    "Replay",
    "Report",
    "RestorePlan",
    "Restoring",
    "Result",
    "Row",
    "Setting",
    "Share",
    "Simulation",
    "Status",
    "TableReport",
    "TableResult",
    "TableState",
    "TableSync",
    "VersionChanges",
]

_HOMES = {
    "Alert": "monitor.alerts",
    "Append": "orchestration.histories",
    "ArchivedFile": "archive.archived_files",
    "Changes": "api.results.changes",
    "Chart": "display.html",
    "Comparison": "orchestration.verification",
    "CreatedDatabase": "mirror.fabric.database",
    "DataRow": "display.rows",
    "DatabaseStatus": "mirror.fabric.database",
    "Decision": "orchestration.table_task",
    "Difference": "mirror.verify.row_comparison",
    "DroppedTable": "orchestration.orphans",
    "Enabled": "api.results.publishing",
    "Explanation": "errors.explain",
    "Failed": "api.results.base",
    "FileCheck": "archive.maintenance",
    "Finding": "monitor.rules",
    "History": "orchestration.histories",
    "Interval": "archive.interval",
    "Lifecycle": "archive.lifecycle.base",
    "LintFinding": "lint.findings",
    "Listed": "api.results.publishing",
    "LogRecord": "publish.log.audit",
    "Maintained": "archive.maintenance",
    "PartnerFile": "api.results.publishing",
    "Recent": "archive.table",
    "Repair": "orchestration.verification",
    "Replay": "history.replay",
    "Report": "monitor.report_figures",
    "RestorePlan": "archive.restore_plan",
    "Restoring": "archive.restore",
    "Result": "api.results.base",
    "Row": "display.rows",
    "Setting": "mirror.fabric.definition",
    "Share": "archive.archived_share",
    "Simulation": "archive.archived_share",
    "Status": "monitor.status",
    "TableReport": "mirror.replica.table_cycle",
    "TableResult": "publish.result",
    "TableState": "mirror.fabric.database",
    "TableSync": "mirror.fabric.database",
    "VersionChanges": "api.results.changes",
}
"""Each operation defines its row in its own room. The class is imported when it is first used."""


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"mirrorfeed.{_HOMES[name]}"), "Finding" if name == "LintFinding" else name)
