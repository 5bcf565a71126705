"""Publish the rows of given keys again, and delete a table's folder before it is reloaded.

A repair is an ordinary record at the published version. Each key is published as it is in the source at that version,
so a key too many changes nothing, and a key that changes meanwhile is corrected by the next publication.

The progress of a reload is not stored, because each step reads the state. Until the folder is deleted, publication can
simply continue. With the folder its log is gone, so every later run starts with a snapshot. That is correct even before
Fabric sees the deletion: a new folder has another ETag, so Fabric drops the table and reads it from the start. Waiting
for Fabric is what its documentation recommends, and shows that it worked.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from mirrorfeed.config import Table
from mirrorfeed.errors import Terminal
from mirrorfeed.publish.errors import ConcurrentChanges, NothingPublished
from mirrorfeed.publish.log.table_log import TableLog
from mirrorfeed.publish.log.view import View
from mirrorfeed.publish.result import Progress, named_errors
from mirrorfeed.publish.sources.base import ChangeSource, Repair
from mirrorfeed.publish.table_publisher import TablePublisher, check_snapshot
from mirrorfeed.source.next_step import NothingNew, Published, recreated
from mirrorfeed.storage import Store, StoreUnavailable

_DELETE_ATTEMPTS, _DELETE_PAUSE = 12, 10.0


def repair(
    source: ChangeSource,
    store: Store,
    table: Table,
    keys: Any,
    progress: Progress | None = None,
    on_step: Callable[[Progress], None] = lambda _: None,
) -> Progress:
    """Publish the rows of these keys, in the source's form, again. Without keys there is no record."""
    run = TablePublisher(source, TableLog(store, table.target.folder), table, progress or Progress(), on_step)
    log, progress = run.log, run.progress
    view: View | None = None
    while True:
        view = run.finish(view or log.read_view())
        if view is None or view.newest is None:
            raise NothingPublished(table=str(table.target))
        # A repair that this run found and finished was another run's.
        if any(each.record.repairs and each.latest is not None for each in progress.made):
            return progress
        version = view.newest.to_version_inclusive
        facts = source.facts(version, 0)
        progress.latest = facts.latest
        if finding := recreated(
            str(table.source), Published(view.newest.source_id, version), facts.table_id, facts.latest
        ):
            raise finding
        run.check_unchanged(view)
        view = log.confirm(view)
        if view is None or view.unfinished:
            continue
        progress.last_gone = log.check(view) or progress.last_gone
        what = Repair(version, keys)
        progress.decision = str(what)
        on_step(progress)
        with named_errors(str(table.source), version, facts.commits, table.selection):
            staged = run.stage(view, facts, what)
        if isinstance(staged, NothingNew) or (staged and not staged[1].record.files):
            return progress
        view = run.commit(*staged) if staged else None


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
