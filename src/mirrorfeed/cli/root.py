"""What all commands share: the group, the option for the configuration, Spark, and how errors are shown."""

from __future__ import annotations

import json
import re
import sys
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from mirrorfeed import FILE
from mirrorfeed.errors import MirrorfeedError

if TYPE_CHECKING:
    from mirrorfeed.config import Config
    from mirrorfeed.feed.source import Source

config_option = click.option(
    "--config", "path", default=FILE, show_default=True, metavar="FILE", help="The configuration to use."
)
wait_option = click.option("--wait", default=10.0, show_default=True, metavar="MINUTES", help="How long to wait.")
json_option = click.option("--json", "as_json", is_flag=True, help="For programs.")


_WHOLE = 1000
"""Characters: the first sentence of a command, however long."""


class _Commands(click.Group):
    """Errors that say what to do are shown as they are, without a traceback, and commands are listed unabridged."""

    group_class = type

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except MirrorfeedError as error:
            fail(str(error))
        except ModuleNotFoundError as error:
            if (error.name or "").partition(".")[0] != "pyspark":
                raise
            from mirrorfeed.session import SparkMissing

            fail(str(SparkMissing()))

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        found = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        with formatter.section("Commands"):
            formatter.write_dl(
                [(name, each.get_short_help_str(_WHOLE)) for name, each in found if each and not each.hidden]
            )


def fail(message: str) -> NoReturn:
    click.echo(f"Error: {message}", err=True)
    sys.exit(1)


def load(path: str) -> Config:
    """The configuration, with what the options before the command say in its place."""
    from mirrorfeed import config

    given: dict[str, str | None] = click.get_current_context().find_object(dict) or {}
    return config.load(path, **given)


def say_json(value: object) -> None:
    """For programs, alone on standard output. Times are in ISO form, decisions and errors in words."""
    click.echo(json.dumps(value, indent=2, ensure_ascii=False, default=_in_words))


def _in_words(value: object) -> str:
    return value.isoformat() if isinstance(value, date) else str(value)


def given_ledger() -> Source | None:
    """For commands without a configuration: the ledger that the option before the command names."""
    from mirrorfeed.feed.source import Source

    text: str | None = (click.get_current_context().find_object(dict) or {}).get("ledger")
    return None if text is None else Source.parse(text)


def load_if_there(path: str) -> Config | None:
    """None where no file was named and the usual one is not there."""
    return load(path) if path != FILE or Path(path).exists() else None


def spark_session(*needed: Source) -> Any:
    """Started only once the configuration is known to be good, and not where none of the tables that are needed is
    there: it takes long, and says so."""
    from mirrorfeed.terminal import waiting

    if needed and all(map(_is_missing, needed)):
        from mirrorfeed.feed.detail import NoTableAtPath

        raise NoTableAtPath(", ".join(map(str, needed)))

    with waiting("Starting Spark"):
        from mirrorfeed.session import get_session

        return get_session()


def _is_missing(source: Source) -> bool:
    """Whether it would be in a folder of this machine, where it is not."""
    from mirrorfeed.session import Kind, kind

    is_folder = source.path is not None and not re.match(r"\w+:/", source.path)
    return is_folder and not Path(source.path or "", "_delta_log").is_dir() and kind() is Kind.LOCAL


def _say_version(context: click.Context, _: click.Parameter, wanted: bool) -> None:
    if wanted:
        from mirrorfeed.build import this_build

        click.echo(f"mirrorfeed {this_build()}")
        context.exit()


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--version", is_flag=True, is_eager=True, expose_value=False, callback=_say_version, help="Which build.")
@click.option("--landing-zone", metavar="PLACE", help="In place of the configuration's.")
@click.option("--ledger", metavar="TABLE", help="In place of the configuration's.")
@click.option("--handover", metavar="FOLDER", help="In place of the configuration's; empty for none.")
@click.pass_context
def main(context: click.Context, landing_zone: str | None, ledger: str | None, handover: str | None) -> None:
    """Publishes Delta tables into Microsoft Fabric open mirroring, exactly once in effect."""
    context.obj = {"landing_zone": landing_zone, "ledger": ledger, "handover": handover or None}
