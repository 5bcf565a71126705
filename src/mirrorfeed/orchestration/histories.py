"""Append new versions to the permanent histories of many tables, and list the versions in these histories.

The permanent history of a table is a separate Delta table, which keeps the changes of the table. A failure of one
table does not stop the others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pyspark.sql import SparkSession

from mirrorfeed.config.model import Config, Table
from mirrorfeed.display.progress import progress
from mirrorfeed.display.rows import Row, row, shown
from mirrorfeed.errors import MirrorfeedError, with_code, wrap_error
from mirrorfeed.history.append import AppendProgress, append_versions
from mirrorfeed.history.errors import no_history
from mirrorfeed.history.hidden_values import without_exclusions
from mirrorfeed.history.history_record import first_and_last_commit, split_segments
from mirrorfeed.history.history_table import HistoryTable
from mirrorfeed.orchestration.retry_policy import ATTEMPTS, RetryState, next_state
from mirrorfeed.orchestration.scheduler import (
    Clock,
    QueuedTable,
    Scheduler,
    default_max_tables,
    map_parallel,
    run_queue,
)
from mirrorfeed.publish.next_publication import with_tags
from mirrorfeed.source.table_info import read_table_info
from mirrorfeed.source.versions import newest_version


@row
class Append(Row):
    """Result of appending new versions of a table to its permanent history, a separate Delta table."""

    table: str = shown("table")
    what: str = shown("appended")
    """Appended versions in words, such as "versions 3 to 5". "nothing new" or "failed" if there are none."""
    rows: int = shown("rows")
    newest_version: int | None = shown("newest in the history", str, right=True)
    from_version_exclusive: int | None = None
    to_version_inclusive: int | None = None
    """Last appended version. None if no version was appended."""
    began_again: tuple[MirrorfeedError, ...] = ()
    """Reasons why versions are missing in the history. After each gap, the history continues with a snapshot."""
    error: MirrorfeedError | None = None

    def remarks(self) -> Sequence[str]:
        what = f"{self.table}: continued with a snapshot, because the versions before it are lost."
        return *(f"{what} {with_code(reason)}" for reason in self.began_again), *Row.remarks(self)


@row
class History(Row):
    """Location, versions and size of the permanent history of a table. The history is a separate Delta table."""

    table: str = shown("table")
    history: str = shown("history")
    """Table that contains the history."""
    since: str | None = shown("since", lambda time: time[:16].replace("T", " "), default=None)
    """Commit time of the first version in the history, in ISO format."""
    versions: tuple[tuple[int, int], ...] = shown(
        "versions", lambda parts: ", ".join(f"{first} to {last}" for first, last in parts), default=()
    )
    """First and last version of each part of the history without a gap. The versions between two parts are lost."""
    newest_version: int | None = shown("newest", str, right=True, default=None)
    """Newest version of the source."""
    lag_versions: int | None = shown("versions behind", default=None)
    rows: int | None = shown("rows", default=None)
    error: MirrorfeedError | None = None


def select_tables(config: Config, names: Sequence[str] = ()) -> tuple[Table, ...]:
    """Return all tables with a permanent history, or only `names`.

    Raises `no_history` if no table has a history, or if one of `names` has none.
    """
    tables = config.select(names)
    without = [str(table.target) for table in tables if table.history is None]
    if without and (names or len(without) == len(tables)):
        raise no_history(path=config.path, tables=without)
    return tuple(table for table in tables if table.history is not None)


def append_histories(
    spark: Callable[[], SparkSession], config: Config, names: Sequence[str] = (), *, reseed: bool = False
) -> list[Append]:
    """Append new versions to the histories of all tables or only of `names`. Returns an `Append` for each table.

    With `reseed`, a history continues with a snapshot if versions of the source can no longer be read. If a table
    fails, its `Append` has the error. Raises `no_history` if no table has a history, or if one of `names` has none.
    """
    tables = {str(table.target): table for table in select_tables(config, names)}
    appended = {name: AppendProgress() for name in tables}
    states = {name: RetryState(ATTEMPTS) for name in tables}
    session, clock = spark(), Clock()
    progress.info("Appending to the histories")

    def attempt(name: str) -> MirrorfeedError | None:
        try:
            table = tables[name]
            if table.history and table.history.hide_values:
                table = with_tags(without_exclusions(table), session)
            append_versions(session, table, reseed=reseed, progress=appended[name])
        except Exception as error:
            return wrap_error(f"Appending to the history of {name}", error)
        return None

    def ended(name: str, error: MirrorfeedError | None) -> QueuedTable | None:
        states[name] = state = next_state(states[name], error)
        if not state.remaining:
            return None
        return QueuedTable(name, tables[name].priority, not_before=clock.now() + state.pause)

    queue = [QueuedTable(name, table.priority) for name, table in tables.items()]
    run_queue(Scheduler(config.max_parallel_tables or default_max_tables(), queue), attempt, ended, clock)
    return [append_row(name, appended[name], state.error) for name, state in states.items()]


def append_row(table: str, progress: AppendProgress, error: MirrorfeedError | None = None) -> Append:
    records = [record for record in progress.records if record.commits]
    first, last = (records[0].commits[0].version, records[-1].to_version_inclusive) if records else (None, None)
    nothing = "failed" if error else "nothing new"
    return Append(
        table,
        nothing if first is None else f"version {last}" if first == last else f"versions {first} to {last}",
        sum(record.rows for record in records),
        progress.newest_version,
        None if first is None else first - 1,
        last,
        tuple(progress.restarts),
        error,
    )


def read_histories(spark: Callable[[], SparkSession], config: Config, names: Sequence[str] = ()) -> list[History]:
    """Return a `History` for each table with a permanent history, or only for `names`.

    If the versions of a table cannot be read, its `History` has the error. Raises `no_history` if no table has a
    history, or if one of `names` has none.
    """

    def read(table: Table) -> History:
        assert table.history is not None
        name, location = str(table.target), str(table.history.table)
        try:
            newest = newest_version(session, table.source)
            history = HistoryTable(session, table.history.table)
            view = history.read_view()
            if view is None or view.newest is None:
                return History(name, location, newest_version=newest)
            is_other = read_table_info(session, table.source).table_id != view.newest.source_id
            segments = [first_and_last_commit(segment) for segment in split_segments(history.read_records(view))]
            return History(
                name,
                location,
                segments[0][0].timestamp.isoformat(),
                tuple((first.version, last.version) for first, last in segments),
                newest,
                None if is_other else newest - segments[-1][1].version,
                view.newest.total - view.newest.number,
            )
        except Exception as error:
            return History(name, location, error=wrap_error(f"Reading the history of {name}", error))

    tables = select_tables(config, names)
    session = spark()
    progress.info("Reading the histories")
    return map_parallel(read, tables)
