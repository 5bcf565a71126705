"""The command that sends alerts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from mirrorfeed.cli.main import config_option, feed, main

if TYPE_CHECKING:
    from mirrorfeed.api.results import Alert, Result


@main.command()
@click.option("--mirror", metavar="FOLDER", help="Folder of the replicated tables, to check how far they are.")
@config_option
def watch(mirror: str | None, path: str) -> Result[Alert]:
    """Check all tables and send an alert for each new problem and each resolved one.

    Alerts go to the webhooks and addresses in `alerts`, and to the output. A problem that lasts is sent again once a
    day. Run this on a schedule of its own. Exits with 1 if it printed a problem, if a channel could not be reached, or
    if the file with the alerts sent so far is damaged or cannot be written.
    """
    return feed(path).watch(mirror)
