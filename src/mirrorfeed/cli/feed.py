"""The commands about the change data feed: switch it on, show what it holds."""

from __future__ import annotations

import sys
from typing import Any

import click

from mirrorfeed.cli.root import (
    at_their_paths,
    config_option,
    for_programs,
    load,
    load_if_there,
    main,
    say,
    say_error,
    say_json,
    say_result,
    spark_session,
)
from mirrorfeed.display.terminal import console, waiting
from mirrorfeed.errors import named

_KINDS = {"inserts": "insert", "updates": "update_postimage", "deletes": "delete"}
"""What the feed calls that which the ledger counts."""


@main.command()
@click.argument("tables", nargs=-1)
@config_option
def enable(tables: tuple[str, ...], path: str) -> None:
    """Switch the change data feed on for the tables of the configuration."""
    config = load(path)
    chosen = config.select(tables)
    spark = spark_session(*at_their_paths(chosen))
    from mirrorfeed.feed.enable import DEFAULT_LINE
    from mirrorfeed.feed.enable import enable as switch_on
    from mirrorfeed.publish.compared import COMPARED

    done: list[dict[str, Any]] = []
    for at, table in enumerate(chosen, 1):
        if table.changes == "compare":
            say(f"{table.source}: {COMPARED}")
            done.append({"table": str(table.target), "source": str(table.source), "feed": COMPARED, "error": None})
            continue
        try:
            with waiting(f"Table {at} of {len(chosen)}, {table.source}: switching the feed on"):
                found = switch_on(spark, table.source)
            say(f"{table.source}: the change data feed is {found.value}")
            done.append({"table": str(table.target), "source": str(table.source), "feed": found.value, "error": None})
        except Exception as error:
            trouble = named(f"Enabling the feed of {table.source}", error)
            say_error(trouble)
            done.append({"table": str(table.target), "source": str(table.source), "feed": None, "error": trouble})
    say_result(done)
    say("For all new tables, in the Spark configuration of a cluster or job:", DEFAULT_LINE)
    sys.exit(any(each["error"] for each in done))


@main.command()
@click.argument("table")
@click.option("--from", "start", required=True, metavar="VERSION|TIME", help="The first to show.")
@click.option("--to", "end", metavar="VERSION|TIME", help="The last to show; the newest by default.")
@click.option("--past-end", type=click.Choice(["error", "empty"]), default="error", show_default=True)
@click.option("--rows", "preview", default=20, show_default=True, help="How many rows to show.")
@config_option
def changes(table: str, start: str, end: str | None, past_end: Any, preview: int, path: str) -> None:
    """Show the change data feed of TABLE: a name, a path, or a table of the configuration."""
    source = _source(table, path)
    spark = spark_session(source)
    from mirrorfeed.feed.preview import changes_between

    with waiting(f"Reading the feed of {source}"):
        found = changes_between(spark, source, start, end, past_end)
        counts, rows = found.counts(), found.first(preview)
    if for_programs():
        told = {kind: counts.get(name, 0) for kind, name in _KINDS.items()}
        after, to = found.range.from_version_exclusive, found.range.to_version_inclusive
        say_json(
            {"table": str(source), "from_version_exclusive": after, "to_version_inclusive": to, **told, "rows": rows}
        )
        return
    say(f"{source}, {found.range}" if found.range.versions else f"{source}, no versions in this range")
    for kind, count in counts.items():
        say(f"  {kind:<17}{count:>12,}")
    if rows:
        from mirrorfeed.cli.output import listed

        console().print(listed(rows))


def _source(name: str, path: str) -> Any:
    """A table of the configuration by its target, or else the source that is named."""
    from mirrorfeed.config import UnknownTable
    from mirrorfeed.feed.source import Source

    if config := load_if_there(path):
        try:
            return config.select([name])[0].source
        except UnknownTable:
            pass
    return Source.parse(name)
