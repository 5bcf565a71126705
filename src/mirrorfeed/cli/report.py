"""The command `report`."""

from __future__ import annotations

from pathlib import Path

import click

from mirrorfeed.cli.main import config_option, feed, for_programs, main, print_json, print_lines
from mirrorfeed.display.terminal import console


@main.command()
@click.option("--html", "file", metavar="FILE", help="Write the report with charts to FILE, as one HTML page.")
@config_option
def report(file: str | None, path: str) -> None:
    """Show lag, state of tables and mirrors, rows per day, archives and failures from the ledger."""
    found = feed(path).report()
    if file is not None:
        Path(file).write_text(found.page(), encoding="utf-8")
        print_lines(f"Wrote {file}.")
    if for_programs():
        print_json(found.to_dict())
    elif file is None:
        found.draw(console())
