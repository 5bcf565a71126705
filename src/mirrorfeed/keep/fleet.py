"""The histories of many tables: each on its own, so that the failure of one never stops the others."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pyspark.sql import SparkSession

from mirrorfeed.at_once import each_of
from mirrorfeed.config import Config, Table
from mirrorfeed.display.humanize import counted
from mirrorfeed.errors import MirrorfeedError, Transient, named
from mirrorfeed.feed import history as log
from mirrorfeed.keep.errors import NoHistory
from mirrorfeed.keep.record import chapters, first_and_last
from mirrorfeed.keep.run import Keeping, Kept, keep
from mirrorfeed.keep.table import HistoryTable

_TRIES = 4
_FIRST_PAUSE = 2.0


@dataclass(frozen=True, slots=True)
class Outcome:
    table: str
    kept: Kept
    error: MirrorfeedError | None = None


@dataclass(frozen=True, slots=True)
class Status:
    """How far the history of a table is, without changing anything."""

    table: str
    history: str
    kept: tuple[tuple[int, int], ...] = ()
    """The first and the last version of each part; what is between two is lost to it."""
    since: str | None = None
    """When its first version was committed."""
    newest_version: int | None = None
    lag_versions: int | None = None
    rows: int | None = None
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
) -> list[Outcome]:
    """Keeps what is new of all tables that have a history, or of those named, in the order of the configuration."""

    def one(table: Table) -> Outcome:
        name, made = str(table.target), Kept()
        error: MirrorfeedError | None = None
        for attempt in range(_TRIES):
            try:
                kept = keep(
                    spark, how(table), begin_again=begin_again, on_step=lambda so_far: on_step(name, so_far), into=made
                )
                return Outcome(name, kept)
            except Transient as caught:
                error = caught
                if attempt < _TRIES - 1:
                    sleep(_FIRST_PAUSE * 2**attempt)
            except Exception as caught:
                error = named(f"Keeping the history of {name}", caught)
                break
        return Outcome(name, made, error)

    return each_of(one, chosen(config, names))


def how(table: Table) -> Keeping:
    assert table.history is not None
    return Keeping(
        table.source,
        table.history.table,
        table.history.archive_days,
        table.versions_per_range,
        table.on_gap,
        table.on_schema_change,
    )


def statuses(spark: SparkSession, config: Config, names: Sequence[str] = ()) -> list[Status]:
    def one(table: Table) -> Status:
        assert table.history is not None
        name, place = str(table.target), str(table.history.table)
        try:
            newest = log.newest_version(spark, table.source)
            history = HistoryTable(spark, table.history.table)
            seen = history.look()
            if seen is None or seen.newest is None:
                return Status(name, place, newest_version=newest)
            parts = [first_and_last(chapter) for chapter in chapters(history.records(seen))]
            return Status(
                name,
                place,
                tuple((first.version, last.version) for first, last in parts),
                parts[0][0].timestamp.isoformat(),
                newest,
                newest - parts[-1][1].version,
                seen.newest.total - seen.newest.number,
            )
        except Exception as error:
            return Status(name, place, error=named(f"Asking for the history of {name}", error))

    return each_of(one, chosen(config, names))


def words(outcome: Outcome) -> list[str]:
    """What a run did for a table; what stopped it is said elsewhere."""
    kept = outcome.kept
    lines = [
        f"{outcome.table}: went on with a snapshot, for the versions before it cannot be kept. {reason.problem}"
        for reason in kept.began_again
    ]
    made = [record for record in kept.made if record.commits]
    if made:
        first, last = made[0].commits[0].version, made[-1].to_version_inclusive
        versions = f"version {last}" if first == last else f"versions {first} to {last}"
        lines.append(f"{outcome.table}: kept {versions}, {counted(sum(record.rows for record in made), 'row')}")
    elif outcome.error is None:
        lines.append(f"{outcome.table}: nothing new, version {kept.version} is kept")
    return lines


def told(outcome: Outcome) -> dict[str, object]:
    """The same for programs."""
    made = [record for record in outcome.kept.made if record.commits]
    return {
        "table": outcome.table,
        "kept_version": outcome.kept.version,
        "from_version_exclusive": made[0].commits[0].version - 1 if made else None,
        "to_version_inclusive": made[-1].to_version_inclusive if made else None,
        "rows": sum(record.rows for record in made),
        "began_again": outcome.kept.began_again,
        "error": outcome.error,
    }


def cells(status: Status) -> tuple[object, ...]:
    """For a listing."""
    versions = ", ".join(f"{first} to {last}" for first, last in status.kept) or None
    return (
        status.table,
        status.history,
        status.since and status.since[:16].replace("T", " "),
        versions,
        status.newest_version,
        status.lag_versions,
        status.rows,
    )
