"""Results about tables with archived files."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from mirrorfeed.display.humanize import size
from mirrorfeed.display.rows import Row, row, shown

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from mirrorfeed.archive.restore_plan import Plan


@row
class Share(Row):
    """How much of a table is archived."""

    table: str = shown("table")
    what: str
    """In words."""
    files: int = shown("files")
    bytes: int = shown("size", size, right=True)
    archived_files: int = shown("archived files")
    archived_bytes: int | None = shown("archived", size, right=True)
    """None where archived files are named without their sizes, as Databricks does, and no storage tells them."""
    restored_files: int | None = shown("back")
    """Of the archived ones, those that are back; None where the storage has no tiers."""


@dataclass(frozen=True)
class Recent:
    """The hot part of a table, and what it leaves out."""

    rows: DataFrame
    version: int
    left_out_files: int
    what: str
    """In words."""

    def __str__(self) -> str:
        return self.what


@row
class RestorePlan(Row):
    """What to bring back for a query."""

    table: str = shown("table")
    version: int = shown("version")
    where: str | None = shown("where")
    """What it says of times is fixed: relative words such as current_date() stand here as of the planning."""
    files: int = shown("files")
    bytes: int = shown("size", size, right=True)
    """As far as they are known."""
    hours: float = shown("hours at most")
    """At most, by what the storage says."""
    _plan: Plan = field(repr=False)

    def save(self, path: str) -> None:
        """Writes the plan as a file that `mirrorfeed archive restore` carries out, in any number of runs."""
        self._plan.save(path)


@row
class Restoring(Row):
    """How far the files of a plan are."""

    table: str = shown("table")
    ready: int = shown("back")
    """Files that are back."""
    pending: int = shown("on their way")
    """Files that are on their way."""
    archived: int = shown("in the archive")
    """Files that are in the archive."""

    @property
    def ok(self) -> bool:
        """Whether all are back."""
        return not self.pending and not self.archived
