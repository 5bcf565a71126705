"""Commands for the change data feed of sources."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import click

from mirrorfeed.cli.main import config_option, feed, feed_if_there, main, table_argument, tables_argument

if TYPE_CHECKING:
    from mirrorfeed.api.results import DataRow, Enabled, Result, VersionChanges


@main.command()
@tables_argument
@config_option
def enable_cdf(tables: tuple[str, ...], path: str) -> Result[Enabled]:
    """Turn on the change data feed of all configured tables, or only of TABLES."""
    return feed(path).enable_cdf(*tables)


@main.command()
@table_argument
@click.option("--from", "start", required=True, metavar="VERSION|TIME", help="First version or time, inclusive.")
@click.option(
    "--to", "end", metavar="VERSION|TIME", help="Last version or time, inclusive. Default: the newest version."
)
@click.option(
    "--past-end",
    type=click.Choice(["error", "empty"]),
    default="error",
    show_default=True,
    help="Fail or return fewer rows if a bound is after the newest version.",
)
@click.option("--rows", default=20, show_default=True, help="Maximum number of rows to show.")
@click.option("--counts", is_flag=True, help="Show the number of changed rows of each version instead of rows.")
@config_option
def changes(
    table: str, start: str, end: str | None, past_end: Literal["error", "empty"], rows: int, counts: bool, path: str
) -> Result[DataRow] | Result[VersionChanges]:
    """Show the change data feed of TABLE: a configured table, or any name or path."""
    found = feed_if_there(path).changes(table, start, end, past_end)
    return found.counts() if counts else found.first(rows)
