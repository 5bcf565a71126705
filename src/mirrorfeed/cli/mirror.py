"""The commands about what was published: apply it, compare it with its source, check its form."""

from __future__ import annotations

import sys
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from mirrorfeed.cli.main import (
    config_option,
    load,
    main,
    say,
    say_error,
    say_result,
    spark_session,
)
from mirrorfeed.cli.repair import repair_by_itself
from mirrorfeed.display.progress import waiting
from mirrorfeed.errors import coded, named

if TYPE_CHECKING:
    from mirrorfeed.publish.log.mirror_position import MirrorPosition


@main.command()
@click.argument("tables", nargs=-1)
@click.option(
    "--mirror",
    help="The folder of the replicated tables, or, for one table, that of its Delta table. Left out for a landing zone"
    " in OneLake: the tables of the mirrored database.",
)
@config_option
def verify(tables: tuple[str, ...], mirror: str | None, path: str) -> None:
    """Compare each source, at the version at which its mirror stands, with the mirror, row for row.

    Where it stands is told by the files that the service has taken. What was found is written into the ledger, where
    the configuration names one. What differs is published once more as far as the configuration's `repair_up_to` goes;
    it is told as a difference all the same.
    """
    config = load(path)
    config.select(tables)
    from mirrorfeed.mirror.verify.mirror_folder import folder_of

    folder = folder_of(config, mirror)
    spark = spark_session()
    from mirrorfeed.mirror.verify import Difference, mirror_of, verify_at
    from mirrorfeed.orchestration import ledger
    from mirrorfeed.publish.log.mirror_position import mirror_positions

    rows: list[ledger.Row] = []
    told: list[dict[str, object]] = []
    with waiting("Looking where the mirrors stand"):
        stand = mirror_positions(config, tables)
    for at, (table, standing) in enumerate(stand, 1):
        name, first, trouble = str(table.target), list[Difference](), None
        if standing.newest is None:
            nothing = "nothing is published yet. Run `mirrorfeed publish`."
            told.append(ledger.told(ledger.Row(datetime.now(UTC), name, ledger.UNVERIFIED, message=nothing)))
            say(f"{name}: {nothing}")
            continue
        try:
            with waiting(f"Table {at} of {len(stand)}, {name}: comparing it with its mirror"):
                place = mirror_of(folder, table.target)
                found = verify_at(spark, table.source, place, standing.candidates, selection=table.selection)
        except Exception as error:
            trouble = named("Verifying", error)
            rows.append(ledger.verified(name, trouble, datetime.now(UTC)))
            say_error(trouble, name)
        else:
            first += found.first
            rows.append(ledger.verified(name, found, datetime.now(UTC)))
            say(f"{name}: {found}{_behind(found.version, standing)}")
            for difference in first:
                say(f"  {difference}")
            if not found.equal:
                repair_by_itself(spark, config, table, folder)
        told.append({**ledger.told(rows[-1], trouble), "differences": [asdict(difference) for difference in first]})
    say_result(told)
    if lost := ledger.keep(spark, config.ledger, rows):
        say(coded(lost), err=True)
    sys.exit(any(row["outcome"] != ledger.VERIFIED for row in told))


def _behind(version: int, standing: MirrorPosition) -> str:
    newest = standing.newest
    if newest is None or newest.to_version_inclusive == version:
        return ""
    return f"; published up to version {newest.to_version_inclusive}, files that wait: {max(1, standing.waiting)}"
