"""The parts that all commands share: the group, options, the feed, output of results and errors, and exit codes.

A command parses its arguments and returns the result of one method of `Feed`. The result is shown here, as a table or
as JSON, and the exit code follows from it: 0 if all rows are ok, 1 if not or on an error, 2 for wrong arguments.
"""

from __future__ import annotations

import json
import logging
import re
import sys
from contextlib import contextmanager
from datetime import date
from io import TextIOWrapper
from pathlib import Path
from traceback import format_exc
from typing import TYPE_CHECKING, Any, NoReturn

import click

from mirrorfeed import FILE
from mirrorfeed.cli.errors import Misused, NotConfirmed
from mirrorfeed.display.printable import is_escaped, printable, printable_block
from mirrorfeed.display.redact import filter_logs, redact
from mirrorfeed.errors import MirrorfeedError, is_spark_gone, named

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from mirrorfeed.api.feed import Feed
    from mirrorfeed.api.results import Result
    from mirrorfeed.cli.output import Steps
    from mirrorfeed.cli.signals import Interruption
    from mirrorfeed.config import Config
    from mirrorfeed.source.identifier import Source

config_option = click.option(
    "--config", "path", default=FILE, show_default=True, metavar="FILE", help="The configuration to use."
)
wait_option = click.option(
    "--wait", "minutes", default=10.0, show_default=True, metavar="MINUTES", help="Maximum time to wait."
)
tables_argument = click.argument("tables", nargs=-1)
table_argument = click.argument("table")
yes_option = click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
mirror_option = click.option(
    "--mirror",
    metavar="FOLDER",
    help="Folder of the replicated tables, or of the Delta table if TABLES is one table. Default for a landing zone in"
    " OneLake: the tables of the mirrored database.",
)

_JSON, _PROGRESS, _SPARK, _STOP = "mirrorfeed.json", "mirrorfeed.progress", "mirrorfeed.spark", "mirrorfeed.stop"
_WHOLE = 1000
"""Characters: the first sentence of a command, however long."""


class _Command(click.Command):
    """A command. It takes --json, and returns its result."""

    def __init__(self, *given: Any, **more: Any) -> None:
        super().__init__(*given, **more)
        self.params.append(click.Option(["--json"], is_flag=True, expose_value=False, help="Print the result as JSON."))

    def invoke(self, ctx: click.Context) -> Any:
        from mirrorfeed.cli.signals import Interruption
        from mirrorfeed.display.progress import progress_shown

        with progress_shown() as ctx.meta[_PROGRESS], Interruption().listening() as ctx.meta[_STOP]:
            found = super().invoke(ctx)
        if found is not None:
            show(found)


def show(result: Result[Any]) -> NoReturn:
    """Print a result, and exit with 1 if not all of it is ok."""
    if for_programs():
        say_json(result.to_dict())
    else:
        print_result(result)
    sys.exit(not result.ok)


def print_result(result: Result[Any]) -> None:
    from mirrorfeed.display.render import draw
    from mirrorfeed.display.terminal import console

    draw(console(), result.rows, result.notes, result.summary)


@contextmanager
def publishing() -> Iterator[Steps]:
    """Show the steps of publishing: on standard output, or beside JSON on standard error."""
    from mirrorfeed.cli.output import steps
    from mirrorfeed.display.terminal import console, error_console

    out = error_console() if for_programs() else console()
    with steps(out, click.get_current_context().meta[_PROGRESS].mute) as shown:
        yield shown


def stoppable(on_stop: Callable[[], None] = lambda: None) -> Callable[[], bool]:
    """Whether Ctrl-C or SIGTERM asked this command to stop. From now on the first signal does not end it."""
    interruption: Interruption = click.get_current_context().meta[_STOP]
    interruption.defer(on_stop)
    return interruption


class _Commands(click.Group):
    """Errors that say what to do are shown as they are, without a traceback, and commands are listed unabridged."""

    group_class = type
    command_class = _Command

    def main(self, *given: Any, **more: Any) -> Any:
        if isinstance(sys.stdout, TextIOWrapper):
            sys.stdout.reconfigure(errors="backslashreplace")  # names that its encoding lacks stop no command
        filter_logs()
        return super().main(*given, **more)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        # Known before anything is understood, for what is not understood is told in the same way.
        ctx.meta[_JSON] = ctx.meta.get(_JSON, False) or "--json" in args
        return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except MirrorfeedError as error:
            fail(error)
        except ModuleNotFoundError as error:
            if (error.name or "").partition(".")[0] != "pyspark":
                raise
            from mirrorfeed.runtime.spark_session import SparkMissing

            fail(SparkMissing())
        except click.UsageError as error:
            if not for_programs():
                raise
            fail(Misused(reason=error.format_message()), error.exit_code)
        except (click.ClickException, click.exceptions.Exit, click.Abort):
            raise
        except Exception as error:
            if for_programs() or is_spark_gone(error):
                fail(named(f"mirrorfeed {ctx.invoked_subcommand}", error))
            click.echo(printable_block(redact(format_exc())), err=True)
            sys.exit(1)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        found = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        with formatter.section("Commands"):
            formatter.write_dl(
                [(name, each.get_short_help_str(_WHOLE)) for name, each in found if each and not each.hidden]
            )


def confirmation(yes: bool) -> Callable[..., None]:
    """A function that prints the consequences of a command and, without `--yes`, asks whether to go on."""

    def ask(*consequences: str) -> None:
        click.get_current_context().meta[_PROGRESS].stop()
        say(*consequences)
        if not yes:
            confirm()

    return ask


def confirm() -> None:
    """Asks whether to go on; or `NotConfirmed`."""
    try:
        answer = click.confirm("Go on?", err=for_programs())
    except click.Abort as nobody:
        click.echo(err=True)
        raise NotConfirmed() from nobody
    if not answer:
        raise NotConfirmed()


def for_programs() -> bool:
    """Whether --json was asked for."""
    context = click.get_current_context(silent=True)
    return context is not None and bool(context.meta.get(_JSON))


def say(*lines: str, err: bool = False) -> None:
    """Print these lines for people; with --json on standard error, beside the result. No value in them starts another
    line or acts on the terminal."""
    click.echo("\n".join(map(printable, lines)), err=err or for_programs())


def say_json(value: object) -> None:
    """Alone on standard output. Times are in ISO form, errors as they tell themselves, decisions in words."""
    encoding: str | None = sys.stdout.encoding
    escaped = encoding is not None and encoding.lower() != "utf-8"  # characters that it lacks would not be JSON
    written = json.dumps(value, indent=2, ensure_ascii=escaped, default=_told)
    # Inside texts alone, where JSON spells a character in this way, too.
    click.echo(re.sub(r"[^\n -~]", _spelled, written))


def _spelled(found: re.Match[str]) -> str:
    return json.dumps(found[0])[1:-1] if is_escaped(found[0]) else found[0]


def _told(value: object) -> object:
    if isinstance(value, MirrorfeedError):
        return value.to_dict()
    return value.isoformat() if isinstance(value, date) else str(value)


def say_error(error: MirrorfeedError, of: str = "") -> None:
    """On standard error, and whose it is, where there are several."""
    click.echo(f"Error {error.code}: {of and f'{printable(of)}: '}{error}", err=True)


def fail(error: MirrorfeedError, status: int = 1) -> NoReturn:
    if for_programs():
        say_json({"error": error})
    else:
        say_error(error)
    sys.exit(status)


def feed(path: str) -> Feed:
    """The feed of a configuration file. It starts Spark when it is first needed."""
    return feed_of(load_as_written(path))


def feed_of(config: Config) -> Feed:
    from mirrorfeed.api.feed import Feed

    return Feed(config, spark_session)


def feed_if_there(path: str) -> Feed:
    """The feed of a configuration file, or one without tables if no file was named and the usual one does not exist."""
    from mirrorfeed.config import Config

    return feed_of(load_if_there(path) or Config(landing_zone=".", tables=()))


def load(path: str) -> Config:
    """The configuration with all tables that its patterns match now."""
    from mirrorfeed.config.expansion import expanded

    return expanded(load_as_written(path), spark_session).config


def load_as_written(path: str) -> Config:
    """The configuration with what the options before the command say in its place, for what needs no tables."""
    from mirrorfeed import config

    given: dict[str, str | None] = click.get_current_context().find_object(dict) or {}
    return config.load(path, **given)


def given_ledger() -> Source | None:
    """For commands without a configuration: the ledger that the option before the command names."""
    from mirrorfeed.source.identifier import Source

    text: str | None = (click.get_current_context().find_object(dict) or {}).get("ledger")
    return None if text is None else Source.parse(text)


def load_if_there(path: str) -> Config | None:
    """None where no file was named and the usual one is not there."""
    return load_as_written(path) if path != FILE or Path(path).exists() else None


def spark_session(*needed: Source) -> Any:
    """The session of this command, started once, and not if no needed table exists. Spark's own messages about refused
    queries are suppressed, because the command reports them."""
    context = click.get_current_context()
    if needed and all(map(_is_missing, needed)):
        from mirrorfeed.source.errors import NoTableAtPath

        raise NoTableAtPath(path=", ".join(map(str, needed)))
    if _SPARK not in context.meta:
        from mirrorfeed.display.progress import waiting

        with waiting("Starting Spark"):
            from mirrorfeed.runtime.spark_session import get_session, unlogged

            context.meta[_SPARK] = get_session()
        context.meta[_STOP].listen()  # Spark installed a handler of its own
        context.with_resource(unlogged())
    return context.meta[_SPARK]


def _is_missing(source: Source) -> bool:
    """Whether it would be in a folder of this machine, where it is not."""
    from mirrorfeed.runtime.spark_session import Kind, kind

    is_folder = source.path is not None and not re.match(r"\w+:/", source.path)
    return is_folder and not Path(source.path or "", "_delta_log").is_dir() and kind() is Kind.LOCAL


def _log_to_standard_error(level: str) -> None:
    """Python's own logging, for the loggers of this package alone."""
    logger = logging.getLogger("mirrorfeed")
    logger.setLevel(level.upper())
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logger.handlers = [handler]


def _say_version(context: click.Context, _: click.Parameter, wanted: bool) -> None:
    if wanted:
        from mirrorfeed.runtime.version import this_build

        click.echo(f"mirrorfeed {this_build()}")
        context.exit()


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_say_version,
    help="Print the version and exit.",
)
@click.option("--landing-zone", metavar="PLACE", help="Override `landing_zone` from the configuration file.")
@click.option("--ledger", metavar="TABLE", help="Override `ledger` from the configuration file.")
@click.option(
    "--staging-path", metavar="FOLDER", help="Override `staging_path` from the configuration file; empty for none."
)
@click.option("--verbose", is_flag=True, help="Log each step to standard error. Same as --log-level INFO.")
@click.option(
    "--log-level",
    type=click.Choice(["DEBUG", "INFO", "WARNING", "ERROR"], case_sensitive=False),
    help="Log messages of this level and above to standard error.",
)
@click.pass_context
def main(
    context: click.Context,
    landing_zone: str | None,
    ledger: str | None,
    staging_path: str | None,
    verbose: bool,
    log_level: str | None,
) -> None:
    """Replicate Delta tables to Microsoft Fabric open mirroring, exactly once."""
    if level := log_level or ("INFO" if verbose else None):
        _log_to_standard_error(level)
    context.obj = {"landing_zone": landing_zone, "ledger": ledger, "staging_path": staging_path or None}
