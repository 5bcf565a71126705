"""The first step of a table's rebuild: its folder is deleted. Then the service drops the table, and it is published.

How far a rebuild came is kept nowhere, for each step looks at what is there. Until the folder is deleted, nothing has
changed, and publication may simply go on. Once it is deleted, its log is gone with it: whoever publishes next, a second
rebuild or any other run, takes a snapshot. That would be right even before the service has seen the deletion, for a
folder that was made anew has another ETag, by which the service drops the table and takes it from the beginning. To
wait for it all the same is what its makers advise, and shows that it did.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress

from mirrorfeed.config import Config, Table
from mirrorfeed.errors import Terminal
from mirrorfeed.publish.errors import ConcurrentChanges
from mirrorfeed.publish.log.table_log import TableLog
from mirrorfeed.publish.plan import Plan
from mirrorfeed.publish.sources.base import ChangeSource
from mirrorfeed.publish.table_publisher import check_snapshot
from mirrorfeed.storage import Store, StoreUnavailable

_TRIES, _PAUSE = 12, 10.0
_PATIENCE = 600.0


def clear(feed: ChangeSource, store: Store, plan: Plan, sleep: Callable[[float], None] = time.sleep) -> None:
    """Finishes what is recorded, and deletes the table's folder; nothing of it if no snapshot could follow."""
    check_snapshot(feed, plan)
    with suppress(Terminal):  # what cannot be finished goes too: it is the reason for many a rebuild
        TableLog(store, plan.folder).finish_publication()
    trouble: StoreUnavailable | None = None
    for tries in range(_TRIES):
        if not _is_there(store, plan.folder):
            return
        if tries:
            sleep(_PAUSE)
        try:
            store.remove_folder(plan.folder)
        except StoreUnavailable as error:  # while the service reads it, for one
            trouble = error
    if _is_there(store, plan.folder):
        raise trouble or ConcurrentChanges(address=store.address(plan.folder))


Dropping = Callable[[Table], AbstractContextManager[None]]
"""In its body a table's folder is deleted; it ends when the service has dropped the table."""


def dropping_by(
    config: Config, on_step: Callable[[str, str], None] = lambda *_: None, seconds: float = _PATIENCE
) -> Dropping:
    """Asks the service that belongs to the landing zone, if there is one."""

    @contextmanager
    def dropping(table: Table) -> Iterator[None]:
        if config.onelake is None:
            yield
            return
        from mirrorfeed.mirror.fabric.database import database_of  # slow to import, and not needed for folders

        def on_wait(state: str) -> None:
            on_step(str(table.target), f"waiting until Fabric has dropped it; now {state}")

        database = database_of(config)
        database.status()  # whatever stands in the way of asking is told before anything is deleted
        yield
        database.wait_until_dropped(table.target, on_wait, seconds)

    return dropping


def _is_there(store: Store, folder: str) -> bool:
    parent, _, name = folder.rpartition("/")
    return any(entry.name == name for entry in store.list(parent))
