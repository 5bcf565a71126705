"""Commands that compare tables with their mirrors and correct them: `verify`, `repair`, `rebuild`, `drop`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from mirrorfeed.cli.main import (
    config_option,
    confirmation,
    feed,
    main,
    mirror_option,
    publishing,
    stoppable,
    table_argument,
    tables_argument,
    wait_option,
    yes_option,
)

if TYPE_CHECKING:
    from mirrorfeed.api.results import Comparison, DroppedTable, Repair, Result, TableResult


@main.command()
@tables_argument
@mirror_option
@config_option
def verify(tables: tuple[str, ...], mirror: str | None, path: str) -> Result[Comparison]:
    """Compare sources and mirrors row by row, at the version that each mirror has.

    Writes the results into the ledger. Differing rows are published again if their number is at most
    `auto_repair_max_keys`. Exits with 1 if a table differs, was repaired, or cannot be compared, as before its first
    publication.
    """
    return feed(path).verify(*tables, mirror=mirror)


@main.command()
@table_argument
@click.option("--where", metavar="CONDITION", help="Publish all rows that match this SQL condition.")
@mirror_option
@click.option("--source-only", is_flag=True, help="Do not read the mirror. Rows only there stay. Requires --where.")
@config_option
def repair(table: str, where: str | None, mirror: str | None, source_only: bool, path: str) -> Result[Repair]:
    """Publish the rows of TABLE again that differ between source and mirror.

    The table stays available in Fabric. Rows are published as of the published version, as upserts and deletes.
    """
    with publishing() as steps:
        return feed(path).repair(table, mirror, where, source_only=source_only, on_step=steps)


@main.command()
@table_argument
@yes_option
@wait_option
@config_option
def rebuild(table: str, yes: bool, minutes: float, path: str) -> Result[TableResult]:
    """Delete TABLE in the landing zone and publish it again from the start.

    Fabric does not have the table until it is published. After a failure, run the command again.
    """
    with publishing() as steps:
        return feed(path).rebuild(
            table, minutes, confirmation(yes), on_step=steps, on_done=steps.done, stop=stoppable()
        )


@main.command()
@table_argument
@yes_option
@config_option
def drop(table: str, yes: bool, path: str) -> Result[DroppedTable]:
    """Delete TABLE, which is no longer configured, from the landing zone, so that Fabric drops it."""
    return feed(path).drop(table, confirmation(yes))
