"""Retry failed requests: limits and pauses, a counter of retries, and functions that retry the creation of a file.

A failed request may still create its file later, so each attempt to create a file uses another name.
"""

from __future__ import annotations

import hashlib
import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ParamSpec, TypeVar

from mirrorfeed.storage import Store, Writer, per_process
from mirrorfeed.storage.errors import PathExistsError, PathMissingError, StorageUnavailableError

RETRYABLE_STATUS = frozenset({408, 429, 500, 502, 503, 504})
"""HTTP statuses of temporary failures, after which a request is sent again."""


@dataclass(frozen=True, slots=True)
class RetryLimits:
    """Limits of retries. `OneLakeStore` contains them, so a copy of the store on an executor has the same limits."""

    seconds: float = 120.0
    """Seconds from the first attempt of a call after which no further attempt starts."""
    connections: int = 4
    """Maximum number of attempts without a connection to the server, so that a wrong address fails quickly."""
    first_pause: float = 0.5
    """Seconds to pause before the second attempt. Later pauses double, up to `longest_pause`."""
    longest_pause: float = 30.0
    response_seconds: float = 60.0
    """Maximum seconds to wait for a response."""
    connect_seconds: float = 10.0
    """Maximum seconds to wait for a connection. If a firewall drops packets, each attempt takes this long."""


NO_RETRIES = RetryLimits(seconds=0.0)


class RetryBudget:
    """Limits the attempts of one call. The time limit starts when the object is created."""

    def __init__(self, limits: RetryLimits) -> None:
        self._limits, self._deadline = limits, time.monotonic() + limits.seconds
        self._attempts, self._unreached = 0, 0

    def wait(self, retry_after: float | None = None, *, reached: bool = True) -> bool:
        """Wait before the next attempt and return True, or return False at once if no attempt remains.

        `retry_after` is the wait in seconds that the server requests. `reached` is False after a failed connection.
        """
        self._attempts += 1
        self._unreached += not reached
        longest = min(self._limits.longest_pause, self._limits.first_pause * 2.0 ** min(self._attempts - 1, 30))
        pause = (retry_after or 0.0) + longest * (0.5 + random.random() / 2)
        if time.monotonic() + pause > self._deadline or self._unreached >= self._limits.connections:
            return False
        retry_counter().add()
        time.sleep(pause)
        return True


class Counter:
    """Number that all threads of a process can increase."""

    def __init__(self) -> None:
        self._lock, self.value, self._local = threading.Lock(), 0, threading.local()

    def add(self, number: int = 1) -> None:
        with self._lock:
            self.value += number
        self._local.value = self.of_thread + number

    @property
    def of_thread(self) -> int:
        """Sum of the numbers that the current thread has added to this counter."""
        return getattr(self._local, "value", 0)


def retry_counter() -> Counter:
    """Return this process's counter of retried requests to storage, Fabric and webhooks."""
    return per_process("retries", Counter)


T = TypeVar("T")
Arguments = ParamSpec("Arguments")
WRITE_ERRORS = (PathExistsError, PathMissingError, StorageUnavailableError)
"""Errors after which a write may or may not have taken effect."""


def try_write(call: Callable[Arguments, object], *args: Arguments.args, **kwargs: Arguments.kwargs) -> Exception | None:
    """Call a function that writes, and return its error, or None if there is none. Raises errors not in `WRITE_ERRORS`.

    In all cases, callers must read the storage to see whether the write took effect.
    """
    try:
        call(*args, **kwargs)
    except WRITE_ERRORS as error:
        return error
    return None


def retry_new(store: Store, attempt: Callable[[], T]) -> T:
    """Call `attempt` until it succeeds, and return its result. Each call must use a new file name or content.

    Repeats the call only after `StorageUnavailableError`, and raises this error when the retry limits of `store` are
    reached.
    """
    budget = RetryBudget(getattr(store, "retry_limits", NO_RETRIES))
    while True:
        try:
            return attempt()
        except StorageUnavailableError as error:
            if not budget.wait(error.retry_after):
                raise


class NewFile(Writer):
    """Writer of a new file with a new name. Counts the bytes and computes their SHA-256.

    Each attempt to create the file calls `new_path` for another path. Raises `StorageUnavailableError` when the retry
    limits of `store` are reached.
    """

    def __init__(self, store: Store, new_path: Callable[[], str]) -> None:
        def attempt() -> tuple[str, Writer]:
            path = new_path()
            try:
                # Not `create`, even for a small file: the network could repeat its request after the file was renamed,
                # and the complete file would exist again under its old name.
                return path, store.open_write(path)
            except PathExistsError as error:  # created by this same request, if the network delivered the request twice
                reason = "the name was already taken"
                raise StorageUnavailableError(action="write", address=error.address, reason=reason) from error

        self.path, self._file = retry_new(store, attempt)
        self.bytes, self._hash = 0, hashlib.sha256()

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2]

    @property
    def sha256(self) -> str:
        return self._hash.hexdigest()

    def write(self, data: Any) -> int:
        # Arrow flushes its compressor when it is destroyed, and would print an error.
        return memoryview(data).nbytes if self.closed else super().write(data)

    def send(self, data: memoryview) -> None:
        self._file.write(data)
        self._hash.update(data)
        self.bytes += data.nbytes

    def finish(self) -> None:
        self._file.close()

    def abandon(self) -> None:
        self._file.abandon()

    def tell(self) -> int:
        return self.bytes

    def writable(self) -> bool:
        return True
