"""A file is begun anew under another name where the one creation of a name was not answered with success.

Such a creation may still take effect, at any time. So its name is never used again.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, BinaryIO, Protocol, TypeVar

from mirrorfeed.storage.errors import AlreadyThere, StoreUnavailable
from mirrorfeed.storage.process_cache import retries
from mirrorfeed.storage.retry_budget import NONE, Tries

Begun = TypeVar("Begun")


class Sink(Protocol):
    """The part of a store that writing needs."""

    def open_write(self, path: str) -> BinaryIO: ...

    def address(self, path: str) -> str: ...


def open_anew(
    store: Sink,
    new_path: Callable[[], str],
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> tuple[str, BinaryIO]:
    """The first path whose creation succeeded, and its writer; after the store's patience, `StoreUnavailable`. A store
    that has no `patience` has none. `new_path` gives another path at every call."""

    def attempt() -> tuple[str, BinaryIO]:
        path = new_path()
        try:
            return path, store.open_write(path)
        except AlreadyThere as error:  # by this very creation, if something on the way has sent it twice
            raise StoreUnavailable(
                action="write", address=error.address, reason="the name was already taken"
            ) from error

    return patiently(store, attempt, clock, sleep)


def patiently(
    store: object,
    attempt: Callable[[], Begun],
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Begun:
    """What the first attempt that the store is available for gives; after its patience, `StoreUnavailable`. For calls
    that are never to be repeated as they are: each attempt makes another."""
    tries = Tries(getattr(store, "patience", NONE), clock)
    while True:
        try:
            return attempt()
        except StoreUnavailable as error:
            pause = tries.pause(error.retry_after)
            if pause is None:
                raise
        retries().add()
        sleep(pause)


class NewFile:
    """A file under the first name whose creation succeeded.

    Small files are created empty and filled as well, although one request could create them whole: if the network
    delivers that request again after the file was renamed, the whole file is back, and is taken for one that waits.
    """

    closed = False

    def __init__(
        self,
        store: Sink,
        new_path: Callable[[], str],
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.path, self._sink = open_anew(store, new_path, clock, sleep)

    @property
    def name(self) -> str:
        """The last part of its path."""
        return self.path.rpartition("/")[2]

    def write(self, data: Any) -> int:
        return self._sink.write(data)

    def flush(self) -> None:
        """What is held until the file is closed is of no use to anybody."""

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
