"""Clients and counters that are kept per process and never sent to another one."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Hashable
from types import ModuleType
from typing import Any, TypeVar

T = TypeVar("T")


def per_process(key: Hashable, create: Callable[[], T]) -> T:
    """Return the value of this process for a key, created at the first call. A forked process creates its own."""
    # Not a global of this module: where the code travels with each task, globals are pickled and new in every task.
    name = "_mirrorfeed_process"
    values: dict[Any, Any] = sys.modules.setdefault(name, ModuleType(name)).__dict__
    own_key = (os.getpid(), key)
    if own_key not in values:
        created = create()
        values.setdefault(own_key, created)  # if two threads created one, both use the first
    found: T = values[own_key]
    return found


class Counter:
    """A number that all threads of a process increase."""

    def __init__(self) -> None:
        self._lock, self.value, self._local = threading.Lock(), 0, threading.local()

    def add(self, number: int = 1) -> None:
        with self._lock:
            self.value += number
        self._local.value = self.of_thread + number

    @property
    def of_thread(self) -> int:
        """What the current thread has added."""
        return getattr(self._local, "value", 0)


def retry_counter() -> Counter:
    """Counts the retries of calls to remote stores."""
    return per_process("retries", Counter)
