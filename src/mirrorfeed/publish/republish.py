"""Delete a table's folder before the table is reloaded.

The progress of a reload is not stored, because each step reads the state. Until the folder is deleted, publication can
simply continue. With the folder its log is gone, so every later run starts with a snapshot. That is correct even before
Fabric sees the deletion: a new folder has another ETag, so Fabric drops the table and reads it from the start. Waiting
for Fabric is what its documentation recommends, and shows that it worked.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress

from mirrorfeed.config.model import Table
from mirrorfeed.errors import Terminal
from mirrorfeed.publish.errors import ConcurrentChanges
from mirrorfeed.publish.log.table_log import TableLog
from mirrorfeed.publish.sources.base import ChangeSource
from mirrorfeed.publish.table_publisher import check_snapshot
from mirrorfeed.storage import Store, StoreUnavailable

_DELETE_ATTEMPTS, _DELETE_PAUSE = 12, 10.0


def clear(source: ChangeSource, store: Store, table: Table, sleep: Callable[[float], None] = time.sleep) -> None:
    """Finish what is recorded, and delete the table's folder. Raises before that if no snapshot could follow."""
    check_snapshot(source, table)
    folder = table.target.folder
    with suppress(Terminal):  # what cannot be finished is deleted too, and is a frequent reason for a reload
        TableLog(store, folder).finish_publication()
    parent, _, name = folder.rpartition("/")
    error: StoreUnavailable | None = None
    for attempt in range(_DELETE_ATTEMPTS + 1):
        if all(entry.name != name for entry in store.list(parent)):
            return
        if attempt == _DELETE_ATTEMPTS:
            break
        if attempt:
            sleep(_DELETE_PAUSE)
        try:
            store.remove_folder(folder)
        except StoreUnavailable as caught:  # for example while Fabric reads it
            error = caught
    raise error or ConcurrentChanges(address=store.address(folder))
