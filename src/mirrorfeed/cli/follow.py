"""Continuous publishing: keeps running until a signal or a deadline, and stops between two files."""

from __future__ import annotations

import sys
from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING, Any

from mirrorfeed.cli.main import say, spark_session
from mirrorfeed.cli.signals import Stop
from mirrorfeed.display.humanize import counted
from mirrorfeed.errors import MirrorfeedError, coded

if TYPE_CHECKING:
    from mirrorfeed.config import Config
    from mirrorfeed.publish.result import TableResult


def follow_tables(config: Config, written: Config, tables: tuple[str, ...], minutes: float | None) -> None:
    """Follows the tables until asked to stop, or for so many minutes; exits with 1 if one of them is left failed. The
    patterns in the configuration as it is written are asked again."""
    stop, said = Stop(minutes), Said()
    with stop.listening():
        spark = spark_session()
        from mirrorfeed.orchestration.follow_run import SparkRuns, follow

        runs = SparkRuns(spark, config, stop, said.outcome, said.trouble, written=written, names=tables)
        chosen = config.select(tables)
        words = "SIGTERM or Ctrl-C ends it once the file in hand is out."
        say(f"Following {counted(len(chosen), 'table')}. {words}")
        with stop.listening():  # once more, for Spark listens too
            states = follow(chosen, runs, stop=stop, at_once=config.at_once, wait=stop.wait)
    failed = [name for name, state in states.items() if state.failures]
    say(f"Ended, with nothing half done{'; failed: ' if failed else ''}{', '.join(failed)}.")
    sys.exit(bool(failed))


class Said:
    """One line for a publication; an error once, and again only when it is another."""

    def __init__(self, echo: Callable[..., Any] = say, now: Callable[[], datetime] = datetime.now) -> None:
        self._echo, self._now, self._errors = echo, now, dict[str, str]()

    def outcome(self, outcome: TableResult) -> None:
        time_, progress = f"{self._now():%H:%M:%S}", outcome.progress
        if progress.publications:
            rows = ", ".join(counted(count, marker) for marker, count in progress.rows.items() if count) or "no rows"
            files = counted(progress.files, "file")
            self._echo(f"{time_} {outcome.table}: version {progress.published} is published, {rows}, {files}")
        error = outcome.error
        text = str(error) if error else ""
        before = self._errors.get(outcome.table, "")
        if error and text != before:
            self._echo(f"{time_} Error {error.code}: {outcome.table}: {error}", err=True)
        elif before and not text:
            self._echo(f"{time_} {outcome.table}: goes on")
        self._errors[outcome.table] = text

    def trouble(self, error: MirrorfeedError) -> None:
        self._echo(coded(error), err=True)
