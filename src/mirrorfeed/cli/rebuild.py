"""The commands that delete a table's folder: to publish it anew, or for good."""

from __future__ import annotations

import click

from mirrorfeed.cli.outcomes import say_outcomes
from mirrorfeed.cli.root import (
    config_option,
    confirm,
    for_programs,
    load,
    main,
    say,
    say_result,
    spark_session,
    wait_option,
)
from mirrorfeed.display.terminal import console, error_console
from mirrorfeed.errors import MirrorfeedError


@main.command()
@click.argument("table")
@click.option("--yes", is_flag=True, help="Without asking.")
@wait_option
@config_option
def rebuild(table: str, yes: bool, wait: float, path: str) -> None:
    """Publish TABLE anew: delete its folder, wait until Fabric has dropped it, publish a snapshot.

    After a failure run it again, whatever it was doing.
    """
    config = load(path)
    chosen = config.select([table])
    from mirrorfeed.cli import output as show
    from mirrorfeed.config.landing_zone import zone_of
    from mirrorfeed.publish.fleet import Fleet, rebuild_table
    from mirrorfeed.publish.rebuild import dropping_by
    from mirrorfeed.stores.process import retries

    for each in chosen:
        place = zone_of(config).address(each.target.folder)
        say(f"{place} is deleted with all that is in it, and the table is gone in Fabric until it is published.")
    if not yes:
        confirm()
    dropping = dropping_by(config, say, wait * 60)
    spark, out, repeated = spark_session(), error_console() if for_programs() else console(), retries().value
    troubles: list[MirrorfeedError] = []
    with show.steps(out) as on_step:
        on_step.looking(len(chosen))
        fleet = Fleet(spark, config, on_step, troubles.append, dropping)
        outcomes = [rebuild_table(fleet, each) for each in chosen]
    say_outcomes(out, outcomes, troubles, retries().value - repeated, rebuilt=True)


@main.command()
@click.argument("table")
@click.option("--yes", is_flag=True, help="Without asking.")
@config_option
def drop(table: str, yes: bool, path: str) -> None:
    """Delete TABLE, a target that the configuration does not name any more, from the landing zone: Fabric drops it."""
    config = load(path)
    from mirrorfeed.config.landing_zone import zone_of
    from mirrorfeed.files.place import clear_staging
    from mirrorfeed.landing.names import Target
    from mirrorfeed.publish.strays import droppable

    store, target = zone_of(config), Target.parse(table)
    found = droppable(store, config, target)
    say(f"{found} The folder is deleted with all that is in it, and Fabric drops the table.")
    if not yes:
        confirm()
    store.remove_folder(target.folder)
    clear_staging(config.handover, store, store.address(target.folder))
    say_result(
        {"table": str(target), "address": store.address(target.folder), "hashes": found.hashes and str(found.hashes)}
    )
    say(f"{target} is gone from the landing zone.")
    if hashes := found.hashes:
        remove = "delete that folder" if hashes.path else f"DROP TABLE {hashes.sql} removes them"
        say(f"Its hashes, some with rows of the source, stay in {hashes}: {remove}.")
