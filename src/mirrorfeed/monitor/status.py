"""How far each table is, without changing anything."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from pyspark.sql import SparkSession

from mirrorfeed.at_once import each_of
from mirrorfeed.config import Config, Table
from mirrorfeed.config.landing_zone import zone_of
from mirrorfeed.display.humanize import counted, duration
from mirrorfeed.errors import MirrorfeedError, named
from mirrorfeed.feed import history
from mirrorfeed.feed.detail import detail_of
from mirrorfeed.feed.ranges import Published, recreated
from mirrorfeed.feed.switch import Feed, feed_of
from mirrorfeed.monitor.freshness import UNASKED, Beyond, Freshness, freshness
from mirrorfeed.publish.columns import no_longer_selected
from mirrorfeed.publish.commit import TableLog
from mirrorfeed.publish.compared import COMPARED
from mirrorfeed.publish.errors import FilesLost, LastFileGone
from mirrorfeed.publish.idle import Idle, committed, is_up_to_date, newest_of
from mirrorfeed.publish.view import View

STATES = ("in trouble", "behind", "never published", "paused", "as last compared", "up to date")
"""What a reader looks for, in this order."""
CURRENT = STATES[-2:]
"""Those of tables that lack nothing, as far as anybody knows."""


@dataclass(frozen=True, slots=True)
class Status:
    """How far a table is, without changing anything."""

    table: str
    source: str
    published_version: int | None = None
    newest_version: int | None = None
    lag_versions: int | None = None
    lag_seconds: float | None = None
    """Since the oldest version that is not published was committed."""
    not_renamed: int = 0
    """Files that are recorded and still have their staged names."""
    not_consumed: int = 0
    """Files that the service has not taken away; of all files it leaves the last one."""
    error: MirrorfeedError | None = None
    feed: str | None = None
    """Which change data feed the source has; None if it could not be asked."""
    service: str | None = None
    """What Fabric says about the table; None if it was not asked."""
    fresh: Freshness | None = None
    """How far what was committed has come; None if the source or the landing zone could not be asked."""
    paused: str | None = None
    """Until when it is not published, and why."""

    @property
    def state(self) -> str:
        if self.paused:
            return "paused"
        if self.error:
            return "in trouble"
        if self.published_version is None:
            return "never published"
        if self.lag_versions or self.not_renamed:
            return "behind"
        return "as last compared" if self.lag_versions is None else "up to date"


def by_need(rows: Sequence[Status]) -> list[Status]:
    """What is in trouble first, then what is behind for longest; else in the order that they have."""
    return sorted(rows, key=lambda row: (STATES.index(row.state), -(row.lag_seconds or 0.0)))


def statuses(
    spark: SparkSession,
    config: Config,
    names: Sequence[str] = (),
    *,
    beyond: Callable[[Table], Beyond] = lambda _: UNASKED,
) -> list[Status]:
    """How far each table is; `beyond` tells what is known of its mirror."""
    store = zone_of(config)

    def one(table: Table) -> Status:
        name, source = str(table.target), str(table.source)
        view: View | None = None
        try:
            log = TableLog(store, table.target.folder)
            view = log.look()
            newest = view.newest if view else None
            if table.changes == "compare":
                return compared(table, log, view, beyond(table))
            published = newest.to_version_inclusive if newest else None
            found = history.commits(spark, table.source, published)
            detail = detail_of(spark, table.source)
            if newest:
                before = Published(newest.source_id, newest.to_version_inclusive)
                if finding := recreated(source, before, detail.table_id, found[-1].version):
                    raise finding
                no_longer_selected(source, newest, table.selection)
            new = [each for each in found if published is not None and each.version > published]
            feed = feed_of(spark, table.source, detail).value
            unpublished = new[0].timestamp if new else None
            lost = log.lost(view) if view else None
            fresh = fresh_of(log, view, found[-1].timestamp, unpublished, beyond(table), lost)
            return status_of(table, view, found[-1].version, feed, fresh, _seconds_since(unpublished), lost)
        except Exception as error:
            trouble = named(f"Asking for the status of {name}", error)
            return status_of(table, view, None, None, None, error=trouble)

    return each_of(one, config.select(names))


def status_without_spark(
    idle: Idle, table: Table, beyond: Callable[[Table], Beyond] = lambda _: UNASKED
) -> Status | None:
    """The status of a table in a local folder with nothing new or nothing published; None if Spark is needed."""
    try:
        if (found := newest_of(table)) is None:
            return None
        detail, version = found
        log = TableLog(idle.zone, table.target.folder)
        view = log.look()
        if view and view.newest and not is_up_to_date(view, detail, version):
            return None
        if view and view.newest and view.newest.selection != table.selection:
            return None
        if detail.tracks_rows and not detail.records_changes:
            return None  # only the engine knows whether it computes changes
        lost = log.lost(view) if view else None
        fresh = fresh_of(log, view, committed(table.source.path or "", version), None, beyond(table), lost)
    except Exception:  # the check with Spark reports it
        return None
    feed = Feed.RECORDED if detail.records_changes else Feed.OFF
    return status_of(table, view, version, feed.value, fresh, error=lost)


def fresh_of(
    log: TableLog,
    view: View | None,
    committed: datetime | None,
    unpublished: datetime | None,
    beyond: Beyond,
    lost: FilesLost | LastFileGone | None,
) -> Freshness:
    """By what its log says, and when its newest version and the oldest that is not published were committed. Lost files
    count as not consumed."""
    if view is None:
        return freshness((), (), committed, unpublished, beyond=beyond)
    unfinished = bool(view.unfinished)
    left = [*view.numbers, *lost.numbers] if isinstance(lost, FilesLost) else view.numbers
    return freshness(log.records(view), left, committed, unpublished, unfinished=unfinished, beyond=beyond)


def status_of(
    table: Table,
    view: View | None,
    newest: int | None,
    feed: str | None,
    fresh: Freshness | None,
    seconds: float = 0.0,
    error: MirrorfeedError | None = None,
) -> Status:
    """By what its log and its newest version say, if it has versions, and the seconds since what is not published was
    committed."""
    published = view.newest.to_version_inclusive if view and view.newest else None
    return Status(
        table=str(table.target),
        source=str(table.source),
        published_version=published,
        newest_version=newest,
        lag_versions=None if newest is None or published is None else newest - published,
        lag_seconds=None if newest is None or published is None else seconds,
        not_renamed=len(view.unfinished) if view else 0,
        not_consumed=max(0, len(view.data) - 1) if view else 0,
        error=error,
        feed=feed,
        fresh=fresh,
        paused=_paused(table),
    )


def _paused(table: Table) -> str | None:
    pause = table.pause_at(datetime.now(UTC))
    return str(pause) if pause else None


def compared(table: Table, log: TableLog, view: View | None, beyond: Beyond) -> Status:
    """Of a source without versions: what is new in it nobody knows but a comparison, and what the last one took that
    found something."""
    read = view.newest.read if view and view.newest else None
    took = f", {counted(read.rows, 'row')} in {duration(read.seconds)}" if read else ""
    lost = log.lost(view) if view else None
    return status_of(table, view, None, f"{COMPARED}{took}", fresh_of(log, view, None, None, beyond, lost), error=lost)


def _seconds_since(moment: datetime | None) -> float:
    return 0.0 if moment is None else max(timedelta(0), datetime.now(UTC) - moment).total_seconds()
