"""The commands about a table's interval: from when on its files count as archived, and how that changes."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from mirrorfeed.cli.archive import archive, given_rates, now, source_of
from mirrorfeed.cli.main import config_option, given_ledger, say, say_result, spark_session
from mirrorfeed.display.humanize import counted
from mirrorfeed.display.printable import shell_argument
from mirrorfeed.errors import Terminal

if TYPE_CHECKING:
    from mirrorfeed.archive.interval import Policy
    from mirrorfeed.source.identifier import Source


@archive.command("set")
@click.argument("table")
@click.argument("interval")
def set_(table: str, interval: str) -> None:
    """Let files of TABLE count as archived from INTERVAL on, such as '60 days'; prints the cloud's rule for it."""
    from mirrorfeed.archive import interval as intervals
    from mirrorfeed.source.retention import parse_days

    days, source = parse_days(interval), source_of(table)
    spark = spark_session()
    found = intervals.set_first(spark, source, days, now())
    say_result(_told(source, found))
    say(f"{source}: files count as archived from {counted(found.days, 'day')} on")
    _say_rule(spark, source, found)


@archive.command()
@click.argument("table")
def show(table: str) -> None:
    """Show from when on files of TABLE count as archived, what the cloud's rule must say, and the rule itself."""
    from mirrorfeed.archive import interval as intervals

    source, spark = source_of(table), spark_session()
    found = intervals.required(spark, source)
    say_result(_told(source, found))
    say(f"{source}: files count as archived from {counted(found.days, 'day')} on")
    _say_change(found)
    _say_rule(spark, source, found)


@archive.command()
@click.argument("table")
@click.option("--nothing-archived", is_flag=True, help="Say that the rule is gone and all files are back.")
def unset(table: str, nothing_archived: bool) -> None:
    """Let all files of TABLE count as hot again."""
    from mirrorfeed.archive import interval as intervals

    source = source_of(table)
    if not nothing_archived:
        raise StillArchived(str(source))
    intervals.unset(spark_session(), source)
    say_result({"table": str(source), "days": None, "rule": None, "change": None})
    say(f"{source}: no file counts as archived")


@archive.command("change-interval")
@click.argument("table")
@click.option("--to", "interval", required=True, metavar="INTERVAL", help="Such as '90 days'.")
@click.option("--exact", is_flag=True, help="Raise it daily, so that hot files never count as archived.")
@click.option("--rule-changed", is_flag=True, help="Say that the cloud goes by this interval already.")
def change_interval(table: str, interval: str, exact: bool, rule_changed: bool) -> None:
    """Change the interval of TABLE: a shorter one at once, a longer one as far as is safe each day."""
    from mirrorfeed.archive import interval as intervals
    from mirrorfeed.source.retention import parse_days

    days, source = parse_days(interval), source_of(table)
    spark = spark_session()
    before = intervals.required(spark, source)
    if days > before.rule and not rule_changed:
        raise RuleFirst(str(source), before.rule, days)
    found = intervals.change_interval(spark, source, days, exact, now())
    say_result(_told(source, found))
    say(f"{source}: files count as archived from {counted(found.days, 'day')} on")
    _say_change(found)
    if days < before.rule:
        say("Now change the cloud's rule to the same number of days.")
        _say_rule(spark, source, found)


@archive.command()
@config_option
@click.argument("table")
def step(path: str, table: str) -> None:
    """Raise the interval of TABLE as far as is safe now, if it is being changed: what a daily job runs.

    How much of TABLE is archived is shown, and written into the ledger that --ledger before the command names, with
    what that costs and saves, where the configuration has prices.
    """
    from mirrorfeed.archive import interval as intervals
    from mirrorfeed.cli.archive_report import look

    source, ledger, rates = source_of(table), given_ledger(), given_rates(None, path)
    spark = spark_session()
    found = intervals.step(spark, source, now())
    say(f"{source}: files count as archived from {counted(found.days, 'day')} on")
    _say_change(found)
    say_result({**_told(source, found), "archived": look(spark, source, rates, ledger)})


def _told(source: Source, found: Policy) -> dict[str, object]:
    """`rule` is what the cloud's rule must say; `change` ends where the days are the same."""
    change = found.change if found.days < found.rule else None
    until = {"until": change.frontier.done_at(), "exact": change.exact} if change else None
    return {"table": str(source), "days": found.days, "rule": found.rule, "change": until}


def _say_rule(spark: Any, source: Source, found: Policy) -> None:
    from mirrorfeed.archive.errors import NoLifecycle
    from mirrorfeed.archive.lifecycle import rules_of

    say(
        "This moves no file. The cloud's lifecycle rule must say the same:"
        f" {counted(found.rule, 'day')}, by creation time."
    )
    try:
        rules = rules_of(spark, source)
    except NoLifecycle as error:
        say(f"{error.problem[:-1]}, and none to show.")
        return
    made = rules.policy(found.rule)
    say(*json.dumps(made, indent=2, ensure_ascii=False).split("\n"))
    say(rules.apply(made))


def _say_change(found: Policy) -> None:
    if found.change and found.days < found.rule:
        done = found.change.frontier.done_at()
        how = "raised daily" if found.change.exact else "kept until then"
        say(
            f"On the way to {counted(found.rule, 'day')}, {how}: run `mirrorfeed archive step` daily, until"
            f" {done:%Y-%m-%d}"
        )


class StillArchived(Terminal):
    """Without an interval all files count as readable, which is wrong while some are archived."""

    code = "MF5304"

    def __init__(self, table: str) -> None:
        self.table = table

    def what(self) -> str:
        return f"If files of {self.table} were still in the archive, queries would take them as hot and fail."

    def next(self) -> str:
        return (
            f"Remove the cloud's rule (`mirrorfeed archive rule {shell_argument(self.table)} --merge EXPORTED"
            " --remove`), bring all"
            " files back, then run the command again with --nothing-archived."
        )


class RuleFirst(Terminal):
    """The cloud's rule has to be changed before the interval grows, for it goes on archiving files."""

    code = "MF5305"

    def __init__(self, table: str, rule: int, asked: int) -> None:
        self.table, self.rule, self.asked = table, rule, asked

    def what(self) -> str:
        return (
            f"While the cloud's rule for {self.table} says {counted(self.rule, 'day')} it goes on moving files of that"
            f" age, so the way to {counted(self.asked, 'day')} cannot begin."
        )

    def next(self) -> str:
        return (
            f"Let the cloud's rule say {counted(self.asked, 'day')} (`mirrorfeed archive rule"
            f" {shell_argument(self.table)} --merge"
            f" EXPORTED --interval '{self.asked} days'`) and wait until that holds, in Azure for a day, then run the"
            " command again with --rule-changed."
        )
