"""Commands that report on tables: `status`, `check-alerts`, `doctor`, `report`, `explain`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from mirrorfeed.cli.main import config_option, feed, for_programs, main, print_json, print_lines, tables_argument
from mirrorfeed.display.terminal import console

if TYPE_CHECKING:
    from mirrorfeed.api.results import Alert, Explanation, Finding, Result, Status


@main.command()
@tables_argument
@click.option("--behind", is_flag=True, help="Show only tables that are not up to date.")
@click.option("--all", "every", is_flag=True, help="List all tables. Many that are up to date are only counted.")
@click.option("--fabric", is_flag=True, help="Also show what Fabric and its SQL endpoint report.")
@click.option("--mirror", metavar="FOLDER", help="Folder of the replicated tables. Also show when they were updated.")
@config_option
def status(
    tables: tuple[str, ...], behind: bool, every: bool, fabric: bool, mirror: str | None, path: str
) -> Result[Status]:
    """Show published versions, lag, unconsumed files, and the time since each step of the newest changes.

    The most urgent tables come first. --fabric needs a mirrored database, and makes its SQL endpoint load new changes.
    Exits with 1 if a table has an error.
    """
    found = feed(path).status(*tables, behind=behind, fabric=fabric, mirror=mirror)
    return replace(found, rows=tuple(replace(each, listed=True) for each in found)) if every or tables else found


@main.command()
@click.option("--mirror", metavar="FOLDER", help="Folder of the replicated tables. Also check when they were updated.")
@config_option
def check_alerts(mirror: str | None, path: str) -> Result[Alert]:
    """Check all tables and send an alert for each new problem and each resolved one.

    Alerts go to the webhooks and addresses in `alerts`, and to the output. A problem that lasts is sent again once a
    day. Run this on a separate schedule. Exits with 1 if it printed a problem, or if a channel or the alert
    state failed.
    """
    return feed(path).check_alerts(mirror)


@main.command()
@tables_argument
@click.option("--fix", is_flag=True, help="Apply the fixes that are safe to apply automatically.")
@click.option("--setup", is_flag=True, help="Check the setup: permissions, credential, landing zone, sources.")
@click.option("--live", is_flag=True, help="With --setup, also check how the services behave.")
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


@main.command()
@click.option("--html", "file", metavar="FILE", help="Write the report with charts to FILE, as one HTML page.")
@config_option
def report(file: str | None, path: str) -> None:
    """Show lag, state of tables and mirrors, rows per day, archives and failures from the ledger."""
    found = feed(path).report()
    if file is not None:
        Path(file).write_text(found.page(), encoding="utf-8")
        print_lines(f"Wrote {file}.")
    if for_programs():
        print_json(found.to_dict())
    elif file is None:
        found.draw(console())


@main.command()
@click.argument("code")
def explain(code: str) -> Result[Explanation]:
    """Explain the CODE of an error or a finding, such as MF2102, and how to fix it. Needs no Spark.

    CODE can also be a name, such as Gap.
    """
    from mirrorfeed.api.results import Result
    from mirrorfeed.errors.explain import explain

    return Result(explain(code))
