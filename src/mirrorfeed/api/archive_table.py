"""A table of which a part is archived: what can be asked of it, and what brings its files back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any

from mirrorfeed.api.results import Chart, Recent, RestorePlan, Restoring, Share
from mirrorfeed.source.identifier import Source

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from mirrorfeed.archive.guard.table import ArchiveAwareTable as GuardedTable
    from mirrorfeed.archive.guard.writer import GuardedWriter
    from mirrorfeed.storage.tiers import TierStore


class ArchiveAwareTable:
    """A table by its name or path. Each answer is right, or `MirrorfeedError` is raised before anything is read: it
    names the archived files that would be needed, and the command that brings them back.

    A file that counts as archived may have been brought back: where the storage has tiers, each one is looked at.
    """

    def __init__(self, spark: SparkSession, name: str | Source) -> None:
        self._spark, self._source = spark, Source.parse(name) if isinstance(name, str) else name

    @property
    def name(self) -> str:
        """The table's name or path."""
        return str(self._source)

    @property
    def interval_days(self) -> int:
        """From this age on, in days, files count as archived. Raises `MirrorfeedError` for a table without one."""
        from mirrorfeed.archive import interval as intervals

        return intervals.required(self._spark, self._source).days

    def query(
        self, where: str | None = None, columns: Sequence[str] | None = None, version: int | None = None
    ) -> DataFrame:
        """The rows that fulfil a condition in SQL, with all columns or with these, at a version or at the newest."""
        return self._guarded.query(where, columns, version)

    def count(self, version: int | None = None) -> int:
        """How many rows there are; from the log, where it tells."""
        return self._guarded.count(version)

    def bounds(self, column: str, version: int | None = None) -> tuple[Any, Any]:
        """The smallest and the largest value of a column; from the log, where it is exact."""
        return self._guarded.bounds(column, version)

    def partitions(self, version: int | None = None) -> list[dict[str, str | None]]:
        """The values of the partition columns, as the log spells them. Reads no data file."""
        return self._guarded.partitions(version)

    def limit(self, n: int, where: str | None = None) -> DataFrame:
        """Any `n` rows, from hot files alone. The condition may name partition columns only. Raises `MirrorfeedError`
        too where hot files hold fewer rows and archived ones may hold more."""
        return self._guarded.limit(n, where)

    def recent(self, columns: Sequence[str] | None = None) -> Recent:
        """The hot part, as `rows`, and what that leaves out: the one method that gives a part."""
        found = self._guarded.recent(columns)
        return Recent(found.rows, found.version, len(found.left_out), str(found))

    def stream(self, starting_version: int | None = None) -> DataFrame:
        """A streaming read: of the whole table and what comes, or from a version on."""
        return self._guarded.stream(starting_version)

    def files(self, where: str | None = None, version: int | None = None) -> DataFrame:
        """The archived files that a query with this condition needs, brought back or not, a row each: `uri`, `bytes`,
        `rows`, `age_days`, `partition`, `deletion_vector`, `why`, `tier`. Reads no data file, and refuses nothing."""
        return self._guarded.files_as_rows(where, version)

    def delete(self, where: str) -> None:
        """Deletes the rows that fulfil a condition in SQL; nothing is changed where that needs an archived file."""
        self._writer.delete(where)

    def update(self, assignments: Mapping[str, str], where: str | None = None) -> None:
        """Sets columns of the rows that fulfil a condition; assignments are SQL expressions, by column. Nothing is
        changed where that needs an archived file."""
        self._writer.update(assignments, where)

    def merge(self, rows: DataFrame, keys: Sequence[str], clauses: str, target_condition: str | None = None) -> None:
        """Merges rows, called `s`, into the table, called `t`, where all keys are equal and the condition holds, which
        names columns of `t` alone. `clauses` are SQL, from the first WHEN on, without subqueries. The rows are read
        once. Nothing is changed where that needs an archived file."""
        self._writer.merge(rows, keys, clauses, target_condition)

    def overwrite(self, rows: DataFrame) -> None:
        """Replaces all rows by these, whatever the session says of partitions. No file of the table is read."""
        self._writer.overwrite(rows)

    def share(self) -> Share:
        """How much of the table is archived."""
        from mirrorfeed.archive.archived_share import share

        found = share(self._spark, self._source, datetime.now(UTC), self._tiers)
        return Share(
            self.name, str(found), found.files, found.bytes, found.archived_files, found.archived_bytes,
            found.restored_files,
        )  # fmt: skip

    def chart(self) -> Chart:
        """Hot and archived bytes by the age of their files. Databricks does not tell how old files are: there it is
        empty. Raises `MirrorfeedError` for a table without an interval."""
        from mirrorfeed.archive import interval as intervals
        from mirrorfeed.archive.archived_share import by_age, files_of
        from mirrorfeed.display.svg_charts import bars

        interval, files = intervals.required(self._spark, self._source), files_of(self._spark, self._source)
        ages = [] if files is None else by_age(files, interval, datetime.now(UTC))
        return Chart(
            f"{self.name}: bytes by the age of their files",
            bars(ages, ("hot", "archived"), "bytes", "age of the files"),
        )

    def plan(self, where: str | None = None) -> RestorePlan:
        """The plan that brings back what a query with this condition needs. Reads no data file, and asks for nothing.

        Raises `MirrorfeedError` for a table without an interval."""
        from mirrorfeed.archive.restore_planner import make_plan
        from mirrorfeed.storage.tiers import Priority

        made = make_plan(self._spark, self._source, where, None, None, Priority.STANDARD, None, datetime.now(UTC))
        return RestorePlan(self.name, made.version, made.where, len(made.files), made.bytes, made.hours, made)

    def restore(self, plan: RestorePlan) -> Restoring:
        """Asks for the files of a plan that are in the archive and not on their way yet. Call it again to see how far
        they are; when all are back, the query can run.

        Raises `MirrorfeedError` where the storage of the table has no tiers, or does not take what it is asked.
        """
        from mirrorfeed.archive.restore import ask
        from mirrorfeed.storage.errors import NoTiers

        if self._tiers is None:
            raise NoTiers(table=self.name)
        found = ask(plan._plan, self._tiers)
        return Restoring(self.name, found.ready, found.pending, found.archived)

    def __repr__(self) -> str:
        return f"<the table {self.name}, of which a part may be archived>"

    @cached_property
    def _tiers(self) -> TierStore | None:
        from mirrorfeed.source.table_info import read_table_info
        from mirrorfeed.storage.tiers import tiers_at

        return tiers_at(read_table_info(self._spark, self._source).location)

    @property
    def _writer(self) -> GuardedWriter:
        from mirrorfeed.archive.guard.writer import GuardedWriter

        return GuardedWriter(self._spark, self._guarded)

    @cached_property
    def _guarded(self) -> GuardedTable:
        from mirrorfeed.archive.guard.table import ArchiveAwareTable as GuardedTable

        return GuardedTable(self._spark, self._source, self._tiers)
