"""The command that looks at all tables, and tells trouble to those who want to know."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from mirrorfeed.cli.root import config_option, for_programs, load, main, say, say_error, say_json, spark_session
from mirrorfeed.display.humanize import counted
from mirrorfeed.display.progress import waiting
from mirrorfeed.display.terminal import console, text
from mirrorfeed.errors import coded

if TYPE_CHECKING:
    from mirrorfeed.monitor.alert_state import Message


@main.command()
@click.option("--mirror", help="The folder of the replicated tables, to tell how far they are.")
@config_option
def watch(mirror: str | None, path: str) -> None:
    """Check all tables and send an alert for each new problem and each resolved one.

    Alerts go to the webhooks and addresses in `alerts`, and to the output. A problem that lasts is sent again once a
    day. Run this on a schedule of its own. Exits with 1 if it printed a problem, if a channel could not be reached, or
    if the file with the alerts sent so far is damaged or cannot be written.
    """
    config = load(path)
    from mirrorfeed.cli import output as show
    from mirrorfeed.config.alerts import OUTPUT
    from mirrorfeed.monitor import alert_messages as words
    from mirrorfeed.monitor.alert_channels import channels_of
    from mirrorfeed.monitor.alert_state import notify
    from mirrorfeed.monitor.watch import alert_state_of, look_at_all
    from mirrorfeed.publish import ledger
    from mirrorfeed.session import get_session

    printed: list[Message] = []
    with waiting(f"Looking at {counted(len(config.tables), 'table')}, and at what Fabric says"):
        seen = look_at_all(get_session, config, _now, mirror)
    if config.ledger and (lost := ledger.keep(spark_session(), config.ledger, seen.rows(_now()))):
        say(coded(lost), err=True)
    store, file = alert_state_of(config)
    told = notify(store, file, seen.look, {OUTPUT: printed.append, **channels_of(config)}, _now)
    if for_programs():
        say_json(
            {
                "tables": [{"table": each.table, "fresh": each.fresh and each.fresh.told()} for each in seen.statuses],
                "troubles": [{"table": each.table, "kind": each.kind, "what": each.what, "remedy": each.remedy,
                              "since": each.since} for each in seen.look.troubles],
                "told": [{"to": each.to, "table": each.alert.table, "kind": each.alert.kind, "over": each.over}
                         for each in told.sent],
                "not_told": [{"to": name, "error": error} for name, error in told.failed],
                "warnings": list(told.warnings),
            }
        )  # fmt: skip
    else:
        out = console()
        if any(each.fresh for each in seen.statuses):
            out.print(show.freshness(seen.statuses, _now()))
        for message in printed:
            out.print(text(words.title(message), *words.lines(message), style="" if message.over else "red"))
        if not printed:
            out.print(text(_nothing(len(seen.look.troubles))))
    for error in [*told.warnings, *(error for _, error in told.failed)]:
        say_error(error)
    sys.exit(bool(told.failed or told.warnings) or any(not message.over for message in printed))


def _nothing(there: int) -> str:
    return f"Nothing new is in trouble{f'; {there} that are were told before' if there else ''}."


def _now() -> datetime:
    return datetime.now(UTC)
