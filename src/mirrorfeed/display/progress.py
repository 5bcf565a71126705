"""Progress of a command on standard error: the newest step, with a spinner on a terminal or as a line elsewhere."""

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
_MOMENT = 0.1
"""Seconds. Shorter steps are not shown."""


class ProgressHandler(logging.Handler):
    """Shows the newest progress message, with a spinner on a terminal or as a line elsewhere."""

    def __init__(self, file: TextIO) -> None:
        super().__init__(logging.INFO)
        self._file = file
        self._timer: Timer | None = None
        self._spinner: Status | None = None
        self.muted = False
        """True while something else is shown, such as progress bars."""

    def emit(self, record: logging.LogRecord) -> None:
        self.stop()
        if not self.muted:
            self._timer = Timer(_MOMENT, self._show, (record.getMessage(),))
            self._timer.daemon = True
            self._timer.start()

    def stop(self) -> None:
        """Remove the message that is shown."""
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
    """Report progress, and remove the message before anything else is printed."""
    progress.info(message)
    try:
        yield
    finally:
        for handler in progress.handlers:
            if isinstance(handler, ProgressHandler):
                handler.stop()


@contextmanager
def progress_shown() -> Iterator[ProgressHandler]:
    """Show progress on standard error in this context, unless progress is logged there."""
    level, logged = progress.level, progress.isEnabledFor(logging.INFO)
    with copy_of_standard_error() as file:
        handler = ProgressHandler(file)
        handler.muted = logged
        progress.addHandler(handler)
        progress.setLevel(logging.INFO)
        try:
            yield handler
        finally:
            progress.removeHandler(handler)
            progress.setLevel(level)
            handler.stop()


@contextmanager
def copy_of_standard_error() -> Iterator[TextIO]:
    """Yield a copy of standard error, because standard error itself is redirected while Spark starts."""
    try:
        copy = os.dup(sys.stderr.fileno())
    except (OSError, ValueError):  # standard error is not a file
        yield sys.stderr
        return
    with os.fdopen(copy, "w", encoding="utf-8", errors="replace") as file:
        yield file
