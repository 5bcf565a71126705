"""The commands that look before and after: what an interval would do, and what the archives of many tables hold."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from mirrorfeed.cli.archive import archive, given_rates
from mirrorfeed.cli.main import (
    config_option,
    for_programs,
    given_ledger,
    load,
    load_if_there,
    say,
    say_error,
    say_json,
    say_result,
    spark_session,
)
from mirrorfeed.errors import MirrorfeedError, coded, named

if TYPE_CHECKING:
    from mirrorfeed.archive.archived_share import Simulation
    from mirrorfeed.source.identifier import Source
    from mirrorfeed.storage.prices import Prices

prices_option = click.option("--prices", metavar="FILE", help="Your prices, in place of the configuration's.")


@archive.command()
@config_option
@click.argument("table")
@click.argument("intervals", nargs=-1, required=True)
@click.option(
    "--where", "conditions", multiple=True, metavar="PREDICATE", help="A condition that is asked; repeatable."
)
@click.option("--predicates", metavar="FILE", help="More of them, one a line.")
@click.option(
    "--history", type=click.IntRange(1, 365), metavar="DAYS", help="And the queries of these days (Databricks)."
)
@prices_option
def simulate(
    path: str,
    table: str,
    intervals: Sequence[str],
    conditions: Sequence[str],
    predicates: str | None,
    history: int | None,
    prices: str | None,
) -> None:
    """Say what INTERVALS such as '60 days' would do to TABLE: how much would be cold, which questions would fail."""
    from mirrorfeed.archive import archived_share as simulating
    from mirrorfeed.source.identifier import Source
    from mirrorfeed.source.retention import parse_days

    days, source, rates = [parse_days(each) for each in intervals], Source.parse(table), given_rates(prices, path)
    questions = [simulating.Question(each) for each in conditions]
    questions += simulating.conditions_in(predicates) if predicates else []
    spark = spark_session()
    questions += simulating.asked(spark, source, history) if history else []
    found = simulating.simulate(spark, source, list(dict.fromkeys(days)), questions, datetime.now(UTC))
    if for_programs():
        say_json(asdict(found))
        return
    _say_outcomes(found)
    for each in found.shares:
        _say_interval(found, each, rates)


def _say_outcomes(found: Simulation) -> None:
    from mirrorfeed.display.humanize import counted, size

    for outcome in found.outcomes:
        text = " ".join(outcome.question.text.split())
        asked = f" (asked {outcome.question.times:,} times)" if outcome.question.times > 1 else ""
        if outcome.error is not None:
            say(f"{text}{asked}: not known, for it cannot be planned here: {outcome.error}")
            continue
        told = []
        for days, need in outcome.needs.items():
            fails = f"fails, for {counted(need.files, 'file')} in the archive, {size(need.bytes)}"
            told.append(f"{counted(days, 'day')}: {fails if need.files else 'answered'}")
        say(f"{text}{asked}: {'; '.join(told)}")


def _say_interval(found: Simulation, days: int, rates: Prices | None) -> None:
    from mirrorfeed.display.humanize import counted

    share = found.shares[days]
    month = rates.monthly_cost(share.hot_bytes or 0, share.cold_bytes or 0) if rates else None
    words = [f"{share}, {(share.archived or 0):.0%}"]
    if found.outcomes:
        failed, known = found.failing(days)
        words.append(f"{failed:,} of {counted(known, 'question')} would fail")
    if rates and month:
        words.append(f"a month costs {month.cost:,.2f} {rates.currency} and saves {month.saving:,.2f}")
    say(f"{counted(days, 'day')}: {'; '.join(words)}")


@archive.command()
@config_option
@click.argument("tables", nargs=-1)
@prices_option
def report(path: str, tables: Sequence[str], prices: str | None) -> None:
    """Show what of TABLES is hot, archived and restored, and what that costs and saves.

    Without TABLES: of all tables of the configuration that have an archive.
    It is written into the ledger of the configuration, or that which --ledger before the command names; `mirrorfeed
    report` draws it over time. A table that cannot be looked at is told, and the others go on; exits with 1 then.
    """
    from mirrorfeed.source.identifier import Source

    given = [Source.parse(table) for table in tables]
    config = load_if_there(path) if given else load(path)
    listed = given or [table.source for table in config.tables] if config else given
    rates, ledger = given_rates(prices, path), given_ledger() or (config.ledger if config else None)
    spark = spark_session()
    chosen = [source for source in listed if given or _may_have_an_archive(spark, source)]
    found = [look(spark, source, rates, ledger) for source in chosen]
    say_result(found)
    sys.exit(any(row["error"] for row in found))


def _may_have_an_archive(spark: Any, source: Source) -> bool:
    """What cannot be read is told when it is looked at."""
    from mirrorfeed.archive import interval as intervals

    try:
        return intervals.read(spark, source) is not None
    except MirrorfeedError:
        return True


def look(spark: Any, source: Source, rates: Prices | None, ledger: Source | None) -> dict[str, Any]:
    """Shows it, writes it into the ledger, and tells it. After the fact: what fails here is told, and harms nothing."""
    from mirrorfeed.archive.archived_share import share
    from mirrorfeed.orchestration.ledger import archived, keep, told
    from mirrorfeed.source.table_info import read_table_info
    from mirrorfeed.storage.tiers import tiers_at

    now = datetime.now(UTC)
    try:
        found = share(spark, source, now, tiers_at(read_table_info(spark, source).location))
    except Exception as error:
        trouble = named(f"Looking how much of {source} is archived", error)
        say_error(trouble)
        return {"table": str(source), "error": trouble}
    row = archived(str(source), found, now, rates)
    month = "" if row.month_cost is None else f"; a month costs {row.month_cost:,.2f} {row.currency}"
    month += "" if row.month_saving is None else f" and saves {row.month_saving:,.2f}"
    say(f"{source}: {found}{month}")
    if lost := keep(spark, ledger, [row]):
        say(coded(lost), err=True)
    return told(row)
