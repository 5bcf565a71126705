"""`mirrorfeed init --from`: list the tables, ask for missing keys, and return the text of the configuration."""

from __future__ import annotations

import sys

import click

from mirrorfeed.api.results import Result
from mirrorfeed.cli.main import print_lines, print_result, prints_json, spark_session
from mirrorfeed.config.new_config import Entry, write_new_config
from mirrorfeed.display.progress import clear_progress
from mirrorfeed.landing.names import fold
from mirrorfeed.orchestration.table_survey import SurveyedTable, parse_place, survey_tables

_LANDING_ZONE = "./landing"
_ONLY_INSERTS = "-"


def draft_config(
    file: str, place: str, keys: tuple[str, ...] | None, *, ask: bool
) -> tuple[str, tuple[SurveyedTable, ...], bool]:
    """Return the text of a configuration for the tables of `place`, the tables, and whether the text needs no edit.

    Prints the tables. With `ask`, asks for the landing zone and for missing keys, if a person can answer. Raises
    `no_tables_found` if nothing matches, and `click.UsageError` if `place` is not valid.
    """
    try:
        pattern = parse_place(place)
    except ValueError as error:
        raise click.UsageError(f"--from: {error}") from error
    tables = survey_tables(pattern, keys, spark_session)
    clear_progress()
    if not prints_json():
        print_result(Result(tables))
    zone, entries = _LANDING_ZONE, [_entry_of(each) for each in tables]
    if ask and not prints_json() and is_terminal():
        zone = click.prompt("Landing zone (folder or onelake://…)", default=_LANDING_ZONE)
        entries = [_ask_keys(*each) for each in zip(tables, entries, strict=True)]
    is_complete = not any(each.decision for each in entries)
    return write_new_config(file, zone, entries), tables, is_complete


def is_terminal() -> bool:
    """Return whether a person can answer questions."""
    return sys.stdin.isatty()


def _entry_of(table: SurveyedTable) -> Entry:
    return Entry(table.source, table.target, table.keys, table.decision, table.columns)


def _ask_keys(table: SurveyedTable, entry: Entry) -> Entry:
    """Return the entry with the keys that a person types, or unchanged if it lacks no keys or the answer is empty."""
    if not table.lacks_only_keys:
        return entry
    print_lines("", f"{table.source} has no known key. Columns: {', '.join(table.columns)}.")
    question = f"Key columns, separated by commas ({_ONLY_INSERTS}: none, rows are only inserted; empty: decide later)"
    known = {fold(name): name for name in table.columns}
    while True:
        answer = click.prompt(question, default="", show_default=False).strip()
        if not answer:
            return entry
        names = [] if answer == _ONLY_INSERTS else [name.strip() for name in answer.split(",")]
        if not (unknown := [name for name in names if fold(name) not in known]):
            return Entry(entry.source, entry.target, [known[fold(name)] for name in names])
        print_lines(f"{table.source} has no column {', '.join(unknown)}.")
