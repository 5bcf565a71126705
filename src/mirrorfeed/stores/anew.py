"""A file is begun anew under another name where the one creation of a name was not answered with success.

Such a creation may still take effect, at any time. So its name is never used again.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, BinaryIO, Protocol, TypeVar

from mirrorfeed.stores.base import AlreadyThere, StoreUnavailable
from mirrorfeed.stores.patience import NONE, Tries
from mirrorfeed.stores.process import retries

Begun = TypeVar("Begun")


class Sink(Protocol):
    """As much of a store as writing asks for. One with `whole_bytes` also has `create_once`, which takes so many."""

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
    return _anew(store, new_path, store.open_write, clock, sleep)


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
            pause = tries.pause(error.asked)
            if pause is None:
                raise
        retries().add()
        sleep(pause)


def _anew(
    store: Sink,
    new_path: Callable[[], str],
    begin: Callable[[str], Begun],
    clock: Callable[[], float],
    sleep: Callable[[float], None],
) -> tuple[str, Begun]:
    def attempt() -> tuple[str, Begun]:
        path = new_path()
        try:
            return path, begin(path)
        except AlreadyThere as error:  # by this very creation, if something on the way has sent it twice
            raise StoreUnavailable("write", error.address, "the name was taken by somebody else") from error

    return patiently(store, attempt, clock, sleep)


class NewFile:
    """A file under the first name whose creation succeeded: `path`, known once it is closed. Where its store has a call
    that creates a file whole, and the file is small enough, it takes that one call."""

    closed = False
    path = ""

    def __init__(
        self,
        store: Sink,
        new_path: Callable[[], str],
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._store, self._new_path, self._clock, self._sleep = store, new_path, clock, sleep
        self._room: int = getattr(store, "whole_bytes", 0)
        self._held = bytearray()
        self._sink: BinaryIO | None = None
        if not self._room:
            self._begin()

    @property
    def name(self) -> str:
        """The last part of its path."""
        return self.path.rpartition("/")[2]

    def write(self, data: Any) -> int:
        view = memoryview(data).cast("B")
        if self._sink is None and len(self._held) + len(view) <= self._room:
            self._held += view
        else:
            (self._sink or self._begin()).write(view)
        return len(view)

    def flush(self) -> None:
        """What is held until the file is closed is of no use to anybody."""

    def close(self) -> None:
        if self.closed:
            return
        self.closed = True
        if self._sink is not None:
            self._sink.close()
            return
        whole = bytes(self._held)
        create: Callable[[str, bytes], None] = self._store.create_once  # type: ignore[attr-defined]
        self.path, _ = _anew(self._store, self._new_path, lambda path: create(path, whole), self._clock, self._sleep)

    def abandon(self) -> None:
        """After a failure: nothing that was not begun is made."""
        if self._sink is not None:
            self.close()
        self.closed = True

    def __enter__(self) -> NewFile:
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if kind is None:
            self.close()
        elif self._sink is not None:
            self._sink.__exit__(kind, error, trace)
        self.closed = True

    def _begin(self) -> BinaryIO:
        self.path, self._sink = open_anew(self._store, self._new_path, self._clock, self._sleep)
        if self._held:
            self._sink.write(self._held)
            self._held = bytearray()
        return self._sink
