"""Commands that set up a deployment: `init`, `tables`, `deployment`."""

from __future__ import annotations

import importlib
import json
import math
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mirrorfeed.api.errors import ArchiveTablesInvalid, FileExists, FileNotWritten, NotInATask
from mirrorfeed.cli.main import feed, load_as_written, main, overrides
from mirrorfeed.config import FILE
from mirrorfeed.display.rows import Row, row, shown

if TYPE_CHECKING:
    from mirrorfeed.api.results import Listed, Result

_LARGEST_TASK_VALUE = 48 * 2**10
_TABLES_PER_SHARD = 10
"""Approximate number, because a table's shard depends only on its name."""
_LONGEST_INPUTS = 10_000
"""Maximum number of characters of a loop's inputs in a job definition."""


@row
class Example(Row):
    """Example configuration."""

    file: str

    def remarks(self) -> Sequence[str]:
        return (f"{self.file} was written. Edit this file, then run `mirrorfeed enable-cdf` and `mirrorfeed publish`.",)


@row
class TaskInput(Row):
    """Input of a later task: a table, or `--shard` with a shard of the tables."""

    input: str = shown("input")


@main.command(reads_config=False)
@click.argument("file", default=FILE)
def init(file: str) -> Example:
    """Write an example mirrorfeed.yml with comments."""
    from mirrorfeed.config.loader import EXAMPLE

    try:
        with Path(file).open("x", encoding="utf-8") as target:
            target.write(EXAMPLE)
    except FileExistsError as error:
        raise FileExists(path=file) from error
    except OSError as error:
        raise FileNotWritten(path=file, reason=error.strerror or str(error)) from error
    return Example(file)


@main.command()
@click.option(
    "--task-value", metavar="NAME", help="Pass the tables to later tasks of a Databricks job, as the task value NAME."
)
def tables(task_value: str | None) -> Result[Listed] | Result[TaskInput]:
    """List the tables that the configuration selects, and matching tables that are left out, with the reason.

    Also shows the keys of each table, and the kinds of changes that can be published. Keys that are not configured are
    read from Unity Catalog. Sources and columns are checked if this needs no Spark. Exits with 1 if a table cannot be
    published.
    """
    found = feed()
    if task_value is None:
        return found.sources()
    from mirrorfeed.api.results import Result

    return Result(tuple(TaskInput(name) for name in set_task_value(task_value, list(found.tables))))


@main.command(hidden=True)
@click.argument("file")
@click.option("--mirror", default="", help="Folder of the mirrored tables, if it is not the mirrored database.")
@click.option("--archive-tables", default="[]", help="The tables with an archive, as JSON.")
def deployment(file: str, mirror: str, archive_tables: str) -> None:
    """Check the settings of a deployment, and write those that its notebooks need into FILE. The bundle calls it."""
    archived = parse_archive_tables(archive_tables)
    load_as_written()
    Path(file).write_text(json.dumps({**overrides(), "mirror": mirror, "archive_tables": archived}, indent=1) + "\n")


def parse_archive_tables(text: str) -> list[str]:
    """Parse the tables over which the archive job loops. Raises `ArchiveTablesInvalid`."""
    from mirrorfeed.landing.strict_json import parse_json

    if len(text) > _LONGEST_INPUTS:
        raise ArchiveTablesInvalid(reason=f"has {len(text):,} characters, but a job accepts only {_LONGEST_INPUTS:,}")
    try:
        found = parse_json(text)
    except ValueError as error:
        raise ArchiveTablesInvalid(reason=f"cannot be read: {error}") from None
    if not isinstance(found, list) or not all(isinstance(each, str) for each in found):
        raise ArchiveTablesInvalid(reason=f"is not a list of names: {text}")
    return found


def _task_values() -> Any:
    if "DATABRICKS_RUNTIME_VERSION" not in os.environ:
        raise NotInATask()
    return importlib.import_module("databricks.sdk.runtime").dbutils.jobs.taskValues


def set_task_value(name: str, targets: list[str], task_values: Callable[[], Any] = _task_values) -> list[str]:
    """Set a task value over which a later task can loop: targets, or shards if the names are too long."""
    value = targets
    if len(json.dumps(targets)) > _LARGEST_TASK_VALUE:
        shards = math.ceil(len(targets) / _TABLES_PER_SHARD)
        value = [f"--shard={n}/{shards}" for n in range(1, shards + 1)]
    task_values().set(key=name, value=value)
    return value
