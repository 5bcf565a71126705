"""The command that diagnoses problems."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from mirrorfeed.cli.main import config_option, feed, main, tables_argument

if TYPE_CHECKING:
    from mirrorfeed.api.results import Finding, Result


@main.command()
@tables_argument
@click.option("--fix", is_flag=True, help="Apply the fixes that are safe: they do only what every run does first.")
@click.option("--setup", is_flag=True, help="Check the setup: permissions, credential, landing zone, sources.")
@click.option("--live", is_flag=True, help="With --setup, also check how the services behave, and list manual checks.")
@config_option
def doctor(tables: tuple[str, ...], fix: bool, setup: bool, live: bool, path: str) -> Result[Finding]:
    """Diagnose problems between the source tables and Fabric, and suggest a fix for each.

    Also warns if changes may be lost soon, because the feed keeps them for less time than publication takes. With
    --setup it writes small files into the landing zone and removes them, and creates the ledger. Exits with 1 if it
    finds a problem.
    """
    if (live and not setup) or (setup and (tables or fix)):
        raise click.UsageError("--setup takes neither tables nor --fix, and --live needs --setup.")
    return feed(path).doctor(*tables, fix=fix, setup=setup, live=live)
