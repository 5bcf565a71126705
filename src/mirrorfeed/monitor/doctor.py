"""Diagnoses problems between the source tables and Fabric, and applies the fixes that are safe."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from mirrorfeed.config.model import zone_of
from mirrorfeed.errors import MirrorfeedError, coded, named
from mirrorfeed.monitor.collector import Collector, database_facts
from mirrorfeed.monitor.findings import Finding
from mirrorfeed.monitor.rules import SAFE, database_findings, table_findings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from mirrorfeed.config.model import Config, Table
    from mirrorfeed.storage import Store


def diagnose(
    spark: Callable[[], SparkSession], config: Config, names: Sequence[str] = (), *, fix: bool = False
) -> tuple[list[Finding], list[str]]:
    """The findings of the mirrored database and then of each table, and notes about the fixes."""
    store, notes = zone_of(config), list[str]()
    database = database_facts(config, store)
    collector = Collector(config, spark, deep=True, states=database.states)
    found = database_findings(database)
    chosen = config.select(names)
    for table, facts in zip(chosen, collector.collect(chosen), strict=True):
        of_table = table_findings(facts)
        if fix and any(each.name in SAFE for each in of_table):
            notes.append(_fix(store, table))
            of_table = table_findings(collector.collect([table])[0])
        found += of_table
    return found, notes


def _fix(store: Store, table: Table) -> str:
    try:
        finish_and_clean_up(store, table)
    except Exception as error:
        return f"{table.target}: {coded(named(f'Fixing {table.target}', error))}"
    return f"{table.target}: fixed."


def finish_and_clean_up(store: Store, table: Table) -> None:
    """Rename the files of the newest record and remove files that no record can publish, as every run does first."""
    from mirrorfeed.publish.log.table_log import TableLog

    log = TableLog(store, table.target.folder)
    view = log.finish_publication()
    error: MirrorfeedError | None = log.clean_up(view, table.log_retention_records, others=True) if view else None
    if error:
        raise error
