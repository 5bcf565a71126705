"""Ctrl-C and SIGTERM: the first one ends a command between two steps, a second Ctrl-C ends it at once."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

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
