"""Commands for the permanent histories of tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from mirrorfeed.cli.main import config_option, feed, main, table_argument, tables_argument

if TYPE_CHECKING:
    from mirrorfeed.api.results import Append, History, Replay, Result


@main.group()
def history() -> None:
    """Keep all versions of tables in permanent histories, and rebuild a table as of any of them."""


@history.command()
@tables_argument
@click.option("--begin-again", is_flag=True, help="If versions are lost, continue with a snapshot.")
@config_option
def run(tables: tuple[str, ...], begin_again: bool, path: str) -> Result[Append]:
    """Append new versions of all configured tables, or only of TABLES, to their histories."""
    return feed(path).append_history(*tables, begin_again=begin_again)


@history.command()
@tables_argument
@config_option
def status(tables: tuple[str, ...], path: str) -> Result[History]:
    """Show the versions in the history of each table, and its lag."""
    return feed(path).history(*tables)


@history.command()
@table_argument
@click.option("--to-version", type=click.IntRange(0), metavar="VERSION", help="Version to rebuild.")
@click.option("--as-of", metavar="TIME", help="Rebuild the newest version at TIME, in the time zone of the session.")
@click.option("--into", required=True, metavar="TABLE", help="Table to create: a catalog name or a folder.")
@config_option
def replay(table: str, to_version: int | None, as_of: str | None, into: str, path: str) -> Result[Replay]:
    """Rebuild TABLE as of a version in a new table. The source is not read."""
    at = as_of if to_version is None else to_version
    if at is None or (as_of is not None and to_version is not None):
        raise click.UsageError("Give either --to-version or --as-of.")
    return feed(path).replay_history(table, into, at)
