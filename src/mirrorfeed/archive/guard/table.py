"""Guarded reads of one table: a correct result, or an error before anything is read.

Each read is planned first, at a fixed version. An archived file may have been restored: with `tiers` the tier of each
is read, without `tiers` all count as unreadable.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.readwriter import DataStreamReader
from pyspark.sql.types import StructType

from mirrorfeed.archive import interval as intervals
from mirrorfeed.archive.errors import BadNumber, NotEnoughFiles, amount
from mirrorfeed.archive.file_index.archived_files import archived_of
from mirrorfeed.archive.file_index.log_file import LogFile
from mirrorfeed.archive.guard.archived_files_needed import (
    DESCRIBED,
    ArchivedFilesNeeded,
    Missing,
    StatementNeedsArchivedFiles,
    blocked_among,
    described,
)
from mirrorfeed.archive.guard.engine import Answer, FileIndex
from mirrorfeed.archive.guard.predicate import check_columns, filtered
from mirrorfeed.archive.guard.query import Guarded, guarded_change, guarded_rows, index_of
from mirrorfeed.archive.interval import Policy, understood
from mirrorfeed.display.humanize import counted
from mirrorfeed.source.identifier import Source, quote
from mirrorfeed.source.table_info import read_table_info
from mirrorfeed.storage.tiers import TierStore, tiers_at


@dataclass(frozen=True)
class Recent:
    """The hot part of a table, and what it leaves out."""

    rows: DataFrame
    version: int
    left_out: tuple[LogFile, ...]

    def __str__(self) -> str:
        if not self.left_out:
            return f"all rows at version {self.version}"
        rows = [file.rows for file in self.left_out]
        count = "rows of unknown number" if None in rows else counted(sum(filter(None, rows)), "row")
        return f"version {self.version} without {amount(self.left_out)} in the archive, {count}"


class ArchiveAwareTable:
    def __init__(
        self,
        spark: SparkSession,
        name: str | Source,
        tiers: TierStore | None = None,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._spark, self._now, self._tiers = spark, now, tiers
        self.source = Source.parse(name) if isinstance(name, str) else name

    def files(self, where: str | None = None, version: int | None = None) -> Answer:
        """The files that count as archived and are needed, brought back or not. Reads nothing."""
        return self._index.needed(where, self._policy(), self._now(), version)

    def files_as_rows(self, where: str | None = None, version: int | None = None) -> DataFrame:
        """The same as a DataFrame of `described.DESCRIBED`, with the tier of each where it can be told."""
        listed = described(self.files(where, version).archived, where, self._now(), self._tiers)
        return self._spark.createDataFrame([tuple(each.values()) for each in listed], DESCRIBED)

    def query(
        self, where: str | None = None, columns: Sequence[str] | None = None, version: int | None = None
    ) -> DataFrame:
        """The rows that match, or `ArchivedFilesNeeded` before anything is read."""
        check_columns(self._spark, self.source, columns or ())

        def question(rows: DataFrame) -> DataFrame:
            found = filtered(rows, str(self.source), where)
            return found if columns is None else found.select(*map(quote, columns))

        if self._index.guards_itself:
            answer = self.files(where, version)
            self._refuse("A query", where, answer)
            version = answer.version
        return self.guard("A query", question, version, where)

    def schema(self) -> StructType:
        return self._spark.table(self.source.sql).schema

    def count(self, version: int | None = None) -> int:
        """From the log, where it tells."""
        (row,) = self.guard("A count", lambda rows: rows.groupBy().count(), version).collect()
        return int(row[0])

    def bounds(self, column: str, version: int | None = None) -> tuple[Any, Any]:
        """The smallest and the largest value of a column; from the log, where it is exact."""
        check_columns(self._spark, self.source, [column])
        name = quote(column)
        (row,) = self.guard("A question for bounds", lambda rows: rows.agg(F.min(name), F.max(name)), version).collect()
        return row[0], row[1]

    def partitions(self, version: int | None = None) -> list[dict[str, str | None]]:
        """The values of the partition columns, as the log spells them."""
        return self._index.partitions(version)

    def limit(self, n: int, partition_predicate: str | None = None) -> DataFrame:
        """Any n rows, from hot files alone; or `NotEnoughFiles` where these hold fewer and archived ones may hold more.
        The predicate may name partition columns only."""
        if n < 0:
            raise BadNumber(table=str(self.source), named="LIMIT", value=n)
        partitions = read_table_info(self._spark, self.source).partition_columns
        names = self._spark.table(self.source.sql).select(*map(quote, partitions))
        filtered(names, f"the partitions of {self.source}", partition_predicate)
        if self._index.guards_itself:
            return filtered(self._spark.table(self.source.sql), str(self.source), partition_predicate).limit(n)
        answer = self.files(partition_predicate)
        blocked = self._blocked(answer.archived)
        rows = filtered(self._without(blocked, answer.version), str(self.source), partition_predicate).limit(n)
        if blocked and (found := rows.count()) < n:
            raise NotEnoughFiles(table=str(self.source), asked=n, found=found, files=tuple(blocked))
        return rows

    def recent(self, columns: Sequence[str] | None = None) -> Recent:
        """What is hot, and what that leaves out. The one method that gives a part, for that is its name."""
        check_columns(self._spark, self.source, columns or ())
        answer = self.files()
        blocked = self._blocked(answer.archived)
        rows = self._without(blocked, answer.version)
        return Recent(rows if columns is None else rows.select(*map(quote, columns)), answer.version, tuple(blocked))

    def stream(self, starting_version: int | None = None) -> DataFrame:
        """A streaming read: of the whole table and what comes, or from a version on. What is there when it is made is
        guarded; what comes later is new."""
        if starting_version is not None and starting_version < 0:
            raise BadNumber(table=str(self.source), named="starting version", value=starting_version)
        reader = self._spark.readStream.format("delta")
        if starting_version is None:
            self._refuse("A stream of the whole table", None, self.files())
            return self._stream(reader)
        if not self._index.guards_itself and (interval := intervals.read(self._spark, self.source)):
            changed, place = self._index.changed(starting_version), self._index.location()
            archived = archived_of(self._spark, str(self.source), place, changed, interval, self._now())
            what = f"A stream from version {starting_version}"
            self._refuse(what, None, Answer(tuple(archived), None, self._index.newest_version()))
        return self._stream(reader.option("startingVersion", starting_version))

    def _stream(self, reader: DataStreamReader) -> DataFrame:
        return reader.table(self.source.sql) if self.source.path is None else reader.load(self.source.path)

    @cached_property
    def _index(self) -> FileIndex:
        return index_of(self._spark, self.source)

    def guard(
        self,
        what: str,
        question: Callable[[DataFrame], DataFrame],
        version: int | None = None,
        where: str | None = None,
    ) -> DataFrame:
        """A question to the table at a version, once its plan is known to read no archived file, of this table or any
        other. What Delta answers from the log has no files in its plan. On Databricks the engine sees to that when it
        runs."""
        at = self._index.newest_version() if version is None else version

        def refusal(away: Sequence[Missing]) -> ArchivedFilesNeeded:
            if len(away) == 1 and (away[0].location, away[0].version) == (self._index.location(), at):
                return ArchivedFilesNeeded(what, str(self.source), at, where, away[0].files)
            return StatementNeedsArchivedFiles(None, away)

        return guarded_rows(self._spark, question(self._index.rows(at)), self._tiers_at, self._now(), refusal)

    def change(self, what: str, statement: str) -> None:
        """Runs a DELETE, UPDATE or MERGE of this table, once it is known that it looks into no archived file."""

        def refusal(away: Sequence[Missing]) -> ArchivedFilesNeeded:
            return StatementNeedsArchivedFiles(None, away, what)

        guarded_change(self._spark, self.source, statement, self._tiers_at, self._now(), refusal)

    def of_any(self, frame: DataFrame) -> DataFrame:
        """The rows of any other query, guarded as all tables are."""
        return Guarded(self._spark, self._tiers_at, self._now).frame(frame)

    def _tiers_at(self, location: str) -> TierStore | None:
        return self._tiers if location == self._index.location() else tiers_at(location)

    def _policy(self) -> Policy | None:
        return understood(str(self.source), self._index.facts().properties)

    def _refuse(self, what: str, where: str | None, answer: Answer) -> None:
        if blocked := self._blocked(answer.archived):
            raise ArchivedFilesNeeded(what, str(self.source), answer.version, where, blocked)

    def _blocked(self, archived: Sequence[LogFile]) -> list[LogFile]:
        return blocked_among(archived, self._tiers)

    def _without(self, blocked: Sequence[LogFile], version: int) -> DataFrame:
        return self._index.without({file.uri for file in blocked}, version)
