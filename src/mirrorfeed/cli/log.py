"""The command that shows a table's log and holds its newest files against it."""

from __future__ import annotations

import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from mirrorfeed.cli.root import config_option, for_programs, load_as_written, main, say, say_json
from mirrorfeed.display.humanize import counted
from mirrorfeed.display.terminal import waiting
from mirrorfeed.errors import coded
from mirrorfeed.landing.names import Target

if TYPE_CHECKING:
    from mirrorfeed.landing.log import Record
    from mirrorfeed.publish.examine import Examined


@main.command()
@click.argument("table")
@config_option
def log(table: str, path: str) -> None:
    """Show the publications of TABLE that are recorded, and whether the newest one's files are what the record says.

    Reads these files whole, changes nothing, and needs no Spark.
    """
    config = load_as_written(path)
    from mirrorfeed.config.landing_zone import zone_of
    from mirrorfeed.publish.examine import examine

    store, target = zone_of(config), Target.parse(table)
    with waiting(f"Reading the log of {target} and the newest publication's files"):
        found = examine(store, target.folder)
    if for_programs():
        _say_for_programs(target, found)
    else:
        _say(found, store.address(target.folder))
    sys.exit(found is not None and not found.as_recorded)


def _say_for_programs(target: Target, found: Examined | None) -> None:
    if found is None:
        say_json({"log": None, "follows_on": None, "records": [], "files": [], "error": None})
        return
    records, files = [_told(target, record) for record in found.records], [asdict(place) for place in found.places]
    error = found.lost.to_dict() if found.lost else None
    say_json({"log": found.log, "follows_on": found.follows_on, "records": records, "files": files, "error": error})


def _told(target: Target, record: Record) -> dict[str, Any]:
    """Under the names of the ledger's columns."""
    from mirrorfeed.cli.output import MARKERS

    rows = {f"{marker}s": sum(file.rows.get(marker, 0) for file in record.files) for marker in MARKERS}
    return {
        "record": record.number,
        "time": record.time,
        "table": str(target),
        "from_version_exclusive": record.from_version_exclusive,
        "to_version_inclusive": record.to_version_inclusive,
        **rows,
        "files": len(record.files),
        "bytes": sum(file.bytes for file in record.files),
        "build": record.build,
    }


def _say(found: Examined | None, folder: str) -> None:
    if found is None:
        say(f"{folder} has no log: nothing was published there.")
        return
    from mirrorfeed.publish.examine import published

    say(found.log)
    for record in reversed(found.records):
        rows = sum(count for file in record.files for count in file.rows.values())
        files = counted(len(record.files), "file")
        say(f"  record {record.number} of {record.time}: {published(record)}, {counted(rows, 'row')}, {files}")
    if not found.follows_on:
        say("The record that the newest one follows is not there.")
    for place in found.places:
        if place.found:
            say(f"{place.address}: {place.found}")
        elif place.consumed:
            say(f"{place.address}: consumed, and removed by Fabric")
    if found.lost:
        say(coded(found.lost))
    if found.records and not found.places:
        say("The newest record has no files.")
