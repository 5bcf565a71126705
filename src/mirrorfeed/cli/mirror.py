"""The commands about what was published: apply it, compare it with its source, check its form."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from mirrorfeed.cli.repair import repair_by_itself
from mirrorfeed.cli.root import (
    config_option,
    for_programs,
    load,
    load_if_there,
    main,
    say,
    say_error,
    say_result,
    spark_session,
)
from mirrorfeed.display.terminal import waiting
from mirrorfeed.errors import Terminal, coded, named

if TYPE_CHECKING:
    from mirrorfeed.mirror.replica import TableReport
    from mirrorfeed.publish.standing import Standing
    from mirrorfeed.stores import Store


class NoLandingZone(Terminal):
    """The command reads a landing zone, and there is no folder of that name."""

    code = "MF1004"

    def __init__(self, path: str) -> None:
        self.path = path

    def what(self) -> str:
        return f"There is no landing zone at {self.path}."

    def next(self) -> str:
        return "Name the folder, or the address in OneLake, that `landing_zone` in the configuration names."


class ReplicaMissing(Terminal):
    """The replica stands in for Fabric on this machine. It needs packages that publishing does not need, and one is
    missing."""

    code = "MF1005"

    def __init__(self, module: str) -> None:
        self.module = module

    def what(self) -> str:
        return f"The replica needs the package {self.module}, which is not installed."

    def next(self) -> str:
        return (
            "Install the extra `replica` of mirrorfeed: in the project `uv tool install '.[replica]'` or `make setup`."
        )


@main.command()
@click.argument("landing_zone")
@click.argument("target")
@click.option("--once/--follow", default=True, show_default=True, help="One pass, or passes until interrupted.")
@click.option("--poll", default=5.0, show_default=True, help="Seconds between passes.")
@config_option
def replicate(landing_zone: str, target: str, once: bool, poll: float, path: str) -> None:
    """Apply LANDING_ZONE to Delta tables below the folder TARGET, as Fabric would."""
    if for_programs() and not once:
        raise click.UsageError("--follow tells of each pass as it is made, and takes no --json.")
    zone = _zone(landing_zone, path)
    try:
        from mirrorfeed.mirror import replica
    except ModuleNotFoundError as error:
        raise ReplicaMissing(error.name or "") from error
    service = replica.Replica(zone, str(Path(target).resolve()))
    if once:
        reports = service.step()
        say_result([{**asdict(report), "state": report.state.value} for report in reports])
        _say_reports(reports)
        sys.exit(any(report.state is replica.State.FAILED for report in reports))
    with suppress(KeyboardInterrupt):
        replica.follow(service, poll, lambda: False, on_pass=_say_reports, on_error=lambda error: say(coded(error)))


def _say_reports(reports: Sequence[TableReport]) -> None:
    from mirrorfeed.cli.output import by_marker
    from mirrorfeed.display.humanize import counted

    names = {0: "insert", 1: "update", 2: "delete", 4: "upsert"}
    for report in reports:
        done = [counted(report.files, "file"), by_marker({names[marker]: n for marker, n in report.rows.items()})]
        message = f": {report.message}" if report.message else ""
        state = f"{report.state.value} {report.error.code if report.error else ''}".strip()
        say(f"{report.table}: {', '.join(filter(None, [state, *done]))}{message}")


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
    from mirrorfeed.verify.place import folder_of

    folder = folder_of(config, mirror)
    spark = spark_session()
    from mirrorfeed.publish import ledger
    from mirrorfeed.publish.standing import standings
    from mirrorfeed.verify import Difference, mirror_of, verify_at

    rows: list[ledger.Row] = []
    told: list[dict[str, object]] = []
    with waiting("Looking where the mirrors stand"):
        stand = standings(config, tables)
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


def _behind(version: int, standing: Standing) -> str:
    newest = standing.newest
    if newest is None or newest.to_version_inclusive == version:
        return ""
    return f"; published up to version {newest.to_version_inclusive}, files that wait: {max(1, standing.waiting)}"


@main.command()
@click.argument("landing_zone")
@config_option
def lint(landing_zone: str, path: str) -> None:
    """Check whether LANDING_ZONE, of any publisher, is as Fabric expects it. Exits with 1 on errors and warnings.

    It is a folder, or onelake://<workspace id>/<mirrored database id>, read with the credential of the configuration
    if there is one.
    """
    zone = _zone(landing_zone, path)
    from mirrorfeed.lint import linter

    report = linter.lint(zone)
    say_result(report.to_dict())
    for line in report.lines() if not for_programs() else ():
        say(line)
    sys.exit(not report.conforms)


def _zone(landing_zone: str, path: str) -> Store:
    """The landing zone that is named; one in OneLake by what the configuration, if there is one, says about OneLake."""
    from mirrorfeed.config import ONELAKE, Config, onelake_address
    from mirrorfeed.config.landing_zone import zone_of

    if not landing_zone.startswith(ONELAKE):
        if not Path(landing_zone).is_dir():
            raise NoLandingZone(landing_zone)
        return zone_of(Config(landing_zone=str(Path(landing_zone).resolve()), tables=()))
    address = onelake_address(landing_zone)
    config = load_if_there(path) or Config(landing_zone=address, tables=())
    return zone_of(config.model_copy(update={"landing_zone": address}))
