"""The command that publishes what is new, or says what it would publish."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, NoReturn

import click

from mirrorfeed.cli.follow import follow_tables
from mirrorfeed.cli.idle import told
from mirrorfeed.cli.main import (
    at_their_paths,
    config_option,
    for_programs,
    load,
    load_as_written,
    main,
    say,
    say_json,
    say_result,
    spark_session,
)
from mirrorfeed.cli.outcomes import say_outcomes
from mirrorfeed.cli.signals import Stop
from mirrorfeed.display.humanize import counted
from mirrorfeed.display.progress import waiting
from mirrorfeed.display.terminal import console, error_console, text
from mirrorfeed.errors import MirrorfeedError, coded

if TYPE_CHECKING:
    from mirrorfeed.config import Config, Table
    from mirrorfeed.publish.up_to_date_check import UpToDateCheck


@main.command()
@click.argument("tables", nargs=-1)
@click.option("--dry-run", is_flag=True, help="Print the decision for each table and touch nothing.")
@click.option("--follow", is_flag=True, help="Go on, and publish what is committed as `at_most` says.")
@click.option("--for", "minutes", type=click.FloatRange(0), metavar="MINUTES", help="With --follow: end after these.")
@config_option
def publish(tables: tuple[str, ...], dry_run: bool, follow: bool, minutes: float | None, path: str) -> None:
    """Publish what is new in the tables of the configuration, or in those named."""
    if follow and for_programs():
        raise click.UsageError("--follow tells of each publication as it is made, and takes no --json.")
    if minutes is not None and not follow:
        raise click.UsageError("--for says how long --follow goes on, and is nothing without it.")
    config = load(path)
    chosen = config.select(tables)
    if not chosen:
        say_result([])
        say(f"No table is in {' or '.join(tables)}.")
        return
    if dry_run:
        _say_decisions(config, chosen)
    if follow:
        follow_tables(config, load_as_written(path), tables, minutes)
    out = error_console() if for_programs() else console()
    from mirrorfeed.config.landing_zone import zone_of
    from mirrorfeed.orchestration.orphans import find_pattern_orphans
    from mirrorfeed.orchestration.publish_run import RunContext, all_up_to_date, publish_tables

    with waiting("Looking at what is published"):
        at_rest = all_up_to_date(config, tables)
    paused = [(str(table.target), pause) for table in chosen if (pause := table.pause_at(datetime.now(UTC)))]
    if at_rest is not None:
        left_alone = None if tables else find_pattern_orphans(zone_of(config), config)
        say_outcomes(out, at_rest, [left_alone] if left_alone else [], 0, paused=paused)
    # A ledger is told of tables that are missing, as of any other failure.
    spark = spark_session(*([] if config.ledger or for_programs() else at_their_paths(chosen)))
    from mirrorfeed.cli import output as show
    from mirrorfeed.storage.process_cache import retries

    repeated = retries().value
    troubles: list[MirrorfeedError] = []
    stop = Stop()
    with show.steps(out) as on_step, stop.listening(on_step.ending):
        on_step.looking(len(chosen))
        fleet = RunContext(spark, config, on_step, troubles.append, sleep=stop.wait, stop=stop, on_done=on_step.done)
        outcomes = publish_tables(fleet, tables)
    left = len(chosen) - len(paused) - sum(not outcome.stopped for outcome in outcomes)
    of_all = f"{left} of {counted(len(chosen), 'table')}" if left else None
    say_outcomes(out, outcomes, troubles, retries().value - repeated, left=of_all, paused=paused)


def _say_decisions(config: Config, chosen: Sequence[Table]) -> NoReturn:
    def ask_log(idle: UpToDateCheck, table: Table) -> object | None:
        return table.pause_at(datetime.now(UTC)) or idle.decision(table)

    def ask_spark(names: Sequence[str]) -> Sequence[object]:
        spark = spark_session(*([] if for_programs() else at_their_paths(config.select(names))))
        from mirrorfeed.orchestration.dry_run import plan_next_steps

        with waiting("Deciding about what is new"):
            return [decision for _, decision in plan_next_steps(spark, config, names)]

    decided = told(config, chosen, ask_log, ask_spark)
    if for_programs():
        say_json([_decision(table, decision) for table, decision in zip(chosen, decided, strict=True)])
    else:
        out = console()
        for table, decision in zip(chosen, decided, strict=True):
            said = coded(decision) if isinstance(decision, MirrorfeedError) else decision
            out.print(text(f"{table.target}: {said}"))
    sys.exit(any(isinstance(decision, MirrorfeedError) for decision in decided))


def _decision(table: Table, decision: object) -> dict[str, object]:
    error = decision if isinstance(decision, MirrorfeedError) else None
    return {"table": str(table.target), "error": error, "message": str(decision)}
