"""The results of the methods of `mirrorfeed.Feed`: frozen values, which a notebook shows as a table.

Results and their rows have `ok`, and `to_dict` for programs. A field that is unknown or does not apply is None.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mirrorfeed.api.results.archive import Recent, RestorePlan, Restoring, Share
    from mirrorfeed.api.results.base import Chart, Failed, Result
    from mirrorfeed.api.results.changes import Changes, VersionChanges
    from mirrorfeed.api.results.mirror import Comparison, Difference, Repair
    from mirrorfeed.api.results.publishing import Decision, Enabled, Listed, PartnerFile, Publication
    from mirrorfeed.display.rows import DataRow, Row
    from mirrorfeed.fabric.database import CreatedDatabase, DatabaseStatus, TableState
    from mirrorfeed.fabric.definition import Setting
    from mirrorfeed.fabric.endpoint import TableSync
    from mirrorfeed.keep.fleet import Append, History
    from mirrorfeed.keep.replay import Replay
    from mirrorfeed.lint.findings import Finding as LintFinding
    from mirrorfeed.mirror.replica.table_cycle import TableReport
    from mirrorfeed.monitor.report_figures import Report
    from mirrorfeed.monitor.rules import Finding
    from mirrorfeed.monitor.status import Status
    from mirrorfeed.monitor.watch import Alert
    from mirrorfeed.publish.examine import LogRecord
    from mirrorfeed.publish.strays import DroppedTable

__all__ = [
    "Alert",
    "Append",
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
    "Failed",
    "Finding",
    "History",
    "LintFinding",
    "Listed",
    "LogRecord",
    "PartnerFile",
    "Publication",
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
    "Status",
    "TableReport",
    "TableState",
    "TableSync",
    "VersionChanges",
]

_HOMES = {
    "Alert": "monitor.watch",
    "Append": "keep.fleet",
    "Changes": "api.results.changes",
    "Chart": "api.results.base",
    "Comparison": "api.results.mirror",
    "CreatedDatabase": "fabric.database",
    "DataRow": "display.rows",
    "DatabaseStatus": "fabric.database",
    "Decision": "api.results.publishing",
    "Difference": "api.results.mirror",
    "DroppedTable": "publish.strays",
    "Enabled": "api.results.publishing",
    "Failed": "api.results.base",
    "Finding": "monitor.rules",
    "History": "keep.fleet",
    "LintFinding": "lint.findings",
    "Listed": "api.results.publishing",
    "LogRecord": "publish.examine",
    "PartnerFile": "api.results.publishing",
    "Publication": "api.results.publishing",
    "Recent": "api.results.archive",
    "Repair": "api.results.mirror",
    "Replay": "keep.replay",
    "Report": "monitor.report_figures",
    "RestorePlan": "api.results.archive",
    "Restoring": "api.results.archive",
    "Result": "api.results.base",
    "Row": "display.rows",
    "Setting": "fabric.definition",
    "Share": "api.results.archive",
    "Status": "monitor.status",
    "TableReport": "mirror.replica.table_cycle",
    "TableState": "fabric.database",
    "TableSync": "fabric.endpoint",
    "VersionChanges": "api.results.changes",
}
"""Each operation defines its row in its own room. The class is imported when it is first used."""


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"mirrorfeed.{_HOMES[name]}"), "Finding" if name == "LintFinding" else name)
