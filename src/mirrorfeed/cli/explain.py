"""The command that says what a code means."""

from __future__ import annotations

from dataclasses import asdict

import click

from mirrorfeed.cli.main import for_programs, main, say, say_json


@main.command()
@click.argument("code")
def explain(code: str) -> None:
    """Say what CODE means, of an error or a finding such as MF2102, and what to do about it. Needs no Spark."""
    from mirrorfeed.errors import explain as room

    entry = room.explain(code)
    if for_programs():
        say_json(asdict(entry))
        return
    say(f"{entry.code} {entry.name} ({entry.kind})", entry.means)
    for way in entry.next.split("\n"):
        say(f"To do: {way}")
    say(f"Shown by {entry.shown_by}")
