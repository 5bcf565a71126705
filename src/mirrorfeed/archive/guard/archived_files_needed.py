"""The errors for archived files that cannot be read, and archived files as rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from mirrorfeed.archive import restore_plan as planning
from mirrorfeed.archive.errors import amount
from mirrorfeed.archive.file_index.log_file import LogFile
from mirrorfeed.archive.restore_plan import Plan, PlannedTable
from mirrorfeed.display.humanize import a_few
from mirrorfeed.display.printable import shell_argument
from mirrorfeed.errors import Terminal
from mirrorfeed.storage.prices import Prices
from mirrorfeed.storage.tiers import Priority

if TYPE_CHECKING:
    from mirrorfeed.storage.tiers import TierStore


DESCRIBED = (
    "uri string, bytes bigint, rows bigint, age_days int, partition map<string, string>, deletion_vector string,"
    " why string, tier string"
)


def described(
    files: Sequence[LogFile], predicate: str | None, now: datetime, tiers: TierStore | None = None
) -> list[dict[str, Any]]:
    """What people and programs want to know of archived files that are needed, in the columns of `DESCRIBED`."""
    seen = tiers.read_tiers([file.uri for file in files]) if tiers else {}
    return [
        {
            "uri": file.uri,
            "bytes": file.size,
            "rows": file.rows,
            "age_days": (now - file.created).days if file.created else None,
            "partition": dict(file.partition) if file.partition is not None else None,
            "deletion_vector": file.vector,
            "why": why(file, predicate),
            "tier": seen[file.uri].value if seen else None,
        }
        for file in files
    ]


def why(file: LogFile, predicate: str | None) -> str:
    """Why an archived file is needed, for people."""
    if predicate is None:
        needed = "all rows are asked for"
    elif file.rows is None:
        needed = "it has no statistics, or they are not known here"
    else:
        needed = "neither its partition nor its statistics rule out a match"
    return needed if file.created else f"{needed}; its age is not known"


def blocked_among(archived: Sequence[LogFile], tiers: TierStore | None) -> list[LogFile]:
    """Those that cannot be read now. Every one is looked at, with its deletion vector: a sample tells nothing of the
    others. Without a way to look, none can."""
    if tiers is None or not archived:
        return list(archived)
    found = tiers.read_tiers(sorted({uri for file in archived for uri in (file.uri, file.vector) if uri}))
    readable = {uri for uri, tier in found.items() if tier.is_readable}
    return [file for file in archived if file.uri not in readable or (file.vector and file.vector not in readable)]


class ArchivedFilesNeeded(Terminal):
    """The answer needs files that lie in the archive tier, where they cannot be read. This was found before anything
    was read.

    To do: Bring them back with `mirrorfeed archive plan` and `mirrorfeed archive restore`, or ask for what needs no
    archived file: the message has the whole command.
    """

    code = "MF5001"

    def __init__(
        self,
        what: str,
        table: str,
        version: int,
        where: str | None,
        files: Sequence[LogFile],
        feed_from: int | None = None,
    ) -> None:
        self.asked, self.table, self.version, self.where, self.files = what, table, version, where, tuple(files)
        self.feed_from = feed_from

    def what(self) -> str:
        named = a_few([file.uri for file in self.files])
        return (
            f"{self.asked} of {self.table} at version {self.version} needs {amount(self.files)} that"
            f" {'is' if len(self.files) == 1 else 'are'} in the archive: {named}. Nothing was read."
        )

    def next(self) -> str:
        asked = f" --where {shell_argument(self.where)}" if self.where else ""
        if self.feed_from is not None:
            asked = f" --feed-from {self.feed_from} --feed-to {self.version}"
        return (
            f"Bring them back with `mirrorfeed archive plan {shell_argument(self.table)}{asked} --to PLAN` and"
            " `mirrorfeed archive"
            " restore PLAN`, or ask for what needs no archived file."
        )


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
    rates: Prices | None = None,
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

    def plan(self, priority: Priority = Priority.STANDARD, rates: Prices | None = None) -> Plan:
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
