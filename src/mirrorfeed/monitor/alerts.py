"""Checks all tables, sends alerts for new and resolved problems, and makes the ledger rows of the check."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from mirrorfeed.config.connections import OUTPUT
from mirrorfeed.config.model import zone_of
from mirrorfeed.display.humanize import counted
from mirrorfeed.display.rows import Row, row
from mirrorfeed.errors import MirrorfeedError, coded
from mirrorfeed.landing.names import LOG
from mirrorfeed.monitor.alert_state import FILE, Check, Message, notify
from mirrorfeed.monitor.collector import Collector, database_facts
from mirrorfeed.monitor.findings import DatabaseFacts, TableFacts
from mirrorfeed.monitor.freshness import ENDPOINT_NOT_READ, LAG_STEPS, Step, mirror_times_of, read_endpoint
from mirrorfeed.monitor.rules import ALERT_RULES, TABLE_RULES, database_findings, table_findings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from mirrorfeed.config.model import Config
    from mirrorfeed.orchestration import ledger
    from mirrorfeed.source.catalog import Workspace
    from mirrorfeed.storage import Store


_HIDING = frozenset({"MIRRORING_PAUSED", "CapacityPaused"})
"""Problems that hide all others."""


@row
class Alert(Row):
    """A current problem, or one that this check found resolved, and the channels that were notified now."""

    table: str
    """Empty for the mirrored database as a whole, and for an alert that was not sent."""
    name: str
    what: str
    fix: str = ""
    since: datetime | None = None
    over: datetime | None = None
    """When the problem was found resolved."""
    sent_to: tuple[str, ...] = ()
    error: MirrorfeedError | None = None
    """Why a channel was not notified, or why the file of sent alerts cannot be used."""

    @property
    def ok(self) -> bool:
        """Whether this is not a new problem."""
        return self.error is None and (self.over is not None or OUTPUT not in self.sent_to)

    def remarks(self) -> Sequence[str]:
        if self.error:
            return (f"{f'{self.name}: ' if self.name else ''}{coded(self.error)}",)
        return tuple(self.what.splitlines()) if OUTPUT in self.sent_to else ()


def check_all(
    spark: Callable[[], SparkSession],
    config: Config,
    mirror: str | None = None,
    *,
    workspace: Callable[[], Workspace] | None = None,
    now: Callable[[], datetime] = lambda: datetime.now(UTC),
) -> tuple[Check, list[TableFacts]]:
    """Check all tables. Errors are findings and are not raised. Spark is started only if a table needs it."""
    store = zone_of(config)
    database = database_facts(config, store)
    refreshes = database.states is not None and config.alerts.sql_endpoint == "refresh"
    syncs = read_endpoint(config) if refreshes else ENDPOINT_NOT_READ
    times_of = mirror_times_of(config, database.states, syncs, mirror)
    collector = Collector(config, spark, True, database.states, times_of, workspace, now)
    facts = collector.collect(config.tables)
    return check_of(database, facts, (config.alerts.max_lag_minutes.published or 0.0) * 60), facts


def check_of(database: DatabaseFacts, tables: Sequence[TableFacts], patience: float = 0.0) -> Check:
    """The problems worth an alert. Notes and paused tables are left out."""
    found = database_findings(database)
    unknown = {("", "")} if database.error else set()
    for facts in tables:
        if facts.paused or not facts.is_complete:
            unknown.add((facts.table, ""))
        if facts.paused:
            continue
        for rule, step in zip(ALERT_RULES, LAG_STEPS, strict=True):
            if facts.freshness is None or step in facts.freshness.unknown:
                unknown.add((facts.table, rule.name))
        found += table_findings(facts, (*TABLE_RULES, *ALERT_RULES))
    problems = {each.key: each for each in found if not each.ok}
    unknown |= {(each.table, "") for each in problems.values() if each.name in _HIDING}
    return Check(tuple(problems.values()), frozenset(unknown), patience)


def send_alerts(config: Config, check: Check, clock: Callable[[], datetime]) -> list[Alert]:
    """Notify the channels of `alerts`, and return a row for each current or resolved problem."""
    from mirrorfeed.monitor.alert_channels import channels_of, text

    store, path = state_of(config)
    channels = {OUTPUT: lambda _: None, **channels_of(config)}
    notified = notify(store, path, check, channels, clock)
    sent: dict[tuple[str, str], list[Message]] = {each.key: [] for each in check.problems}
    for message in notified.sent:
        sent.setdefault(message.alert.key, []).append(message)
    problems = {each.key: each for each in check.problems}
    rows = []
    for (table, name), messages in sent.items():
        to, problem = tuple(each.to for each in messages), problems.get((table, name))
        what = text(messages[0]) if messages else problem.what if problem else ""
        first = messages[0].alert if messages else None
        since = first.since if first else problem.since if problem else None
        rows.append(Alert(table, name, what, problem.fix if problem else "", since, first.over if first else None, to))
    rows += [Alert("", name, "", error=error) for name, error in notified.failed]
    return rows + [Alert("", "", "", error=error) for error in notified.warnings]


def summary_of(rows: Sequence[Alert]) -> str:
    """Empty if there is something new."""
    if any(OUTPUT in each.sent_to for each in rows):
        return ""
    known = sum(each.error is None for each in rows)
    return f"No new problem. {counted(known, 'problem')} reported before." if known else "No new problem."


def state_of(config: Config) -> tuple[Store, str]:
    """The store and the path of the file with the alerts sent so far."""
    from mirrorfeed.storage.volume import open_folder

    if config.alerts.state_path is not None:
        return open_folder(config.alerts.state_path), FILE
    return zone_of(config), f"{LOG}/{FILE}"


def ledger_rows(config: Config, facts: Sequence[TableFacts]) -> list[ledger.Row]:
    """A row for each table whose freshness is known."""
    from mirrorfeed.orchestration import ledger

    targets = {str(table.target): table.freshness_target_minutes for table in config.tables}
    found = []
    for each in facts:
        if freshness := each.freshness:
            times: dict[str, Any] = {f"{step}_at": freshness.at(step) for step in Step}
            waits: dict[str, Any] = {f"{step}_lag_seconds": freshness.lag(step, each.at) for step in LAG_STEPS}
            within = targets.get(each.table)
            found.append(
                ledger.Row(each.at, each.table, ledger.WATCHED, freshness_target_minutes=within, **times, **waits)
            )
    return found
