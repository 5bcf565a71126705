"""The commands. Each reads the configuration, calls one function of the package and shows what it returned."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click
from rich.text import Text

from mirrorfeed import config as configuration
from mirrorfeed.config import FILE, Config
from mirrorfeed.errors import MirrorfeedError, Terminal

if TYPE_CHECKING:
    from mirrorfeed.replica import TableReport

_config = click.option(
    "--config", "path", default=FILE, show_default=True, metavar="FILE", help="The configuration to use."
)


class FileInTheWay(Terminal):
    def __init__(self, path: str) -> None:
        self.path = path

    def what(self) -> str:
        return f"{self.path} is there already and is left as it is."

    def next(self) -> str:
        return "Name another file: `mirrorfeed init FILE`."


class NoLandingZone(Terminal):
    def __init__(self, path: str) -> None:
        self.path = path

    def what(self) -> str:
        return f"There is no landing zone at {self.path}."

    def next(self) -> str:
        return "Name the folder that `landing_zone` in the configuration names."


class ReplicaMissing(Terminal):
    def __init__(self, module: str) -> None:
        self.module = module

    def what(self) -> str:
        return f"The replica needs the package {self.module}, which is not installed."

    def next(self) -> str:
        return "Run `pip install 'mirrorfeed[replica]'`."


class _Commands(click.Group):
    """Errors that say what to do are shown as they are, without a traceback."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except MirrorfeedError as error:
            _fail(str(error))


def _fail(message: str) -> NoReturn:
    click.echo(f"Error: {message}", err=True)
    sys.exit(1)


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="mirrorfeed")
def main() -> None:
    """Publishes Delta tables into Microsoft Fabric open mirroring, exactly once in effect."""


@main.command()
@click.argument("file", default=FILE)
def init(file: str) -> None:
    """Write a commented example of the configuration."""
    try:
        with Path(file).open("x", encoding="utf-8") as target:
            target.write(configuration.EXAMPLE)
    except FileExistsError as error:
        raise FileInTheWay(file) from error
    click.echo(f"Wrote {file}. Edit it, then run `mirrorfeed enable` and `mirrorfeed publish`.")


@main.command()
@click.argument("tables", nargs=-1)
@_config
def enable(tables: tuple[str, ...], path: str) -> None:
    """Switch the change data feed on for the tables of the configuration."""
    config = configuration.load(path)
    chosen = config.select(tables)
    spark = _spark()
    from mirrorfeed.feed.enable import DEFAULT_LINE
    from mirrorfeed.feed.enable import enable as switch_on

    failed = False
    for table in chosen:
        try:
            click.echo(f"{table.source}: the change data feed is {switch_on(spark, table.source).value}")
        except MirrorfeedError as error:
            failed = True
            click.echo(f"Error: {error}", err=True)
    click.echo(f"For all new tables, in the Spark configuration of a cluster or job:\n{DEFAULT_LINE}")
    if failed:
        sys.exit(1)


@main.command()
@click.argument("table")
@click.option("--from", "start", required=True, metavar="VERSION|TIME", help="The first to show.")
@click.option("--to", "end", metavar="VERSION|TIME", help="The last to show; the newest by default.")
@click.option("--past-end", type=click.Choice(["error", "empty"]), default="error", show_default=True)
@click.option("--rows", "preview", default=20, show_default=True, help="How many rows to show.")
@_config
def changes(table: str, start: str, end: str | None, past_end: Any, preview: int, path: str) -> None:
    """Show the change data feed of TABLE: a name, a path, or a table of the configuration."""
    source = _source(table, path)
    spark = _spark()
    from mirrorfeed.feed.preview import changes_between

    found = changes_between(spark, source, start, end, past_end)
    click.echo(f"{source}, {found.range}" if found.range.versions else f"{source}, no versions in this range")
    for kind, count in found.counts().items():
        click.echo(f"  {kind:<17}{count:>12,}")
    if preview:
        found.rows.orderBy("_commit_version").show(preview, truncate=60)


@main.command()
@click.argument("tables", nargs=-1)
@click.option("--dry-run", is_flag=True, help="Print the decision for each table and touch nothing.")
@_config
def publish(tables: tuple[str, ...], dry_run: bool, path: str) -> None:
    """Publish what is new in the tables of the configuration, or in those named."""
    config = configuration.load(path)
    config.select(tables)
    spark = _spark()
    from mirrorfeed import show
    from mirrorfeed.publish import fleet

    out = show.console()
    if dry_run:
        decided = fleet.decisions(spark, config, tables)
        for name, decision in decided:
            out.print(Text(f"{name}: {decision}"))
        sys.exit(any(isinstance(decision, MirrorfeedError) for _, decision in decided))
    with show.steps(out) as on_step:
        outcomes = fleet.publish_tables(spark, config, tables, on_step=on_step)
    out.print(show.summary(outcomes))
    for note in show.notes(outcomes):
        out.print(note)
    sys.exit(any(outcome.error for outcome in outcomes))


@main.command()
@click.argument("tables", nargs=-1)
@click.option("--json", "as_json", is_flag=True, help="For programs.")
@_config
def status(tables: tuple[str, ...], as_json: bool, path: str) -> None:
    """Show how far each table is published, and what waits in the landing zone."""
    config = configuration.load(path)
    config.select(tables)
    spark = _spark()
    from mirrorfeed import show
    from mirrorfeed.publish import fleet

    found = fleet.statuses(spark, config, tables)
    out = show.console()
    if as_json:
        click.echo(json.dumps([dataclasses.asdict(row) for row in found], indent=2, ensure_ascii=False))
    else:
        out.print(show.status(found))
        for row in found:
            if row.error:
                out.print(Text(f"{row.table}: {row.error}", style="red"))
    sys.exit(any(row.error for row in found))


@main.command()
@click.argument("landing_zone")
@click.argument("target")
@click.option("--once/--follow", default=True, show_default=True, help="One pass, or passes until interrupted.")
@click.option("--poll", default=5.0, show_default=True, help="Seconds between passes.")
def replicate(landing_zone: str, target: str, once: bool, poll: float) -> None:
    """Apply LANDING_ZONE to Delta tables below the folder TARGET, as Fabric would."""
    if not Path(landing_zone).is_dir():
        raise NoLandingZone(landing_zone)
    try:
        from mirrorfeed import replica
    except ModuleNotFoundError as error:
        raise ReplicaMissing(error.name or "") from error
    from mirrorfeed.stores import FolderStore

    service = replica.Replica(FolderStore(str(Path(landing_zone).resolve())), str(Path(target).resolve()))
    if once:
        reports = service.step()
        _say_reports(reports)
        sys.exit(any(report.state is replica.State.FAILED for report in reports))
    with suppress(KeyboardInterrupt):
        replica.follow(service, poll, lambda: False, report=_say_reports, trouble=lambda error: click.echo(str(error)))


def _say_reports(reports: Sequence[TableReport]) -> None:
    from mirrorfeed.show import by_marker, counted

    names = {0: "insert", 1: "update", 2: "delete", 4: "upsert"}
    for report in reports:
        done = [counted(report.files, "file"), by_marker({names[marker]: n for marker, n in report.rows.items()})]
        message = f": {report.message}" if report.message else ""
        click.echo(f"{report.table}: {', '.join(filter(None, [report.state.value, *done]))}{message}")


@main.command()
@click.argument("landing_zone")
@click.option("--json", "as_json", is_flag=True, help="For programs.")
def lint(landing_zone: str, as_json: bool) -> None:
    """Check whether LANDING_ZONE, of any publisher, is as Fabric expects it. Exits with 1 on errors and warnings."""
    if not Path(landing_zone).is_dir():
        raise NoLandingZone(landing_zone)
    from mirrorfeed import inspect
    from mirrorfeed.inspect import words
    from mirrorfeed.stores import FolderStore

    report = inspect.lint(FolderStore(str(Path(landing_zone).resolve())))
    for line in [words.as_json(report)] if as_json else words.lines(report):
        click.echo(line)
    sys.exit(not report.conforms)


@main.command()
@click.argument("tables", nargs=-1)
@click.option(
    "--mirror", required=True, help="The folder of the replicated tables, or, for one table, that of its Delta table."
)
@_config
def verify(tables: tuple[str, ...], mirror: str, path: str) -> None:
    """Compare each source, at its published version, with its mirror, row for row."""
    config = configuration.load(path)
    config.select(tables)
    spark = _spark()
    from mirrorfeed.publish.fleet import newest_records
    from mirrorfeed.verify import compare, mirror_of

    failed = False
    for table, record in newest_records(config, tables):
        if record is None:
            failed = True
            click.echo(f"{table.target}: nothing is published yet. Run `mirrorfeed publish`.")
            continue
        version = record.to_version_inclusive
        try:
            found = compare(spark, table.source, version, mirror_of(mirror, table.target), record.keys)
        except MirrorfeedError as error:
            failed = True
            click.echo(f"Error: {table.target}: {error}", err=True)
            continue
        failed = failed or not found.equal
        click.echo(f"{table.target}: {found}")
        for difference in found.first:
            click.echo(f"  {difference}")
    sys.exit(failed)


def _spark() -> Any:
    """Started only once the configuration is known to be good: it takes long."""
    from mirrorfeed.session import get_session

    return get_session()


def _source(name: str, path: str) -> Any:
    """A table of the configuration by its target, or else the source that is named."""
    from mirrorfeed.feed.source import Source

    if Path(path).exists() or path != FILE:
        config: Config = configuration.load(path)
        try:
            return config.select([name])[0].source
        except configuration.UnknownTable:
            pass
    return Source.parse(name)


if __name__ == "__main__":
    main()
