"""Report the archived share of tables and write the shares to the ledger."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from pyspark.sql import SparkSession

from mirrorfeed.api.results import Result
from mirrorfeed.archive import archived_share, has_interval
from mirrorfeed.archive.archived_share import Share
from mirrorfeed.errors import coded, named
from mirrorfeed.orchestration.ledger import archived, try_append
from mirrorfeed.source.identifier import Source
from mirrorfeed.source.table_info import read_table_info
from mirrorfeed.storage.prices import Prices
from mirrorfeed.storage.tiers import tiers_at


def report(
    spark: SparkSession,
    sources: Sequence[Source],
    rates: Prices | None,
    ledger: Source | None,
    *,
    with_archive_only: bool = False,
) -> Result[Share]:
    """Return the archived share of each table, with monthly costs.

    With `with_archive_only`, tables without an interval are left out.
    """
    rows, notes = [], []
    for source in sources:
        try:
            table = read_table_info(spark, source)
            if with_archive_only and not has_interval(table.properties):
                continue
            found = archived_share.share(spark, source, datetime.now(UTC), tiers_at(table.location), table)
        except Exception as error:
            found = Share(str(source), error=named(f"Reading how much of {source} is archived", error))
        rows.append(found.priced(rates))
        if found.ok and (lost := try_append(spark, ledger, [archived(rows[-1], datetime.now(UTC))])):
            notes.append(coded(lost))
    return Result(tuple(rows), tuple(notes), "" if rows else "No configured table has an archive.")
