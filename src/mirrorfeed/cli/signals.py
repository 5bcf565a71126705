"""Ctrl-C and SIGTERM for all commands: the first one stops between two steps, a second Ctrl-C stops at once."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

_SHOW_CURSOR = b"\x1b[?25h\n"
"""Progress bars hide the cursor."""


def exit_at_once() -> NoReturn:
    """End the process without waiting for anything, as a crash would: the next run completes what is unfinished."""
    for out in (1, 2):
        if os.isatty(out):
            os.write(out, _SHOW_CURSOR)
    os.write(2, b"Interrupted. The next run completes what is unfinished.\n")
    os._exit(1)


class Interruption:
    """Whether a signal asked this command to stop.

    A command that stops between two steps calls `defer`. Others end at the first signal. Signal handlers run between
    any two steps of the main thread, so they take no lock.
    """

    def __init__(self, exit_at_once: Callable[[], None] = exit_at_once) -> None:
        self.requested, self._exit_at_once = False, exit_at_once
        self._on_stop: Callable[[], None] | None = None

    def __call__(self) -> bool:
        return self.requested

    def defer(self, on_stop: Callable[[], None]) -> None:
        """Let the first signal only call `on_stop`, and set what this object returns."""
        self._on_stop = on_stop

    def listen(self) -> None:
        """Handle the signals from now on, also if Spark installed a handler. Other threads than the main one cannot."""
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGTERM, signal.SIGINT):
                signal.signal(number, self._on_signal)

    @contextmanager
    def listening(self) -> Iterator[Interruption]:
        """Handle the signals until the end of the block."""
        before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
        self.listen()
        try:
            yield self
        finally:
            if threading.current_thread() is threading.main_thread():
                for number, handler in before.items():
                    signal.signal(number, handler)

    def _on_signal(self, number: int, _: FrameType | None) -> None:
        if self._on_stop is None or (self.requested and number == signal.SIGINT):
            self._exit_at_once()
        elif not self.requested:
            self.requested = True
            self._on_stop()
