"""Commands for tables whose old files are in an archive tier. TABLE is a configured table, or any name or path."""

from __future__ import annotations

from typing import Any, Literal

import click

from mirrorfeed.api import results
from mirrorfeed.api.results import Result
from mirrorfeed.cli.main import (
    feed,
    feed_or_empty,
    main,
    print_json,
    print_lines,
    prints_json,
    table_argument,
    tables_argument,
)

where_option = click.option(
    "--where", metavar="CONDITION", help="SQL condition of the query, as in a WHERE clause. Default: all rows."
)
prices_option = click.option(
    "--prices", metavar="FILE", help="JSON file with prices. Default: the prices in the configuration."
)
exported_file = click.Path(exists=True, dir_okay=False)


@main.group()
def archive() -> None:
    """Query, restore and maintain tables whose old files are in an archive tier.

    TABLE is a configured table (target or source), or the name or path of any other Delta table.
    """


@archive.command()
@table_argument
@where_option
@click.option("--tiers", is_flag=True, help="Also show the access tier of each file, read from the storage.")
def files(table: str, where: str | None, tiers: bool) -> Result[results.DataFile]:
    """List the archived files of TABLE that a query needs. Reads no data file."""
    return feed_or_empty().archive.table(table).files(where, tiers=tiers)


@archive.command()
@table_argument
@where_option
@click.option("--columns", metavar="A,B", help="Columns to show, separated by commas. Default: all.")
@click.option("--rows", default=20, help="Maximum number of rows to show.")
def query(table: str, where: str | None, columns: str | None, rows: int) -> Result[results.DataRow]:
    """Show rows of TABLE. If the query needs archived files, list these files and exit with 1."""
    return feed_or_empty().archive.table(table).first(rows, where, columns.split(",") if columns else None)


@archive.command()
@click.argument("table", required=False)
@where_option
@click.option("--sql", metavar="QUERY", help="Plan for this query on any tables, instead of TABLE.")
@click.option(
    "--feed-from",
    type=click.IntRange(0),
    metavar="VERSION",
    help="Plan for the change data feed from this version. Not with --where.",
)
@click.option(
    "--feed-to",
    type=click.IntRange(0),
    metavar="VERSION",
    help="Last version of the feed. Default: the newest version. Requires --feed-from.",
)
@click.option(
    "--priority",
    type=click.Choice(["standard", "high"]),
    default="standard",
    help="Priority of the restore: high is faster and more expensive.",
)
@prices_option
@click.option("--to", "save_as", required=True, metavar="PLAN", help="File to write the plan to. It must not exist.")
def plan(
    table: str | None, where: str | None, sql: str | None, feed_from: int | None, feed_to: int | None, **options: Any
) -> results.RestorePlan:
    """Plan how to restore the archived files that a query needs. For one table, give TABLE; for several, --sql."""
    if where is not None and feed_from is not None:
        raise click.UsageError("--where and --feed-from cannot be combined: changes are always read completely.")
    if feed_to is not None and feed_from is None:
        raise click.UsageError("--feed-to requires --feed-from.")
    if (table is None) == (sql is None) or (sql is not None and (where or feed_from is not None)):
        raise click.UsageError("Use either TABLE, optionally with --where or --feed-from, or only --sql.")
    if sql is not None:
        return feed_or_empty().archive.plan(sql, **options)
    return feed_or_empty().archive.table(table).plan(where, feed_from=feed_from, feed_to=feed_to, **options)


@archive.command()
@click.argument("plan")
@click.option("--once", is_flag=True, help="Request the files, show the progress, and exit without waiting.")
@click.option(
    "--poll",
    "poll_seconds",
    default=300.0,
    metavar="SECONDS",
    help="Time between two checks of the files.",
)
@click.option("--rows", default=20, help="Maximum number of result rows to show.")
@click.option(
    "--tier",
    type=click.Choice(["hot", "cool", "cold"]),
    default="hot",
    help="Tier to restore to. S3 supports only hot.",
)
@click.option(
    "--keep",
    "keep_days",
    type=click.IntRange(1, 36_500),
    metavar="DAYS",
    help="Number of days that restored copies stay. Only for S3.",
)
@click.option("--into", metavar="TABLE", help="Copy the result rows into this new table.")
@prices_option
def restore(plan: str, once: bool, **options: Any) -> results.Restoring:
    """Restore the files of PLAN, wait until all are readable, then run the planned query.

    You can stop this command at any time and run it again: pending files are not requested twice.
    """
    return feed_or_empty().archive.restore(plan, wait=not once, on_step=print_lines, **options)


@archive.command()
@table_argument
@click.option("--optimize/--no-optimize", default=True, help="Compact small files.")
@click.option("--zorder", metavar="A,B", help="Columns for ZORDER BY, separated by commas.")
@click.option("--purge", is_flag=True, help="Rewrite files that have deletion vectors.")
@click.option("--analyze", is_flag=True, help="Collect statistics. Only on Databricks.")
@click.option("--vacuum", is_flag=True, help="Run VACUUM: delete files that no retained version needs.")
def maintain(table: str, zorder: str | None, **options: bool) -> results.Maintained:
    """Run OPTIMIZE and other maintenance on the files of TABLE that are not archived."""
    return feed_or_empty().archive.table(table).maintain(zorder=zorder.split(",") if zorder else (), **options)


@archive.command()
@table_argument
def check(table: str) -> results.FileCheck:
    """Check that all files of TABLE that are not archived exist. Exits with 1 if files are missing."""
    return feed_or_empty().archive.table(table).check()


@archive.command("set")
@table_argument
@click.argument("interval")
def set_(table: str, interval: str) -> results.Interval:
    """Set or shorten the archive INTERVAL of TABLE, such as '60 days'. Older files count as archived."""
    return feed_or_empty().archive.table(table).set_interval(interval)


@archive.command("show")
@table_argument
def show_interval(table: str) -> results.Interval:
    """Show the archive interval of TABLE, and the number of days that its lifecycle rule must have."""
    return feed_or_empty().archive.table(table).interval()


@archive.command()
@table_argument
@click.option(
    "--nothing-archived", is_flag=True, help="Confirm that you removed the lifecycle rule and restored all files."
)
def unset(table: str, nothing_archived: bool) -> results.Interval:
    """Remove the archive interval of TABLE. Then no file counts as archived."""
    return feed_or_empty().archive.table(table).unset_interval(nothing_archived=nothing_archived)


@archive.command("change-interval")
@table_argument
@click.option("--to", required=True, metavar="INTERVAL", help="New interval, such as '90 days'.")
@click.option(
    "--exact",
    is_flag=True,
    help=(
        "Increase the interval every day, so that no active file counts as archived. Without this option, the interval"
        " stays unchanged until the new one is safe, and some active files count as archived."
    ),
)
@click.option("--rule-changed", is_flag=True, help="Confirm that the lifecycle rule already has this interval.")
def change_interval(table: str, to: str, exact: bool, rule_changed: bool) -> results.Interval:
    """Shorten TABLE's archive interval, or start an increase. For an increase, run `mirrorfeed archive step` daily."""
    return feed_or_empty().archive.table(table).change_interval(to, exact=exact, rule_changed=rule_changed)


@archive.command()
@table_argument
def step(table: str) -> Result[results.Interval]:
    """Continue an increase of TABLE's archive interval. Run daily. Also writes the archived bytes to the ledger."""
    return feed_or_empty().archive.table(table).step()


@archive.command()
@table_argument
@click.option(
    "--merge", type=exported_file, metavar="FILE", help="Exported policy. Its rules for other tables are kept."
)
@click.option(
    "--paused", is_flag=True, help="Disable the rules of TABLE, so that restored files are not archived again."
)
@click.option("--remove", is_flag=True, help="Remove the rules of TABLE.")
@click.option("--take-over", is_flag=True, help="Replace rules for TABLE that mirrorfeed did not write.")
@click.option(
    "--interval", metavar="INTERVAL", help="Interval of the rule, if the rule changes before the interval of TABLE."
)
def rule(
    table: str, merge: str | None, paused: bool, remove: bool, take_over: bool, interval: str | None
) -> results.Lifecycle | None:
    """Print a lifecycle policy with the rules of TABLE and, with --merge, all other rules of an exported policy.

    Does not apply the policy. The command to apply the policy is printed to standard error. Exits with 1 if the printed
    policy is wrong for TABLE. For example, another rule may archive the files of TABLE at a wrong age.
    """
    if paused and remove:
        raise click.UsageError("--paused and --remove cannot be combined.")
    state: Literal["on", "paused", "gone"] = "paused" if paused else "gone" if remove else "on"
    lifecycle = (
        feed_or_empty().archive.table(table).lifecycle(merge, state=state, take_over=take_over, interval=interval)
    )
    if prints_json():
        return lifecycle
    print_json(lifecycle.policy)
    verb = "Replaced" if take_over else "Kept (to replace these rules, use --take-over)"
    note = f"{verb}: {', '.join(lifecycle.rules_of_others)}, which archive only files of {table}"
    print_lines(lifecycle.apply, *([note] if lifecycle.rules_of_others else []), *lifecycle.problems, err=True)
    raise click.exceptions.Exit(not lifecycle.ok)


@archive.command("lifecycle-check")
@click.argument("file", type=exported_file)
@click.option("--table", required=True, help="Table whose interval is compared with the rules.")
def lifecycle_check(file: str, table: str) -> results.Lifecycle:
    """Compare an exported lifecycle policy, FILE, with the archive interval of a table. Exits with 1 if they differ."""
    return feed_or_empty().archive.table(table).check_lifecycle(file)


@archive.command()
@table_argument
@click.argument("intervals", nargs=-1, required=True)
@click.option(
    "--where", multiple=True, metavar="CONDITION", help="SQL condition of a query to simulate. Can be repeated."
)
@click.option("--predicates", metavar="FILE", help="File with conditions of queries, one per line.")
@prices_option
def simulate(table: str, intervals: tuple[str, ...], **options: Any) -> Result[results.Simulation]:
    """Show the effect of INTERVALS, such as '60 days', on TABLE: archived bytes, costs, and queries that would fail."""
    return feed_or_empty().archive.table(table).simulate(*intervals, **options)


@archive.command()
@tables_argument
@prices_option
def report(tables: tuple[str, ...], prices: str | None) -> Result[results.Share]:
    """Show archived files, archived bytes and storage costs of each table, and write these numbers to the ledger.

    Default for TABLES: all configured tables with an archive. Exits with 1 if a table fails.
    """
    configured = feed_or_empty() if tables else feed()
    return configured.archive.report(*tables, prices=prices)
