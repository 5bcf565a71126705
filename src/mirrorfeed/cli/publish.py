"""The command `publish`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from mirrorfeed.cli.main import (
    config_option,
    feed,
    for_programs,
    main,
    print_lines,
    publishing,
    stoppable,
    tables_argument,
)

if TYPE_CHECKING:
    from mirrorfeed.api.results import Decision, Result, TableResult


def _shard(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    """The name by which a configuration selects a shard, such as `2/8`."""
    from mirrorfeed.config.model import parse_shard  # the start of the command line does not import pydantic

    if value is not None and parse_shard(f"shard:{value}") is None:
        raise click.BadParameter(f"{value!r} is not a shard, such as 2/8.")
    return value and f"shard:{value}"


@main.command()
@tables_argument
@click.option("--dry-run", is_flag=True, help="Show the decision for each table and change nothing.")
@click.option("--shard", callback=_shard, metavar="N/COUNT", help="Publish only the tables of shard N of COUNT.")
@click.option("--follow", is_flag=True, help="Keep running and publish new commits as they arrive.")
@click.option("--duration", type=click.FloatRange(0), metavar="MINUTES", help="Stop after MINUTES. Requires --follow.")
@config_option
def publish(
    tables: tuple[str, ...], dry_run: bool, shard: str | None, follow: bool, duration: float | None, path: str
) -> Result[Decision] | Result[TableResult]:
    """Publish new changes of all configured tables, or only of TABLES.

    The first run of a table publishes a snapshot. A table that fails does not stop the others. Ctrl-C stops after the
    files in work, and the next run continues. Exits with 1 if a table failed or was not finished.

    \b
    Examples:
      mirrorfeed publish                          publish everything once
      mirrorfeed publish sales.orders --dry-run   show what would be published
      mirrorfeed publish --follow --duration 60   keep publishing for an hour
      mirrorfeed publish --shard 2/8              publish one of eight parts of the tables
    """
    if shard and tables:
        raise click.UsageError("--shard excludes TABLES.")
    tables = (shard,) if shard else tables
    if duration is not None and not follow:
        raise click.UsageError("--duration requires --follow.")
    if follow and (dry_run or for_programs()):
        raise click.UsageError("--follow prints each publication when it is made, and excludes --dry-run and --json.")
    if dry_run:
        return feed(path).dry_run(*tables)
    if follow:
        from mirrorfeed.cli.output import FollowLog

        print_lines("Publishing new commits until Ctrl-C or SIGTERM.")
        return feed(path).follow(*tables, minutes=duration, on_done=FollowLog(print_lines), stop=stoppable())
    with publishing() as steps:
        return feed(path).publish(*tables, on_step=steps, on_done=steps.done, stop=stoppable())
