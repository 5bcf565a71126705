"""The commands about permanent histories: keep what is new, say what is kept, rebuild a table as it was."""

from __future__ import annotations

import sys
from dataclasses import asdict

import click

from mirrorfeed.cli.root import (
    config_option,
    for_programs,
    load,
    main,
    say,
    say_error,
    say_json,
    say_result,
    spark_session,
)
from mirrorfeed.display.terminal import Listing, console, text, waiting
from mirrorfeed.errors import coded


@main.group()
def history() -> None:
    """The feeds of tables, kept for good: each version can be rebuilt when the source has long forgotten it."""


@history.command()
@click.argument("tables", nargs=-1)
@click.option("--begin-again", is_flag=True, help="Where a history cannot go on, go on with a snapshot beside it.")
@config_option
def run(tables: tuple[str, ...], begin_again: bool, path: str) -> None:
    """Append what is new in the tables of the configuration, or in those named, to their histories."""
    from mirrorfeed.keep.fleet import chosen

    config = load(path)
    chosen(config, tables)
    spark = spark_session()
    from mirrorfeed.keep import fleet

    with waiting("Keeping what is new"):
        outcomes = fleet.keep_tables(spark, config, tables, begin_again=begin_again)
    say_result([fleet.told(outcome) for outcome in outcomes])
    for outcome in outcomes:
        for line in fleet.words(outcome):
            say(line)
        if outcome.error:
            say_error(outcome.error, outcome.table)
    sys.exit(any(outcome.error for outcome in outcomes))


@history.command()
@click.argument("tables", nargs=-1)
@config_option
def status(tables: tuple[str, ...], path: str) -> None:
    """Show which versions of each table are kept, and how far its history is behind."""
    from mirrorfeed.keep.fleet import chosen

    config = load(path)
    chosen(config, tables)
    spark = spark_session()
    from mirrorfeed.keep import fleet

    with waiting("Looking at what is kept"):
        found = fleet.statuses(spark, config, tables)
    if for_programs():
        say_json([asdict(row) for row in found])
    else:
        header = ("table", "history", "kept since", "versions", "newest", "lag", "rows")
        rows = [tuple("-" if cell is None else str(cell) for cell in fleet.cells(row)) for row in found]
        out = console()
        out.print(Listing(header, rows, right=(4, 5, 6)))
        for row in found:
            if row.error:
                out.print(text(f"{row.table}: {coded(row.error)}", style="red"))
    sys.exit(any(row.error for row in found))


@history.command()
@click.argument("table")
@click.option("--to-version", type=click.IntRange(0), metavar="VERSION", help="The version to rebuild.")
@click.option("--as-of", metavar="TIME", help="Or a time, in the session's time zone: the version that was the newest.")
@click.option("--into", required=True, metavar="TABLE", help="The table to make: a name in the catalog, or a folder.")
@config_option
def replay(table: str, to_version: int | None, as_of: str | None, into: str, path: str) -> None:
    """Rebuild TABLE as it was at a kept version, in a table of its own. The source is not read."""
    asked = as_of if to_version is None else to_version
    if asked is None or (as_of is not None and to_version is not None):
        raise click.UsageError("Say either --to-version or --as-of.")
    from mirrorfeed.keep.fleet import chosen

    config = load(path)
    (found,) = chosen(config, [table])
    assert found.history is not None
    from mirrorfeed.keep.replay import place_of

    place = place_of(into)
    spark = spark_session()
    from mirrorfeed.keep.replay import replay as rebuild

    with waiting(f"Rebuilding {found.target} from {found.history.table}"):
        made = rebuild(spark, found.history.table, place, asked)
    at = f"version {made.version} of {found.source}, committed at {made.at:%Y-%m-%d %H:%M:%S} UTC"
    facts = {"source": str(found.source), "version": made.version, "at": made.at, "made": not made.there}
    say_result({"table": str(found.target), "into": str(place), **facts})
    say(f"{place} {'holds' if made.there else 'now holds'} {at}")
