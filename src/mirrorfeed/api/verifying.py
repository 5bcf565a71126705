"""Every source against its mirror, table by table."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from pyspark.sql import SparkSession

from mirrorfeed.api.conversions import comparison, not_compared
from mirrorfeed.api.results import Comparison, Result
from mirrorfeed.config import Config
from mirrorfeed.errors import named
from mirrorfeed.mirror.verify import mirror_of, verify_at
from mirrorfeed.orchestration import ledger
from mirrorfeed.publish.errors import NothingPublished
from mirrorfeed.publish.log.mirror_position import mirror_positions


def comparisons(
    spark: SparkSession, config: Config, names: Sequence[str], folder: str, shown: int
) -> Result[Comparison]:
    rows: list[Comparison] = []
    told: list[ledger.Row] = []
    for table, standing in mirror_positions(config, names):
        name = str(table.target)
        if standing.newest is None:
            rows.append(not_compared(name, None, NothingPublished(table=name)))
            continue
        published = standing.newest.to_version_inclusive
        try:
            mirror = mirror_of(folder, table.target)
            found = verify_at(spark, table.source, mirror, standing.candidates, shown, table.selection)
        except Exception as error:
            trouble = named(f"Verifying {name}", error)
            rows.append(not_compared(name, published, trouble))
            told.append(ledger.verified(name, trouble, datetime.now(UTC)))
        else:
            rows.append(comparison(name, found, published))
            told.append(ledger.verified(name, found, datetime.now(UTC)))
    lost = ledger.keep(spark, config.ledger, told)
    return Result(tuple(rows), (str(lost),) if lost else ())
