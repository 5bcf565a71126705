"""Output of running commands (`Steps`, `FollowLog`), and handling of Ctrl-C and SIGTERM (`Interruption`)."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from types import FrameType
from typing import TYPE_CHECKING, Any

from mirrorfeed.display.progress import clear_progress
from mirrorfeed.display.redact import printable
from mirrorfeed.display.row_limit import MANY
from mirrorfeed.display.rows import counted
from mirrorfeed.display.terminal import fold_name, text
from mirrorfeed.errors import with_code

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress, TaskID

    from mirrorfeed.api.results import TableResult


_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_SHOW_CURSOR = b"\x1b[?25h"
"""Terminal sequence that shows the cursor, which rich hides while it shows progress."""
_CLEAR_LINE = b"\r\x1b[K"


_STOPPING = "Stopping after the current publication. Press Ctrl-C again to stop immediately."
_GRACE_SECONDS = 9.0
"""Seconds from a SIGTERM until the command ends, even if a publication is running. Docker waits for 10 seconds."""


class Interruption:
    """Handler of Ctrl-C and SIGTERM. Calling the object returns True if a signal has requested a stop.

    By default, the first signal ends the command immediately. After `defer`, the first signal only requests a stop.
    """

    def __init__(self, exit_process: Callable[[int], object] = os._exit) -> None:
        self.requested, self._deferred, self._exit = False, False, exit_process
        self._stderr, self._message = 2, ""

    def __call__(self) -> bool:
        return self.requested

    def defer(self, message: str = _STOPPING) -> None:
        """Let the first signal set `requested` to True, and print `message`, instead of ending the command.

        A later Ctrl-C still ends the command immediately. A later SIGTERM has no effect. If the first signal is a
        SIGTERM, the command ends after 9 seconds at the latest, because whoever sends it seldom waits longer.
        """
        self._deferred, self._message = True, message

    @contextmanager
    def without_deferral(self) -> Iterator[None]:
        """Context manager in which `defer` has no effect: the first signal ends the command immediately.

        If a signal has already requested a stop (`requested` is True), entering the context ends the command.
        """
        deferred, self._deferred = self._deferred, False
        if self.requested:
            self.exit_at_once()
        try:
            yield
        finally:
            self._deferred = deferred

    @contextmanager
    def handle_signals(self) -> Iterator[Interruption]:
        """Context manager: Ctrl-C and SIGTERM end the command or, after `defer`, request a stop. Yields this object."""
        is_main = threading.current_thread() is threading.main_thread()
        self._stderr = os.dup(2)  # standard error itself is redirected while Spark starts
        previous = {number: signal.signal(number, self._on_signal) for number in _SIGNALS} if is_main else {}
        try:
            yield self
        except KeyboardInterrupt:  # raised by a handler that another library installed
            self.exit_at_once()
            raise
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler)
            if is_main and self.requested and hasattr(signal, "setitimer"):
                signal.setitimer(signal.ITIMER_REAL, 0)
            os.close(self._stderr)

    def notify(self, message: str) -> None:
        clear = _CLEAR_LINE if os.isatty(self._stderr) else b""
        os.write(self._stderr, clear + f"{message}\n".encode())

    def exit_at_once(self) -> None:
        """End the process immediately, as a crash would. The next run completes unfinished work."""
        for descriptor in (1, self._stderr):
            if os.isatty(descriptor):
                os.write(descriptor, _SHOW_CURSOR)
        self.notify("Interrupted. The next run completes unfinished publications.")
        self._exit(1)

    def _on_signal(self, number: int, _: FrameType | None) -> None:
        # No lock is acquired here, because the interrupted thread may hold it.
        if not self._deferred or (self.requested and number == signal.SIGINT):
            self.exit_at_once()
        elif not self.requested:
            self.requested = True
            self.notify(self._message)
            if number == signal.SIGTERM and hasattr(signal, "setitimer"):  # a thread could not start here
                signal.signal(signal.SIGALRM, lambda *_: self.exit_at_once())
                signal.setitimer(signal.ITIMER_REAL, _GRACE_SECONDS)


_SPINNER_AND_TIME = 12
"""Number of terminal columns for the spinner and the time next to a step."""
_FREE_LINES = 4
"""Number of terminal lines on which no step is shown."""


class Steps:
    """Display of the current step of each table. Several threads can call the object.

    `progress` is rich's live display for a terminal. The display has a line for each running table if the screen has
    room. The lines replace all other progress messages. If `progress` is None, each step of the first 20 tables is
    printed on a separate line. Other progress messages count the other tables.
    """

    def __init__(self, console: Console, progress: Progress | None) -> None:
        self._console, self._progress, self._lock = console, progress, threading.Lock()
        self._tasks: dict[str, TaskID] = {}
        self._printed = set[str]()
        self._finished = 0
        self._finished_task: TaskID | None = None

    def __call__(self, table: str, step: str) -> None:
        with self._lock:
            if self._progress is None:
                self._printed.add(table)
                if len(self._printed) <= MANY:
                    self._console.print(text(f"{table}: {step}"))
                return
            if table not in self._tasks:
                if len(self._tasks) >= max(1, (self._console.height - _FREE_LINES) // 2):  # a table may need two lines
                    return
                self._tasks[table] = self._add_line(self._progress)
            name = fold_name(table, self._console.width - _SPINNER_AND_TIME)
            self._progress.update(self._tasks[table], description=f"{name}: {printable(step)}")

    def done(self, result: TableResult) -> None:
        """Remove the line of a finished table, and show the number of finished tables."""
        with self._lock:
            self._finished += 1
            if self._progress is None:
                return
            if result.table in self._tasks:
                self._progress.remove_task(self._tasks.pop(result.table))
            if self._finished_task is None:
                self._finished_task = self._add_line(self._progress)
            self._progress.update(self._finished_task, description=f"{counted(self._finished, 'table')} done")

    def _add_line(self, progress: Progress) -> TaskID:
        clear_progress(end=True)
        progress.start()
        return progress.add_task("", total=None)


@contextmanager
def show_steps(console: Console) -> Iterator[Steps]:
    if not console.is_terminal:
        yield Steps(console, None)
        return
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
    from rich.table import Column

    step = TextColumn("{task.description}", markup=False, table_column=Column(overflow="fold"))
    progress = Progress(SpinnerColumn(), step, TimeElapsedColumn(), console=console)
    try:
        yield Steps(console, progress)
    finally:
        progress.stop()


class FollowLog:
    """Printer for `publish --follow`. For each result of a table, prints a publication, an error or a recovery.

    If the error of a table is the same as in the previous result of the table, the error is not printed again.
    """

    def __init__(self, echo: Callable[..., Any], now: Callable[[], datetime] = datetime.now) -> None:
        self._echo, self._now, self._errors = echo, now, dict[str, str]()

    def __call__(self, result: TableResult) -> None:
        time, previous = f"{self._now():%H:%M:%S}", self._errors.get(result.table, "")
        if result.records:
            self._echo(f"{time} {result.table}: {result.in_words}")
        error = with_code(result.error) if result.error else ""
        if error and error != previous:
            self._echo(f"{time} {result.table}: {error}", err=True)
        elif previous and not error:
            self._echo(f"{time} {result.table}: recovered")
        self._errors[result.table] = error
