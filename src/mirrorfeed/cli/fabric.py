"""The commands about the mirrored database in Fabric."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from mirrorfeed.cli.root import (
    config_option,
    confirm,
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
from mirrorfeed.fabric.errors import NotInFabric

if TYPE_CHECKING:
    from mirrorfeed.config import Config
    from mirrorfeed.fabric import MirroredDatabase
    from mirrorfeed.fabric.definition import Difference


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
    """Make, describe, start, stop and watch the mirrored database in Fabric.

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
        raise NotInFabric(landing_zone=config.landing_zone)
    workspace, _ = config.onelake
    database, made = service.create(service.api_of(config), workspace, name, config.fabric)
    from mirrorfeed.config import ONELAKE

    address = f"{ONELAKE}{workspace}/{database}"
    say_result({"name": name, "made": made, "landing_zone": address})
    say(f"{name!r} {'was made' if made else 'is there already'}. In {path}:", "")
    say(f"landing_zone: {address}")


@fabric.command()
@click.option("--force", is_flag=True, help="Even while a table has no first file.")
@wait_option
@config_option
def start(force: bool, wait: float, path: str) -> None:
    """Start mirroring, once every table of the configuration has a first file, and wait until it runs."""
    config = load(path)
    from mirrorfeed import fabric as service
    from mirrorfeed.config.landing_zone import without_files

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
@wait_option
@config_option
def resume(wait: float, path: str) -> None:
    """Start mirroring where it is Paused, as a capacity leaves it that was paused and resumed, and wait until it runs.

    Resume the capacity first. Whether Fabric then goes on where it was, is not documented.
    """
    from mirrorfeed import fabric as service

    database = service.database_of(load_as_written(path))
    database.resume(_say_status, wait * 60)
    _say_tables(database, "Running")


@fabric.command()
@config_option
def plan(path: str) -> None:
    """Show what in the mirrored database differs from what `fabric` in the configuration says. Changes nothing."""
    config = load_as_written(path)
    from mirrorfeed.fabric import definition

    there, found = _differences(config)
    say_result({"there": definition.told(there), "differences": [asdict(each) for each in found]})
    _say_differences(there, found)


@fabric.command()
@click.option("--yes", is_flag=True, help="Without asking.")
@config_option
def apply(yes: bool, path: str) -> None:
    """Change in the mirrored database what differs from what `fabric` in the configuration says, and nothing else."""
    config = load_as_written(path)
    from mirrorfeed import fabric as service
    from mirrorfeed.fabric import definition

    there, found = _differences(config)
    _say_differences(there, found)
    wanted = [each for each in found if each.changes]
    if wanted:
        if not yes:
            confirm()
        database = service.database_of(config)
        definition.apply(database.api, database.place, config.fabric)
        say(f"Fabric shows it: {', '.join(each.field for each in wanted)}.")
    say_result({"changed": [asdict(each) for each in wanted]})


@fabric.command()
@config_option
def refresh(path: str) -> None:
    """Let the SQL endpoint take up what is new in the mirror, as after a rebuild or a new column, and show what it says
    of each table. It costs capacity. Exits with 1 if one fails."""
    from mirrorfeed import fabric as service

    found = service.refresh(service.database_of(load_as_written(path)))
    say_result([asdict(each) for each in found])
    for each in found:
        synced = f", up to {each.synced:%Y-%m-%d %H:%M:%S %Z}" if each.synced else ""
        say(f"{each.name}: {each.status}{synced}{f': {each.error}' if each.error else ''}")
    sys.exit(any(each.failed for each in found))


def _differences(config: Config) -> tuple[Mapping[str, Any], list[Difference]]:
    """The content of the definition, and what in it is other than wanted."""
    from mirrorfeed import fabric as service
    from mirrorfeed.fabric import definition

    database = service.database_of(config)
    there = definition.read(database.api, database.place).content
    return there, definition.differences(there, config.fabric)


def _say_differences(there: Mapping[str, Any], found: list[Difference]) -> None:
    from mirrorfeed.fabric import definition

    for each in found:
        say(str(each))
    if not found:
        said = ", ".join(f"{name}: {definition.shown(value)}" for name, value in definition.told(there).items())
        say(f"Nothing differs from the configuration. There: {said}.")


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
