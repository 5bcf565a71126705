"""A file is begun anew under another name where the one creation of a name was not answered with success.

Such a creation may still take effect, at any time and as an empty file. So its name is never used again.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import BinaryIO, Protocol

from mirrorfeed.stores.base import AlreadyThere, StoreUnavailable
from mirrorfeed.stores.patience import NONE, Patience, Tries
from mirrorfeed.stores.process import retries


class Sink(Protocol):
    """As much of a store as writing asks for."""

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
    patience: Patience = getattr(store, "patience", NONE)
    tries = Tries(patience, clock)
    while True:
        path = new_path()
        try:
            return path, store.open_write(path)
        except StoreUnavailable as error:
            trouble, asked = error, error.asked
        except AlreadyThere as error:  # by this very creation, if something on the way has sent it twice
            trouble, asked = StoreUnavailable("write", error.address, "the name was taken by somebody else"), 0.0
        pause = tries.pause(asked)
        if pause is None:
            raise trouble
        retries().add()
        sleep(pause)
