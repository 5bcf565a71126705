"""Archives of any number of tables: plans and restores for any query, and how much of each table is archived."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Literal

from pyspark.sql import SparkSession

from mirrorfeed.api.results import Result
from mirrorfeed.archive import archived_share
from mirrorfeed.archive import interval as intervals
from mirrorfeed.archive.archived_share import Share
from mirrorfeed.archive.restore import Restoring, Terms, carry_out, estimate
from mirrorfeed.archive.restore_plan import Plan, RestorePlan, make_plan
from mirrorfeed.errors import coded, named
from mirrorfeed.orchestration.ledger import archived, keep
from mirrorfeed.source.identifier import Source
from mirrorfeed.source.table_info import read_table_info
from mirrorfeed.storage.prices import Prices
from mirrorfeed.storage.tiers import Priority, Tier, TierStore, tiers_at

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


Session = SparkSession | Callable[[], SparkSession]


def plan_query(
    spark: Session,
    statement: str,
    *,
    priority: Literal["standard", "high"] = "standard",
    prices: str | Prices | None = None,
) -> RestorePlan:
    """Return the plan that restores the archived files that a query needs, over any number of tables."""
    rates = rates_of(prices)
    session, now = session_of(spark), datetime.now(UTC)
    plan = make_plan(session, None, Priority[priority.upper()], rates, now, sql=statement)
    return estimate(session, plan, tiers_of, rates, now)


def restore(
    spark: Session,
    plan: RestorePlan | str,
    *,
    wait: bool = True,
    poll_seconds: float = 300.0,
    tier: Literal["hot", "cool", "cold"] = "hot",
    keep_days: int | None = None,
    into: str | None = None,
    rows: int | None = None,
    prices: str | Prices | None = None,
    on_step: Callable[[str], None] = lambda _: None,
) -> Restoring:
    """Request the files of a plan, and with `wait` wait until all are restored.

    Then copy the rows of its query into the new table `into`, or return the first `rows` rows. `on_step` is called with
    the costs and with each progress in words. It can be stopped and repeated at any time.
    """
    made, rates = Plan.load(plan) if isinstance(plan, str) else plan._plan, rates_of(prices)
    target, terms = Source.parse_here(into) if into else None, Terms(Tier[tier.upper()], keep_days)
    return carry_out(
        lambda: session_of(spark), made, tiers_of, terms, rates, poll_seconds if wait else None, target, rows, on_step
    )


def report(
    spark: Session,
    tables: Sequence[str | Source],
    *,
    with_archive_only: bool = False,
    prices: str | Prices | None = None,
    ledger: str | Source | None = None,
) -> Result[Share]:
    """Return how much of each table is archived, with the costs of a month, and write it to the ledger.

    With `with_archive_only`, tables without an interval are left out.
    """
    rates, rows, notes = rates_of(prices), [], []
    place = Source.parse_here(ledger) if isinstance(ledger, str) else ledger
    session = session_of(spark)
    for source in (Source.parse_here(table) if isinstance(table, str) else table for table in tables):
        if (found := _share_of(session, source, with_archive_only)) is None:
            continue
        rows.append(found.priced(rates))
        if found.ok and (lost := keep(session, place, [archived(str(source), found, datetime.now(UTC), rates)])):
            notes.append(coded(lost))
    return Result(tuple(rows), tuple(notes), "" if rows else "No table has an archive.")


def _share_of(spark: SparkSession, source: Source, with_archive_only: bool) -> Share | None:
    try:
        if with_archive_only and intervals.read(spark, source) is None:
            return None
        return archived_share.share(spark, source, datetime.now(UTC), tiers_of(spark, source))
    except Exception as error:
        return Share(str(source), error=named(f"Reading how much of {source} is archived", error))


def session_of(spark: Session) -> SparkSession:
    return spark() if callable(spark) else spark


def tiers_of(spark: SparkSession, source: Source) -> TierStore | None:
    """The tiers of the storage of a table, or None: then no archived file counts as restored."""
    return tiers_at(read_table_info(spark, source).location)


def rates_of(prices: str | Prices | None) -> Prices | None:
    """The prices of a file."""
    return Prices.load(prices) if isinstance(prices, str) else prices
