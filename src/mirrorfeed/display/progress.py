"""Show progress messages of a command on standard error, with a spinner if standard error is a terminal."""

from __future__ import annotations

import logging
import os
import sys
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from threading import Timer
from typing import TYPE_CHECKING, TextIO

from mirrorfeed.display.redact import printable
from mirrorfeed.display.row_limit import MANY

if TYPE_CHECKING:
    from rich.status import Status

progress = logging.getLogger("mirrorfeed.progress")
_DELAY_SECONDS = 0.1
"""A message that is replaced or removed within this time is not shown."""
_REFRESH_SECONDS, _LINE_SECONDS = 0.5, 10.0
"""Minimum seconds between two numbers of finished tables: on a terminal, and as lines of a file."""


class ProgressHandler(logging.Handler):
    """Log handler that shows only the newest progress message."""

    def __init__(self, file: TextIO) -> None:
        super().__init__(logging.INFO)
        self._file = file
        self._timer: Timer | None = None
        self._spinner: Status | None = None

    def emit(self, record: logging.LogRecord) -> None:
        self.clear()
        if self in progress.handlers:  # another thread may have removed it
            self._timer = Timer(_DELAY_SECONDS, self._show, (record.getMessage(),))
            self._timer.daemon = True
            self._timer.start()

    def clear(self) -> None:
        """Remove the shown message, and cancel a message that is not shown yet."""
        with self.lock or nullcontext():
            if self._timer:
                self._timer.cancel()
                self._timer.join()
            if self._spinner:
                self._spinner.stop()
            self._timer = self._spinner = None

    def _show(self, message: str) -> None:
        if not self._file.isatty():
            print(f"{printable(message)} …", file=self._file, flush=True)
            return
        from rich.console import Console

        from mirrorfeed.display.terminal import text

        self._spinner = Console(file=self._file, highlight=False, force_jupyter=False).status(text(message))
        self._spinner.start()


class ProgressCounter:
    """Shows the number of finished tables as a progress message, if there are many tables."""

    def __init__(self, done: str, total: int) -> None:
        """`done` is the start of the message, such as "Checked" for "Checked 40 of 1,000 tables"."""
        self._done, self._total, self._shown_at = done, total, time.monotonic()
        self._interval = _REFRESH_SECONDS if sys.stderr.isatty() else _LINE_SECONDS

    def show(self, count: int) -> None:
        """Show the number of finished tables, unless it was shown a short time ago."""
        now = time.monotonic()
        if self._total > MANY and now - self._shown_at >= self._interval:
            self._shown_at = now
            progress.info("%s %s of %s tables", self._done, f"{count:,}", f"{self._total:,}")


def clear_progress(*, end: bool = False) -> None:
    """Remove the shown progress message. With `end`, the running command shows no more progress messages."""
    for handler in list(progress.handlers):
        if isinstance(handler, ProgressHandler):
            if end:
                progress.removeHandler(handler)
            handler.clear()


@contextmanager
def waiting(message: str) -> Iterator[None]:
    """Context manager that shows a progress message, and removes the message at its exit."""
    progress.info(message)
    try:
        yield
    finally:
        clear_progress()


@contextmanager
def progress_shown() -> Iterator[None]:
    """Context manager that shows progress on standard error, unless the application logs messages of level INFO."""
    if progress.isEnabledFor(logging.INFO):
        yield
        return
    level = progress.level
    with _copy_of_standard_error() as file:
        progress.addHandler(ProgressHandler(file))
        progress.setLevel(logging.INFO)
        try:
            yield
        finally:
            progress.setLevel(level)
            clear_progress(end=True)


def _copy_of_standard_error() -> AbstractContextManager[TextIO]:
    """Return a copy of standard error, because the original is redirected while Spark starts."""
    try:
        return os.fdopen(os.dup(sys.stderr.fileno()), "w", encoding="utf-8", errors="replace")
    except (OSError, ValueError):  # standard error is not a file
        return nullcontext(sys.stderr)
