"""What publishing would do next for each table; touches nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import cache

from pyspark.sql import SparkSession

from mirrorfeed.config import Config, Table
from mirrorfeed.config.landing_zone import zone_of
from mirrorfeed.errors import MirrorfeedError, named
from mirrorfeed.publish.log.table_log import TableLog
from mirrorfeed.publish.plan import plan_of
from mirrorfeed.publish.sources.history_source import can_bridge_gap, source_for
from mirrorfeed.publish.sources.snapshot_diff import SnapshotDiff, spanning
from mirrorfeed.publish.table_publisher import decide_next, preflight
from mirrorfeed.runtime.databricks import default_workspace
from mirrorfeed.runtime.parallel import each_of
from mirrorfeed.source.catalog import Workspace
from mirrorfeed.source.errors import Gap


def plan_next_steps(
    spark: SparkSession,
    config: Config,
    names: Sequence[str] = (),
    *,
    workspace: Callable[[], Workspace] = default_workspace,
) -> list[tuple[str, str | MirrorfeedError]]:
    """In the order of the configuration; a finding where a table cannot go on."""
    store, now, opened = zone_of(config), datetime.now(UTC), cache(workspace)

    def one(table: Table) -> tuple[str, str | MirrorfeedError]:
        if pause := table.pause_at(now):
            return str(table.target), str(pause)
        try:
            plan = plan_of(table, opened)
            view = TableLog(store, plan.folder).read_view()
            feed = source_for(spark, config, table)
            facts, decision = decide_next(feed, plan, view)
            gap = decision if isinstance(decision, Gap) and can_bridge_gap(spark, table, decision) else None
            if gap:
                feed = source_for(spark, config, table, gap)
                plan = spanning(plan, feed)
                facts, decision = decide_next(feed, plan, view)
            if isinstance(decision, MirrorfeedError):
                return str(table.target), decision
            preflight(feed, store, plan, view, facts, decision)
            waiting = len(view.unfinished) if view else 0
            compares = table.changes == "compare" or isinstance(feed, SnapshotDiff)
            notes = [", by comparison"] * compares + [", from its history"] * (bool(gap) and not compares)
            notes += [f", after renaming {waiting} recorded files"] * bool(waiting)
            return str(table.target), f"{decision}{''.join(notes)}"
        except Exception as error:
            return str(table.target), named(f"Deciding about {table.target}", error)

    return each_of(one, config.select(names))
