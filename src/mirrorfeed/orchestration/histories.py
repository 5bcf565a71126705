"""The histories of many tables: each on its own, so that the failure of one never stops the others."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from pyspark.sql import SparkSession

from mirrorfeed.config import Config, Table
from mirrorfeed.display.rows import Row, described, row, shown
from mirrorfeed.errors import MirrorfeedError, Transient, named
from mirrorfeed.history.append import Keeping, Kept, keep
from mirrorfeed.history.errors import NoHistory
from mirrorfeed.history.history_table import HistoryTable
from mirrorfeed.history.record import chapters, first_and_last
from mirrorfeed.runtime.parallel import each_of
from mirrorfeed.source import versions as log

_TRIES = 4
_FIRST_PAUSE = 2.0


@row
class Append(Row):
    """The versions that a run appended to the permanent history of a table."""

    table: str = shown("table")
    what: str = shown("appended")
    """The versions in words."""
    rows: int = shown("rows")
    newest_version: int | None = shown("newest in the history", str, right=True)
    from_version_exclusive: int | None = None
    to_version_inclusive: int | None = None
    """The appended range; None if nothing was new."""
    began_again: tuple[MirrorfeedError, ...] = ()
    """Reasons for which the history continued with a snapshot."""
    error: MirrorfeedError | None = None

    def remarks(self) -> Sequence[str]:
        again = (
            f"{self.table}: continued with a snapshot, because the versions before it are lost. {described(reason)}"
            for reason in self.began_again
        )
        return *again, *Row.remarks(self)


@row
class History(Row):
    """The versions of a table that its permanent history has."""

    table: str = shown("table")
    history: str = shown("history")
    """The table that holds the history."""
    since: str | None = shown("since", lambda time: time[:16].replace("T", " "), default=None)
    """Time of the commit of its first version."""
    versions: tuple[tuple[int, int], ...] = shown(
        "versions", lambda parts: ", ".join(f"{first} to {last}" for first, last in parts), default=()
    )
    """The first and the last version of each segment. Versions between two segments are lost."""
    newest_version: int | None = shown("newest", str, right=True, default=None)
    """The newest version of the source."""
    lag_versions: int | None = shown("versions behind", default=None)
    rows: int | None = shown("rows", default=None)
    error: MirrorfeedError | None = None


def chosen(config: Config, names: Sequence[str] = ()) -> tuple[Table, ...]:
    """The tables that have a history, or those named; or `NoHistory`."""
    found = config.select(names)
    without = [str(table.target) for table in found if table.history is None]
    if without and (names or len(without) == len(found)):
        raise NoHistory(path=config.path, tables=without)
    return tuple(table for table in found if table.history is not None)


def keep_tables(
    spark: SparkSession,
    config: Config,
    names: Sequence[str] = (),
    *,
    begin_again: bool = False,
    on_step: Callable[[str, Kept], None] = lambda _table, _kept: None,
    sleep: Callable[[float], None] = time.sleep,
) -> list[Append]:
    """Appends new versions of all tables that have a history, or of those named, in the order of the configuration."""

    def one(table: Table) -> Append:
        name, made = str(table.target), Kept()
        error: MirrorfeedError | None = None
        for attempt in range(_TRIES):
            try:
                kept = keep(
                    spark, how(table), begin_again=begin_again, on_step=lambda so_far: on_step(name, so_far), into=made
                )
                return appended(name, kept)
            except Transient as caught:
                error = caught
                if attempt < _TRIES - 1:
                    sleep(_FIRST_PAUSE * 2**attempt)
            except Exception as caught:
                error = named(f"Keeping the history of {name}", caught)
                break
        return appended(name, made, error)

    return each_of(one, chosen(config, names))


def appended(table: str, kept: Kept, error: MirrorfeedError | None = None) -> Append:
    made = [record for record in kept.made if record.commits]
    first, last = (made[0].commits[0].version, made[-1].to_version_inclusive) if made else (None, None)
    nothing = "failed" if error else "nothing new"
    what = nothing if first is None else f"version {last}" if first == last else f"versions {first} to {last}"
    return Append(
        table,
        what,
        sum(record.rows for record in made),
        kept.version,
        None if first is None else first - 1,
        last,
        tuple(kept.began_again),
        error,
    )


def how(table: Table) -> Keeping:
    assert table.history is not None
    return Keeping(
        table.source,
        table.history.table,
        table.history.archive_days,
        table.max_versions_per_publication,
        table.on_gap,
        table.on_schema_change,
    )


def statuses(spark: SparkSession, config: Config, names: Sequence[str] = ()) -> list[History]:
    def one(table: Table) -> History:
        assert table.history is not None
        name, place = str(table.target), str(table.history.table)
        try:
            newest = log.newest_version(spark, table.source)
            history = HistoryTable(spark, table.history.table)
            seen = history.look()
            if seen is None or seen.newest is None:
                return History(name, place, newest_version=newest)
            parts = [first_and_last(chapter) for chapter in chapters(history.records(seen))]
            return History(
                name,
                place,
                parts[0][0].timestamp.isoformat(),
                tuple((first.version, last.version) for first, last in parts),
                newest,
                newest - parts[-1][1].version,
                seen.newest.total - seen.newest.number,
            )
        except Exception as error:
            return History(name, place, error=named(f"Asking for the history of {name}", error))

    return each_of(one, chosen(config, names))
