"""Commands for the landing zone, and for the mirrored database in Fabric."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from mirrorfeed.cli.main import (
    config_option,
    confirmation,
    feed,
    feed_of,
    for_programs,
    load_if_there,
    main,
    print_result,
    stoppable,
    table_argument,
    wait_option,
    yes_option,
)

if TYPE_CHECKING:
    from mirrorfeed.api.feed import Feed
    from mirrorfeed.api.results import (
        CreatedDatabase,
        DatabaseStatus,
        LintFinding,
        LogRecord,
        PartnerFile,
        Result,
        Setting,
        TableReport,
        TableState,
        TableSync,
    )


@main.command()
@table_argument
@config_option
def log(table: str, path: str) -> Result[LogRecord]:
    """Show the recorded publications of TABLE, and compare the files of the newest one with its record.

    Reads these files completely, changes nothing, and needs no Spark. Exits with 1 if a file differs or is missing.
    """
    return feed(path).log(table)


@main.command()
@click.argument("landing_zone")
@click.option("--check-keys", is_flag=True, help="Find duplicate keys also in tables with more than 64 MiB of files.")
@config_option
def lint(landing_zone: str, check_keys: bool, path: str) -> Result[LintFinding]:
    """Check the LANDING_ZONE of any publisher against Fabric's specification. Exits with 1 on errors and warnings.

    LANDING_ZONE is a folder or onelake://<workspace id>/<mirrored database id>. OneLake is read with the credential of
    the configuration, if there is one.
    """
    return _feed_of(landing_zone, path).lint(check_keys)


@main.command()
@click.argument("landing_zone")
@click.argument("target")
@click.option("--once/--follow", default=True, show_default=True, help="Make one pass, or passes until interrupted.")
@click.option("--poll", default=5.0, show_default=True, metavar="SECONDS", help="Time between passes.")
@config_option
def replicate(landing_zone: str, target: str, once: bool, poll: float, path: str) -> Result[TableReport] | None:
    """Apply LANDING_ZONE to Delta tables below the folder TARGET, as Fabric would."""
    zone = _feed_of(landing_zone, path)
    if once:
        return zone.replicate(target)
    if for_programs():
        raise click.UsageError("--follow prints each pass when it ends, and cannot be combined with --json.")
    zone.replicate(target, poll, print_result, stoppable())
    return None


@main.command()
@click.option("--force", is_flag=True, help="Replace a file with other content.")
@config_option
def partner(force: bool, path: str) -> Result[PartnerFile]:
    """Write `partner` of the configuration into the landing zone. `publish` does so if no such file exists."""
    return feed(path).partner(force)


def _feed_of(landing_zone: str, path: str) -> Feed:
    """The feed of another landing zone, which in OneLake is read with the credential of the configuration."""
    from mirrorfeed.api.errors import NoLandingZone
    from mirrorfeed.config.model import Config
    from mirrorfeed.config.values import ONELAKE, onelake_address

    if landing_zone.startswith(ONELAKE):
        address = onelake_address(landing_zone)
        config = load_if_there(path) or Config(landing_zone=address, tables=())
        return feed_of(config.model_copy(update={"landing_zone": address}))
    if not Path(landing_zone).is_dir():
        raise NoLandingZone(path=landing_zone)
    return feed_of(Config(landing_zone=str(Path(landing_zone).resolve()), tables=()))


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
