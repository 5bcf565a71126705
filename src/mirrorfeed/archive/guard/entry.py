"""The one way from a question, or a change, to rows or an error: what it needs is known before anything is read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame, SparkSession

from mirrorfeed.archive.guard.archived_files_needed import ArchivedFilesNeeded, blocked_among
from mirrorfeed.archive.guard.engine import Need
from mirrorfeed.archive.guard.engine_choice import world_of
from mirrorfeed.archive.guard.missing_files import Missing
from mirrorfeed.source.identifier import Source

if TYPE_CHECKING:
    from mirrorfeed.storage.tiers import TierStore

Tiers = Callable[[str], "TierStore | None"]
"""Of the table at a location; None where nothing archived can be told to be back."""
Refusal = Callable[[Sequence[Missing]], ArchivedFilesNeeded]


def rows(spark: SparkSession, question: DataFrame, tiers: Tiers, now: datetime, refusal: Refusal) -> DataFrame:
    """The rows of any query. They come from the plan that was looked at."""
    judged = world_of(spark).judged(question, now)
    _let_through(judged.needs, tiers, refusal)
    return judged.rows


def change(
    spark: SparkSession, source: Source, statement: str, tiers: Tiers, now: datetime, refusal: Refusal
) -> DataFrame:
    """Carries out a DELETE, UPDATE or MERGE of a table."""
    _let_through(world_of(spark).looked_into(source, statement, now), tiers, refusal)
    return spark.sql(statement)


def missing(needs: Sequence[Need], tiers: Tiers) -> list[Missing]:
    """What cannot be read, by table and version."""
    found = []
    for need in needs:
        blocked = [file for place, files in need.files.items() for file in blocked_among(files, tiers(place))]
        if blocked:
            listed = tuple(sorted(blocked, key=lambda file: file.uri))
            found.append(Missing(need.table, need.table_id, need.location, need.version, listed))
    return found


def _let_through(needs: Sequence[Need], tiers: Tiers, refusal: Refusal) -> None:
    if away := missing(needs, tiers):
        raise refusal(away)
