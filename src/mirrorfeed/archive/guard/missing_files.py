"""What a statement needs of several tables and cannot read, and the one plan that brings it back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mirrorfeed.archive import restore_plan as planning
from mirrorfeed.archive.errors import amount
from mirrorfeed.archive.file_index.log_file import LogFile
from mirrorfeed.archive.guard.archived_files_needed import ArchivedFilesNeeded
from mirrorfeed.archive.restore_plan import Plan, PlannedTable
from mirrorfeed.display.humanize import a_few
from mirrorfeed.display.printable import shell_argument
from mirrorfeed.storage.prices import Rates
from mirrorfeed.storage.tiers import Priority


@dataclass(frozen=True)
class Missing:
    """What a statement needs of one table at one version, and cannot read."""

    table: str
    table_id: str
    location: str
    version: int
    files: tuple[LogFile, ...]

    def __str__(self) -> str:
        return f"{amount(self.files)} of {self.table} at version {self.version}, {a_few([f.uri for f in self.files])}"


def plan_of(
    statement: str | None,
    tables: Sequence[Missing],
    priority: Priority,
    rates: Rates | None = None,
    zone: str | None = None,
) -> Plan:
    listed = [(PlannedTable(each.table, each.table_id, each.version), each.files) for each in tables]
    return planning.make_for_statement(statement, listed, priority, rates, zone)


class StatementNeedsArchivedFiles(ArchivedFilesNeeded):
    """A query over one or several tables needs files that lie in the archive tier. This was found before anything was
    read.

    To do: Make the one plan that brings all of it back with `mirrorfeed archive plan --sql 'QUERY' --to PLAN`, or in
    Python with `error.plan().save('PLAN')`, and carry it out with `mirrorfeed archive restore PLAN`; or ask for what
    needs no archived file.
    """

    code = "MF5002"

    def __init__(self, statement: str | None, tables: Sequence[Missing], asked: str = "The query") -> None:
        first, *_ = tables
        files = [file for each in tables for file in each.files]
        super().__init__(asked, first.table, first.version, None, files)
        self.statement, self.tables = statement, tuple(tables)

    def plan(self, priority: Priority = Priority.STANDARD, rates: Rates | None = None) -> Plan:
        """What brings all of it back. Of what is no statement that asks for rows, only the files are kept."""
        return plan_of(self.statement, self.tables, priority, rates)

    def what(self) -> str:
        is_ = "is" if len(self.files) == 1 else "are"
        named = "; ".join(map(str, self.tables))
        return f"{self.asked} needs {amount(self.files)} that {is_} in the archive: {named}. Nothing was read."

    def next(self) -> str:
        made = "Make the one plan that brings all of it back with `error.plan().save('PLAN')`"
        if self.statement is not None:
            asked = f"`mirrorfeed archive plan --sql {shell_argument(self.statement)} --to PLAN`"
            made = f"Make the one plan that brings all of it back with {asked}"
        return (
            f"{made}, and carry it out with `mirrorfeed archive restore PLAN`; or ask for what needs no archived file."
        )
