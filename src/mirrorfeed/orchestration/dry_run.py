"""Find the next step of each table, for `publish --dry-run`. Changes nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import cache

from pyspark.sql import SparkSession

from mirrorfeed.config import Config, Table
from mirrorfeed.config.landing_zone import zone_of
from mirrorfeed.display.progress import progress
from mirrorfeed.display.rows import Row, row, shown
from mirrorfeed.errors import MirrorfeedError, named
from mirrorfeed.orchestration.publish_run import delta_sources
from mirrorfeed.publish.columns import with_keys
from mirrorfeed.publish.log.table_log import TableLog
from mirrorfeed.publish.sources.factory import can_bridge_gap, source_for
from mirrorfeed.publish.table_publisher import check_decision, decide_next
from mirrorfeed.publish.up_to_date_check import UpToDateCheck
from mirrorfeed.runtime.databricks import default_workspace
from mirrorfeed.runtime.parallel import each_of
from mirrorfeed.source.catalog import Workspace
from mirrorfeed.source.errors import Gap

BLOCKED = "blocked"


@row
class Decision(Row):
    """The next step that publishing would take for a table."""

    table: str = shown("table")
    next: str = shown("next")
    """In words; `blocked` if publishing would fail."""
    error: MirrorfeedError | None = None


def plan_next_steps(
    spark: SparkSession | Callable[..., SparkSession],
    config: Config,
    names: Sequence[str] = (),
    *,
    workspace: Callable[[], Workspace] = default_workspace,
) -> list[Decision]:
    """Return a decision for each table, in the order of the configuration.

    `spark` is a session, or returns the session for these sources. It is called only if a table needs it.
    """
    store, now, opened, chosen = zone_of(config), datetime.now(UTC), cache(workspace), config.select(names)
    progress.info("Reading what is published")
    check = UpToDateCheck(config, store)
    known = each_of(lambda table: table.pause_at(now) or check.decision(table), chosen)
    if left := [table for table, decision in zip(chosen, known, strict=True) if not decision]:
        session = spark(*delta_sources(left)) if callable(spark) else spark

    def decide(table: Table) -> Decision:
        name = str(table.target)
        try:
            table = with_keys(table, opened)
            view = TableLog(store, table.target.folder).read_view()
            source = source_for(session, config, table)
            facts, decision = decide_next(source, table, view)
            gap = decision if isinstance(decision, Gap) and can_bridge_gap(session, table, decision) else None
            if gap:
                source = source_for(session, config, table, gap)
                facts, decision = decide_next(source, table, view)
            if isinstance(decision, MirrorfeedError):
                return Decision(name, BLOCKED, decision)
            check_decision(source, store, table, view, facts, decision)
            waiting = len(view.unfinished) if view else 0
            notes = [", by comparison"] * facts.compared + [", from its history"] * (bool(gap) and not facts.compared)
            notes += [f", after renaming {waiting} recorded files"] * bool(waiting)
            return Decision(name, f"{decision}{''.join(notes)}")
        except Exception as error:
            return Decision(name, BLOCKED, named(f"Deciding about {name}", error))

    decided = iter(each_of(decide, left))
    return [
        Decision(str(table.target), str(decision)) if decision else next(decided)
        for table, decision in zip(chosen, known, strict=True)
    ]
