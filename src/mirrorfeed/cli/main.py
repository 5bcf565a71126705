"""The command `mirrorfeed` and the parts that all its commands share: options, configuration, output, exit codes.

A command parses its arguments and returns the result of one method of `Feed`. This module prints the result as a table
or as JSON. The exit code is 0 if all rows are ok, 1 if a row is not ok or after an error, and 2 for wrong arguments.
"""

from __future__ import annotations

import json
import logging
import re
import sys
from dataclasses import replace
from io import TextIOWrapper
from pathlib import Path
from traceback import format_exc
from typing import TYPE_CHECKING, Any, NoReturn

import click

from mirrorfeed.api.errors import not_confirmed, usage_error
from mirrorfeed.api.results import Result
from mirrorfeed.cli.output import Interruption
from mirrorfeed.config import FILE
from mirrorfeed.display.progress import clear_progress, progress_shown, waiting
from mirrorfeed.display.redact import filter_logs, is_escaped, printable, printable_block, redact
from mirrorfeed.display.rows import DataRow, Row
from mirrorfeed.display.terminal import console, draw, print_remarks
from mirrorfeed.errors import MirrorfeedError, has_spark_ended, wrap_error

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from mirrorfeed.api.feed import Feed
    from mirrorfeed.config.model import Config
    from mirrorfeed.display.ci_formats import Annotation
    from mirrorfeed.source.identifier import Source

tables_argument = click.argument("tables", nargs=-1)
table_argument = click.argument("table")
yes_option = click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
mirror_option = click.option(
    "--mirror",
    metavar="FOLDER",
    help="Folder with the replicated tables. For a single table, the folder of its Delta table works as well. Default"
    " for a landing zone in OneLake: the tables of the mirrored database.",
)


def _set_ci_format(context: click.Context, _: click.Parameter, value: str | None) -> None:
    if value and prints_json():
        raise click.UsageError("--format and --json cannot be combined.")
    context.meta[_CI] = value and (value, context.command_path)


ci_format_option = click.option(
    "--format",
    type=click.Choice(["github", "junit"]),
    expose_value=False,
    callback=_set_ci_format,
    help="Print the result for a CI system: as annotations of GitHub Actions, or as JUnit XML.",
)


def wait_option(until: str) -> Callable[[Any], Any]:
    """Return the option --wait of a command that waits until the condition `until`."""
    text = f"Maximum time to wait until {until}."
    return click.option("--wait", "minutes", default=10.0, metavar="MINUTES", help=text)


_CONFIG, _VARIABLES = "mirrorfeed.config", "mirrorfeed.variables"
_JSON, _CI = "mirrorfeed.json", "mirrorfeed.ci_format"
_SPARK, _STOP, _SHOWN = "mirrorfeed.spark", "mirrorfeed.stop", "mirrorfeed.shown"
_CONFIG_OPTION = click.Option(["--config"], default=FILE, metavar="FILE", help="Configuration file.")
_VAR_OPTION = click.Option(
    ["--var"],
    multiple=True,
    metavar="NAME=VALUE",
    help="Set the variable NAME of the configuration file. Can be repeated, or be a JSON object of several variables.",
)
_JSON_OPTION = click.Option(["--json"], is_flag=True, expose_value=False, help="Print the result as JSON.")
_LONGEST_HELP = 1000
_SECTIONS = {
    "Set up": ("init", "schema", "setup", "enable-cdf", "tables"),
    "Publish": ("publish", "try", "adopt", "rebuild", "repair", "drop"),
    "Check": ("status", "verify", "doctor", "explain", "check-alerts", "report", "changes", "log", "lint"),
    "Operate": ("fabric", "history", "history-view", "replicate"),
    "Archive": ("archive",),
}
"""Title and commands of each section of `mirrorfeed --help`, in order."""


class _Command(click.Command):
    """Command with the option --json and, if it reads a configuration, --config and --var.

    Prints the `Result` or row that the function of the command returns. Exits with 0 if all rows are ok, otherwise 1.
    """

    def __init__(self, *args: Any, reads_config: bool = True, **options: Any) -> None:
        super().__init__(*args, **options)
        self.params += [_CONFIG_OPTION, _VAR_OPTION, _JSON_OPTION] if reads_config else [_JSON_OPTION]

    def invoke(self, ctx: click.Context) -> Any:
        ctx.meta[_CONFIG] = ctx.params.pop("config", FILE)
        ctx.meta[_VARIABLES] = _parse_variables(ctx.params.pop("var", ()))
        with progress_shown():
            result = super().invoke(ctx)
        if result is not None:
            show(result if isinstance(result, Result) else Result((result,)))


def _parse_variables(arguments: Sequence[str]) -> dict[str, str]:
    if not any(arguments):  # an empty value sets no variable
        return {}
    from mirrorfeed.config.variables import parse_variables

    return parse_variables(arguments)


def show(result: Result[Any]) -> NoReturn:
    """Print a result as tables, as JSON or for a CI system. Exit with 0 if all rows are ok, otherwise with 1."""
    if prints_json():
        print_json(result.to_dict(), has_messages=not any(isinstance(row, DataRow) for row in result.rows))
    elif _ci_format():
        _print_for_ci([row.annotation() for row in result.rows], result.notes, result.summary)
    elif click.get_current_context().meta.get(_SHOWN):
        print_result(replace(result, rows=()))
    else:
        print_result(result)
    sys.exit(0 if result.ok else 1)


def show_row(row: Row) -> None:
    """Print the remarks of a row of the result as soon as the row is known, unless it is part of JSON or of CI output.

    The rows of the result are then not printed again.
    """
    if prints_json() or _ci_format():
        return
    clear_progress()
    click.get_current_context().meta[_SHOWN] = True
    print_remarks(console(), row, with_config)


def print_result(result: Result[Any]) -> None:
    draw(console(), result.rows, result.notes, result.summary, every=result.every, edit=with_config)


def with_config(text: str) -> str:
    """Return a text in which commands read the same configuration, with the same variables, as the running command."""
    context = click.get_current_context(silent=True)
    path, variables = (context.meta.get(_CONFIG, FILE), context.meta.get(_VARIABLES, {})) if context else (FILE, {})
    if path == FILE and not variables:
        return text
    from mirrorfeed.config.printed_commands import name_config

    return name_config(text, path, variables)


def stoppable(*message: str) -> Callable[[], bool]:
    """Let the command continue after the first Ctrl-C or SIGTERM, and print `message` then.

    Returns a function that returns True after this signal.
    """
    interruption: Interruption = click.get_current_context().meta[_STOP]
    interruption.defer(*message)
    return interruption


def until_closed(show: Callable[..., None]) -> Callable[..., None]:
    """Return a function that calls `show`, and requests a stop of the command if nobody reads its output any more."""
    interruption: Interruption = click.get_current_context().meta[_STOP]

    def show_or_stop(*arguments: Any) -> None:
        try:
            show(*arguments)
        except BrokenPipeError:
            interruption.requested = True

    return show_or_stop


class _Commands(click.Group):
    """Group of commands. Shows errors without a traceback, and lists commands with their complete summaries."""

    group_class = type
    command_class = _Command

    def main(self, *args: Any, **options: Any) -> Any:
        if isinstance(sys.stdout, TextIOWrapper):
            sys.stdout.reconfigure(errors="backslashreplace")  # names can have characters that the encoding lacks
        filter_logs()
        return super().main(*args, **options)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        # Before parsing, because parsing errors are printed as JSON too.
        ctx.meta[_JSON] = ctx.meta.get(_JSON, False) or "--json" in args
        try:
            return super().parse_args(ctx, args)
        except click.UsageError as error:
            if ctx.parent is None:  # otherwise `invoke` of the main command reports the error
                _fail_usage(error)
            raise

    def invoke(self, ctx: click.Context) -> Any:
        if _STOP not in ctx.meta:
            with Interruption().handle_signals() as ctx.meta[_STOP]:
                return self.invoke(ctx)
        try:
            return super().invoke(ctx)
        except MirrorfeedError as error:
            fail(error)
        except ModuleNotFoundError as error:
            if (error.name or "").partition(".")[0] != "pyspark":
                raise
            from mirrorfeed.runtime.errors import install_command, spark_missing

            fail(spark_missing(install=install_command()))
        except click.UsageError as error:
            _fail_usage(error)
        except (click.ClickException, click.exceptions.Exit, click.Abort):
            raise
        except Exception as error:
            if prints_json() or _ci_format() or has_spark_ended(error):
                fail(wrap_error(f"mirrorfeed {ctx.invoked_subcommand}", error))
            click.echo(printable_block(redact(format_exc())), err=True)
            sys.exit(1)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        helps = {
            name: each.get_short_help_str(_LONGEST_HELP) for name, each in self.commands.items() if not each.hidden
        }
        for title, names in (_SECTIONS if ctx.parent is None else {"Commands": sorted(helps)}).items():
            with formatter.section(title):
                formatter.write_dl([(name, helps[name]) for name in names])


def _fail_usage(error: click.UsageError) -> NoReturn:
    error = _explain_option_order(error)
    if not prints_json():
        raise error from None
    fail(usage_error(reason=error.format_message()), error.exit_code)


def _explain_option_order(error: click.UsageError) -> click.UsageError:
    """Return the error to show for a usage error. An unknown option may be an option of another part of the command."""
    if not isinstance(error, click.NoSuchOption) or error.ctx is None:
        return error
    name, context, root = error.option_name, error.ctx, error.ctx.find_root()
    if context is not root and (value := _value_of(name, [root.command])) is not None:
        path = context.command_path.removeprefix(root.command_path)
        return click.UsageError(f"{name} goes before the command: {root.command_path} {name}{value}{path}", context)
    if (value := _value_of(name, list(_subcommands(context.command)))) is not None:
        return click.UsageError(f"{name} goes after the command: {context.command_path} COMMAND {name}{value}", context)
    return error


def _subcommands(command: click.Command) -> Iterator[click.Command]:
    for each in command.commands.values() if isinstance(command, click.Group) else ():
        yield each
        yield from _subcommands(each)


def _value_of(name: str, commands: Sequence[click.Command]) -> str | None:
    """Return " …" if the option of this name has a value, "" if it is a flag, and None if no command has the option."""
    options = [each for command in commands for each in command.params if isinstance(each, click.Option)]
    found = next((each for each in options if name in each.opts), None)
    return None if found is None else "" if found.is_flag else " …"


def confirmation(yes: bool) -> Callable[..., None]:
    """Return a function that prints the consequences of a change and, unless `yes`, asks the user for confirmation.

    The function raises `not_confirmed` if the user does not confirm.
    """

    def confirm(*consequences: str) -> None:
        clear_progress()
        print_lines(*consequences)
        if yes:
            return
        try:
            answer = click.confirm("Continue?", err=prints_json())
        except click.Abort as no_answer:
            click.echo(err=True)
            raise not_confirmed() from no_answer
        if not answer:
            raise not_confirmed()

    return confirm


def prints_json() -> bool:
    """Return whether the running command was called with --json."""
    context = click.get_current_context(silent=True)
    return context is not None and bool(context.meta.get(_JSON))


def _ci_format() -> tuple[str, str] | None:
    """Return the value of --format and the name of the command. None without this option."""
    context = click.get_current_context(silent=True)
    return context.meta.get(_CI) if context else None


def _print_for_ci(annotations: Sequence[Annotation], notes: Sequence[str] = (), summary: str = "") -> None:
    from mirrorfeed.display import ci_formats

    form, command = _ci_format() or ("", "")
    found = [each._replace(message=with_config(each.message)) for each in annotations]
    lines = [with_config(each) for each in (summary, *notes) if each]
    if form == "junit":
        click.echo(ci_formats.to_junit(found, lines, command))
    else:
        click.echo(ci_formats.to_github(found, lines, click.get_current_context().meta.get(_CONFIG, FILE)))


def print_lines(*lines: str, err: bool = False) -> None:
    """Print lines to standard output. With `err` or --json, use standard error. Control characters are escaped."""
    click.echo("\n".join(printable(with_config(line)) for line in lines), err=err or prints_json())


def print_json(value: object, *, has_messages: bool = True) -> None:
    """Print a JSON value. With `has_messages`, commands in its texts read the configuration file of this command."""
    encoding: str | None = sys.stdout.encoding
    only_ascii = encoding is not None and encoding.lower() != "utf-8"  # the encoding may lack other characters
    text = json.dumps(_edit(value) if has_messages else value, indent=2, ensure_ascii=only_ascii)
    click.echo(re.sub(r"[^\n -~]", _escape_control, text))  # control characters occur inside strings only


def _edit(value: object) -> object:
    """Return a JSON value in which commands in texts read the same configuration file as the running command."""
    if isinstance(value, str):
        return with_config(value)
    if isinstance(value, dict):
        return {name: _edit(each) for name, each in value.items()}
    return [_edit(each) for each in value] if isinstance(value, list) else value


def _escape_control(match: re.Match[str]) -> str:
    return json.dumps(match[0])[1:-1] if is_escaped(match[0]) else match[0]


def fail(error: MirrorfeedError, status: int = 1) -> NoReturn:
    if prints_json():
        print_json({"error": error.to_dict()})
    elif _ci_format():
        from mirrorfeed.display.ci_formats import Annotation

        _print_for_ci([Annotation("error", error.code, str(error))])
    else:
        click.echo(with_config(f"Error {error.code}: {error}"), err=True)
    sys.exit(status)


def feed() -> Feed:
    """Return the `Feed` of the configuration file. Spark is started when it is first needed."""
    return feed_of(load_config())


def feed_of(config: Config) -> Feed:
    from mirrorfeed.api.feed import Feed

    return Feed(config, spark_session)


def feed_or_empty(landing_zone: str | None = None) -> Feed:
    """Return the `Feed` of the configuration file or, if the default file is missing, a `Feed` without tables.

    If the configuration has another landing zone than `landing_zone`, the `Feed` has `landing_zone` and no tables. A
    `Feed` without a configuration file has the ledger in --ledger, if set.
    """
    from mirrorfeed.config.model import Config
    from mirrorfeed.source.identifier import Source

    context = click.get_current_context()
    if context.meta[_CONFIG] != FILE or Path(FILE).exists():
        config = load_config()
        if landing_zone in (None, config.landing_zone):
            return feed_of(config)
        return feed_of(config.model_copy(update={"landing_zone": landing_zone, "entries": ()}))
    ledger = Source.parse_argument(context.obj["ledger"]) if context.obj["ledger"] else None
    return feed_of(Config(landing_zone=landing_zone or ".", tables=()).model_copy(update={"ledger": ledger}))


def load_config() -> Config:
    """Return the configuration in the file, with the values of the global options. Patterns are not expanded."""
    from mirrorfeed.config import loader

    context = click.get_current_context()
    return loader.load(context.meta[_CONFIG], variables=context.meta[_VARIABLES], **context.obj)


def variables_given() -> dict[str, str]:
    """Return the variables that --var sets."""
    variables: dict[str, str] = click.get_current_context().meta[_VARIABLES]
    return variables


def spark_session(*sources: Source) -> Any:
    """Return the Spark session of this command. The first call starts the session.

    Raises `NoTableAtPathError` without starting the session if none of `sources` exists. Suppresses Spark's own
    messages about failed queries, because the command reports the failures.
    """
    context = click.get_current_context()
    if sources:
        from mirrorfeed.source.errors import NoTableAtPathError
        from mirrorfeed.source.table_info import is_missing_locally

        if all(map(is_missing_locally, sources)):
            raise NoTableAtPathError(path=", ".join(map(str, sources)))
    if _SPARK not in context.meta:
        from concurrent.futures import ThreadPoolExecutor

        with waiting("Starting Spark"), context.meta[_STOP].without_deferral():
            from mirrorfeed.runtime.spark_errors import silence_spark_logs
            from mirrorfeed.runtime.spark_session import get_session

            with ThreadPoolExecutor(1) as pool:  # in the main thread, Spark replaces the handler of Ctrl-C
                context.meta[_SPARK] = pool.submit(get_session).result()
        context.with_resource(silence_spark_logs())
    return context.meta[_SPARK]


def _print_version(context: click.Context, _: click.Parameter, is_set: bool) -> None:
    if is_set:
        from mirrorfeed.runtime.version import this_build

        click.echo(f"mirrorfeed {this_build()}")
        context.exit()


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"], "show_default": True})
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_print_version,
    help="Print the version and exit.",
)
@click.option("--landing-zone", metavar="PLACE", help="Override `landing_zone` from the configuration file.")
@click.option("--ledger", metavar="TABLE", help="Override `ledger` from the configuration file.")
@click.option(
    "--staging-path",
    metavar="FOLDER",
    help="Override `staging_path` from the configuration file. An empty value means no staging path.",
)
@click.option(
    "--secret-scope",
    metavar="SCOPE",
    help="Secret scope of the secrets for which the configuration file has only a key.",
)
@click.option("--verbose", is_flag=True, help="Log each step to standard error, as --log-level INFO does.")
@click.option(
    "--log-level",
    type=click.Choice(["DEBUG", "INFO", "WARNING", "ERROR"], case_sensitive=False),
    help="Log messages of this level and higher levels to standard error.",
)
@click.pass_context
def main(context: click.Context, /, verbose: bool, log_level: str | None, **overrides: str | None) -> None:
    """Replicate Delta tables from Databricks to Microsoft Fabric.

    TABLE is the target or the source of a configured table, such as sales.orders or main.sales.orders.
    """
    if level := log_level or ("INFO" if verbose else None):
        logger, handler = logging.getLogger("mirrorfeed"), logging.StreamHandler()
        logger.setLevel(level.upper())
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
        logger.handlers = [handler]
    context.obj = {**overrides, "staging_path": overrides["staging_path"] or None}
