"""Guarded `spark.sql`: runs any query, or raises an error that lists all archived files it needs.

sql = guarded(spark).sql
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from mirrorfeed.archive.archived_files import (
    ArchivedFilesNeeded,
    NeededFiles,
    StatementNeedsArchivedFiles,
    TiersAt,
    refuse,
)
from mirrorfeed.archive.engines import engine_of
from mirrorfeed.source.identifier import Source
from mirrorfeed.storage.tiers import tiers_at

Refusal = Callable[[Sequence[NeededFiles]], ArchivedFilesNeeded]


def guarded_rows(spark: SparkSession, frame: DataFrame, tiers: TiersAt, now: datetime, refusal: Refusal) -> DataFrame:
    """The rows of a query, read with the plan that was judged, or `refusal` for the files that cannot be read."""
    rows, needed = engine_of(spark).judge(frame, now)
    refuse(needed, tiers, refusal)
    return rows


def guarded(spark: SparkSession) -> Guarded:
    """Guard any query over tables with and without an archive: `guarded(spark).sql` instead of `spark.sql`."""
    return Guarded(spark)


@dataclass(frozen=True)
class Guarded:
    spark: SparkSession
    tiers: TiersAt = tiers_at
    now: Callable[[], datetime] = lambda: datetime.now(UTC)

    def sql(self, statement: str, args: Any = None) -> DataFrame:
        """Return the rows of a query.

        Raises `ArchivedFilesNeeded`, whose `plan()` restores the missing files, before anything is read. Statements
        that read no table run as usual. Statements that change tables are refused: use `ArchiveAwareTable`.
        """
        judges = engine_of(self.spark).judges(statement)
        found = self.spark.sql(statement) if args is None else self.spark.sql(statement, args)
        return self.frame(found, statement) if judges else found

    def table(self, name: str) -> DataFrame:
        """Return the rows of a table or view by its name, or of a table by its path."""
        return self.sql(f"SELECT * FROM {Source.parse(name).sql}")

    def frame(self, frame: DataFrame, statement: str | None = None) -> DataFrame:
        """Return the rows of a query that was built with DataFrames."""

        def refusal(blocked: Sequence[NeededFiles]) -> ArchivedFilesNeeded:
            return StatementNeedsArchivedFiles.of(blocked, statement)

        return guarded_rows(self.spark, frame, self.tiers, self.now(), refusal)

    def needed(self, statement: str) -> list[NeededFiles]:
        """The archived files that a query needs, restored or not."""
        engine = engine_of(self.spark)
        return list(engine.judge(engine.query(statement), self.now())[1])
