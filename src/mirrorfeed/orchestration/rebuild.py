"""Rebuild a table: delete its folder, and publish it from the start."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from mirrorfeed.config.model import Config, zone_of
from mirrorfeed.errors import MirrorfeedError, with_code
from mirrorfeed.orchestration.publish_run import publish_tables
from mirrorfeed.orchestration.run_context import Callbacks, OnDone, OnStep, RunContext, Stop
from mirrorfeed.orchestration.table_reload import clear_table
from mirrorfeed.publish.change_sources import source_for
from mirrorfeed.publish.next_publication import with_keys, with_tags
from mirrorfeed.publish.table_result import TableResult

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def rebuild(
    spark: Callable[[], SparkSession],
    config: Config,
    name: str,
    drop_timeout: float,
    confirm: Callable[..., None] | None = None,
    on_step: OnStep | None = None,
    on_done: OnDone | None = None,
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
    callbacks = Callbacks.guarded(problems.append, on_step, on_done, stop)
    context = RunContext(spark(), config, callbacks, drop_timeout=drop_timeout)
    rows: list[TableResult] = []
    for table in tables:
        if not context.callbacks.stop():
            resolved = with_keys(with_tags(table, context.session), lambda: context.client)
            clear_table(context, resolved, source_for(context.session, config, resolved))
        done = [] if context.callbacks.stop() else publish_tables(context, [str(table.target)], includes_paused=True)
        rows += [replace(each, published_before=False) for each in done] or [
            TableResult(str(table.target), stopped=True)
        ]
    return tuple(rows), tuple(map(with_code, problems))
