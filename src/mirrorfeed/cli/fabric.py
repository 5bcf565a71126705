"""Commands for the mirrored database in Fabric."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from mirrorfeed.cli.main import config_option, confirmation, feed, main, wait_option, yes_option

if TYPE_CHECKING:
    from mirrorfeed.api.results import CreatedDatabase, DatabaseStatus, Result, Setting, TableState, TableSync


@main.group()
def fabric() -> None:
    """Create, configure, start, stop and monitor the mirrored database in Fabric.

    Requires a landing zone in OneLake and a credential in the configuration, but not Spark.
    """


@fabric.command()
@click.argument("name")
@config_option
def create(name: str, path: str) -> Result[CreatedDatabase]:
    """Create the open mirrored database NAME in the configured workspace, if it does not exist."""
    return feed(path).fabric_create(name)


@fabric.command()
@click.option("--force", is_flag=True, help="Start even if a table has no file yet.")
@wait_option
@config_option
def start(force: bool, minutes: float, path: str) -> Result[DatabaseStatus]:
    """Start mirroring, if every configured table has a file, and wait until it runs."""
    return feed(path).fabric_start(force=force, minutes=minutes)


@fabric.command()
@wait_option
@config_option
def stop(minutes: float, path: str) -> Result[DatabaseStatus]:
    """Stop mirroring. After the next start Fabric replicates every table from the beginning."""
    return feed(path).fabric_stop(minutes)


@fabric.command()
@wait_option
@config_option
def resume(minutes: float, path: str) -> Result[DatabaseStatus]:
    """Start mirroring that a paused capacity has left Paused, and wait until it runs.

    Resume the capacity first. Fabric does not document whether it continues where it stopped.
    """
    return feed(path).fabric_resume(minutes)


@fabric.command()
@config_option
def plan(path: str) -> Result[Setting]:
    """Show settings of the mirrored database that differ from `fabric` in the configuration. Changes nothing."""
    return feed(path).fabric_plan()


@fabric.command()
@yes_option
@config_option
def apply(yes: bool, path: str) -> Result[Setting]:
    """Change the settings of the mirrored database that differ from `fabric` in the configuration, and no others."""
    return feed(path).fabric_apply(confirm=confirmation(yes))


@fabric.command()
@config_option
def refresh(path: str) -> Result[TableSync]:
    """Refresh the SQL endpoint of the mirrored database, and show the result for each table.

    This uses capacity. Run it after a rebuild or when a new column is missing. Exits with 1 if a table fails.
    """
    return feed(path).fabric_refresh()


@fabric.command()
@config_option
def status(path: str) -> Result[TableState]:
    """Show the status of the mirrored database and of each table. Exits with 1 if a table has an error."""
    return feed(path).fabric_status()
