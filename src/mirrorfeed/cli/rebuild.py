"""The commands that delete a table's folder: to publish it anew, or for good."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import click

from mirrorfeed.cli.main import (
    config_option,
    confirm,
    confirmation,
    feed,
    for_programs,
    load,
    main,
    say,
    spark_session,
    table_argument,
    wait_option,
    yes_option,
)
from mirrorfeed.cli.outcomes import say_outcomes
from mirrorfeed.display.terminal import console, error_console

if TYPE_CHECKING:
    from mirrorfeed.api.results import DroppedTable, Result
from mirrorfeed.errors import MirrorfeedError


@main.command()
@click.argument("table")
@click.option("--yes", is_flag=True, help="Without asking.")
@wait_option
@config_option
def rebuild(table: str, yes: bool, minutes: float, path: str) -> None:
    """Publish TABLE anew: delete its folder, wait until Fabric has dropped it, publish a snapshot.

    After a failure run it again, whatever it was doing.
    """
    config = load(path)
    chosen = config.select([table])
    from mirrorfeed.cli import output as show
    from mirrorfeed.config.landing_zone import zone_of
    from mirrorfeed.orchestration.publish_run import RunContext, rebuild_table
    from mirrorfeed.publish.reload import dropping_by
    from mirrorfeed.storage.process_cache import retries

    for each in chosen:
        place = zone_of(config).address(each.target.folder)
        say(f"{place} is deleted with all that is in it, and the table is gone in Fabric until it is published.")
    if not yes:
        confirm()
    dropping = dropping_by(config, partial(click.echo, err=for_programs()), minutes * 60)
    spark, out, repeated = spark_session(), error_console() if for_programs() else console(), retries().value
    troubles: list[MirrorfeedError] = []
    with show.steps(out) as on_step:
        on_step.looking(len(chosen))
        fleet = RunContext(spark, config, on_step, troubles.append, dropping)
        outcomes = [rebuild_table(fleet, each) for each in chosen]
    say_outcomes(out, outcomes, troubles, retries().value - repeated, rebuilt=True)


@main.command()
@table_argument
@yes_option
@config_option
def drop(table: str, yes: bool, path: str) -> Result[DroppedTable]:
    """Delete TABLE, which is no longer configured, from the landing zone, so that Fabric drops it."""
    return feed(path).drop(table, confirmation(yes))
