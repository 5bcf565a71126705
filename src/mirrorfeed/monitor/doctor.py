"""Find problems between source tables and Fabric, for `doctor` and for alerts, and apply safe fixes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from mirrorfeed.config.connections import Alerts
from mirrorfeed.config.model import zone_of
from mirrorfeed.config.variables import given_texts
from mirrorfeed.display.progress import progress
from mirrorfeed.display.rows import counted
from mirrorfeed.errors import MirrorfeedError, TransientError, first_line, problem, with_code, wrap_error
from mirrorfeed.monitor.fact_collector import Collector, database_facts
from mirrorfeed.monitor.findings import DatabaseFacts, Finding, TableFacts, error_finding, with_config
from mirrorfeed.monitor.freshness import ENDPOINT_NOT_READ, LAG_STEPS, read_endpoint
from mirrorfeed.monitor.measurements import Measurements, open_measurements
from mirrorfeed.monitor.problem_rules import ALERT_RULES, NOTHING, SAFE, TABLE_RULES, database_findings, table_findings
from mirrorfeed.orchestration.errors import ledger_unreadable, orphaned_tables
from mirrorfeed.orchestration.orphaned_targets import find_orphans
from mirrorfeed.publish.table_log import TableLog
from mirrorfeed.publish.table_log.rename_and_clean_up import clean_up, finish_publication
from mirrorfeed.runtime.spark_errors import NOT_IN_CATALOG, find_condition
from mirrorfeed.source.table_info import is_missing_locally, open_local_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from mirrorfeed.config.model import Config, Table
    from mirrorfeed.storage import Store


def diagnose(
    spark: Callable[[], SparkSession],
    config: Config,
    names: Sequence[str] = (),
    *,
    fix: bool = False,
    deep: bool = False,
    on_finding: Callable[[Finding], None] = lambda _: None,
    stop: Callable[[], bool] = lambda: False,
) -> tuple[tuple[Finding, ...], tuple[str, ...], str]:
    """Check the mirrored database, the ledger, and all tables or only `names`. Returns findings, notes and a summary.

    Reads rows and whole logs only with `deep` or `names`, or if the first facts about a table give a reason. With
    `fix`, applies the fixes that are safe to automate, adds their results to the notes, and checks again. `on_finding`
    is called with each finding as soon as it is known. When `stop` returns True, the result has only these findings.
    """
    progress.info("Checking tables, landing zone and Fabric")
    store, notes, findings = zone_of(config), list[str](), list[Finding]()
    database = database_facts(config)
    collector = Collector(
        config,
        spark,
        deep=deep or bool(names),
        follows_up=True,
        states=database.states,
        measurements=open_measurements(config),
    )

    def add(found: Sequence[Finding]) -> None:
        for each in found:
            findings.append(with_config(each, config.path, given_texts(config.variables)))
            on_finding(findings[-1])

    def check(table: Table, facts: TableFacts) -> None:
        found = table_findings(facts)
        if fix and any(each.name in SAFE for each in found):
            notes.append(_fix(store, table))
            found = table_findings(collector.collect([table])[0])
        add(found)

    add([*database_findings(database), *_ledger_findings(spark, config)])
    if not names:
        add(_orphan_findings(config) or [])
    tables = config.select(names)
    if (checked := len(collector.collect(tables, check, stop))) < len(tables):
        add([error_finding("", check_stopped(checked=checked, tables=len(tables)))])
    return tuple(findings), tuple(notes), counted(len(findings), "finding") if findings else NOTHING


def _ledger_findings(spark: Callable[[], SparkSession], config: Config) -> list[Finding]:
    ledger = config.ledger
    if ledger is None or is_missing_locally(ledger) or open_local_table(ledger):
        return []
    try:
        _ = spark().read.table(ledger.sql).schema
    except Exception as error:
        if not find_condition(error, NOT_IN_CATALOG):  # if the ledger is missing, the first publication creates it
            return [error_finding("", ledger_unreadable(ledger=str(ledger), reason=first_line(str(error))))]
    return []


def _orphan_findings(config: Config) -> list[Finding] | None:
    """Return a finding for each table that is published, but not configured. None if the zone cannot be read."""
    try:
        orphans = map(str, find_orphans(zone_of(config), config))
        return [error_finding(name, orphaned_tables(targets=(name,), path=config.path)) for name in orphans]
    except MirrorfeedError:  # the facts about each table have this error
        return None


def _fix(store: Store, table: Table) -> str:
    """Rename staged files of the newest record, and delete files that no record needs. Return a note on the result."""
    log = TableLog(store, table.target.folder)
    try:
        view = finish_publication(log)
        error = clean_up(log, view, table.log_retention_records, others=True) if view else None
    except Exception as unexpected:
        error = wrap_error(f"Fixing {table.target}", unexpected)
    return f"{table.target}: {with_code(error) if error else 'fixed.'}"


@problem(TransientError, "MF8108")
def check_stopped(*, checked: int, tables: int) -> None:
    """The check was stopped on request after {checked:,} of {tables:,} tables.

    Run the same command again to check the other tables.
    """


@dataclass(frozen=True, slots=True)
class Check:
    """Result of one check of all tables."""

    problems: Mapping[tuple[str, str], Finding] = field(default_factory=dict)
    """Current problems. The key is `Finding.key`: the name of the table, and the name of the problem."""
    unknown: frozenset[tuple[str, str]] = frozenset()
    """`Finding.key` of each problem for which the check could not find out whether it exists.

    An empty problem name means all problems of the table. If both names are empty, all problems are meant.
    """
    alerts: Alerts = field(default_factory=Alerts)

    def is_unknown(self, key: tuple[str, str]) -> bool:
        """Return whether the check could not find out if a problem exists. `key` has a table name and a problem name.

        Call this method only for a problem that is not in `problems`.
        """
        table, name = key
        return bool(self.unknown & {(table, name), (table, ""), ("", "")})


_HIDING = frozenset({"MIRRORING_PAUSED", "CapacityPaused"})
"""While one of these problems lasts, other problems of the table (of the database: of all tables) cannot be seen."""


def check_all(
    spark: Callable[[], SparkSession],
    config: Config,
    mirror: str | None = None,
    measurements: Measurements | None = None,
    *,
    deep: bool = False,
    stop: Callable[[], bool] = lambda: False,
) -> tuple[Check, list[TableFacts]]:
    """Check all tables and the mirrored database for problems that alerts report. Sends no alerts.

    Returns the result of the check, and the facts about each table. `mirror` is the folder of the mirrored tables, or
    None for the mirror in Fabric. `measurements` has the results of queries of earlier checks. If a source, a log or
    the status in Fabric cannot be read, the error is not raised, but is a problem in the result. If a mirror or the SQL
    endpoint cannot be read, its lag is unknown in the result. Reads rows and whole logs only with `deep`, or if the
    first facts about a table give a reason. When `stop` returns True, the problems of the other tables are unknown.
    """
    database = database_facts(config)
    refreshes = database.states is not None and config.alerts.sql_endpoint == "refresh"
    syncs = read_endpoint(config) if refreshes else ENDPOINT_NOT_READ
    collector = Collector(
        config,
        spark,
        deep=deep,
        follows_up=True,
        states=database.states,
        syncs=syncs,
        mirror=mirror,
        measurements=measurements or Measurements(),
    )
    facts = collector.collect(config.tables, stop=stop)
    check = check_of(database, facts, config.alerts, _orphan_findings(config))
    problems = {
        key: with_config(each, config.path, given_texts(config.variables)) for key, each in check.problems.items()
    }
    unread = {str(table.target) for table in config.tables} - {each.table for each in facts}
    unknown = check.unknown | {(name, "") for name in unread}
    return replace(check, problems=problems, unknown=unknown), facts


def check_of(
    database: DatabaseFacts, tables: Sequence[TableFacts], alerts: Alerts, orphans: Sequence[Finding] | None = ()
) -> Check:
    """Return the problems that the facts show. Leaves out findings that are `ok`, and paused tables.

    `orphans` has the findings about tables that are published, but not configured. None if they are unknown.
    """
    findings = [*database_findings(database), *(orphans or ())]
    unknown = {("", "")} if database.error or orphans is None else set()
    for facts in tables:
        if facts.paused or not facts.is_complete:
            unknown.add((facts.table, ""))
        if facts.paused:
            continue
        unknown |= {(facts.table, name) for name in facts.unchecked}
        for step in LAG_STEPS:
            if facts.freshness is None or step in facts.freshness.unknown:
                unknown.add((facts.table, f"LAG_{step.name}"))
        if failure := facts.last_failure:  # the texts of messages never come from files in the landing zone
            facts = replace(facts, last_failure=failure.with_catalogued_text())
        findings += table_findings(facts, (*TABLE_RULES, *ALERT_RULES))
    problems = {each.key: each for each in findings if not each.ok}
    unknown |= {(each.table, "") for each in problems.values() if each.name in _HIDING}
    return Check(problems, frozenset(unknown), alerts)
