"""The commands about tables whose old files are in an archive tier. TABLE is a name in the catalog, or a path."""

from __future__ import annotations

import sys
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from mirrorfeed.archive.errors import OnlyRows
from mirrorfeed.cli.main import (
    config_option,
    for_programs,
    load_if_there,
    main,
    say,
    say_json,
    say_result,
    spark_session,
)
from mirrorfeed.display.printable import shell_argument

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from mirrorfeed.source.identifier import Source
    from mirrorfeed.storage.prices import Prices

where_option = click.option("--where", metavar="PREDICATE", help="A condition as after WHERE.")


@main.group()
def archive() -> None:
    """Tables whose old files are in an archive tier: never a wrong answer, never a surprise."""


@archive.command()
@click.argument("table")
@where_option
@click.option("--tiers", "with_tiers", is_flag=True, help="Ask the storage for the tier of each file.")
def files(table: str, where: str | None, with_tiers: bool) -> None:
    """List the archived files of TABLE that must be read to know which rows match. Reads no data file."""
    from mirrorfeed.archive.guard.archived_files_needed import described
    from mirrorfeed.archive.guard.table import ArchiveAwareTable
    from mirrorfeed.display.humanize import counted, size
    from mirrorfeed.storage.errors import NoTiers

    source, spark = source_of(table), spark_session()
    answer = ArchiveAwareTable(spark, source).files(where)
    tiers = _tiers(spark, source) if with_tiers else None
    if with_tiers and tiers is None:
        raise NoTiers(table=str(source))
    listed = described(answer.archived, where, now(), tiers)
    if for_programs():
        say_json(listed)
        return
    for row in listed:
        told = [size(row["bytes"]) if row["bytes"] is not None else None, row["tier"]]
        told += [counted(row["age_days"], "day") if row["age_days"] is not None else None, row["why"]]
        say(f"{row['uri']}  {', '.join(filter(None, told))}")
    hot = "" if answer.hot is None else f", beside {counted(answer.hot, 'hot file')}"
    say(f"{source} at version {answer.version}: needs {counted(len(listed), 'archived file')}{hot}")


@archive.command()
@click.argument("table")
@where_option
@click.option("--columns", metavar="A,B", help="Those to show; all by default.")
@click.option("--rows", default=20, show_default=True, help="How many rows to show.")
def query(table: str, where: str | None, columns: str | None, rows: int) -> None:
    """Show rows of TABLE, or say at once which archived files that needs."""
    from mirrorfeed.archive.guard.table import ArchiveAwareTable

    source, spark = source_of(table), spark_session()
    chosen = columns.split(",") if columns else None
    found = ArchiveAwareTable(spark, source, _tiers(spark, source)).query(where, chosen)
    say_result({"table": str(source), "rows": _show(found, rows)})


@archive.command()
@config_option
@click.argument("table", required=False)
@where_option
@click.option("--sql", "statement", metavar="QUERY", help="Plan for any query, instead of a table.")
@click.option("--feed-from", type=click.IntRange(0), metavar="VERSION", help="Plan for the feed: its first version.")
@click.option("--feed-to", type=click.IntRange(0), metavar="VERSION", help="Its last version; the newest by default.")
@click.option("--priority", type=click.Choice(["standard", "high"]), default="standard", show_default=True)
@click.option("--prices", metavar="FILE", help="Your prices, in place of the configuration's.")
@click.option("--to", "target", required=True, metavar="PLAN", help="The file to write.")
def plan(
    path: str,
    table: str | None,
    where: str | None,
    statement: str | None,
    feed_from: int | None,
    feed_to: int | None,
    priority: str,
    prices: str | None,
    target: str,
) -> None:
    """Write a plan of what to bring back so that a query on TABLE, its change feed, or any query can be read."""
    from mirrorfeed.archive import restore_planner
    from mirrorfeed.archive.restore_plan import check_place
    from mirrorfeed.display.humanize import counted, size
    from mirrorfeed.storage.tiers import Priority

    if where is not None and feed_from is not None:
        raise click.UsageError("--where and --feed-from exclude each other: a range of the feed is read whole.")
    if feed_to is not None and feed_from is None:
        raise click.UsageError("--feed-to is the end of a range of the feed: give --feed-from too.")
    if (table is None) == (statement is None) or (statement is not None and (where or feed_from is not None)):
        raise click.UsageError("Give either TABLE, with --where or --feed-from, or --sql alone.")
    source = source_of(table) if table is not None else None
    rates = given_rates(prices, path)
    check_place(target)
    spark, urgent, at = spark_session(), Priority[priority.upper()], now()
    if source is not None:
        made = restore_planner.make_plan(spark, source, where, feed_from, feed_to, urgent, rates, at)
    else:
        made = restore_planner.make_statement_plan(spark, statement or "", urgent, rates, at)
    made.save(target)
    say_result(
        {
            "plan": target,
            "tables": [each.table for each in made.tables],
            "files": len(made.files),
            "bytes": made.bytes,
            "hours": made.hours,
            "cost": made.cost,
            "currency": made.currency,
            "asks_for": made.sql or made.where,
            "zone": made.zone,
        }
    )
    cost = "" if made.cost is None else f", {made.cost:,.2f} {made.currency}"
    say(
        f"Wrote {target}: {counted(len(made.files), 'file')}, {size(made.bytes)}, up to {made.hours:g} hours{cost}."
        f" Carry it out with `mirrorfeed archive restore {shell_argument(str(target))}`."
    )
    if asked := made.sql or made.where:
        say(f"It asks for {asked}, with times as in {made.zone}.")


@archive.command()
@config_option
@click.argument("file", metavar="PLAN")
@click.option("--once", is_flag=True, help="Ask for the files, say how far they are, and end.")
@click.option("--poll", default=300.0, show_default=True, metavar="SECONDS", help="Time between looks.")
@click.option("--rows", default=20, show_default=True, help="How many rows of the query to show when all is back.")
@click.option("--tier", type=click.Choice(["hot", "cool", "cold"]), default="hot", show_default=True)
@click.option(
    "--keep", type=click.IntRange(1, 36_500), metavar="DAYS", help="How long, where the storage keeps copies."
)
@click.option("--into", "target", metavar="TABLE", help="Copy the rows of the query into a table of their own.")
@click.option("--prices", metavar="FILE", help="Your prices, in place of the configuration's.")
def restore(
    path: str,
    file: str,
    once: bool,
    poll: float,
    rows: int,
    tier: str,
    keep: int | None,
    target: str | None,
    prices: str | None,
) -> None:
    """Bring back what PLAN names, wait until every file is there, then run its query. It can be stopped at any time."""
    from mirrorfeed.archive import restore as restoring
    from mirrorfeed.archive import restore_planner
    from mirrorfeed.archive.restore import TiersOfTables
    from mirrorfeed.archive.restore_plan import Plan
    from mirrorfeed.archive.restore_planner import in_zone
    from mirrorfeed.storage.errors import NoTiers
    from mirrorfeed.storage.tiers import Tier

    made, rates = Plan.load(file), given_rates(prices, path)
    copied = source_of(target) if target else None
    if copied and not made.asks_for_rows:
        raise OnlyRows(table=made.table)
    source, spark = source_of(made.table), spark_session()
    restore_planner.check_plan(spark, made)
    if copied and restoring.is_there(spark, made, copied):
        say(f"{copied} holds the rows of {file} already")
        nothing = dict.fromkeys(("ready", "pending", "archived", "rows"))
        say_result({"table": made.table, "done": True, **nothing, "into": str(copied)})
        return
    uris = tuple(file.uri for file in made.files)
    tiers = TiersOfTables(uris) if made.others else _tiers(spark, source)
    if tiers is None:
        raise NoTiers(table=str(source))
    terms = restoring.Terms(Tier[tier.upper()], keep)
    if costs := restoring.costs(made, tiers, terms, rates, now()):
        say(costs)
    report = _say_progress
    found = restoring.ask(made, tiers, terms) if once else restoring.follow(made, tiers, poll, terms, report)
    if once:
        _say_progress(found)
    told = {"table": made.table, "done": found.done, **asdict(found), "into": None, "rows": None}
    if found.done:
        with in_zone(spark, made.zone):
            answer = restore_planner.look_again(spark, made, tiers, now())
            if made.files_alone:
                say(f"{source}: all files that were planned can be read")
            elif answer is None:
                say(f"{source}: its changes from version {made.feed_from} to {made.version} can be read")
            elif copied:
                restoring.copy(spark, answer, made, copied)
                say(f"Copied the rows into {copied}: nothing else has to stay where it is")
                say_result({**told, "into": str(copied)})
                return
            else:
                told["rows"] = _show(answer, rows)
    say_result(told)
    say(restoring.afterwards(made.table, tiers, terms))


@archive.command()
@click.argument("table")
@click.option("--optimize/--no-optimize", default=True, show_default=True)
@click.option("--zorder", metavar="A,B", help="Columns to order by.")
@click.option("--purge", is_flag=True, help="Rewrite files without the rows that deletion vectors hide.")
@click.option("--analyze", is_flag=True, help="Collect statistics.")
@click.option("--vacuum", is_flag=True, help="Delete files that no version within the retention needs.")
def maintain(table: str, optimize: bool, zorder: str | None, purge: bool, analyze: bool, vacuum: bool) -> None:
    """Run maintenance on what is not archived."""
    from mirrorfeed.archive.maintenance import Maintenance
    from mirrorfeed.archive.maintenance import maintain as run

    wanted = Maintenance(optimize, tuple(zorder.split(",")) if zorder else (), purge, analyze, vacuum)
    done = run(spark_session(), source_of(table), wanted, now())
    say_result({**asdict(done), "table": table, "left_out": [dict(each) for each in done.left_out]})
    for statement in done.statements:
        say(statement)
    for partition in done.left_out:
        named = ", ".join(f"{name}={value}" for name, value in partition) or "the table, which has no partitions"
        say(f"Left out, for it holds archived files: {named}")
    for note in done.notes:
        say(note)


@archive.command()
@click.argument("table")
def check(table: str) -> None:
    """Look whether the hot files of TABLE are there. Exits with 1 if some are missing."""
    from mirrorfeed.archive.maintenance import missing_files

    source, spark = source_of(table), spark_session()
    gone = missing_files(spark, source, now(), _tiers(spark, source))
    say_result({"table": str(source), "missing": list(gone)})
    for uri in gone:
        say(f"Missing: {uri}")
    if not gone:
        say(f"{source}: all hot files are there")
    sys.exit(bool(gone))


def _show(rows: DataFrame, most: int) -> list[dict[str, Any]] | None:
    """The first of them: with --json to be told, else shown."""
    if not for_programs():
        rows.show(most, truncate=60)
        return None
    from mirrorfeed.source.change_preview import to_json_rows

    return to_json_rows(rows.limit(most))


def now() -> datetime:
    return datetime.now(UTC)


def source_of(table: str) -> Source:
    from mirrorfeed.source.identifier import Source

    return Source.parse(table)


def _tiers(spark: Any, source: Source) -> Any:
    """Those of the place where the table is; None where it has none, so that nothing archived counts as back."""
    from mirrorfeed.source.table_info import read_table_info
    from mirrorfeed.storage.tiers import tiers_at

    return tiers_at(read_table_info(spark, source).location)


def given_rates(prices: str | None, path: str) -> Prices | None:
    """Those of a file of their own, else those of the configuration, where there is one and it has them."""
    from mirrorfeed.storage.prices import Prices

    if prices:
        return Prices.load(prices)
    config = load_if_there(path)
    return config.archive.prices if config and config.archive else None


def _say_progress(found: Any) -> None:
    say(f"{found.ready} back, {found.pending} on their way, {found.archived} in the archive")
