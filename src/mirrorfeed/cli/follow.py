"""Publication that follows its tables: by itself, which ends between two files when asked to, or driven by a stream."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Callable
from datetime import datetime
from types import FrameType
from typing import TYPE_CHECKING, Any

import click

from mirrorfeed.amounts import counted
from mirrorfeed.cli.root import config_option, load, main, spark_session
from mirrorfeed.errors import MirrorfeedError

if TYPE_CHECKING:
    from mirrorfeed.config import Config
    from mirrorfeed.publish.outcome import Outcome

_SLICE = 0.5


class Stop:
    """Asked for by SIGTERM, or by Ctrl-C, of which a second one ends at once; or due after so many minutes. A handler
    runs between any two steps of this thread, so it takes no lock."""

    def __init__(self, minutes: float | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self.asked, self._clock = False, clock
        self._end = None if minutes is None else clock() + minutes * 60

    def __call__(self) -> bool:
        return self.asked or (self._end is not None and self._clock() >= self._end)

    def listen(self) -> None:
        signal.signal(signal.SIGTERM, self._on_signal)
        signal.signal(signal.SIGINT, self._on_signal)

    def _on_signal(self, number: int, _: FrameType | None) -> None:
        self.asked = True
        if number == signal.SIGINT:
            signal.signal(signal.SIGINT, signal.default_int_handler)

    def wait(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while not self() and (left := end - time.monotonic()) > 0:
            time.sleep(min(_SLICE, left))


def follow_tables(config: Config, tables: tuple[str, ...], minutes: float | None) -> None:
    """Follows the tables until asked to stop, or for so many minutes; exits with 1 if one of them is left failed."""
    stop, said = Stop(minutes), Said()
    stop.listen()
    spark = spark_session()
    from mirrorfeed.publish.follow import SparkRuns, follow

    stop.listen()  # once more, for Spark listens too
    runs = SparkRuns(spark, config, stop, said.outcome, said.trouble)
    chosen = config.select(tables)
    click.echo(f"Following {counted(len(chosen), 'table')}. SIGTERM or Ctrl-C ends it once the file in hand is out.")
    states = follow(chosen, runs, stop=stop, wait=stop.wait)
    failed = [name for name, state in states.items() if state.failures]
    click.echo(f"Ended, with nothing half done{'; failed: ' if failed else ''}{', '.join(failed)}.")
    sys.exit(bool(failed))


@main.command()
@click.argument("table")
@click.option("--checkpoint", required=True, metavar="FOLDER", help="Where Spark keeps how far the stream is.")
@click.option(
    "--option", "pairs", multiple=True, metavar="NAME=VALUE", help="Of the stream, as maxFilesPerTrigger=100."
)
@config_option
def stream(table: str, checkpoint: str, pairs: tuple[str, ...], path: str) -> None:
    """Publish TABLE when a stream over its change feed has told what there is (availableNow).

    What was published is known from the landing zone alone: a checkpoint that is lost or damaged changes nothing.
    """
    config = load(path)
    (chosen,) = config.select([table])
    options = {name: value for name, _, value in (pair.partition("=") for pair in pairs)}
    spark = spark_session(chosen.source)
    from mirrorfeed.publish.stream import drain

    said = Said()
    outcomes = drain(spark, config, table, checkpoint, options, said.trouble)
    for outcome in outcomes:
        said.outcome(outcome)
        if outcome.is_idle:
            click.echo(f"{outcome.table}: {outcome.progress.decision}")
    sys.exit(any(outcome.error for outcome in outcomes))


class Said:
    """One line for a publication; an error once, and again only when it is another."""

    def __init__(self, echo: Callable[..., Any] = click.echo, now: Callable[[], datetime] = datetime.now) -> None:
        self._echo, self._now, self._errors = echo, now, dict[str, str]()

    def outcome(self, outcome: Outcome) -> None:
        time_, progress = f"{self._now():%H:%M:%S}", outcome.progress
        if progress.publications:
            rows = ", ".join(counted(count, marker) for marker, count in progress.rows.items() if count) or "no rows"
            files = counted(progress.files, "file")
            self._echo(f"{time_} {outcome.table}: version {progress.published} is published, {rows}, {files}")
        text = str(outcome.error) if outcome.error else ""
        before = self._errors.get(outcome.table, "")
        if text and text != before:
            self._echo(f"{time_} Error: {outcome.table}: {text}", err=True)
        elif before and not text:
            self._echo(f"{time_} {outcome.table}: goes on")
        self._errors[outcome.table] = text

    def trouble(self, error: MirrorfeedError) -> None:
        self._echo(str(error), err=True)
