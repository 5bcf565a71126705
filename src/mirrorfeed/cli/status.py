"""The command that tells how far each table is."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from mirrorfeed.cli.idle import told
from mirrorfeed.cli.root import config_option, for_programs, load, main, say_json, spark_session
from mirrorfeed.display.progress import waiting
from mirrorfeed.display.terminal import console, text
from mirrorfeed.errors import coded

if TYPE_CHECKING:
    from mirrorfeed.config import Config, Table
    from mirrorfeed.fabric import TableState
    from mirrorfeed.monitor.freshness import Beyond
    from mirrorfeed.monitor.status import Status
    from mirrorfeed.publish.idle import Idle


@main.command()
@click.argument("tables", nargs=-1)
@click.option("--behind", is_flag=True, help="Show only tables that are not up to date.")
@click.option("--fabric", "with_fabric", is_flag=True, help="Beside it, what Fabric and its SQL endpoint say.")
@click.option("--mirror", help="The folder of the replicated tables, to tell how far they are.")
@config_option
def status(tables: tuple[str, ...], behind: bool, with_fabric: bool, mirror: str | None, path: str) -> None:
    """Show how far each table is published, what waits in the landing zone, and how far what was committed has come:
    first how many are up to date, then the tables, those in trouble and those behind before the others.

    Spark reads the sources, but for tables in folders of this machine of which nothing is new; --fabric also needs a
    mirrored database, and who may ask Fabric about it: the SQL endpoint takes up what is new, and tells when.
    """
    config = load(path)
    chosen = config.select(tables)
    states = _states(config) if with_fabric else None
    said = _service_words(states, chosen)
    beyond = _beyond(config, states, mirror)

    from mirrorfeed.monitor.status import status_without_spark

    def ask_log(idle: Idle, table: Table) -> Status | None:
        return status_without_spark(idle, table, beyond)

    def ask_spark(names: Sequence[str]) -> Sequence[Status]:
        spark = spark_session()
        from mirrorfeed.monitor.status import statuses

        with waiting("Asking for the newest versions"):
            return statuses(spark, config, names, beyond=beyond)

    rows = told(config, chosen, ask_log, ask_spark)
    from mirrorfeed.cli import output as show
    from mirrorfeed.config.landing_zone import zone_of
    from mirrorfeed.monitor.status import CURRENT, by_need
    from mirrorfeed.publish.strays import strays

    every = [replace(row, service=words) for row, words in zip(rows, said, strict=True)]
    found = [row for row in every if not behind or row.state not in CURRENT]
    out = console()
    if for_programs():
        say_json([{**asdict(row), "fresh": row.fresh and row.fresh.told()} for row in found])
    else:
        out.print(show.states(every))
        found = by_need(found)
        if found:
            out.print(show.status(found))
        if any(row.fresh for row in found):
            out.print(show.freshness(found, datetime.now(UTC)))
        for row in found:
            if row.paused:
                out.print(text(f"{row.table}: {row.paused}", style="yellow"))
            elif row.error:
                out.print(text(f"{row.table}: {coded(row.error)}", style="red"))
        for target in [] if tables else strays(zone_of(config), config):
            out.print(text(f"{target} is published and not in {path}. It is left alone; `mirrorfeed drop` removes it."))
    sys.exit(any(row.error and not row.paused for row in every))


def _states(config: Config) -> Sequence[TableState]:
    from mirrorfeed import fabric

    return fabric.database_of(config).tables()


def _beyond(config: Config, states: Sequence[TableState] | None, mirror: str | None) -> Callable[[Table], Beyond]:
    if states is None and mirror is None:
        from mirrorfeed.monitor.freshness import UNASKED

        return lambda _: UNASKED
    from mirrorfeed.monitor.mirror_times import beyond_of, syncs_of

    if states is None:
        return beyond_of(config, mirror=mirror)
    with waiting("Letting the SQL endpoint take up what is new"):
        return beyond_of(config, states, syncs_of(config), mirror)


def _service_words(states: Sequence[TableState] | None, tables: Sequence[Table]) -> Sequence[str | None]:
    if states is None:
        return [None] * len(tables)
    by_table = [next((state for state in states if state.is_of(table.target)), None) for table in tables]
    return ["no such table yet" if state is None else str(state) for state in by_table]
