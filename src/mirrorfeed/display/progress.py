"""Progress of long operations: messages of the logger `mirrorfeed.progress`, and how a command shows the newest one."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from threading import Timer
from typing import TYPE_CHECKING, TextIO

from mirrorfeed.display.printable import printable
from mirrorfeed.display.terminal import copy_of_standard_error

if TYPE_CHECKING:
    from rich.status import Status

progress = logging.getLogger("mirrorfeed.progress")
_MOMENT = 0.1
"""Seconds. A step that takes less is not shown."""


class ProgressHandler(logging.Handler):
    """Shows the newest message until the next one: beside a spinner on a terminal, as a line otherwise."""

    def __init__(self, file: TextIO) -> None:
        super().__init__(logging.INFO)
        self._file = file
        self._timer: Timer | None = None
        self._spinner: Status | None = None
        self.muted = False
        """Whether something else is shown, such as bars."""

    def emit(self, record: logging.LogRecord) -> None:
        self.stop()
        if not self.muted:
            self._timer = Timer(_MOMENT, self._show, (record.getMessage(),))
            self._timer.daemon = True
            self._timer.start()

    def stop(self) -> None:
        """Removes the message that is shown."""
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
    """Reports progress, and removes the message before anything else is printed."""
    progress.info(message)
    try:
        yield
    finally:
        for handler in progress.handlers:
            if isinstance(handler, ProgressHandler):
                handler.stop()


@contextmanager
def progress_shown() -> Iterator[ProgressHandler]:
    """Shows progress on standard error meanwhile, unless it is logged there."""
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
