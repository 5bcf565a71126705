"""Find out without Spark that a table stops again with the error of the last run."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from mirrorfeed.errors import MirrorfeedError
from mirrorfeed.orchestration.next_step import find_certain_stop, find_next_step
from mirrorfeed.publish.change_sources import NO_SPARK
from mirrorfeed.publish.change_sources.local_feed import LocalFeed
from mirrorfeed.publish.next_publication import with_keys
from mirrorfeed.publish.table_log import TableLog
from mirrorfeed.source.errors import SourceRecreatedError
from mirrorfeed.source.table_info import find_log_damage, open_local_table

if TYPE_CHECKING:
    from datetime import datetime

    from mirrorfeed.config.model import Table
    from mirrorfeed.orchestration.run_context import RunContext
    from mirrorfeed.publish.table_log.view import View


class KnownStop(NamedTuple):
    """Error that stops a table, with the facts that the run reports about the table."""

    error: MirrorfeedError
    latest: int | None = None
    """Newest version of the source, or None if unknown."""
    decision: str = ""
    """Publication that failed in the last run."""
    since: datetime | None = None
    """Time of the first of the consecutive failures with this error, or None if the last run did not fail with it."""


def find_known_stop(context: RunContext, table: Table) -> KnownStop | None:
    """Return the error that stops a table in a local folder, or None if an attempt with Spark must decide.

    Returns the error of a damaged log of the source. Another error counts only if it has the code of the last failure
    at the same published version, so that a run with Spark has found it at least once. Costs nothing but a listing
    for each run if the last run of the table did not fail.
    """
    if damage := find_log_damage(table.source):
        last = context.failures.read(table.target, None)
        return KnownStop(damage, since=last.failure.since if last and last.code == damage.code else None)
    if not context.failures.contains(table.target):
        return None
    view: View | None = None
    try:
        log = TableLog(context.zone, table.target.folder)
        view = log.read_view()
        find_next_step(LocalFeed(NO_SPARK, table.source, selection=table.selection), log, with_keys(table), view)
        return None
    except Exception as caught:
        error = find_certain_stop(table, caught)
    last = context.failures.read(table.target, view.newest.complete_version if view and view.newest else None)
    if error is None or last is None or last.code != error.code:
        return None
    source = None if isinstance(error, SourceRecreatedError) else open_local_table(table.source)
    return KnownStop(error, source.version() if source else None, last.failure.step, last.failure.since)
