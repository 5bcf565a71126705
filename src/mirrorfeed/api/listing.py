"""Tables and archives as lists: what the configuration selects, and what is archived."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Literal

from pyspark.sql import SparkSession

from mirrorfeed.api.results import Listed, Result
from mirrorfeed.archive import archived_share
from mirrorfeed.archive import interval as intervals
from mirrorfeed.archive.archived_share import Share
from mirrorfeed.archive.restore import Restoring, Terms, carry_out, estimate
from mirrorfeed.archive.restore_plan import Plan, RestorePlan, make_plan
from mirrorfeed.config.expansion import Expansion
from mirrorfeed.config.expansion import Listed as Decided
from mirrorfeed.display.terminal import progress
from mirrorfeed.errors import coded, named
from mirrorfeed.landing import selection
from mirrorfeed.landing.names import table_limit_warning
from mirrorfeed.landing.schema import Column, check_keys, columns_of
from mirrorfeed.orchestration.ledger import archived, keep
from mirrorfeed.orchestration.scheduler import each_of
from mirrorfeed.publish.next_publication import with_keys
from mirrorfeed.runtime.credentials import default_workspace
from mirrorfeed.source.catalog import Workspace, is_in_unity_catalog, read_catalog_table
from mirrorfeed.source.identifier import Source
from mirrorfeed.source.table_info import newest_schema, read_table_info
from mirrorfeed.storage.tiers import Prices, Priority, Tier, TierStore, tiers_at

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from mirrorfeed.config.model import Table


_NO_WORKSPACE = "its keys are in Unity Catalog, and no workspace is configured here"


def listed(
    expansion: Expansion, spark: SparkSession | None, workspace: Callable[[], Workspace] = default_workspace
) -> Result[Listed]:
    """Return a row for each table, with the keys and columns that can be read without starting Spark: those of tables
    in Unity Catalog and in local folders, and with a session those of all Delta tables."""
    in_catalog = any(row.table and is_in_unity_catalog(row.source) for row in expansion.listed)
    client = _client(workspace) if in_catalog else None
    progress.info("Reading keys and columns")
    rows = tuple(each_of(partial(_row, client, spark), expansion.listed))
    warning = table_limit_warning(len(expansion.config.tables))
    return Result(rows, (warning,) if warning else ())


def _client(workspace: Callable[[], Workspace]) -> Workspace | None:
    try:
        return workspace()
    except ValueError:  # none is configured
        return None


def _row(client: Workspace | None, spark: SparkSession | None, decided: Decided) -> Listed:
    table, source = decided.table, str(decided.source)
    if table is None:
        return Listed(None, source, False, why=decided.why)
    part = table.selection.in_short if table.selection else None
    row = Listed(str(table.target), source, True, why=decided.why, part=part)
    if client is None and is_in_unity_catalog(table.source):
        if table.keys is None:
            return replace(row, why=f"{decided.why}; {_NO_WORKSPACE}")
        return replace(row, keys=table.keys, takes=_takes(table.keys))

    def opened() -> Workspace:
        assert client  # called for tables in Unity Catalog only
        return client

    try:
        keys = with_keys(table, opened).target_keys
        _check_columns(client, spark, table, keys)
    except Exception as error:
        return replace(row, error=named(f"Reading the keys and columns of {source}", error))
    return replace(row, keys=keys, takes=_takes(keys))


def _check_columns(client: Workspace | None, spark: SparkSession | None, table: Table, keys: Sequence[str]) -> None:
    """Raise if the source is missing, or if its columns cannot be published."""
    name, source = str(table.source), table.source
    if is_in_unity_catalog(source):
        if client and table.keys:  # other keys are from there
            found = read_catalog_table(client, source).columns or ()
            check_keys(name, table.keys, [Column(str(each.name), each.type_text or "") for each in found])
    elif table.changes != "compare" and (schema := newest_schema(source, spark)):
        if table.selection:
            selection.check(name, table.selection, selection.source_types(schema))
        check_keys(name, keys, columns_of(name, selection.selected_schema(name, table.selection, schema)))


def _takes(keys: Sequence[str]) -> str:
    return "inserts, updates, deletes" if keys else "inserts only, because it has no key"


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
