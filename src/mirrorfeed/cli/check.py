"""The commands that check tables and landing zones, simulate Fabric, and manage the mirrored database.

`status`, `check-alerts`, `doctor`, `setup`, `report`, `explain`, `log`, `lint`, `replicate`, `fabric`.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import click

from mirrorfeed.api import results
from mirrorfeed.api.errors import file_not_written, landing_zone_missing
from mirrorfeed.api.results import Result
from mirrorfeed.cli.main import (
    ci_format_option,
    confirmation,
    feed,
    feed_of,
    feed_or_empty,
    load_config,
    main,
    print_json,
    print_lines,
    print_result,
    prints_json,
    show_row,
    stoppable,
    table_argument,
    tables_argument,
    until_closed,
    wait_option,
    yes_option,
)
from mirrorfeed.display.progress import clear_progress
from mirrorfeed.display.terminal import console
from mirrorfeed.errors import MirrorfeedError

if TYPE_CHECKING:
    from mirrorfeed.api.feed import Feed
    from mirrorfeed.api.go_live import Answer


_STOPPING = "Stopping with the tables that were checked. Press Ctrl-C again to stop immediately."
deep_option = click.option(
    "--deep",
    is_flag=True,
    help="Also read the rows of all sources up to 64 MiB, and complete logs. By default, only if there is a reason.",
)


@main.command()
@tables_argument
@click.option("--behind", is_flag=True, help="Show only tables that are not up to date.")
@click.option(
    "--all", "every", is_flag=True, help="List all tables. By default, many up-to-date tables are only counted."
)
@click.option("--fabric", is_flag=True, help="Also show what Fabric and its SQL endpoint report.")
@click.option("--mirror", metavar="FOLDER", help="Folder with the replicated tables. Also show when each was updated.")
def status(tables: tuple[str, ...], every: bool, **options: Any) -> Result[results.Status]:
    """Show published versions, lag, unconsumed files, and when the newest changes were published and consumed.

    The most urgent tables come first. --fabric needs a mirrored database, and makes its SQL endpoint load new changes.
    Exits with 1 if a table has an error.
    """
    return replace(feed().status(*tables, **options), every=every or bool(tables))


@main.command()
@click.option("--mirror", metavar="FOLDER", help="Folder with the replicated tables. Also check when each was updated.")
@deep_option
def check_alerts(mirror: str | None, deep: bool) -> Result[results.Alert]:
    """Check all tables and send an alert for each new problem and each resolved one.

    Alerts go to the webhooks and addresses in `alerts`, and to the output. A problem that lasts is sent again every
    `remind_after_hours`. Run this on a separate schedule. Exits with 1 if it printed a problem, or if sending or
    recording an alert failed.
    """
    return feed().check_alerts(mirror, deep=deep, stop=stoppable(_STOPPING))


@main.command()
@tables_argument
@click.option("--fix", is_flag=True, help="Apply the fixes that are safe to apply automatically.")
@deep_option
@ci_format_option
def doctor(tables: tuple[str, ...], fix: bool, deep: bool) -> Result[results.Finding]:
    """Diagnose problems between the source tables and Fabric, and suggest a fix for each.

    Also warns if changes may be lost soon, because the retention of a source is shorter than the lag. Exits with 1 if
    it finds a problem. If you name TABLES, their rows are checked as with --deep. Prints each finding as soon as it is
    known.
    """
    return feed().doctor(*tables, fix=fix, deep=deep, on_finding=until_closed(show_row), stop=stoppable(_STOPPING))


@main.group()
def setup() -> None:
    """Check permissions, credential, landing zone and platform before the first publication."""


@setup.command()
@ci_format_option
def check() -> Result[results.Finding]:
    """Check the setup: permissions, credential, landing zone, hosts and sources. Creates the ledger.

    Writes small files into the landing zone and deletes them. Exits with 1 if it finds a problem.
    """
    return feed().setup.check()


@setup.command()
@ci_format_option
def check_platform() -> Result[results.Finding]:
    """Test how storage, Spark and network behave. The output names no table.

    Writes small files into the landing zone and deletes them. Exits with 1 if something does not behave as required.
    """
    return feed().setup.check_platform()


@setup.command()
@click.option(
    "--check", "numbers", type=click.IntRange(1, 19), multiple=True, metavar="NUMBER", help="Make only check NUMBER."
)
@click.option("--to", "file", default="go-live.md", metavar="FILE", help="Write the results to FILE as a page.")
@click.option("--no-input", is_flag=True, help="Ask no questions. Checks that need a person are then not done.")
def go_live(numbers: tuple[int, ...], file: str, no_input: bool) -> Result[results.GoLiveCheck]:
    """Make the checks of the first live day in order, and ask about those that need a person.

    Publishes all tables, writes test files, and creates the ledger. The page docs/go-live-checklist.md explains each
    check. The results name no table, so the page can be sent to others. Exits with 1 if a check fails.
    """
    from mirrorfeed.api.go_live import page_of

    result = feed().setup.go_live(None if no_input else _ask_person, numbers)
    try:
        Path(file).write_text(page_of(result.rows), encoding="utf-8")
    except OSError as error:
        raise file_not_written(path=file, reason=error.strerror or str(error)) from error
    return replace(result, summary=f"The results were written to {file}.")


def _ask_person(number: int, title: str) -> Answer:
    from mirrorfeed.api.go_live import PAGE, Verdict

    clear_progress()
    err = prints_json()
    print_lines("", f"Check {number}, {title}: follow check {number} in {PAGE}.")
    try:
        result: Any = click.prompt("Result", type=click.Choice(get_args(Verdict)), default="not done", err=err)
        seen = "" if result == "not done" else click.prompt("What did you see", default="", show_default=False, err=err)
    except click.Abort:  # the input has ended
        print_lines("", err=True)
        return "not done", "no answer"
    return result, seen


@main.command()
@click.option(
    "--html",
    "file",
    metavar="FILE",
    help="Write the report with charts to FILE as an HTML page, instead of printing it.",
)
def report(file: str | None) -> None:
    """Show lag, state of tables and mirrors, rows per day, archives and failures, as recorded in the ledger.

    Without a ledger, shows only the state of the tables and the publications in their logs.
    """
    ledger_report = feed().report()
    if file is not None:
        try:
            Path(file).write_text(ledger_report.page(), encoding="utf-8")
        except OSError as error:
            raise file_not_written(path=file, reason=error.strerror or str(error)) from error
        print_lines(f"The report was written to {file}.")
    if prints_json():
        print_json(ledger_report.to_dict())
    elif file is None:
        ledger_report.draw(console())


@main.command(reads_config=False)
@click.argument("code")
def explain(code: str) -> Result[results.Explanation]:
    """Explain the CODE of an error or finding, such as MF2102, and how to fix it. CODE can also be an error's name."""
    from mirrorfeed.errors import explain

    return Result(explain(code))


@main.command()
@table_argument
def log(table: str) -> Result[results.LogRecord]:
    """Show the recorded publications of TABLE, and compare the files of the newest one with its record.

    Reads these files completely, changes nothing, and needs no Spark. Exits with 1 if a file is missing or does not
    match the record.
    """
    return feed().log(table)


@main.command()
@click.argument("landing_zone")
@click.option("--check-keys", is_flag=True, help="Also check tables with more than 64 MiB of files for duplicate keys.")
@ci_format_option
def lint(landing_zone: str, check_keys: bool) -> Result[results.LintFinding]:
    """Check the LANDING_ZONE of any publisher against Fabric's specification. Exits with 1 on errors and warnings.

    LANDING_ZONE is a folder or onelake://<workspace id>/<mirrored database id>. OneLake is read with the credential of
    the configuration, if there is one.
    """
    return _feed_of_zone(landing_zone).lint(check_keys)


@main.command()
@click.argument("landing_zone")
@click.argument("target")
@click.option(
    "--once/--follow",
    default=True,
    help="Make one pass and exit, or make passes until interrupted.",
)
@click.option("--poll", default=5.0, metavar="SECONDS", help="Time between passes.")
def replicate(landing_zone: str, target: str, once: bool, poll: float) -> Result[results.TableReport] | None:
    """Apply LANDING_ZONE to Delta tables below the folder TARGET, as Fabric would."""
    zone_feed = _feed_of_zone(landing_zone)
    if once:
        return zone_feed.replicate(target)
    if prints_json():
        raise click.UsageError("--follow prints each pass when it ends, and cannot be combined with --json.")
    zone_feed.replicate(target, poll, until_closed(print_result), stoppable())
    return None


@setup.command()
@click.option("--force", is_flag=True, help="Replace an existing file with other content.")
def partner(force: bool) -> Result[results.PartnerFile]:
    """Write the setting `partner`, which describes the publisher, to _partnerEvents.json in the landing zone.

    `publish` also writes this file if it does not exist.
    """
    return feed().setup.partner(force)


def _feed_of_zone(landing_zone: str) -> Feed:
    """Return a `Feed` for a folder or a OneLake address. For an address, the configuration file can set the credential.

    The `Feed` has the tables of the configuration file only if the file has this landing zone. Raises
    `invalid_landing_zone` for an invalid address, and `landing_zone_missing` for a folder that does not exist.
    """
    from mirrorfeed.config.model import Config
    from mirrorfeed.config.validators import is_onelake, parse_onelake_address

    if is_onelake(landing_zone):
        return feed_or_empty(parse_onelake_address(landing_zone))
    folder = Path(landing_zone).resolve()
    if not folder.is_dir():
        raise landing_zone_missing(path=landing_zone)
    with suppress(MirrorfeedError):  # a folder can be checked without a valid configuration
        if Path((config := load_config()).landing_zone).resolve() == folder:
            return feed_of(config)
    return feed_of(Config(landing_zone=str(folder), tables=()))


@main.group()
def fabric() -> None:
    """Manage the mirrored database in Fabric. Requires a landing zone in OneLake and a credential, but not Spark."""


@fabric.command()
@click.argument("name")
def create(name: str) -> Result[results.CreatedDatabase]:
    """Create the open mirrored database NAME in the configured workspace, if it does not exist."""
    return feed().fabric.create(name)


@fabric.command()
@click.option("--force", is_flag=True, help="Start mirroring even if a table has no file yet.")
@wait_option("mirroring runs")
def start(force: bool, minutes: float) -> Result[results.DatabaseStatus]:
    """Start mirroring, and wait until it runs. Requires a published file for every configured table, unless --force."""
    return feed().fabric.start(force=force, minutes=minutes)


@fabric.command()
@wait_option("mirroring has stopped")
def stop(minutes: float) -> Result[results.DatabaseStatus]:
    """Stop mirroring. After the next start, Fabric replicates every table from the beginning."""
    return feed().fabric.stop(minutes)


@fabric.command()
@wait_option("mirroring runs")
def resume(minutes: float) -> Result[results.DatabaseStatus]:
    """Resume mirroring that is Paused because its capacity was paused, and wait until it runs.

    Resume the capacity first. Fabric does not document whether mirroring continues where it stopped.
    """
    return feed().fabric.resume(minutes)


@fabric.command()
def plan() -> Result[results.Setting]:
    """Show the settings of the mirrored database whose values differ from `fabric` in the configuration."""
    return feed().fabric.plan()


@fabric.command()
@yes_option
def apply(yes: bool) -> Result[results.Setting]:
    """Change the settings of the mirrored database to the values of `fabric` in the configuration."""
    return feed().fabric.apply(confirm=confirmation(yes))


@fabric.command()
def refresh() -> Result[results.TableSync]:
    """Refresh the SQL endpoint of the mirrored database, and show the result for each table.

    Refreshing uses capacity. Run this after a rebuild, or when a column is missing. Exits with 1 if a table fails.
    """
    return feed().fabric.refresh()


@fabric.command("log")
@click.option("--hours", default=24.0, metavar="HOURS", help="Read the entries of the last HOURS.")
def fabric_log(hours: float) -> Result[results.TableExecution]:
    """Show rows, size and latency of the last batch of each table, and its error, from Fabric's log.

    Requires workspace monitoring in Fabric. Exits with 1 if a table has an error.
    """
    return feed().fabric.log(hours)


@fabric.command("status")
def fabric_status() -> Result[results.TableState]:
    """Show the status of the mirrored database and of each table. Exits with 1 if a table has an error."""
    return feed().fabric.status()
