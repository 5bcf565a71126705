"""Guarded reads of one table: a correct result, or an error before anything is read.

Each read is planned first, at a fixed version. An archived file may have been restored: with `tiers` the tier of each
is read, without `tiers` all count as unreadable.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from mirrorfeed.archive.errors import BadNumber, NotEnoughFiles
from mirrorfeed.archive.file_index.archived_files import archived_of
from mirrorfeed.archive.file_index.log_file import LogFile, total
from mirrorfeed.archive.guard.archived_files_needed import (
    ArchivedFile,
    ArchivedFilesNeeded,
    NeededFiles,
    StatementNeedsArchivedFiles,
    archived_file,
    blocked_among,
)
from mirrorfeed.archive.guard.engine import Engine
from mirrorfeed.archive.guard.predicate import check_columns, filtered
from mirrorfeed.archive.guard.query import Guarded, engine_of, guarded_rows, refuse_unreadable
from mirrorfeed.display.humanize import counted
from mirrorfeed.source.identifier import Source, quote
from mirrorfeed.source.table_info import read_table_info
from mirrorfeed.storage.tiers import TierStore, tiers_at


@dataclass(frozen=True)
class Recent:
    """The active rows of a table, and the archived files that they leave out."""

    rows: DataFrame
    version: int
    left_out: tuple[LogFile, ...]

    def __str__(self) -> str:
        if not self.left_out:
            return f"all rows at version {self.version}"
        rows = [file.rows for file in self.left_out]
        count = "an unknown number of rows" if None in rows else counted(sum(filter(None, rows)), "row")
        return f"version {self.version} without {total(self.left_out, 'archived file')}, {count}"


class GuardedTable:
    def __init__(
        self,
        spark: SparkSession,
        name: str | Source,
        tiers: TierStore | None = None,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._spark, self._now, self._tiers = spark, now, tiers
        self.source = Source.parse(name) if isinstance(name, str) else name

    def needed(self, where: str | None = None, version: int | None = None) -> NeededFiles:
        """The archived files that a query needs, restored or not. Reads no data file."""
        return self._engine.needed(self.source, self._engine.facts(self.source), where, self._now(), version)

    def files(self, needed: NeededFiles, where: str | None, *, with_tiers: bool = False) -> list[ArchivedFile]:
        tiers = self._tiers.read_tiers([file.uri for file in needed.files]) if self._tiers and with_tiers else {}
        values = {uri: tier.value for uri, tier in tiers.items()}
        return [archived_file(file, where, self._now(), values.get(file.uri)) for file in needed.files]

    def query(
        self, where: str | None = None, columns: Sequence[str] | None = None, version: int | None = None
    ) -> DataFrame:
        check_columns(self._spark, self.source, columns or ())

        def question(rows: DataFrame) -> DataFrame:
            found = filtered(rows, str(self.source), where)
            return found if columns is None else found.select(*map(quote, columns))

        if self._engine.guards_itself:
            needed = self.needed(where, version)
            self._refuse("A query", where, needed)
            version = needed.version
        return self.guard("A query", question, version, where)

    def count(self, version: int | None = None) -> int:
        (row,) = self.guard("A count", lambda rows: rows.groupBy().count(), version).collect()
        return int(row[0])

    def bounds(self, column: str, version: int | None = None) -> tuple[Any, Any]:
        check_columns(self._spark, self.source, [column])
        name = quote(column)
        (row,) = self.guard("A query for bounds", lambda rows: rows.agg(F.min(name), F.max(name)), version).collect()
        return row[0], row[1]

    def partitions(self, version: int | None = None) -> list[dict[str, str | None]]:
        return self._engine.partitions(self.source, version)

    def limit(self, n: int, where: str | None = None) -> DataFrame:
        """Any n rows, from active files only. The condition may name only partition columns.

        Raises `NotEnoughFiles` if active files contain fewer rows, and archived files may contain more.
        """
        if n < 0:
            raise BadNumber(table=str(self.source), named="LIMIT", value=n)
        partitions = read_table_info(self._spark, self.source).partition_columns
        names = self._spark.table(self.source.sql).select(*map(quote, partitions))
        filtered(names, f"the partitions of {self.source}", where)
        if self._engine.guards_itself:
            return filtered(self._spark.table(self.source.sql), str(self.source), where).limit(n)
        needed = self.needed(where)
        blocked = self._blocked(needed.files)
        rows = filtered(self._without(blocked, needed.version), str(self.source), where).limit(n)
        if blocked and (found := rows.count()) < n:
            raise NotEnoughFiles(table=str(self.source), asked=n, found=found, files=tuple(blocked))
        return rows

    def recent(self, columns: Sequence[str] | None = None) -> Recent:
        check_columns(self._spark, self.source, columns or ())
        needed = self.needed()
        blocked = self._blocked(needed.files)
        rows = self._without(blocked, needed.version)
        return Recent(rows if columns is None else rows.select(*map(quote, columns)), needed.version, tuple(blocked))

    def stream(self, starting_version: int | None = None) -> DataFrame:
        """Guards only the files that exist now, because files that are added later are new."""
        if starting_version is not None and starting_version < 0:
            raise BadNumber(table=str(self.source), named="starting version", value=starting_version)
        reader = self._spark.readStream.format("delta")
        if starting_version is None:
            self._refuse("A stream of the whole table", None, self.needed())
        else:
            reader = reader.option("startingVersion", starting_version)
            self._refuse_changes(starting_version)
        return reader.table(self.source.sql) if self.source.path is None else reader.load(self.source.path)

    def _refuse_changes(self, first: int) -> None:
        engine = self._engine
        if engine.guards_itself or (facts := engine.facts(self.source)).policy is None:
            return
        changed = engine.changed(self.source, first)
        archived = archived_of(self._spark, str(self.source), facts.location, changed, facts.policy, self._now())
        version = engine.newest_version(self.source)
        needed = NeededFiles(str(self.source), facts.table_id, facts.location, version, tuple(archived))
        self._refuse(f"A stream from version {first}", None, needed)

    @cached_property
    def _engine(self) -> Engine:
        return engine_of(self._spark)

    def guard(
        self,
        what: str,
        question: Callable[[DataFrame], DataFrame],
        version: int | None = None,
        where: str | None = None,
    ) -> DataFrame:
        """The rows of a query on the table at a version, once its plan reads no archived file of any table. If Delta
        answers from the log, the plan has no files."""
        at = self._engine.newest_version(self.source) if version is None else version

        def refusal(blocked: Sequence[NeededFiles]) -> ArchivedFilesNeeded:
            own = (self._engine.location(self.source), at)
            if len(blocked) == 1 and (blocked[0].location, blocked[0].version) == own:
                return self._error(what, where, blocked[0])
            return StatementNeedsArchivedFiles.of(blocked)

        frame = question(self._engine.rows(self.source, at))
        return guarded_rows(self._spark, frame, self._tiers_at, self._now(), refusal)

    def change(self, what: str, statement: str) -> None:
        """Run a DELETE, UPDATE or MERGE of this table, once it searches no archived file for rows."""
        needed = self._engine.needed_by_change(self.source, statement, self._now())
        refuse_unreadable(needed, self._tiers_at, lambda blocked: StatementNeedsArchivedFiles.of(blocked, asked=what))
        self._spark.sql(statement)

    def rows_of(self, frame: DataFrame) -> DataFrame:
        """The rows of any other query, guarded."""
        return Guarded(self._spark, self._tiers_at, self._now).frame(frame)

    def _tiers_at(self, location: str) -> TierStore | None:
        return self._tiers if location == self._engine.location(self.source) else tiers_at(location)

    def _refuse(self, what: str, where: str | None, needed: NeededFiles) -> None:
        if blocked := self._blocked(needed.files):
            raise self._error(what, where, replace(needed, files=tuple(blocked)))

    def _error(self, what: str, where: str | None, blocked: NeededFiles) -> ArchivedFilesNeeded:
        return ArchivedFilesNeeded(
            asked=what, table=str(self.source), version=blocked.version, where=where, files=blocked.files
        )

    def _blocked(self, archived: Sequence[LogFile]) -> list[LogFile]:
        return blocked_among(archived, self._tiers)

    def _without(self, blocked: Sequence[LogFile], version: int) -> DataFrame:
        return self._engine.without(self.source, {file.uri for file in blocked}, version)
