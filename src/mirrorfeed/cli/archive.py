"""Commands for tables whose old files are in an archive tier. TABLE is a catalog name or a path."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import click

from mirrorfeed.cli.main import (
    config_option,
    for_programs,
    ledger_of,
    load,
    load_if_there,
    main,
    print_json,
    print_lines,
    spark_session,
    table_argument,
    tables_argument,
)

if TYPE_CHECKING:
    from mirrorfeed.api import results
    from mirrorfeed.api.archive_table import ArchiveAwareTable
    from mirrorfeed.api.results import Result
    from mirrorfeed.storage.prices import Prices

where_option = click.option("--where", metavar="CONDITION", help="SQL condition, as after WHERE.")
prices_option = click.option(
    "--prices", metavar="FILE", help="File with prices, instead of those in the configuration."
)
priority_option = click.option(
    "--priority",
    type=click.Choice(["standard", "high"]),
    default="standard",
    show_default=True,
    help="Speed and price.",
)
exported_file = click.Path(exists=True, dir_okay=False)


@main.group()
def archive() -> None:
    """Query, restore and maintain tables whose old files are in an archive tier."""


@archive.command()
@table_argument
@where_option
@click.option("--tiers", is_flag=True, help="Also read the tier of each file from the storage.")
def files(table: str, where: str | None, tiers: bool) -> Result[results.ArchivedFile]:
    """List the archived files of TABLE that a query needs. Reads no data file."""
    return open_table(table).files(where, tiers=tiers)


@archive.command()
@table_argument
@where_option
@click.option("--columns", metavar="A,B", help="Columns to show. Default: all.")
@click.option("--rows", default=20, show_default=True, help="Maximum number of rows to show.")
def query(table: str, where: str | None, columns: str | None, rows: int) -> Result[results.DataRow]:
    """Show rows of TABLE, or fail at once with the archived files that the query needs."""
    return open_table(table).first(rows, where, columns.split(",") if columns else None)


@archive.command()
@config_option
@click.argument("table", required=False)
@where_option
@click.option("--sql", metavar="QUERY", help="Plan for any query, instead of TABLE.")
@click.option(
    "--feed-from", type=click.IntRange(0), metavar="VERSION", help="Plan for the change data feed, from this version."
)
@click.option("--feed-to", type=click.IntRange(0), metavar="VERSION", help="Last version. Default: the newest version.")
@priority_option
@prices_option
@click.option("--to", required=True, metavar="PLAN", help="File to create.")
def plan(
    path: str,
    table: str | None,
    where: str | None,
    sql: str | None,
    feed_from: int | None,
    feed_to: int | None,
    priority: Literal["standard", "high"],
    prices: str | None,
    to: str,
) -> results.RestorePlan:
    """Plan the restore of archived files for a query on TABLE, its change data feed, or any query."""
    from mirrorfeed.api.archives import plan_query
    from mirrorfeed.archive.restore_plan import check_place

    if where is not None and feed_from is not None:
        raise click.UsageError("--where and --feed-from cannot be combined: changes are always read completely.")
    if feed_to is not None and feed_from is None:
        raise click.UsageError("--feed-to requires --feed-from.")
    if (table is None) == (sql is None) or (sql is not None and (where or feed_from is not None)):
        raise click.UsageError("Give either TABLE, with --where or --feed-from, or --sql alone.")
    on_table = open_table(table) if table else None
    rates = given_rates(prices, path)
    check_place(to)
    if on_table:
        made = on_table.plan(where, feed_from=feed_from, feed_to=feed_to, priority=priority, prices=rates)
        return made.save(to)
    return plan_query(spark_session, sql or "", priority=priority, prices=rates).save(to)


@archive.command()
@config_option
@click.argument("plan")
@click.option("--once", is_flag=True, help="Request the files, show the progress, and exit.")
@click.option(
    "--poll", "poll_seconds", default=300.0, show_default=True, metavar="SECONDS", help="Time between two checks."
)
@click.option("--rows", default=20, show_default=True, help="Maximum number of rows of the query to show.")
@click.option(
    "--tier", type=click.Choice(["hot", "cool", "cold"]), default="hot", show_default=True, help="Tier to restore to."
)
@click.option(
    "--keep", "keep_days", type=click.IntRange(1, 36_500), metavar="DAYS", help="Days to keep the copies. S3 only."
)
@click.option("--into", metavar="TABLE", help="Copy the rows of the query into a new table.")
@prices_option
def restore(path: str, plan: str, once: bool, prices: str | None, **terms: Any) -> results.Restoring:
    """Restore the files of PLAN, wait until all are readable, then run its query.

    You can stop it at any time and run it again: pending files are not requested twice.
    """
    from mirrorfeed.api.archives import restore

    rates = given_rates(prices, path)
    return restore(spark_session, plan, wait=not once, prices=rates, on_step=print_lines, **terms)


@archive.command()
@table_argument
@click.option("--optimize/--no-optimize", default=True, show_default=True, help="Compact small files.")
@click.option("--zorder", metavar="A,B", help="Columns to order by.")
@click.option("--purge", is_flag=True, help="Rewrite files that have deletion vectors.")
@click.option("--analyze", is_flag=True, help="Collect statistics.")
@click.option("--vacuum", is_flag=True, help="Delete files that no retained version needs.")
def maintain(table: str, zorder: str | None, **steps: bool) -> results.Maintained:
    """Run maintenance on the active files of TABLE."""
    return open_table(table).maintain(zorder=zorder.split(",") if zorder else (), **steps)


@archive.command()
@table_argument
def check(table: str) -> results.FileCheck:
    """Check that the active files of TABLE exist. Exits with 1 if files are missing."""
    return open_table(table).check()


@archive.command("set")
@table_argument
@click.argument("interval")
def set_(table: str, interval: str) -> results.Interval:
    """Set or shorten the INTERVAL of TABLE, such as '60 days'. Older files count as archived."""
    return open_table(table).set_interval(interval)


@archive.command("show")
@table_argument
def show_interval(table: str) -> results.Interval:
    """Show the interval of TABLE, and the number of days that the lifecycle rule must have."""
    return open_table(table).interval()


@archive.command()
@table_argument
@click.option("--nothing-archived", is_flag=True, help="Confirm that the rule is removed and all files are restored.")
def unset(table: str, nothing_archived: bool) -> results.Interval:
    """Remove the interval of TABLE. No file counts as archived."""
    return open_table(table).unset_interval(nothing_archived=nothing_archived)


@archive.command("change-interval")
@table_argument
@click.option("--to", required=True, metavar="INTERVAL", help="New interval, such as '90 days'.")
@click.option("--exact", is_flag=True, help="Increase it daily, so that no active file counts as archived.")
@click.option("--rule-changed", is_flag=True, help="Confirm that the lifecycle rule has this interval.")
def change_interval(table: str, to: str, **safety: bool) -> results.Interval:
    """Change the interval of TABLE: shorten it at once, or increase it as far as it is safe each day."""
    return open_table(table).change_interval(to, **safety)


@archive.command()
@config_option
@table_argument
def step(path: str, table: str) -> Result[results.Interval]:
    """Increase the interval of TABLE as far as it is safe now, if it is being changed. Run this daily.

    Writes how much of TABLE is archived to the ledger.
    """
    return open_table(table).step(prices=given_rates(None, path), ledger=ledger_of(load_if_there(path)))


@archive.command()
@table_argument
@click.option("--merge", type=exported_file, metavar="FILE", help="Exported policy, whose other rules are kept.")
@click.option("--paused", is_flag=True, help="Disable the rules of TABLE, so that restored files stay.")
@click.option("--remove", is_flag=True, help="Remove the rules of TABLE.")
@click.option("--take-over", is_flag=True, help="Replace rules that others wrote for TABLE.")
@click.option("--interval", metavar="INTERVAL", help="Interval of the rule, if it changes before that of TABLE.")
def rule(
    table: str, merge: str | None, paused: bool, remove: bool, take_over: bool, interval: str | None
) -> results.Lifecycle | None:
    """Print the lifecycle policy with the rules of TABLE and all other rules of the exported policy.

    Exits with 1 if something in the policy does not fit TABLE.
    """
    if paused and remove:
        raise click.UsageError("--paused and --remove cannot be combined.")
    state: Literal["on", "paused", "gone"] = "paused" if paused else "gone" if remove else "on"
    found = open_table(table).lifecycle(merge, state=state, take_over=take_over, interval=interval)
    if for_programs():
        return found
    print_json(found.policy)
    kept = "Replaced" if take_over else "Kept (--take-over replaces them)"
    theirs = f"{kept}: {', '.join(found.rules_of_others)}, which archive only files of {table}"
    print_lines(found.apply, *([theirs] if found.rules_of_others else []), *found.problems, err=True)
    raise click.exceptions.Exit(not found.ok)


@archive.command("lifecycle-check")
@click.argument("file", type=exported_file)
@click.option("--table", required=True, help="Table to compare the rules with.")
def lifecycle_check(file: str, table: str) -> results.Lifecycle:
    """Compare the lifecycle policy in FILE, exported from the cloud, with the interval of the table.

    Exits with 1 if they differ.
    """
    return open_table(table).check_lifecycle(file)


@archive.command()
@config_option
@table_argument
@click.argument("intervals", nargs=-1, required=True)
@click.option("--where", multiple=True, metavar="CONDITION", help="SQL condition of a query. Repeatable.")
@click.option("--predicates", metavar="FILE", help="File with more conditions, one per line.")
@click.option(
    "--history",
    "history_days",
    type=click.IntRange(1, 365),
    metavar="DAYS",
    help="Queries of the last days (Databricks).",
)
@prices_option
def simulate(
    path: str, table: str, intervals: tuple[str, ...], prices: str | None, **queries: Any
) -> Result[results.Simulation]:
    """Show the effect of INTERVALS such as '60 days' on TABLE: archived bytes, costs, and queries that would fail."""
    rates = given_rates(prices, path)
    return open_table(table).simulate(*intervals, prices=rates, **queries)


@archive.command()
@config_option
@tables_argument
@prices_option
def report(path: str, tables: tuple[str, ...], prices: str | None) -> Result[results.Share]:
    """Show how much of each table is archived, with the costs, and write it to the ledger.

    Default for TABLES: all configured tables with an archive. `mirrorfeed report` draws the ledger. Exits with 1 if a
    table fails.
    """
    from mirrorfeed.api.archives import report

    config = load_if_there(path) if tables else load(path)
    sources = tables or [table.source for table in (config.tables if config else ())]
    rates = given_rates(prices, path)
    return report(spark_session, sources, with_archive_only=not tables, prices=rates, ledger=ledger_of(config))


def open_table(table: str) -> ArchiveAwareTable:
    from mirrorfeed.api.archive_table import ArchiveAwareTable

    return ArchiveAwareTable(spark_session, table)


def given_rates(prices: str | None, path: str) -> Prices | None:
    """The prices of the file, or else of the configuration."""
    from mirrorfeed.storage.prices import Prices

    if prices:
        return Prices.load(prices)
    config = load_if_there(path)
    return config.archive.prices if config and config.archive else None
