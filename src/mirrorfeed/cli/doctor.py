"""The command that names what is wrong, from the source to Fabric, and what helps."""

from __future__ import annotations

import sys

import click

from mirrorfeed.cli.root import config_option, for_programs, load, main, say, say_error, say_json, spark_session
from mirrorfeed.display.progress import waiting
from mirrorfeed.display.terminal import console, text
from mirrorfeed.errors import named


@main.command()
@click.argument("tables", nargs=-1)
@click.option("--fix", is_flag=True, help="Carry out the remedies that change nothing but what every run begins with.")
@config_option
def doctor(tables: tuple[str, ...], fix: bool, path: str) -> None:
    """Name what is wrong with the tables, from their sources to Fabric, each with the command that helps.

    Warns before changes are lost: where the feed keeps less than the lag, or soon will. Exits with 1 if it found more
    than notes.
    """
    config = load(path)
    chosen = config.select(tables)
    spark = spark_session()
    from mirrorfeed.config.landing_zone import zone_of
    from mirrorfeed.monitor.facts import look_at_table, look_at_zone, mend
    from mirrorfeed.monitor.findings import NOTHING, Weight
    from mirrorfeed.monitor.rules import judge_table, judge_zone

    store, zone = zone_of(config), config.landing_zone
    with waiting("Looking at the landing zone and the mirrored database"):
        about, states = look_at_zone(config, store)
    found = judge_zone(about, zone)
    for at, table in enumerate(chosen, 1):
        with waiting(f"Table {at} of {len(chosen)}, {table.target}: looking at its source and its log"):
            of_table = judge_table(look_at_table(spark, config, store, table, states), zone)
        if fix and any(each.safe for each in of_table):
            try:
                mend(store, table)
                say(f"{table.target}: finished and tidied.")
            except Exception as error:
                say_error(named("Mending", error), str(table.target))
            of_table = judge_table(look_at_table(spark, config, store, table, states), zone)
        found += of_table
    if for_programs():
        told = [{"code": each.code.value, "name": each.code.name, "weight": each.weight.value,
                 "table": each.table, "what": each.what, "remedy": each.remedy} for each in found]  # fmt: skip
        say_json(told)
    else:
        out = console()
        for each in found:
            style = {Weight.WRONG: "red", Weight.SOON: "yellow"}.get(each.weight, "")
            place = each.table or "mirrored database"
            out.print(
                text(f"{each.weight.value:<6}{each.code.value} {each.code.name}  {place}: {each.what}", style=style)
            )
            out.print(text(f"      {each.remedy}"))
        out.print(text(NOTHING if not found else f"{len(found)} found."))
    sys.exit(any(each.weight is not Weight.NOTE for each in found))
