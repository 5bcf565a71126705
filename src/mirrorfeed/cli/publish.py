"""The commands around publication: the configuration, the feed, publishing, and how far it is."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import click

from mirrorfeed import FILE
from mirrorfeed.amounts import counted
from mirrorfeed.cli.follow import Stop, follow_tables
from mirrorfeed.cli.root import (
    config_option,
    json_option,
    load,
    load_if_there,
    main,
    say_json,
    spark_session,
    wait_option,
)
from mirrorfeed.errors import MirrorfeedError, Terminal, named
from mirrorfeed.terminal import console, error_console, text, waiting

if TYPE_CHECKING:
    from rich.console import Console

    from mirrorfeed.config import Config, Table
    from mirrorfeed.fabric import TableState
    from mirrorfeed.publish.fleet import Status
    from mirrorfeed.publish.freshness import Beyond
    from mirrorfeed.publish.idle import Idle
    from mirrorfeed.publish.outcome import Outcome

Found = TypeVar("Found")
_KINDS = {"inserts": "insert", "updates": "update_postimage", "deletes": "delete"}
"""What the feed calls that which the ledger counts."""


class FileInTheWay(Terminal):
    def __init__(self, path: str) -> None:
        self.path = path

    def what(self) -> str:
        return f"{self.path} is there already and is left as it is."

    def next(self) -> str:
        return "Name another file: `mirrorfeed init FILE`."


@main.command()
@click.argument("file", default=FILE)
def init(file: str) -> None:
    """Write a commented example of the configuration."""
    from mirrorfeed.config import EXAMPLE

    try:
        with Path(file).open("x", encoding="utf-8") as target:
            target.write(EXAMPLE)
    except FileExistsError as error:
        raise FileInTheWay(file) from error
    click.echo(f"Wrote {file}. Edit it, then run `mirrorfeed enable` and `mirrorfeed publish`.")


@main.command()
@click.argument("tables", nargs=-1)
@config_option
def enable(tables: tuple[str, ...], path: str) -> None:
    """Switch the change data feed on for the tables of the configuration."""
    config = load(path)
    chosen = config.select(tables)
    spark = spark_session(*(table.source for table in chosen))
    from mirrorfeed.feed.enable import DEFAULT_LINE
    from mirrorfeed.feed.enable import enable as switch_on

    failed = False
    for at, table in enumerate(chosen, 1):
        try:
            with waiting(f"Table {at} of {len(chosen)}, {table.source}: switching the feed on"):
                found = switch_on(spark, table.source)
            click.echo(f"{table.source}: the change data feed is {found.value}")
        except Exception as error:
            failed = True
            click.echo(f"Error: {named(f'Enabling the feed of {table.source}', error)}", err=True)
    click.echo(f"For all new tables, in the Spark configuration of a cluster or job:\n{DEFAULT_LINE}")
    if failed:
        sys.exit(1)


@main.command()
@click.argument("table")
@click.option("--from", "start", required=True, metavar="VERSION|TIME", help="The first to show.")
@click.option("--to", "end", metavar="VERSION|TIME", help="The last to show; the newest by default.")
@click.option("--past-end", type=click.Choice(["error", "empty"]), default="error", show_default=True)
@click.option("--rows", "preview", default=20, show_default=True, help="How many rows to show.")
@json_option
@config_option
def changes(table: str, start: str, end: str | None, past_end: Any, preview: int, as_json: bool, path: str) -> None:
    """Show the change data feed of TABLE: a name, a path, or a table of the configuration."""
    source = _source(table, path)
    spark = spark_session(source)
    from mirrorfeed.feed.preview import changes_between

    with waiting(f"Reading the feed of {source}"):
        found = changes_between(spark, source, start, end, past_end)
        counts, rows = found.counts(), found.first(preview)
    if as_json:
        told = {kind: counts.get(name, 0) for kind, name in _KINDS.items()}
        after, to = found.range.from_version_exclusive, found.range.to_version_inclusive
        say_json({"table": str(source), "from_version": after, "to_version": to, **told, "rows": rows})
        return
    click.echo(f"{source}, {found.range}" if found.range.versions else f"{source}, no versions in this range")
    for kind, count in counts.items():
        click.echo(f"  {kind:<17}{count:>12,}")
    if rows:
        from mirrorfeed.show import listed

        console().print(listed(rows))


@main.command()
@click.argument("tables", nargs=-1)
@click.option("--dry-run", is_flag=True, help="Print the decision for each table and touch nothing.")
@click.option("--follow", is_flag=True, help="Go on, and publish what is committed as `at_most` says.")
@click.option("--for", "minutes", type=click.FloatRange(0), metavar="MINUTES", help="With --follow: end after these.")
@json_option
@config_option
def publish(
    tables: tuple[str, ...], dry_run: bool, follow: bool, minutes: float | None, as_json: bool, path: str
) -> None:
    """Publish what is new in the tables of the configuration, or in those named."""
    if follow and as_json:
        raise click.UsageError("--follow tells of each publication as it is made, and takes no --json.")
    if minutes is not None and not follow:
        raise click.UsageError("--for says how long --follow goes on, and is nothing without it.")
    config = load(path)
    chosen = config.select(tables)
    if dry_run:
        _say_decisions(config, chosen, as_json)
    if follow:
        follow_tables(config, tables, minutes)
    # A ledger is told of tables that are missing, as of any other failure.
    spark = spark_session(*([] if config.ledger or as_json else [table.source for table in chosen]))
    from mirrorfeed import show
    from mirrorfeed.publish import fleet
    from mirrorfeed.stores.process import retries

    out = error_console() if as_json else console()
    repeated = retries().value
    troubles: list[MirrorfeedError] = []
    stop = Stop()
    with show.steps(out) as on_step, stop.listening(on_step.ending):
        on_step.looking(len(chosen))
        outcomes = fleet.publish_tables(
            spark, config, tables, on_step=on_step, on_trouble=troubles.append, sleep=stop.wait, stop=stop
        )
    left = len(chosen) - sum(not outcome.stopped for outcome in outcomes)
    of_all = f"{left} of {counted(len(chosen), 'table')}" if left else None
    _say_outcomes(out, outcomes, troubles, retries().value - repeated, left=of_all, as_json=as_json)


def _say_decisions(config: Config, chosen: Sequence[Table], as_json: bool) -> NoReturn:
    def ask_log(idle: Idle, table: Table) -> object | None:
        return idle.decision(table)

    def ask_spark(names: Sequence[str]) -> Sequence[object]:
        spark = spark_session(*([] if as_json else [table.source for table in config.select(names)]))
        from mirrorfeed.publish import fleet

        with waiting("Deciding about what is new"):
            return [decision for _, decision in fleet.decisions(spark, config, names)]

    decided = _told(config, chosen, ask_log, ask_spark)
    if as_json:
        say_json([_decision(table, decision) for table, decision in zip(chosen, decided, strict=True)])
    else:
        out = console()
        for table, decision in zip(chosen, decided, strict=True):
            out.print(text(f"{table.target}: {decision}"))
    sys.exit(any(isinstance(decision, MirrorfeedError) for decision in decided))


def _decision(table: Table, decision: object) -> dict[str, object]:
    error = type(decision).__name__ if isinstance(decision, MirrorfeedError) else None
    return {"table": str(table.target), "error": error, "message": str(decision)}


def _told(
    config: Config,
    tables: Sequence[Table],
    ask_log: Callable[[Idle, Table], Found | None],
    ask_spark: Callable[[Sequence[str]], Sequence[Found]],
) -> list[Found]:
    """One answer a table; Spark is started only for those that it is needed for."""
    with waiting("Looking at what is published"):
        from mirrorfeed.publish.idle import Idle

        idle = Idle(config)
        found = {str(table.target): ask_log(idle, table) for table in tables}
    left = [name for name, answer in found.items() if answer is None]
    answers = {**found, **dict(zip(left, ask_spark(left) if left else (), strict=True))}
    return [answer for answer in answers.values() if answer is not None]


@main.command()
@click.argument("table")
@click.option("--yes", is_flag=True, help="Without asking.")
@wait_option
@config_option
def rebuild(table: str, yes: bool, wait: float, path: str) -> None:
    """Publish TABLE anew: delete its folder, wait until Fabric has dropped it, publish a snapshot.

    After a failure run it again, whatever it was doing.
    """
    config = load(path)
    chosen = config.select([table])
    from mirrorfeed import show
    from mirrorfeed.publish import fleet
    from mirrorfeed.publish.rebuild import dropping_by
    from mirrorfeed.publish.zone import zone_of
    from mirrorfeed.stores.process import retries

    for each in chosen:
        place = zone_of(config).address(each.target.folder)
        click.echo(f"{place} is deleted with all that is in it, and the table is gone in Fabric until it is published.")
    if not yes:
        click.confirm("Go on?", abort=True)
    dropping = dropping_by(config, click.echo, wait * 60)
    spark, out, repeated = spark_session(), console(), retries().value
    troubles: list[MirrorfeedError] = []
    with show.steps(out) as on_step:
        on_step.looking(len(chosen))
        outcomes = [
            fleet.rebuild_table(spark, config, each, dropping, on_step=on_step, on_trouble=troubles.append)
            for each in chosen
        ]
    _say_outcomes(out, outcomes, troubles, retries().value - repeated, rebuilt=True)


def _say_outcomes(
    out: Console,
    outcomes: Sequence[Outcome],
    troubles: Sequence[MirrorfeedError],
    repeated: int,
    *,
    left: str | None = None,
    rebuilt: bool = False,
    as_json: bool = False,
) -> NoReturn:
    from mirrorfeed import show
    from mirrorfeed.publish import ledger

    if as_json:
        say_json(ledger.for_programs(outcomes, datetime.now(UTC)))
    else:
        out.print(show.summary(outcomes))
    notes = show.notes(outcomes, repeated, rebuilt=rebuilt)
    for note in [*notes, *(text(str(error), style="yellow") for error in troubles)]:
        out.print(note)
    if left:
        out.print(text(f"Ended as asked, with nothing half done; left for the next run: {left}."))
    sys.exit(bool(left) or any(outcome.error for outcome in outcomes))


@main.command()
@click.argument("tables", nargs=-1)
@click.option("--fabric", "with_fabric", is_flag=True, help="Beside it, what Fabric and its SQL endpoint say.")
@click.option("--mirror", help="The folder of the replicated tables, to tell how far they are.")
@json_option
@config_option
def status(tables: tuple[str, ...], with_fabric: bool, mirror: str | None, as_json: bool, path: str) -> None:
    """Show how far each table is published, what waits in the landing zone, and how far what was committed has come.

    Spark reads the sources, but for tables in folders of this machine of which nothing is new; --fabric also needs a
    mirrored database, and who may ask Fabric about it: the SQL endpoint takes up what is new, and tells when.
    """
    config = load(path)
    chosen = config.select(tables)
    states = _states(config) if with_fabric else None
    said = _service_words(states, chosen)
    beyond = _beyond(config, states, mirror)

    def ask_log(idle: Idle, table: Table) -> Status | None:
        return idle.status(table, beyond)

    def ask_spark(names: Sequence[str]) -> Sequence[Status]:
        spark = spark_session()
        from mirrorfeed.publish import fleet

        with waiting("Asking for the newest versions"):
            return fleet.statuses(spark, config, names, beyond=beyond)

    statuses = _told(config, chosen, ask_log, ask_spark)
    from mirrorfeed import show
    from mirrorfeed.publish.strays import strays
    from mirrorfeed.publish.zone import zone_of

    found = [replace(row, service=words) for row, words in zip(statuses, said, strict=True)]
    out = console()
    if as_json:
        say_json([{**asdict(row), "fresh": row.fresh and row.fresh.told()} for row in found])
    else:
        out.print(show.status(found))
        if any(row.fresh for row in found):
            out.print(show.freshness(found, datetime.now(UTC)))
        for row in found:
            if row.error:
                out.print(text(f"{row.table}: {row.error}", style="red"))
        for target in [] if tables else strays(zone_of(config), config):
            out.print(text(f"{target} is published and not in {path}. It is left alone; `mirrorfeed drop` removes it."))
    sys.exit(any(row.error for row in found))


@main.command()
@click.argument("table")
@click.option("--yes", is_flag=True, help="Without asking.")
@config_option
def drop(table: str, yes: bool, path: str) -> None:
    """Delete TABLE, a target that the configuration does not name any more, from the landing zone: Fabric drops it."""
    config = load(path)
    from mirrorfeed.landing.names import Target
    from mirrorfeed.publish.strays import droppable
    from mirrorfeed.publish.zone import zone_of

    store, target = zone_of(config), Target.parse(table)
    click.echo(
        f"{droppable(store, config, target)} The folder is deleted with all that is in it, and Fabric drops the table."
    )
    if not yes:
        click.confirm("Go on?", abort=True)
    store.remove_folder(target.folder)
    click.echo(f"{target} is gone from the landing zone.")


def _states(config: Config) -> Sequence[TableState]:
    from mirrorfeed import fabric

    return fabric.database_of(config).tables()


def _beyond(config: Config, states: Sequence[TableState] | None, mirror: str | None) -> Callable[[Table], Beyond]:
    if states is None and mirror is None:
        from mirrorfeed.publish.freshness import UNASKED

        return lambda _: UNASKED
    from mirrorfeed.watch.beyond import beyond_of, syncs_of

    if states is None:
        return beyond_of(config, mirror=mirror)
    with waiting("Letting the SQL endpoint take up what is new"):
        return beyond_of(config, states, syncs_of(config), mirror)


def _service_words(states: Sequence[TableState] | None, tables: Sequence[Table]) -> Sequence[str | None]:
    if states is None:
        return [None] * len(tables)
    by_table = [next((state for state in states if state.is_of(table.target)), None) for table in tables]
    return ["no such table yet" if state is None else str(state) for state in by_table]


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
