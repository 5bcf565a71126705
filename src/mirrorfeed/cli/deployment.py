"""The commands around a deployment: what it needs, which tables it has, and what it did."""

from __future__ import annotations

import importlib
import json
import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mirrorfeed.cli.main import (
    config_option,
    feed,
    load_as_written,
    main,
)
from mirrorfeed.display.rows import Row, row, shown
from mirrorfeed.errors import Terminal

if TYPE_CHECKING:
    from mirrorfeed.api.results import Listed, Result


@main.command()
@click.option(
    "--task-value", metavar="NAME", help="In a Databricks task, pass the tables to later tasks as the task value NAME."
)
@config_option
def tables(task_value: str | None, path: str) -> Result[Listed] | Result[TaskInput]:
    """List the tables that the configuration selects, and those that match a pattern but are left out, with the reason.

    Also shows the keys and the kinds of changes that each table can take. Keys that are not configured are read from
    Unity Catalog. Exits with 1 if a table cannot be published.
    """
    found = feed(path)
    if task_value is None:
        return found.sources()
    from mirrorfeed.api.results import Result

    return Result(tuple(TaskInput(name) for name in hand_on(task_value, list(found.tables))))


@row
class TaskInput(Row):
    """An input of a later task: a table, or a share of the tables."""

    input: str = shown("input")


@main.command(hidden=True)
@click.argument("file")
@click.option("--mirror", default="", help="Where the mirrored tables are, where that is not the mirrored database.")
@click.option("--archive-tables", default="[]", help="The tables with an archive, as JSON.")
@config_option
@click.pass_context
def deployment(context: click.Context, file: str, mirror: str, archive_tables: str, path: str) -> None:
    """Check what a deployment is made of, and write into FILE what its notebooks are to know. The bundle calls it."""
    archived = tables_in(archive_tables)
    load_as_written(path)
    facts = context.find_object(dict) or {}
    Path(file).write_text(json.dumps({**facts, "mirror": mirror, "archive_tables": archived}, indent=1) + "\n")


_LARGEST_TASK_VALUE = 48 * 2**10
_TABLES_A_SHARE = 10
"""About so many; which are in it is told by their names alone."""
_LONGEST_INPUTS = 10_000
"""Of a loop's inputs, where they stand in the job itself."""


def tables_in(archive_tables: str) -> list[str]:
    """The tables over which the archive's job loops, or `ArchiveTablesInvalid`."""
    from mirrorfeed.landing.strict_json import parse_json

    if (length := len(archive_tables)) > _LONGEST_INPUTS:
        raise ArchiveTablesInvalid(f"has {length:,} characters, and a job takes {_LONGEST_INPUTS:,}")
    try:
        found = parse_json(archive_tables)
    except ValueError as error:
        raise ArchiveTablesInvalid(f"cannot be read: {error}") from None
    if not isinstance(found, list) or not all(isinstance(each, str) for each in found):
        raise ArchiveTablesInvalid(f"is no list of names: {archive_tables}")
    return found


def _task_values() -> Any:
    if "DATABRICKS_RUNTIME_VERSION" not in os.environ:
        raise NotInATask()
    return importlib.import_module("databricks.sdk.runtime").dbutils.jobs.taskValues


def hand_on(name: str, targets: list[str], task_values: Callable[[], Any] = _task_values) -> list[str]:
    """Sets a task value, over which a later task of the run can loop: the targets, or where their names are too long
    together, shares of them."""
    value = targets
    if len(json.dumps(targets)) > _LARGEST_TASK_VALUE:
        shares = math.ceil(len(targets) / _TABLES_A_SHARE)
        value = [f"share:{n}/{shares}" for n in range(1, shares + 1)]
    task_values().set(key=name, value=value)
    return value


class ArchiveTablesInvalid(Terminal):
    """The variable of the Databricks bundle that lists the tables with an archive cannot be read."""

    code = "MF1301"

    def __init__(self, reason: str) -> None:
        self.reason = reason

    def what(self) -> str:
        return f"The variable archive_tables {self.reason}."

    def next(self) -> str:
        return (
            "Write it as '[\"main.sales.orders\"]', and tables that are too many for it into a bundle of their own;"
            " nothing was deployed."
        )


class NotInATask(Terminal):
    """The names of the tables can be handed on only within a task of a Databricks job."""

    code = "MF1302"

    def what(self) -> str:
        return "There are no task values here: this is no Databricks runtime."

    def next(self) -> str:
        return "Leave out --task-value."
