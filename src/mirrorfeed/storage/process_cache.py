"""What a process keeps for itself: connections and counts, which are never sent on to another."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Hashable
from types import ModuleType
from typing import Any, TypeVar

_Kept = TypeVar("_Kept")


def keep(key: Hashable, make: Callable[[], _Kept]) -> _Kept:
    """What this process keeps under the key, made at the first request. A process that is forked begins anew."""
    kept = _shelf()
    mine = (os.getpid(), key)
    if mine not in kept:
        made = make()
        kept.setdefault(mine, made)  # two threads may both have made one; both take the first
    found: _Kept = kept[mine]
    return found


class Counter:
    def __init__(self) -> None:
        self._lock, self.value, self._here = threading.Lock(), 0, threading.local()

    def add(self, number: int = 1) -> None:
        with self._lock:
            self.value += number
        self._here.value = self.mine + number

    @property
    def mine(self) -> int:
        """What this thread has added."""
        return getattr(self._here, "value", 0)


def retries() -> Counter:
    """How often this process has repeated calls to remote stores."""
    return keep("retries", Counter)


def _shelf() -> dict[Any, Any]:
    # Not a global of this module: where the code travels with each task, globals would be pickled along with it, and
    # would be new ones for every task.
    name = "_mirrorfeed_process"
    shelf: dict[Any, Any] = sys.modules.setdefault(name, ModuleType(name)).__dict__
    return shelf
