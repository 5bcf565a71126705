"""Results of the methods of `mirrorfeed.Feed`: frozen values that a notebook shows as tables.

Results and their rows have `ok`, and `to_dict` for programs. A field that is unknown or does not apply is None.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from mirrorfeed.display.humanize import counted
from mirrorfeed.display.rows import DataRow as DataRow
from mirrorfeed.display.rows import Row as Row
from mirrorfeed.display.rows import row, shown
from mirrorfeed.errors import MirrorfeedError, Terminal, coded
from mirrorfeed.runtime import lazy_names

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from mirrorfeed.archive.archived_files import DataFile as DataFile
    from mirrorfeed.archive.archived_share import Share as Share
    from mirrorfeed.archive.archived_share import Simulation as Simulation
    from mirrorfeed.archive.interval import Interval as Interval
    from mirrorfeed.archive.lifecycle import Lifecycle as Lifecycle
    from mirrorfeed.archive.maintenance import FileCheck as FileCheck
    from mirrorfeed.archive.maintenance import Maintained as Maintained
    from mirrorfeed.archive.restore import Restoring as Restoring
    from mirrorfeed.archive.restore_plan import RestorePlan as RestorePlan
    from mirrorfeed.archive.table import Recent as Recent
    from mirrorfeed.display.html import Chart as Chart
    from mirrorfeed.errors.explain import Explanation as Explanation
    from mirrorfeed.history.replay import Replay as Replay
    from mirrorfeed.mirror.fabric.rows import CreatedDatabase as CreatedDatabase
    from mirrorfeed.mirror.fabric.rows import DatabaseStatus as DatabaseStatus
    from mirrorfeed.mirror.fabric.rows import Setting as Setting
    from mirrorfeed.mirror.fabric.rows import TableState as TableState
    from mirrorfeed.mirror.fabric.rows import TableSync as TableSync
    from mirrorfeed.mirror.replica.table_cycle import TableReport as TableReport
    from mirrorfeed.mirror.verify.row_comparison import Difference as Difference
    from mirrorfeed.monitor.alerts import Alert as Alert
    from mirrorfeed.monitor.findings import Finding as Finding
    from mirrorfeed.monitor.report import Report as Report
    from mirrorfeed.monitor.status import Status as Status
    from mirrorfeed.orchestration.histories import Append as Append
    from mirrorfeed.orchestration.histories import History as History
    from mirrorfeed.orchestration.orphans import DroppedTable as DroppedTable
    from mirrorfeed.orchestration.table_task import Decision as Decision
    from mirrorfeed.orchestration.verification import Comparison as Comparison
    from mirrorfeed.orchestration.verification import Repair as Repair
    from mirrorfeed.publish.log.audit import LogRecord as LogRecord
    from mirrorfeed.publish.result import TableResult as TableResult


R = TypeVar("R", bound=Row, covariant=True)


@dataclass(frozen=True, repr=False)
class Result(Sequence[R], Generic[R]):
    """A sequence of rows, in the order of the configuration, and notes about problems that stopped nothing."""

    rows: tuple[R, ...]
    notes: tuple[str, ...] = ()
    summary: str = ""
    """Sentence about all rows, or about why there are none."""
    every: bool = field(default=False, repr=False)
    """True if all rows are listed. Otherwise, large numbers of rows that need no attention are only counted."""

    @property
    def ok(self) -> bool:
        """True if all rows are `ok`."""
        return all(row.ok for row in self.rows)

    def check(self) -> None:
        """Raise `Failed` with all rows that are not `ok`, so that a job or notebook fails."""
        if bad := tuple(row for row in self.rows if not row.ok):
            raise Failed(failed=[line for row in bad for line in row.remarks() or [_in_a_line(row)]])

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


class Failed(Terminal):
    """`Result.check` found rows that failed."""

    code = "MF1008"
    what = "{lines}"
    failed: Sequence[str]
    meaning = "A result contains failed rows. The message has one line for each of them."

    @property
    def lines(self) -> str:
        return "\n".join(self.failed)

    def message_lines(self) -> Sequence[str]:
        return self.failed


def _in_a_line(row: Row) -> str:
    values = [cell.value for cell in row.cells().values()]
    return ", ".join(str(value) for value in values if value not in (None, ""))


@row
class Enabled(Row):
    """Change data feed of a source, after `enable-cdf`."""

    table: str = shown("table")
    source: str = shown("source")
    feed: str | None = shown("change data feed")
    """Kind of feed in words."""
    error: MirrorfeedError | None = None


@row
class Listed(Row):
    """A table that is configured or matches a pattern, and whether it is published."""

    table: str | None = shown("table")
    """Target. None if the table is not selected."""
    source: str = shown("source")
    included: bool = shown("published")
    keys: tuple[str, ...] | None = shown("keys", default=None)
    """Key columns. None if they are unknown."""
    takes: str | None = shown("takes", default=None)
    """Kinds of changes that can be published, in words."""
    part: str | None = shown("part", default=None)
    """Published part of the source, in short. None if the whole source is published."""
    why: str = shown("why", default="")
    """Entry that selects the table, or the reason why it is not selected."""
    error: MirrorfeedError | None = None

    def remarks(self) -> Sequence[str]:
        return () if self.error is None else (f"{self.source}: {coded(self.error)}",)


@row
class PartnerFile(Row):
    """File in the landing zone that names the publisher."""

    address: str
    written: bool
    """False if the file had the same content."""

    def remarks(self) -> Sequence[str]:
        return (f"{self.address} {'was written' if self.written else 'exists with the same content'}.",)


@row
class Configured(Row):
    """Entry of the configuration."""

    table: str = shown("table")
    source: str = shown("source")
    keys: tuple[str, ...] = shown("keys")


_KINDS = {"insert": "inserts", "update_postimage": "updates", "delete": "deletes"}
"""Counted change types. The row before an update is not counted."""


@row
class VersionChanges(Row):
    """Number of rows that a version of the source changed."""

    version: int = shown("version", str, right=True)
    inserts: int = shown("inserts")
    updates: int = shown("updates")
    deletes: int = shown("deletes")


@dataclass(frozen=True, repr=False)
class Changes:
    """Changes of a range of versions. Both ends are fixed, and the range can be empty."""

    table: str
    from_version_exclusive: int
    to_version_inclusive: int
    rows: DataFrame
    """Rows of the feed by version, with `_change_type`, `_commit_version` and `_commit_timestamp`.

    An update has two rows, before and after.
    """

    def first(self, count: int = 20) -> Result[DataRow]:
        """Return the first rows, with values as JSON values."""
        from mirrorfeed.source.change_preview import to_json_rows

        versions = self.counts()
        totals = [counted(sum(getattr(each, kind) for each in versions), kind[:-1]) for kind in _KINDS.values()]
        with self._reading():
            rows = to_json_rows(self.rows.limit(count)) if count else []
        return Result(tuple(map(DataRow, rows)), summary=f"{repr(self)[1:-1]}: {', '.join(totals)}")

    def counts(self) -> Result[VersionChanges]:
        """Return the number of rows that each version changed. Versions without changes are left out."""
        found: dict[int, dict[str, int]] = {}
        with self._reading():
            for version, kind, count in self.rows.groupBy("_commit_version", "_change_type").count().collect():
                if kind in _KINDS:
                    found.setdefault(version, dict.fromkeys(_KINDS.values(), 0))[_KINDS[kind]] = count
        rows = tuple(VersionChanges(version, **found[version]) for version in sorted(found))
        return Result(rows, (repr(self)[1:-1],), "" if rows else "No rows were changed.")

    def chart(self) -> Chart:
        """Draw the changed rows by version and operation, for the newest 60 versions with changes."""
        from mirrorfeed.display.html import Chart, bars

        kinds = tuple(_KINDS.values())
        columns = [(str(each.version), {kind: getattr(each, kind) for kind in kinds}) for each in self.counts()[-60:]]
        return Chart(f"Changes of {self.table}: rows by version", bars(columns, kinds, "rows", "version of the source"))

    def __repr__(self) -> str:
        first, last = self.from_version_exclusive + 1, self.to_version_inclusive
        return f"<changes of {self.table}, {f'versions {first} to {last}' if first <= last else 'no versions'}>"

    def _repr_html_(self) -> str:
        return self.counts()._repr_html_()

    @contextmanager
    def _reading(self) -> Iterator[None]:
        from mirrorfeed.runtime.spark_session import faithful
        from mirrorfeed.source.change_preview import preview_errors
        from mirrorfeed.source.snapshot_or_range import Range

        range_ = Range(self.from_version_exclusive, self.to_version_inclusive)
        with preview_errors(self.table, range_), faithful(self.rows.sparkSession):
            yield


_HOMES = {
    "Alert": "monitor.alerts",
    "Append": "orchestration.histories",
    "Chart": "display.html",
    "Comparison": "orchestration.verification",
    "CreatedDatabase": "mirror.fabric.rows",
    "DataFile": "archive.archived_files",
    "DatabaseStatus": "mirror.fabric.rows",
    "Decision": "orchestration.table_task",
    "Difference": "mirror.verify.row_comparison",
    "DroppedTable": "orchestration.orphans",
    "Explanation": "errors.explain",
    "FileCheck": "archive.maintenance",
    "Finding": "monitor.findings",
    "History": "orchestration.histories",
    "Interval": "archive.interval",
    "Lifecycle": "archive.lifecycle",
    "LintFinding": "lint.specification:Finding",
    "LogRecord": "publish.log.audit",
    "Maintained": "archive.maintenance",
    "Recent": "archive.table",
    "Repair": "orchestration.verification",
    "Replay": "history.replay",
    "Report": "monitor.report",
    "RestorePlan": "archive.restore_plan",
    "Restoring": "archive.restore",
    "Setting": "mirror.fabric.rows",
    "Share": "archive.archived_share",
    "Simulation": "archive.archived_share",
    "Status": "monitor.status",
    "TableReport": "mirror.replica.table_cycle",
    "TableResult": "publish.result",
    "TableState": "mirror.fabric.rows",
    "TableSync": "mirror.fabric.rows",
}
"""Module of each row class. A class is imported when it is first used."""
__getattr__ = lazy_names(__name__, _HOMES)
_OWN = ("Changes", "DataRow", "Enabled", "Failed", "Listed", "PartnerFile", "Result", "Row", "VersionChanges")
__all__ = [*sorted((*_HOMES, *_OWN))]
