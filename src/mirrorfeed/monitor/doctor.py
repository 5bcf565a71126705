"""Diagnose problems between the source tables and Fabric, and apply safe fixes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from mirrorfeed.config.model import zone_of
from mirrorfeed.errors import MirrorfeedError, coded, first_line, named
from mirrorfeed.monitor.collector import Collector, database_facts
from mirrorfeed.monitor.findings import Finding, error_finding
from mirrorfeed.monitor.rules import DOCTOR_RULES, SAFE, database_findings, table_findings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from mirrorfeed.config.model import Config, Table
    from mirrorfeed.storage import Store


def diagnose(
    spark: Callable[[], SparkSession], config: Config, names: Sequence[str] = (), *, fix: bool = False
) -> tuple[list[Finding], list[str]]:
    """Return the findings of the mirrored database, of the ledger and of each table, and notes about the fixes."""
    store, notes = zone_of(config), list[str]()
    database = database_facts(config)
    collector = Collector(config, spark, deep=True, states=database.states)
    found = [*database_findings(database), *_ledger_findings(spark, config)]
    chosen = config.select(names)
    for table, facts in zip(chosen, collector.collect(chosen), strict=True):
        of_table = table_findings(facts, DOCTOR_RULES)
        if fix and any(each.name in SAFE for each in of_table):
            notes.append(_fix(store, table))
            of_table = table_findings(collector.collect([table])[0], DOCTOR_RULES)
        found += of_table
    return found, notes


def _ledger_findings(spark: Callable[[], SparkSession], config: Config) -> list[Finding]:
    from mirrorfeed.orchestration.errors import LedgerUnreadable
    from mirrorfeed.runtime.spark_errors import NOT_IN_CATALOG, find_condition
    from mirrorfeed.source.table_info import is_missing_locally, open_local_table

    ledger = config.ledger
    if ledger is None or is_missing_locally(ledger) or open_local_table(ledger):
        return []
    try:
        _ = spark().read.table(ledger.sql).schema
    except Exception as error:
        if find_condition(error, NOT_IN_CATALOG):  # the first publication creates the log
            return []
        return [error_finding("", LedgerUnreadable(ledger=str(ledger), reason=first_line(str(error))))]
    return []


def _fix(store: Store, table: Table) -> str:
    try:
        finish_and_clean_up(store, table)
    except Exception as error:
        return f"{table.target}: {coded(named(f'Fixing {table.target}', error))}"
    return f"{table.target}: fixed."


def finish_and_clean_up(store: Store, table: Table) -> None:
    """Rename the files of the newest record, and delete files that no record can publish. Every run does this first."""
    from mirrorfeed.publish.log.clean_up import clean_up
    from mirrorfeed.publish.log.table_log import TableLog

    log = TableLog(store, table.target.folder)
    view = log.finish_publication()
    error: MirrorfeedError | None = clean_up(log, view, table.log_retention_records, others=True) if view else None
    if error:
        raise error
