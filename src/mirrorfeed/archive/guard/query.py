"""Any query over any tables: right, or refused before anything is read with all that is missing, table by table.

    sql = guarded(spark).sql

On classic Spark the whole plan is looked at. Databricks guards archived files itself, in a runtime, over Connect and on
serverless compute: there the statement goes to the engine as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from mirrorfeed.archive.guard import entry
from mirrorfeed.archive.guard.engine_choice import world_of
from mirrorfeed.archive.guard.entry import Tiers
from mirrorfeed.archive.guard.missing_files import Missing, StatementNeedsArchivedFiles
from mirrorfeed.source.identifier import Source
from mirrorfeed.storage.tiers import tiers_at


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

        return entry.rows(self.spark, frame, self.tiers, self.now(), refusal)

    def needed(self, statement: str) -> list[Missing]:
        """The files that count as archived and that a query needs, brought back or not."""
        world = world_of(self.spark)
        return entry.missing(world.judged(world.query(statement), self.now()).needs, lambda _: None)
