"""One look at all tables: how far each is, and what the doctor finds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cache

from pyspark.sql import SparkSession

from mirrorfeed.at_once import each_of
from mirrorfeed.config import Config, Table
from mirrorfeed.config.landing_zone import zone_of
from mirrorfeed.feed.keys import Workspace
from mirrorfeed.landing.names import LOG
from mirrorfeed.monitor.alert_rules import Look, judge
from mirrorfeed.monitor.alert_state import FILE
from mirrorfeed.monitor.facts import look_at_table, look_at_zone
from mirrorfeed.monitor.freshness import AHEAD, Freshness, Step
from mirrorfeed.monitor.mirror_times import beyond_of, syncs_of
from mirrorfeed.monitor.rules import TableFacts, judge_table, judge_zone
from mirrorfeed.monitor.status import Status, status_without_spark, statuses
from mirrorfeed.monitor.up_to_date_facts import look_at_rest
from mirrorfeed.publish import ledger
from mirrorfeed.publish.idle import Idle
from mirrorfeed.stores import FolderStore, Store
from mirrorfeed.workspace import default_workspace


@dataclass(frozen=True)
class Seen:
    within: Mapping[str, float]
    """Seconds in which what is committed to a table is to be visible, where it says so."""
    statuses: tuple[Status, ...]
    look: Look

    def rows(self, now: datetime) -> list[ledger.Row]:
        """For the ledger: a row for each table that could be asked."""

        def minutes(table: str) -> float | None:
            return self.within[table] / 60 if table in self.within else None

        return [watched(each.table, each.fresh, now, minutes(each.table)) for each in self.statuses if each.fresh]


def watched(table: str, fresh: Freshness, now: datetime, within: float | None = None) -> ledger.Row:
    """The row of the ledger for a table that is to be fresh within so many minutes. Unknown values are None."""
    times = {f"{step}_at": fresh.at(step) for step in Step}
    behind = {f"{step}_behind": fresh.behind(step, now) for step in AHEAD}
    row = ledger.Row(now, table, ledger.WATCHED, fresh_within=within)
    return replace(row, **times, **behind)  # type: ignore[arg-type]


def look_at_all(
    spark: Callable[[], SparkSession],
    config: Config,
    now: Callable[[], datetime],
    mirror: str | None = None,
    *,
    workspace: Callable[[], Workspace] = default_workspace,
) -> Seen:
    """What stands in the way of looking is a finding too, never an error. Spark is asked for only where a table needs
    it."""
    store, zone = zone_of(config), config.landing_zone
    facts, states = look_at_zone(config, store)
    found = judge_zone(facts, zone)
    asks = states is not None and config.alerts.sql_endpoint == "refresh"
    syncs = syncs_of(config) if asks else "the SQL endpoint was not asked"
    beyond, idle = beyond_of(config, states, syncs, mirror), Idle(config, store)

    def at_rest(table: Table) -> tuple[Status, TableFacts] | None:
        facts = look_at_rest(idle, store, table, states)
        status = status_without_spark(idle, table, beyond) if facts else None
        return (status, facts) if status and facts else None

    looked = dict(zip((str(table.target) for table in config.tables), each_of(at_rest, config.tables), strict=True))
    if left := [name for name, found in looked.items() if found is None]:
        session, opened = spark(), cache(workspace)

        def ask(table: Table) -> TableFacts:
            return look_at_table(session, config, store, table, states, workspace=opened)

        asked = zip(statuses(session, config, left, beyond=beyond), each_of(ask, config.select(left)), strict=True)
        looked |= zip(left, asked, strict=True)
    whole = [each for each in looked.values() if each]
    far = tuple(status for status, _ in whole)
    for _, of_table in whole:
        found += judge_table(of_table, zone)
    behind = config.alerts.behind
    minutes: dict[Step, float | None] = {step: getattr(behind, step.value) for step in AHEAD}
    limits = {step: None if most is None else most * 60 for step, most in minutes.items()}
    within = {str(each.target): each.fresh_within * 60 for each in config.tables if each.fresh_within}
    paused = {each.table for each in far if each.paused}
    return Seen(within, far, judge({each.table: each.fresh for each in far}, found, limits, now(), within, paused))


def alert_state_of(config: Config) -> tuple[Store, str]:
    """The store and the path of the file with the alerts sent so far."""
    if config.alerts.state is not None:
        return FolderStore(config.alerts.state), FILE
    return zone_of(config), f"{LOG}/{FILE}"
