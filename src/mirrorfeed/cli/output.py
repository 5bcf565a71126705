"""Terminal output of a command: progress lines, and handling of Ctrl-C and SIGTERM.

The first signal stops between two steps, a second Ctrl-C stops immediately.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from types import FrameType
from typing import TYPE_CHECKING, Any

from mirrorfeed.display.redact import printable
from mirrorfeed.display.rows import counted
from mirrorfeed.display.terminal import fold_name, text
from mirrorfeed.errors import with_code

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress as Lines
    from rich.progress import TaskID

    from mirrorfeed.api.results import TableResult


_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_SHOW_CURSOR = b"\x1b[?25h"
"""Progress lines hide the cursor."""
_CLEAR_LINE = b"\r\x1b[K"


class Interruption:
    """Records whether a signal requested this command to stop.

    A command that stops between two steps calls `defer`. Other commands end at the first signal. A signal handler runs
    between any two steps of the main thread, so it takes no lock.
    """

    def __init__(self, exit_process: Callable[[int], object] = os._exit) -> None:
        self.requested, self._deferred, self._exit = False, False, exit_process
        self._stderr = 2

    def __call__(self) -> bool:
        return self.requested

    def defer(self) -> None:
        """Let the first signal only set the value that this object returns."""
        self._deferred = True

    @contextmanager
    def immediate(self) -> Iterator[None]:
        """End the command at a signal within this context, or immediately if a signal came before."""
        deferred, self._deferred = self._deferred, False
        if self.requested:
            self.exit_at_once()
        try:
            yield
        finally:
            self._deferred = deferred

    @contextmanager
    def listening(self) -> Iterator[Interruption]:
        """Handle the signals within this context. Only the main thread can."""
        is_main = threading.current_thread() is threading.main_thread()
        self._stderr = os.dup(2)  # standard error itself is redirected while Spark starts
        before = {number: signal.signal(number, self._on_signal) for number in _SIGNALS} if is_main else {}
        try:
            yield self
        except KeyboardInterrupt:  # handlers that something else installed
            self.exit_at_once()
            raise
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
            os.close(self._stderr)

    def notify(self, message: str) -> None:
        clear = _CLEAR_LINE if os.isatty(self._stderr) else b""
        os.write(self._stderr, clear + f"{message}\n".encode())

    def exit_at_once(self) -> None:
        """End the process immediately, as a crash would. The next run completes unfinished work."""
        for out in (1, self._stderr):
            if os.isatty(out):
                os.write(out, _SHOW_CURSOR)
        self.notify("Interrupted. The next run completes unfinished publications.")
        self._exit(1)

    def _on_signal(self, number: int, _: FrameType | None) -> None:
        if not self._deferred or (self.requested and number == signal.SIGINT):
            self.exit_at_once()
        elif not self.requested:
            self.requested = True
            self.notify("Stopping after the current files. Press Ctrl-C again to stop immediately.")


_BESIDE = 12
"""Number of terminal columns for the spinner and the time next to a line."""
_BELOW = 4
"""Number of terminal lines that remain free."""


class Steps:
    """Shows the current step of each table. Called by the threads that publish."""

    def __init__(self, out: Console, lines: Lines | None, on_start: Callable[[], None]) -> None:
        self._out, self._lines, self._on_start, self._lock = out, lines, on_start, threading.Lock()
        self._tasks: dict[str, TaskID] = {}
        self._done = 0
        self._count: TaskID | None = None

    def __call__(self, table: str, step: str) -> None:
        with self._lock:
            if self._lines is None:
                self._out.print(text(f"{table}: {step}"))
                return
            if table not in self._tasks:
                if len(self._tasks) >= max(1, (self._out.height - _BELOW) // 2):  # a table may need two lines
                    return
                self._tasks[table] = self._add(self._lines)
            name = fold_name(table, self._out.width - _BESIDE)
            self._lines.update(self._tasks[table], description=f"{name}: {printable(step)}")

    def done(self, result: TableResult) -> None:
        """Replace the line of a table by the number of finished tables."""
        with self._lock:
            self._done += 1
            if self._lines is None:
                return
            if result.table in self._tasks:
                self._lines.remove_task(self._tasks.pop(result.table))
            if self._count is None:
                self._count = self._add(self._lines)
            self._lines.update(self._count, description=f"{counted(self._done, 'table')} done")

    def _add(self, lines: Lines) -> TaskID:
        if not self._tasks and self._count is None:
            self._on_start()
            lines.start()
        return lines.add_task("", total=None)


@contextmanager
def steps(out: Console, on_start: Callable[[], None] = lambda: None) -> Iterator[Steps]:
    """Show steps within this context. `on_start` is called before the first line on a terminal."""
    if not out.is_terminal:
        yield Steps(out, None, on_start)
        return
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
    from rich.table import Column

    step = TextColumn("{task.description}", markup=False, table_column=Column(overflow="fold"))
    lines = Progress(SpinnerColumn(), step, TimeElapsedColumn(), console=out)
    try:
        yield Steps(out, lines, on_start)
    finally:
        lines.stop()


class FollowLog:
    """Prints one line per publication of `publish --follow`. An error is printed once, until it changes or is
    resolved."""

    def __init__(self, echo: Callable[..., Any], now: Callable[[], datetime] = datetime.now) -> None:
        self._echo, self._now, self._errors = echo, now, dict[str, str]()

    def __call__(self, result: TableResult) -> None:
        time, before = f"{self._now():%H:%M:%S}", self._errors.get(result.table, "")
        if result.records:
            self._echo(f"{time} {result.table}: {result.in_words}")
        error = with_code(result.error) if result.error else ""
        if error and error != before:
            self._echo(f"{time} {result.table}: {error}", err=True)
        elif before and not error:
            self._echo(f"{time} {result.table}: recovered")
        self._errors[result.table] = error
