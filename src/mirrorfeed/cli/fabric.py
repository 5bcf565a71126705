"""The commands about the mirrored database in Fabric."""

from __future__ import annotations

import sys
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from mirrorfeed.cli.root import (
    config_option,
    for_programs,
    load,
    load_as_written,
    main,
    say,
    say_json,
    say_result,
    wait_option,
)
from mirrorfeed.errors import Terminal

if TYPE_CHECKING:
    from mirrorfeed.fabric import MirroredDatabase


class NothingToMirror(Terminal):
    """Mirroring is not started while tables lack a first file: Fabric would fail these after some days."""

    code = "MF4216"

    def __init__(self, tables: tuple[str, ...]) -> None:
        self.tables = tables

    def what(self) -> str:
        return f"These tables have no first file in the landing zone: {', '.join(self.tables)}."

    def next(self) -> str:
        return "Run `mirrorfeed publish` first, so that mirroring begins with whole tables; or start with --force."


@main.group()
def fabric() -> None:
    """Make, start, stop and watch the mirrored database in Fabric.

    Needs a landing zone in OneLake and the credential of the configuration, and no Spark.
    """


@fabric.command()
@click.argument("name")
@config_option
def create(name: str, path: str) -> None:
    """Make an open mirrored database NAME in the workspace of the configuration, if it is not there yet."""
    config = load_as_written(path)
    from mirrorfeed import fabric as service

    if config.onelake is None:
        raise service.NotInFabric(config.landing_zone)
    workspace, _ = config.onelake
    database, made = service.create(service.api_of(config), workspace, name)
    from mirrorfeed.config import ONELAKE

    address = f"{ONELAKE}{workspace}/{database}"
    say_result({"name": name, "made": made, "landing_zone": address})
    say(f"{name!r} {'was made' if made else 'is there already'}. In {path}:\n")
    say(f"landing_zone: {address}")


@fabric.command()
@click.option("--force", is_flag=True, help="Even while a table has no first file.")
@wait_option
@config_option
def start(force: bool, wait: float, path: str) -> None:
    """Start mirroring, once every table of the configuration has a first file, and wait until it runs."""
    config = load(path)
    from mirrorfeed import fabric as service
    from mirrorfeed.publish.zone import without_files

    database = service.database_of(config)
    if not force and (lacking := without_files(config)):
        raise NothingToMirror(tuple(lacking))
    database.start(_say_status, wait * 60)
    _say_tables(database, "Running")


@fabric.command()
@wait_option
@config_option
def stop(wait: float, path: str) -> None:
    """Stop mirroring. When it is started again, Fabric takes every table anew."""
    from mirrorfeed import fabric as service

    database = service.database_of(load_as_written(path))
    database.stop(_say_status, wait * 60)
    if for_programs():
        say_json({"status": database.status()})


@fabric.command()
@config_option
def status(path: str) -> None:
    """Show the status of the mirrored database and of each of its tables. Exits with 1 if one has an error."""
    from mirrorfeed import fabric as service

    database = service.database_of(load_as_written(path))
    _say_status(status := database.status())
    sys.exit(_say_tables(database, status))


def _say_status(status: str) -> None:
    say(f"The mirrored database is {status}.")


def _say_tables(database: MirroredDatabase, status: str) -> bool:
    """Whether one of them has an error."""
    tables = database.tables()
    say_result({"status": status, "tables": [asdict(table) for table in tables]})
    for table in tables:
        say(f"{table.schema}.{table.table}: {table}")
    return any(table.error or table.status == "Failed" for table in tables)
