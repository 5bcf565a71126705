"""Continuous publishing: keeps running until a signal or a deadline, and stops between two files."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from types import FrameType
from typing import TYPE_CHECKING, Any, NoReturn

from mirrorfeed.cli.root import say, spark_session
from mirrorfeed.display.humanize import counted
from mirrorfeed.errors import MirrorfeedError, coded

if TYPE_CHECKING:
    from mirrorfeed.config import Config
    from mirrorfeed.publish.outcome import Outcome

_SLICE = 0.5
_CURSOR = b"\x1b[?25h\n"
"""Shows it, for bars hide it."""


def end_at_once() -> NoReturn:
    """As a crash would, waiting for nothing: whatever is left half done, the next run finishes."""
    for out in (1, 2):
        if os.isatty(out):
            os.write(out, _CURSOR)
    os.write(2, b"Ended at once. The next run finishes what is left.\n")
    os._exit(1)


class Stop:
    """Asked for by SIGTERM, or by Ctrl-C, of which a second one ends at once; or due after so many minutes. A handler
    runs between any two steps of this thread, so it takes no lock that this thread may hold."""

    def __init__(
        self,
        minutes: float | None = None,
        clock: Callable[[], float] = time.monotonic,
        at_once: Callable[[], None] = end_at_once,
    ) -> None:
        self.asked, self._clock, self._at_once = False, clock, at_once
        self._end = None if minutes is None else clock() + minutes * 60
        self._say: Callable[[], None] = lambda: None

    def __call__(self) -> bool:
        return self.asked or (self._end is not None and self._clock() >= self._end)

    @contextmanager
    def listening(self, say: Callable[[], None] = lambda: None) -> Iterator[None]:
        """Heeds these signals meanwhile, and says so when it is asked; only the first thread of a process can."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        self._say = say
        before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
        try:
            for number in before:
                signal.signal(number, self._on_signal)
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _on_signal(self, number: int, _: FrameType | None) -> None:
        if self.asked and number == signal.SIGINT:
            self._at_once()
        elif not self.asked:
            self.asked = True
            self._say()

    def wait(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while not self() and (left := end - time.monotonic()) > 0:
            time.sleep(min(_SLICE, left))


def follow_tables(config: Config, written: Config, tables: tuple[str, ...], minutes: float | None) -> None:
    """Follows the tables until asked to stop, or for so many minutes; exits with 1 if one of them is left failed. The
    patterns in the configuration as it is written are asked again."""
    stop, said = Stop(minutes), Said()
    with stop.listening():
        spark = spark_session()
        from mirrorfeed.publish.follow import SparkRuns, follow

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

    def outcome(self, outcome: Outcome) -> None:
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
