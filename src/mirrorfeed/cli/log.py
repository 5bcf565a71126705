"""The command that shows a table's log and holds its newest files against it."""

from __future__ import annotations

import sys

import click

from mirrorfeed.amounts import counted
from mirrorfeed.cli.root import config_option, load, main
from mirrorfeed.feed.ranges import Range
from mirrorfeed.landing.names import Target


@main.command()
@click.argument("table")
@config_option
def log(table: str, path: str) -> None:
    """Show the publications of TABLE that are recorded, and whether the newest one's files are what the record says.

    Reads these files whole, changes nothing, and needs no Spark.
    """
    config = load(path)
    from mirrorfeed.publish.examine import examine
    from mirrorfeed.publish.zone import zone_of

    store, target = zone_of(config), Target.parse(table)
    found = examine(store, target.folder)
    if found is None:
        click.echo(f"{store.address(target.folder)} has no log: nothing was published there.")
        return
    click.echo(found.log)
    for record in reversed(found.records):
        after = record.from_version_exclusive
        what = f"snapshot at version {record.to_version_inclusive}"
        if record.repairs:
            what = f"repair at version {record.to_version_inclusive}"
        elif after is not None:
            what = str(Range(after, record.to_version_inclusive))
        rows = sum(count for file in record.files for count in file.rows.values())
        files = counted(len(record.files), "file")
        click.echo(f"  record {record.number} of {record.time}: {what}, {counted(rows, 'row')}, {files}")
    if not found.follows_on:
        click.echo("The record that the newest one follows is not there.")
    for place in found.places:
        click.echo(f"{place.address}: {place.found or 'not there'}")
    if found.records and not any(place.found for place in found.places):
        click.echo("None of its files is there: the service has taken them, or the newest record has none.")
    wrong = [place for place in found.places if place.found and not place.is_the_file]
    sys.exit(bool(wrong) or not found.follows_on)
