"""The command that shows how far each table is."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from mirrorfeed.cli.main import config_option, feed, main, tables_argument

if TYPE_CHECKING:
    from mirrorfeed.api.results import Result, Status


@main.command()
@tables_argument
@click.option("--behind", is_flag=True, help="Show only tables that are not up to date.")
@click.option("--fabric", is_flag=True, help="Also show what Fabric and its SQL endpoint report.")
@click.option("--mirror", metavar="FOLDER", help="Folder of the replicated tables, to show how far they are.")
@config_option
def status(tables: tuple[str, ...], behind: bool, fabric: bool, mirror: str | None, path: str) -> Result[Status]:
    """Show published versions, lag, unconsumed files, and the time since each step of the newest changes.

    The most urgent tables come first. Spark reads the sources, except local folders with nothing new. --fabric needs a
    mirrored database, and makes its SQL endpoint load new changes. Exits with 1 if a table has an error.
    """
    return feed(path).status(*tables, behind=behind, fabric=fabric, mirror=mirror)
