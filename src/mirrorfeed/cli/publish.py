"""The commands that set up, publish, compare and repair tables.

`init`, `schema`, `tables`, `enable-cdf`, `changes`, `publish`, `history`, `verify`, `repair`, `rebuild`,
`adopt`, `drop`, `deployment`, `history-view`.
"""

from __future__ import annotations

import importlib
import json
import math
import os
from collections.abc import Callable, Sequence
from dataclasses import field, replace
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from mirrorfeed.api import results
from mirrorfeed.api.errors import archive_tables_invalid, config_file_exists, file_not_written, not_in_a_task
from mirrorfeed.api.results import Result
from mirrorfeed.cli.main import (
    ci_format_option,
    confirmation,
    feed,
    feed_or_empty,
    main,
    mirror_option,
    print_json,
    print_lines,
    print_result,
    prints_json,
    show,
    stoppable,
    table_argument,
    tables_argument,
    until_closed,
    variables_given,
    wait_option,
    yes_option,
)
from mirrorfeed.cli.output import FollowLog, show_steps
from mirrorfeed.config import FILE, SCHEMA
from mirrorfeed.display.rows import Row, row, shown
from mirrorfeed.display.terminal import console

if TYPE_CHECKING:
    from mirrorfeed.orchestration.table_survey import SurveyedTable

_LARGEST_TASK_VALUE = 48 * 2**10
"""Maximum size of a task value, in bytes."""
_TABLES_PER_SHARD = 10
"""Average number of tables in a shard. The number varies, because a table's shard depends only on its name."""
_LONGEST_INPUTS = 10_000
"""Maximum number of characters of the inputs of a Databricks task of type `For each`."""


@row
class NewConfig(Row):
    """Result of `init`: the configuration and its JSON Schema, which were written."""

    file: str
    schema: str
    tables: tuple[SurveyedTable, ...] = ()
    """Tables that --from found, as they were before questions were answered. Empty without --from."""
    is_complete: bool = field(default=False, repr=False)
    """True if the configuration can be used without an edit."""

    def remarks(self) -> Sequence[str]:
        from mirrorfeed.config.printed_commands import name_config

        steps = "run `mirrorfeed enable-cdf` and `mirrorfeed publish`."
        steps = steps.capitalize() if self.is_complete else f"Edit this file, then {steps}"
        return (
            f"{self.file} was written. {name_config(steps, self.file)}",
            name_config("`mirrorfeed try` also replicates to a folder and compares all rows.", self.file),
            f"Editors complete and check the file with {self.schema}, which was also written.",
        )


@row
class TaskInput(Row):
    """Input of one iteration of a Databricks task of type `For each`: a target, or an option such as `--shard=2/8`."""

    input: str = shown("input")


@main.command(reads_config=False)
@click.argument("file", default=FILE)
@click.option(
    "--from",
    "place",
    metavar="PLACE",
    help="Write an entry for each table of PLACE: a schema (main.sales), a catalog (main), a folder, or a pattern.",
)
@click.option(
    "--keys",
    metavar="COLUMNS",
    help="Key columns of the tables that have all of them, separated by commas. Requires --from or --source. Default:"
    " the primary keys in Unity Catalog.",
)
@click.option("--source", metavar="TABLE", help="Write an entry for this table only: a catalog name or a folder.")
@click.option("--yes", is_flag=True, help="Ask no questions. Tables that need a decision become comments.")
def init(file: str, place: str | None, keys: str | None, source: str | None, yes: bool) -> NewConfig:
    """Write an example mirrorfeed.yml with comments, and the JSON Schema with which editors complete and check it.

    With --from, list the tables of a schema, a catalog or a folder with feed, size and keys. Write an entry for each
    table that can be published. On a terminal, ask for missing keys. Tables that need another decision, such as those
    with a row filter, become comments that name the reason. With --source, the table is not read.
    """
    from mirrorfeed.config.loader import EXAMPLE

    if place and source:
        raise click.UsageError("--source cannot be combined with --from.")
    if keys and not (place or source):
        raise click.UsageError("--keys requires --from or --source.")
    if Path(file).exists():  # before a long search
        raise config_file_exists(path=file)
    schema, text = Path(file).with_name(SCHEMA), EXAMPLE
    tables: tuple[SurveyedTable, ...] = ()
    is_complete = False
    columns = tuple(keys.split(",")) if keys else None
    if place is not None:
        from mirrorfeed.cli.new_config import draft_config

        text, tables, is_complete = draft_config(file, place, columns, ask=not yes)
    if source is not None:
        from mirrorfeed.config.new_config import write_config_of

        text, is_complete = write_config_of(file, source, columns), True
    try:
        with Path(file).open("x", encoding="utf-8") as target:
            target.write(text)
        schema.write_text(_read_schema(), encoding="utf-8")
    except FileExistsError as error:
        raise config_file_exists(path=file) from error
    except OSError as error:
        raise file_not_written(path=file, reason=error.strerror or str(error)) from error
    return NewConfig(file, str(schema), tables, is_complete)


@main.command(reads_config=False)
def schema() -> None:
    """Print the JSON Schema of mirrorfeed.yml, with which editors complete and check the file."""
    print_json(json.loads(_read_schema()), has_messages=False)


def _read_schema() -> str:
    return files("mirrorfeed.config").joinpath(SCHEMA).read_text(encoding="utf-8")


@main.command()
@click.option(
    "--task-value", metavar="NAME", help="Pass the tables to later tasks of a Databricks job, as the task value NAME."
)
def tables(task_value: str | None) -> Result[results.Listed] | Result[TaskInput]:
    """List the tables that the configuration selects, and the other tables that match a pattern, with the reason.

    Also shows the keys of each table, and whether inserts, updates and deletes can be published. Keys that are not
    configured are read from Unity Catalog. Only sources in Unity Catalog and in local folders are checked, because
    other sources need Spark. Exits with 1 if a table cannot be published.
    """
    if task_value is None:
        return feed().sources()
    return Result(tuple(map(TaskInput, set_task_value(task_value, list(feed().tables)))))


@main.command()
@tables_argument
def enable_cdf(tables: tuple[str, ...]) -> Result[results.Enabled]:
    """Turn on the change data feed of all configured tables, or only of TABLES."""
    return feed().enable_cdf(*tables)


@main.command()
@table_argument
@click.option(
    "--from",
    "start",
    metavar="VERSION|TIME",
    help="First version or time, inclusive. Default: the first version from which the feed is complete.",
)
@click.option(
    "--to", "end", metavar="VERSION|TIME", help="Last version or time, inclusive. Default: the newest version."
)
@click.option(
    "--past-end",
    type=click.Choice(["error", "empty"]),
    default="error",
    help="If a bound is after the newest version: fail (error), or show only existing versions (empty).",
)
@click.option("--rows", default=20, help="Maximum number of rows to show.")
@click.option("--counts", is_flag=True, help="Show how many rows each version changed, instead of the rows.")
def changes(
    table: str, start: str | None, end: str | None, past_end: Literal["error", "empty"], rows: int, counts: bool
) -> Result[results.DataRow] | Result[results.VersionChanges]:
    """Show the change data feed of TABLE: a configured table, or the name or path of any Delta table."""
    feed_changes = feed_or_empty().changes(table, start, end, past_end)
    return feed_changes.counts() if counts else feed_changes.first(rows)


def _parse_shard_option(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    """Convert a shard such as `2/8` to `shard:2/8`. Raises `click.BadParameter` if it is invalid. None stays None."""
    from mirrorfeed.config.model import parse_shard  # imported late, so that the command line starts without pydantic

    if value is not None and parse_shard(f"shard:{value}") is None:
        raise click.BadParameter(f"{value!r} is not a shard, such as 2/8: N must be between 1 and COUNT.")
    return value and f"shard:{value}"


@main.command()
@tables_argument
@click.option("--dry-run", is_flag=True, help="Show what would be published for each table, and change nothing.")
@click.option(
    "--shard", callback=_parse_shard_option, metavar="N/COUNT", help="Publish only the tables of shard N of COUNT."
)
@click.option("--follow", is_flag=True, help="Keep running and publish new commits as they arrive.")
@click.option("--duration", type=click.FloatRange(0), metavar="MINUTES", help="Stop after MINUTES. Requires --follow.")
@click.option(
    "--all", "every", is_flag=True, help="List all tables. By default, many tables without a problem are only counted."
)
def publish(
    tables: tuple[str, ...], dry_run: bool, shard: str | None, follow: bool, duration: float | None, every: bool
) -> Result[results.Decision] | Result[results.TableResult]:
    """Publish new changes of all configured tables, or only of TABLES.

    The first run of a table publishes a snapshot. A table that fails does not stop the others. Ctrl-C stops after the
    current publications, and the next run continues. Exits with 1 if a table failed or was not finished.

    \b
    Examples:
      mirrorfeed publish                          publish everything once
      mirrorfeed publish sales.orders --dry-run   show what would be published
      mirrorfeed publish --follow --duration 60   keep publishing for an hour
      mirrorfeed publish --shard 2/8              publish one eighth of the tables
    """
    if shard and tables:
        raise click.UsageError("--shard cannot be combined with TABLES.")
    if duration is not None and not follow:
        raise click.UsageError("--duration requires --follow.")
    if follow and (dry_run or prints_json()):
        raise click.UsageError(
            "--follow prints each publication as it happens, and cannot be combined with --dry-run or --json."
        )
    every = every or bool(tables)
    tables = (shard,) if shard else tables
    if dry_run:
        return replace(feed().dry_run(*tables), every=every)
    if follow:
        print_lines("Publishing new commits. Press Ctrl-C to stop.")
        return feed().follow(*tables, minutes=duration, on_done=until_closed(FollowLog(print_lines)), stop=stoppable())
    with show_steps(console(stderr=prints_json())) as steps:
        return replace(feed().publish(*tables, on_step=steps, on_done=steps.done, stop=stoppable()), every=every)


@main.command("try")
@tables_argument
@click.option("--mirror", default="./mirror", metavar="FOLDER", help="Folder for the replicated tables.")
def try_publication(tables: tuple[str, ...], mirror: str) -> Result[results.Comparison]:
    """Publish, replicate the landing zone to a local folder as Fabric would, and compare all rows.

    Applies to all configured tables, or only to TABLES. Needs no Fabric, but the package of the replica. Run it again
    after you changed rows of a source. Stops if a table is not published. Exits with 1 if a mirror differs.
    """
    project = feed()
    with show_steps(console(stderr=prints_json())) as steps:
        published = project.publish(*tables, on_step=steps, on_done=steps.done, stop=stoppable())
    if not published.ok:
        show(published)
    replicated = project.replicate(mirror)
    if not prints_json():
        print_result(published)
        print_result(replicated)
    return project.verify(*tables, mirror=mirror)


@main.command()
@table_argument
@click.option("--name", metavar="VIEW", help="Name of the view, without its schema. Default: <table>_history.")
def history_view(table: str, name: str | None) -> Result[results.HistoryView] | None:
    """Print the T-SQL of a view that shows when each row of TABLE was valid. Requires `delivery: append`.

    Run it on the SQL endpoint of the mirrored database. The view has the columns of the source, and the columns
    valid_from, valid_to and is_current. Run it again after columns were added.
    """
    result = feed().history_view(table, name)
    if prints_json():
        return result
    print_lines(*result[0].sql.splitlines())
    return None


@main.group()
def history() -> None:
    """Store all versions of tables in permanent histories, and create tables with the rows of a stored version."""


@history.command()
@tables_argument
@click.option(
    "--reseed", is_flag=True, help="If versions between history and source are lost, continue with a snapshot."
)
def append(tables: tuple[str, ...], reseed: bool) -> Result[results.Append]:
    """Append new versions of all configured tables that have a history, or only of TABLES."""
    return feed().history.append(*tables, reseed=reseed)


@history.command()
@tables_argument
def status(tables: tuple[str, ...]) -> Result[results.History]:
    """Show which versions the history of each table contains, and its lag."""
    return feed().history.status(*tables)


@history.command()
@table_argument
@click.option("--to-version", type=click.IntRange(0), metavar="VERSION", help="Version of TABLE. Not with --as-of.")
@click.option(
    "--as-of",
    metavar="TIME",
    help="Time, in the time zone of the Spark session: the newest version at this time. Not with --to-version.",
)
@click.option("--into", required=True, metavar="TABLE", help="Table to create: a catalog name or a folder.")
def replay(table: str, to_version: int | None, as_of: str | None, into: str) -> Result[results.Replay]:
    """Create a new table with the rows that TABLE had at a version or time. Reads only the history."""
    version_or_time = as_of if to_version is None else to_version
    if version_or_time is None or (as_of is not None and to_version is not None):
        raise click.UsageError("Use either --to-version or --as-of.")
    return feed().history.replay(table, into, version_or_time)


@main.command()
@tables_argument
@click.option(
    "--quick",
    is_flag=True,
    help="Compare only the numbers of rows, from the Delta logs. Not with --since-last.",
)
@click.option(
    "--since-last",
    is_flag=True,
    help="Compare only keys that changed since the last verification that found no difference, and count all rows.",
)
@click.option(
    "--sample",
    type=click.IntRange(0, 100_000),
    default=0,
    metavar="ROWS",
    help="Also compare this number of random rows of each source. Requires --since-last.",
)
@mirror_option
@ci_format_option
def verify(
    tables: tuple[str, ...], quick: bool, since_last: bool, sample: int, mirror: str | None
) -> Result[results.Comparison]:
    """Compare sources and mirrors row by row, each source at the version of its mirror.

    Writes the results to the ledger. If the rows of at most `auto_repair_max_keys` keys differ, publishes these rows
    again. Exits with 1 if a mirror differs, was repaired, or cannot be compared, for example before the first
    publication.

    --quick and --since-last find fewer differences, and cost less: see docs/verification.md.
    """
    if sample and not since_last:
        raise click.UsageError("--sample requires --since-last.")
    if quick and since_last:
        raise click.UsageError("Use either --quick or --since-last.")
    return feed().verify(*tables, mirror=mirror, since_last=since_last, sample=sample, quick=quick)


@main.command()
@table_argument
@click.option(
    "--where",
    metavar="CONDITION",
    help=(
        "Publish all rows that match this SQL condition, whether they differ or not. Uses column names of the target."
    ),
)
@mirror_option
@click.option(
    "--source-only",
    is_flag=True,
    help="Do not read the mirror: publish the rows of --where, delete nothing. Requires --where.",
)
def repair(table: str, where: str | None, mirror: str | None, source_only: bool) -> Result[results.Repair]:
    """Publish again the rows of TABLE that differ between source and mirror.

    Publishes upserts and deletes, with the values of the source at the published version. The table stays available
    in Fabric. Wait until Fabric has consumed the files, then run `mirrorfeed verify` again.
    """
    with show_steps(console(stderr=prints_json())) as steps:
        return feed().repair(table, mirror, where or None, source_only=source_only, on_step=steps)


@main.command()
@table_argument
@yes_option
@wait_option("Fabric has dropped the table")
def rebuild(table: str, yes: bool, minutes: float) -> Result[results.TableResult]:
    """Delete TABLE in the landing zone and publish it again from the start.

    Until the new snapshot is replicated, Fabric does not have the table. After a failure, run the command again.
    """
    with show_steps(console(stderr=prints_json())) as steps:
        return feed().rebuild(table, minutes, confirmation(yes), on_step=steps, on_done=steps.done, stop=stoppable())


@main.command()
@table_argument
@click.option(
    "--published", type=click.IntRange(0), required=True, metavar="VERSION", help="Last version that was published."
)
@mirror_option
def adopt(table: str, published: int, mirror: str | None) -> Result[results.AdoptedTable]:
    """Continue TABLE after another publisher, from VERSION of its source and without a reload.

    Stop the other publisher first, and wait until Fabric has consumed its files. The command checks its folder and
    compares the mirror with VERSION. It writes nothing if publishing cannot continue.
    """
    return feed().adopt(table, published, mirror)


@main.command()
@table_argument
@yes_option
def drop(table: str, yes: bool) -> Result[results.DroppedTable]:
    """Delete TABLE in the landing zone, so that Fabric drops it. The configuration must no longer contain TABLE."""
    return feed().drop(table, confirmation(yes))


@main.command(hidden=True)
@click.argument("file")
@click.option("--mirror", default="", help="Folder of the mirrored tables, if it is not the mirrored database.")
@click.option("--archive-tables", default="[]", help="The tables with an archive, as JSON.")
@click.pass_obj
def deployment(overrides: dict[str, str | None], file: str, mirror: str, archive_tables: str) -> None:
    """Check the settings of a deployment, and write the settings of the notebooks to FILE. The bundle build runs it."""
    tables = _parse_archive_tables(archive_tables)
    feed()
    settings = {**overrides, "mirror": mirror, "archive_tables": tables, "variables": variables_given()}
    Path(file).write_text(json.dumps(settings, indent=1) + "\n")


def _parse_archive_tables(text: str) -> list[str]:
    """Return the table names in the bundle variable `archive_tables`, a JSON list.

    Raises `archive_tables_invalid` if `text` is not a list of names, or is longer than a Databricks job accepts.
    """
    from mirrorfeed.landing.strict_json import parse_json

    if len(text) > _LONGEST_INPUTS:
        raise archive_tables_invalid(reason=f"has {len(text):,} characters, but a job accepts only {_LONGEST_INPUTS:,}")
    try:
        tables = parse_json(text)
    except ValueError as error:
        raise archive_tables_invalid(reason=f"cannot be read: {error}") from None
    if not isinstance(tables, list) or not all(isinstance(table, str) for table in tables):
        raise archive_tables_invalid(reason=f"is not a list of names: {text}")
    return tables


def _task_values() -> Any:
    if "DATABRICKS_RUNTIME_VERSION" not in os.environ:
        raise not_in_a_task()
    return importlib.import_module("databricks.sdk.runtime").dbutils.jobs.taskValues


def set_task_value(name: str, targets: list[str], task_values: Callable[[], Any] = _task_values) -> list[str]:
    """Set the task value `name` to a list over which a later task of the job can loop, and return the list.

    The list contains `targets` or, if they exceed the limit of a task value, options such as `--shard=2/8`. Raises
    `not_in_a_task` outside a job.
    """
    value = targets
    if len(json.dumps(targets)) > _LARGEST_TASK_VALUE:
        shards = math.ceil(len(targets) / _TABLES_PER_SHARD)
        value = [f"--shard={n}/{shards}" for n in range(1, shards + 1)]
    task_values().set(key=name, value=value)
    return value
