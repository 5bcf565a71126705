"""Create files with one request per name. After a failed request, continue with a new name.

A failed creation may still take effect at any time, so its name is never used again.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, BinaryIO, Protocol, TypeVar

from mirrorfeed.storage.errors import AlreadyThere, StoreUnavailable
from mirrorfeed.storage.process_cache import retry_counter
from mirrorfeed.storage.retry_budget import NO_RETRIES, RetryBudget

T = TypeVar("T")


class Sink(Protocol):
    """The part of `Store` that is needed to write new files."""

    def open_write(self, path: str) -> BinaryIO: ...

    def address(self, path: str) -> str: ...


def open_new(
    store: Sink,
    new_path: Callable[[], str],
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> tuple[str, BinaryIO]:
    """Return the first path that was created, and its writer. `new_path` must return another path at every call.

    Raises `StoreUnavailable` when the retries of the store are used up.
    """

    def attempt() -> tuple[str, BinaryIO]:
        path = new_path()
        try:
            return path, store.open_write(path)
        except AlreadyThere as error:  # created by this same request, if the network delivered it twice
            reason = "the name was already taken"
            raise StoreUnavailable(action="write", address=error.address, reason=reason) from error

    return retry_new(store, attempt, clock, sleep)


def retry_new(
    store: object,
    attempt: Callable[[], T],
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> T:
    """Call `attempt` until the store is available, within the retry limits of the store.

    For requests that must never be repeated: each attempt sends a different one.
    """
    budget = RetryBudget(getattr(store, "retry_limits", NO_RETRIES), clock)
    while True:
        try:
            return attempt()
        except StoreUnavailable as error:
            pause = budget.next_pause(error.retry_after)
            if pause is None:
                raise
        retry_counter().add()
        sleep(pause)


class NewFile:
    """A file under the first name that was created.

    Small files are also created empty and then filled, although one request could create them complete: if the network
    delivers that request again after the file was renamed, the complete file exists again and counts as staged.
    """

    closed = False

    def __init__(
        self,
        store: Sink,
        new_path: Callable[[], str],
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.path, self._sink = open_new(store, new_path, clock, sleep)

    @property
    def name(self) -> str:
        """The last part of its path."""
        return self.path.rpartition("/")[2]

    def write(self, data: Any) -> int:
        return self._sink.write(data)

    def flush(self) -> None:
        """Does nothing, because nobody reads the file before it is closed."""

    def close(self) -> None:
        if self.closed:
            return
        self.closed = True
        self._sink.close()

    def __enter__(self) -> NewFile:
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        self.closed = True
        self._sink.__exit__(kind, error, trace)
