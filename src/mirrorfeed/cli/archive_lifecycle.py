"""The commands about the cloud's lifecycle rules: to write them into the one policy of an account, and to judge it."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import click

from mirrorfeed.cli.archive import archive
from mirrorfeed.cli.main import for_programs, say, say_json, say_result, spark_session
from mirrorfeed.display.humanize import counted
from mirrorfeed.errors import Terminal

_exported = click.Path(exists=True, dir_okay=False)


@archive.command()
@click.argument("table")
@click.option("--merge", "exported", type=_exported, metavar="FILE", help="The policy that the account has, exported.")
@click.option("--paused", is_flag=True, help="Let the table's rules do nothing, so that restored files stay.")
@click.option("--remove", is_flag=True, help="Take the table's rules out.")
@click.option("--take-over", is_flag=True, help="Put the table's rules in place of those that others wrote for it.")
@click.option("--interval", metavar="INTERVAL", help="Such as '90 days', where the rule changes before the property.")
def rule(
    table: str,
    exported: str | None,
    paused: bool,
    remove: bool,
    take_over: bool,
    interval: str | None,
) -> None:
    """Write the lifecycle policy that TABLE needs, with all that others have in it, to standard output.

    Exits with 1 if something else in the policy does not fit the table.
    """
    from mirrorfeed.archive import interval as intervals
    from mirrorfeed.archive.lifecycle import rules_of
    from mirrorfeed.archive.lifecycle.base import Wanted
    from mirrorfeed.source.identifier import Source
    from mirrorfeed.source.retention import parse_days

    if paused and remove:
        raise click.UsageError("--paused and --remove exclude each other.")
    asked = parse_days(interval) if interval else None
    source, there = Source.parse(table), _json(exported) if exported else None
    spark = spark_session()
    days = asked or intervals.required(spark, source).rule
    rules = rules_of(spark, source)
    made = rules.policy(days, Wanted.PAUSED if paused else Wanted.GONE if remove else Wanted.ON, there, take_over)
    problems = [each for each in rules.check(made, days) if each.rule or not (paused or remove)]
    theirs = rules.of_others(there)
    if for_programs():
        facts = {"policy": made, "apply": rules.apply(made, there), "of_others": list(theirs)}
        say_json({"table": str(source), **facts, "problems": list(map(str, problems))})
        sys.exit(bool(problems))
    say_json(made)
    say(rules.apply(made, there), err=True)
    if theirs:
        done = "Taken over" if take_over else "Kept, and taken over with --take-over"
        say(f"{done}: {', '.join(theirs)}, by which others archive files of {source} alone", err=True)
    for problem in problems:
        say(str(problem), err=True)
    sys.exit(bool(problems))


@archive.command("lifecycle-check")
@click.argument("file", type=_exported)
@click.option("--table", required=True, help="The table that the rules are compared with.")
def lifecycle_check(file: str, table: str) -> None:
    """Compare the rules in FILE, as exported from the cloud, with the table's interval. Exits with 1 if they differ."""
    from mirrorfeed.archive import interval as intervals
    from mirrorfeed.archive.lifecycle import rules_of
    from mirrorfeed.source.identifier import Source

    source, exported = Source.parse(table), _json(file)
    spark = spark_session()
    days = intervals.required(spark, source).rule
    problems = rules_of(spark, source).check(exported, days)
    say_result({"table": str(source), "days": days, "problems": list(map(str, problems))})
    for problem in problems:
        say(str(problem))
    if not problems:
        say(f"{source}: the rules archive its files after {counted(days, 'day')}, as its property says")
    sys.exit(bool(problems))


def _json(path: str) -> Any:
    from mirrorfeed.landing.strict_json import parse_json

    raw = Path(path).read_bytes()
    try:  # PowerShell writes UTF-16, or UTF-8 with a mark
        return parse_json(raw.decode(json.detect_encoding(raw)))
    except ValueError as error:
        raise NoJson(path, str(error)) from error


class NoJson(Terminal):
    """The exported policy is no JSON."""

    code = "MF5407"

    def __init__(self, path: str, reason: str) -> None:
        self.path, self.reason = path, reason

    def what(self) -> str:
        return f"{self.path} is no JSON ({self.reason})."

    def next(self) -> str:
        return (
            "Export the policy with `az storage account management-policy show --output json` or `aws s3api"
            " get-bucket-lifecycle-configuration`."
        )
