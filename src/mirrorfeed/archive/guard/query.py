"""Guarded `spark.sql`: runs any query, or raises an error that lists all archived files it needs.

sql = guarded(spark).sql
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame, SparkSession

from mirrorfeed.archive.guard.archived_files_needed import (
    ArchivedFilesNeeded,
    Missing,
    StatementNeedsArchivedFiles,
    blocked_among,
)
from mirrorfeed.archive.guard.engine import Databricks, FileIndex, Need, World
from mirrorfeed.archive.guard.local_engine import Here
from mirrorfeed.runtime.engine import is_databricks
from mirrorfeed.source.identifier import Source
from mirrorfeed.storage.tiers import tiers_at

if TYPE_CHECKING:
    from mirrorfeed.storage.tiers import TierStore


def world_of(spark: SparkSession) -> World:
    return Databricks(spark) if is_databricks(spark) else Here(spark)


def index_of(spark: SparkSession, source: Source) -> FileIndex:
    return world_of(spark).table(source)


Tiers = Callable[[str], "TierStore | None"]
"""Of the table at a location; None where nothing archived can be told to be back."""
Refusal = Callable[[Sequence[Missing]], ArchivedFilesNeeded]


def guarded_rows(spark: SparkSession, question: DataFrame, tiers: Tiers, now: datetime, refusal: Refusal) -> DataFrame:
    """The rows of any query. They come from the plan that was looked at."""
    judged = world_of(spark).judged(question, now)
    _let_through(judged.needs, tiers, refusal)
    return judged.rows


def guarded_change(
    spark: SparkSession, source: Source, statement: str, tiers: Tiers, now: datetime, refusal: Refusal
) -> DataFrame:
    """Carries out a DELETE, UPDATE or MERGE of a table."""
    _let_through(world_of(spark).looked_into(source, statement, now), tiers, refusal)
    return spark.sql(statement)


def unreadable(needs: Sequence[Need], tiers: Tiers) -> list[Missing]:
    """What cannot be read, by table and version."""
    found = []
    for need in needs:
        blocked = [file for place, files in need.files.items() for file in blocked_among(files, tiers(place))]
        if blocked:
            listed = tuple(sorted(blocked, key=lambda file: file.uri))
            found.append(Missing(need.table, need.table_id, need.location, need.version, listed))
    return found


def _let_through(needs: Sequence[Need], tiers: Tiers, refusal: Refusal) -> None:
    if away := unreadable(needs, tiers):
        raise refusal(away)


def guarded(spark: SparkSession) -> Guarded:
    """Guards any query, over any tables with and without an archive: `guarded(spark).sql` in place of `spark.sql`."""
    return Guarded(spark)


@dataclass(frozen=True)
class Guarded:
    spark: SparkSession
    tiers: Tiers = tiers_at
    now: Callable[[], datetime] = lambda: datetime.now(UTC)

    def sql(self, statement: str, args: Any = None) -> DataFrame:
        """The rows of a query; or `ArchivedFilesNeeded`, with the `plan()` that brings back what is missing. Statements
        that read no table's rows run as ever; those that change tables are refused, for those `ArchiveAwareTable` has
        methods of its own."""
        judges = world_of(self.spark).judges(statement)
        found = self.spark.sql(statement) if args is None else self.spark.sql(statement, args)
        return self.frame(found, statement) if judges else found

    def table(self, name: str) -> DataFrame:
        """A table or a view by its name, or a table by its path."""
        statement = f"SELECT * FROM {Source.parse(name).sql}"
        return self.sql(statement)

    def frame(self, frame: DataFrame, statement: str | None = None) -> DataFrame:
        """The same rows, of any query that was made with DataFrames."""

        def refusal(away: Sequence[Missing]) -> StatementNeedsArchivedFiles:
            return StatementNeedsArchivedFiles(statement, away)

        return guarded_rows(self.spark, frame, self.tiers, self.now(), refusal)

    def needed(self, statement: str) -> list[Missing]:
        """The files that count as archived and that a query needs, brought back or not."""
        world = world_of(self.spark)
        return unreadable(world.judged(world.query(statement), self.now()).needs, lambda _: None)
