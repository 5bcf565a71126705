"""The command that publishes rows once more that went wrong in the mirror, and what `verify` repairs by itself."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from mirrorfeed.api.errors import ConditionMissing
from mirrorfeed.cli.main import config_option, load, main, say, say_error, say_result, spark_session
from mirrorfeed.display.progress import waiting
from mirrorfeed.errors import MirrorfeedError, coded, named

if TYPE_CHECKING:
    from mirrorfeed.config import Config, Table
    from mirrorfeed.orchestration.repair import RepairResult


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
    from mirrorfeed.mirror.verify.mirror_folder import folder_of

    folder = None if source_only else folder_of(config, mirror)
    done = _repaired(spark_session(), config, chosen, folder, where)
    say_result(done)
    sys.exit(done["error"] is not None)


def repair_by_itself(spark: Any, config: Config, table: Table, folder: str) -> None:
    """After a verification that found a difference: up to the limit of the configuration."""
    if table.repair_up_to and table.changes != "compare":
        _repaired(spark, config, table, folder, None, at_most=table.repair_up_to)


def _repaired(
    spark: Any,
    config: Config,
    table: Table,
    folder: str | None,
    where: str | None,
    *,
    at_most: int | None = None,
) -> dict[str, Any]:
    """What was done, which is said as well; `error` where not all was mended that was to be."""
    from mirrorfeed.orchestration import ledger
    from mirrorfeed.orchestration.repair import repair_table, words

    beside: list[MirrorfeedError] = []
    try:
        with waiting(f"{table.target}: publishing {'what differs' if where is None else 'these rows'} once more"):
            found: RepairResult = repair_table(
                spark, config, table, folder, where, at_most=at_most, on_trouble=beside.append
            )
    except Exception as error:
        trouble = named("Repairing", error)
        say_error(trouble, str(table.target))
        return {"table": str(table.target), "publications": [], "error": trouble}
    finally:
        for each in beside:
            say(coded(each), err=True)
    for line in words(found, str(table.target)):
        say(line)
    troubles = [each for each in (found.outcome and found.outcome.error, found.left) if each]
    for each in troubles:
        say_error(each, str(table.target))
    made = ledger.for_programs([found.outcome], datetime.now(UTC)) if found.outcome else []
    return {"table": str(table.target), "publications": made, "error": next(iter(troubles), None)}
