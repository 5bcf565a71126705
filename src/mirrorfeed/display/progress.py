"""Progress of a command on standard error: the newest message, with a spinner on a terminal or as a line elsewhere."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from threading import Timer
from typing import TYPE_CHECKING, TextIO

from mirrorfeed.display.redact import printable

if TYPE_CHECKING:
    from rich.status import Status

progress = logging.getLogger("mirrorfeed.progress")
_DELAY_SECONDS = 0.1
"""A message that is replaced or removed within this time is not shown."""


class ProgressHandler(logging.Handler):
    """Log handler that shows only the newest progress message."""

    def __init__(self, file: TextIO) -> None:
        super().__init__(logging.INFO)
        self._file = file
        self._timer: Timer | None = None
        self._spinner: Status | None = None
        self.muted = False
        """True to show no messages, because something else is shown, such as progress bars."""

    def emit(self, record: logging.LogRecord) -> None:
        self.stop()
        if not self.muted:
            self._timer = Timer(_DELAY_SECONDS, self._show, (record.getMessage(),))
            self._timer.daemon = True
            self._timer.start()

    def stop(self) -> None:
        """Remove the shown message, and cancel a message that is not shown yet."""
        with self.lock or nullcontext():
            if self._timer:
                self._timer.cancel()
                self._timer.join()
            if self._spinner:
                self._spinner.stop()
            self._timer = self._spinner = None

    def mute(self) -> None:
        self.muted = True
        self.stop()

    def _show(self, message: str) -> None:
        if not self._file.isatty():
            print(f"{printable(message)} …", file=self._file, flush=True)
            return
        from rich.console import Console

        from mirrorfeed.display.terminal import text

        self._spinner = Console(file=self._file, highlight=False, force_jupyter=False).status(text(message))
        self._spinner.start()


@contextmanager
def waiting(message: str) -> Iterator[None]:
    """Context manager that shows a progress message, and removes the message at its exit."""
    progress.info(message)
    try:
        yield
    finally:
        for handler in progress.handlers:
            if isinstance(handler, ProgressHandler):
                handler.stop()


@contextmanager
def progress_shown() -> Iterator[ProgressHandler]:
    """Context manager that shows progress on standard error, unless the application logs it. Yields the handler."""
    level, is_logged = progress.level, progress.isEnabledFor(logging.INFO)
    with _copy_of_standard_error() as file:
        handler = ProgressHandler(file)
        handler.muted = is_logged
        progress.addHandler(handler)
        progress.setLevel(logging.INFO)
        try:
            yield handler
        finally:
            progress.removeHandler(handler)
            progress.setLevel(level)
            handler.stop()


@contextmanager
def _copy_of_standard_error() -> Iterator[TextIO]:
    """Context manager that yields a copy of standard error, because the original is redirected while Spark starts."""
    try:
        copy = os.dup(sys.stderr.fileno())
    except (OSError, ValueError):  # standard error is not a file
        yield sys.stderr
        return
    with os.fdopen(copy, "w", encoding="utf-8", errors="replace") as file:
        yield file
