"""The command that publishes rows once more that went wrong in the mirror, and what `verify` repairs by itself."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from mirrorfeed.cli.root import config_option, load, main, spark_session
from mirrorfeed.errors import MirrorfeedError, Terminal
from mirrorfeed.terminal import waiting

if TYPE_CHECKING:
    from mirrorfeed.config import Config, Table
    from mirrorfeed.repair import Repaired


class ConditionMissing(Terminal):
    """Without reading the mirror nobody knows which rows of it are wrong, so you have to say which to publish once
    more."""

    code = "MF1006"

    def what(self) -> str:
        return "--source-only does not read the mirror, so it cannot tell which rows differ."

    def next(self) -> str:
        return "Say with --where which rows to publish once more; --where true takes all."


@main.command()
@click.argument("table")
@click.option("--where", metavar="CONDITION", help="All rows that fulfil it, in SQL, instead of those that differ.")
@click.option("--mirror", help="As for `verify`: where the replicated tables are.")
@click.option("--source-only", is_flag=True, help="Without reading the mirror: what only it has stays. Needs --where.")
@config_option
def repair(table: str, where: str | None, mirror: str | None, source_only: bool, path: str) -> None:
    """Publish the rows of TABLE that differ in its mirror once more, without the table vanishing in Fabric.

    They are published as they are at the version that is published, as upserts and deletes, in a record of their own.
    """
    config = load(path)
    (chosen,) = config.select([table])
    if source_only and where is None:
        raise ConditionMissing()
    from mirrorfeed.verify.place import folder_of

    folder = None if source_only else folder_of(config, mirror)
    if not _repaired(spark_session(), config, chosen, folder, where):
        sys.exit(1)


def repair_by_itself(spark: Any, config: Config, table: Table, folder: str, *, err: bool = False) -> None:
    """After a verification that found a difference: up to the limit of the configuration. What was done is said on
    standard error where the output is for programs."""
    if table.repair_up_to:
        _repaired(spark, config, table, folder, None, at_most=table.repair_up_to, err=err)


def _repaired(
    spark: Any,
    config: Config,
    table: Table,
    folder: str | None,
    where: str | None,
    *,
    at_most: int | None = None,
    err: bool = False,
) -> bool:
    """Whether all was mended that was to be; what was done is said."""
    from mirrorfeed.errors import named
    from mirrorfeed.repair import repair_table, words

    beside: list[MirrorfeedError] = []
    try:
        with waiting(f"{table.target}: publishing {'what differs' if where is None else 'these rows'} once more"):
            found: Repaired = repair_table(
                spark, config, table, folder, where, at_most=at_most, on_trouble=beside.append
            )
    except Exception as error:
        click.echo(f"Error: {table.target}: {named('Repairing', error)}", err=True)
        return False
    finally:
        for each in beside:
            click.echo(str(each), err=True)
    for line in words(found, str(table.target)):
        click.echo(line, err=err)
    troubles: list[MirrorfeedError | None] = [found.outcome.error if found.outcome else None, found.left]
    for trouble in filter(None, troubles):
        click.echo(f"Error: {table.target}: {trouble}", err=True)
    return not any(troubles)
