"""Delete the folder of a table, so that it is published from the start, and wait until Fabric has dropped the table."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from mirrorfeed.config.model import Table
from mirrorfeed.errors import TerminalError
from mirrorfeed.orchestration.next_step import check_snapshot
from mirrorfeed.orchestration.run_context import RunContext
from mirrorfeed.publish.change_sources import ChangeSource
from mirrorfeed.publish.errors import RowsRefusedError, concurrent_changes
from mirrorfeed.publish.files.staging_area import clear_staging
from mirrorfeed.publish.table_log import TableLog
from mirrorfeed.publish.table_log.rename_and_clean_up import finish_publication
from mirrorfeed.source.snapshot_or_range import Snapshot
from mirrorfeed.storage import Store
from mirrorfeed.storage.errors import StorageUnavailableError

_DELETE_ATTEMPTS, _DELETE_PAUSE = 12, 10.0


def clear_table(context: RunContext, table: Table, source: ChangeSource) -> None:
    """Delete the table's folder, and wait until Fabric has dropped the table.

    Raises an error, and deletes nothing, if no snapshot of the source can be published.
    """
    with dropping(context, table):
        clear(source, context.zone, table, context.clock.sleep)
        clear_staging(context.config.staging_path, context.zone, context.zone.address(table.target.folder))


@contextmanager
def dropping(context: RunContext, table: Table) -> Iterator[None]:
    """Context manager for a block in which the caller deletes the table's folder.

    If the landing zone is in OneLake, the exit waits until Fabric has dropped the table.
    """
    if context.config.onelake is None:
        yield
        return
    from mirrorfeed.mirror.fabric import database_of  # slow to import, and not needed for folders

    def on_wait(state: str) -> None:
        step = f"waiting until Fabric has dropped the table; current status: {state}"
        context.callbacks.on_step(str(table.target), step)

    database = database_of(context.config)
    database.status()  # report an error before anything is deleted
    yield
    database.wait_until_dropped(table.target, on_wait, context.drop_timeout)


def clear(source: ChangeSource, store: Store, table: Table, sleep: Callable[[float], None] = time.sleep) -> None:
    """Delete the table's folder. The folder contains the table's log, so the next run starts with a snapshot.

    Fabric then loads the table from the start, even if Fabric did not notice the deletion: the new folder has another
    ETag. Raises an error, and deletes nothing, if no snapshot of the source can be published. Also raises an error if
    the folder still exists after several attempts.
    """
    check_reload(source, table)
    folder = table.target.folder
    with suppress(
        TerminalError
    ):  # files that cannot be finished are a frequent reason for a reload, and are deleted too
        finish_publication(TableLog(store, folder))
    parent, _, name = folder.rpartition("/")
    error: StorageUnavailableError | None = None
    for attempt in range(_DELETE_ATTEMPTS):
        if attempt:
            sleep(_DELETE_PAUSE)
        try:
            store.remove_folder(folder)
        except StorageUnavailableError as caught:  # for example while Fabric reads the folder
            error = caught
        if all(entry.name != name for entry in store.list(parent)):
            return
    raise error or concurrent_changes(address=store.address(folder))


def check_reload(source: ChangeSource, table: Table) -> None:
    """Raise an error if no snapshot of the source can be published, for example because rows have invalid keys."""
    facts = check_snapshot(source, table)
    checks_keys = table.validate_keys != "none" or table.changes == "compare"
    if table.keys and checks_keys and (bad := source.bad_keys(facts.latest, table)):
        raise RowsRefusedError(table=str(table.source), range=Snapshot(facts.latest), rows=bad)
