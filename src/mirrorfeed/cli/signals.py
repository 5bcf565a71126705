"""Ctrl-C and SIGTERM for all commands: the first one stops between two steps, a second Ctrl-C stops at once."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_SHOW_CURSOR = b"\x1b[?25h"
"""Progress lines hide the cursor."""
_CLEAR_LINE = b"\r\x1b[K"


class Interruption:
    """Whether a signal asked this command to stop.

    A command that stops between two steps calls `defer`. Others end at the first signal. A signal handler runs between
    any two steps of the main thread, so it takes no lock.
    """

    def __init__(self, exit_process: Callable[[int], object] = os._exit) -> None:
        self.requested, self._deferred, self._exit = False, False, exit_process
        self._stderr = 2

    def __call__(self) -> bool:
        return self.requested

    def defer(self) -> None:
        """Let the first signal only set the value that this object returns."""
        self._deferred = True

    def listen(self) -> None:
        """Handle the signals from now on, also if Spark installed a handler. Other threads than the main one cannot."""
        if threading.current_thread() is threading.main_thread():
            for number in _SIGNALS:
                signal.signal(number, self._on_signal)

    @contextmanager
    def listening(self) -> Iterator[Interruption]:
        """Handle the signals until the end of the block."""
        before = {number: signal.getsignal(number) for number in _SIGNALS}
        self._stderr = os.dup(2)  # standard error itself is redirected while Spark starts
        self.listen()
        try:
            yield self
        except KeyboardInterrupt:  # of Spark's handler, before `listen` replaced it
            self.exit_at_once()
            raise
        finally:
            if threading.current_thread() is threading.main_thread():
                for number, handler in before.items():
                    signal.signal(number, handler)
            os.close(self._stderr)

    def notify(self, message: str) -> None:
        clear = _CLEAR_LINE if os.isatty(self._stderr) else b""
        os.write(self._stderr, clear + f"{message}\n".encode())

    def exit_at_once(self) -> None:
        """End the process without waiting for anything, as a crash would: the next run completes what is unfinished."""
        for out in (1, self._stderr):
            if os.isatty(out):
                os.write(out, _SHOW_CURSOR)
        self.notify("Interrupted. The next run completes the unfinished work.")
        self._exit(1)

    def _on_signal(self, number: int, _: FrameType | None) -> None:
        if not self._deferred or (self.requested and number == signal.SIGINT):
            self.exit_at_once()
        elif not self.requested:
            self.requested = True
            self.notify("Stopping after the current files. Press Ctrl-C again to stop immediately.")
