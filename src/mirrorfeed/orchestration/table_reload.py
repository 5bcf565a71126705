"""Reload a table: delete its folder, wait until Fabric has dropped the table, and publish it from the start."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from mirrorfeed.config.model import Config, Table, zone_of
from mirrorfeed.errors import MirrorfeedError, Terminal, with_code
from mirrorfeed.orchestration.next_step import check_snapshot
from mirrorfeed.orchestration.publish_run import OnDone, OnStep, publish_tables, run_context
from mirrorfeed.orchestration.table_task import RunContext, Stop
from mirrorfeed.publish.change_sources import ChangeSource, source_for
from mirrorfeed.publish.errors import ConcurrentChanges, RowsRefused
from mirrorfeed.publish.files.staging_area import clear_staging
from mirrorfeed.publish.next_publication import with_keys
from mirrorfeed.publish.table_log import TableLog
from mirrorfeed.publish.table_log.rename_and_clean_up import finish_publication
from mirrorfeed.publish.table_result import TableResult
from mirrorfeed.source.snapshot_or_range import Snapshot
from mirrorfeed.storage import Store
from mirrorfeed.storage.errors import StoreUnavailable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_DELETE_ATTEMPTS, _DELETE_PAUSE = 12, 10.0


def rebuild(
    spark: Callable[[], SparkSession],
    config: Config,
    name: str,
    drop_timeout: float,
    confirm: Callable[..., None] | None = None,
    on_step: OnStep = None,
    on_done: OnDone = None,
    stop: Stop | None = None,
) -> tuple[tuple[TableResult, ...], tuple[str, ...]]:
    """Delete a table's folder, wait until Fabric has dropped the table, and publish the table again.

    The table is published even if the configuration pauses it. Waits at most `drop_timeout` seconds for Fabric. Before
    the deletion, calls `confirm` with a description of the consequences. If `confirm` raises an error, nothing is
    deleted. Returns the result, and notes about problems that do not prevent publishing. If publishing fails, the
    result has the error. Errors before publishing are raised.
    """
    tables, problems = config.select([name]), list[MirrorfeedError]()
    if confirm:
        for table in tables:
            folder = zone_of(config).address(table.target.folder)
            confirm(f"{folder} is deleted with all its contents, and Fabric lacks the table until it is published.")
    context = run_context(spark(), config, problems.append, on_step, on_done, stop)
    context.drop_timeout = drop_timeout
    rows: list[TableResult] = []
    for table in tables:
        if not context.stop():
            source = source_for(context.session, config, table)
            clear_table(context, with_keys(table, lambda: context.client), source)
        done = [] if context.stop() else publish_tables(context, [str(table.target)], includes_paused=True)
        rows += [replace(each, published_before=False) for each in done] or [
            TableResult(str(table.target), stopped=True)
        ]
    return tuple(rows), tuple(map(with_code, problems))


def clear_table(context: RunContext, table: Table, source: ChangeSource) -> None:
    """Delete the table's folder, and wait until Fabric has dropped the table.

    Raises an error, and deletes nothing, if no snapshot of the source can be published.
    """
    with dropping(context, table):
        clear(source, context.zone, table)
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
        context.on_step(str(table.target), f"waiting until Fabric has dropped the table; current status: {state}")

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
    with suppress(Terminal):  # files that cannot be finished are a frequent reason for a reload, and are deleted too
        finish_publication(TableLog(store, folder))
    parent, _, name = folder.rpartition("/")
    error: StoreUnavailable | None = None
    for attempt in range(_DELETE_ATTEMPTS):
        if attempt:
            sleep(_DELETE_PAUSE)
        try:
            store.remove_folder(folder)
        except StoreUnavailable as caught:  # for example while Fabric reads the folder
            error = caught
        if all(entry.name != name for entry in store.list(parent)):
            return
    raise error or ConcurrentChanges(address=store.address(folder))


def check_reload(source: ChangeSource, table: Table) -> None:
    """Raise an error if no snapshot of the source can be published, for example because rows have invalid keys."""
    facts = check_snapshot(source, table)
    checks_keys = table.validate_keys != "none" or table.changes == "compare"
    if table.keys and checks_keys and (bad := source.bad_keys(facts.latest, table)):
        raise RowsRefused(table=str(table.source), range=Snapshot(facts.latest), rows=bad)
