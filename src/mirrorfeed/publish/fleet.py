"""Many tables at once: each on its own, so that the failure of one never stops the others."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial

from pyspark.sql import SparkSession

from mirrorfeed.amounts import a_few
from mirrorfeed.at_once import each_of
from mirrorfeed.config import Config, Table
from mirrorfeed.errors import MirrorfeedError, Transient, named
from mirrorfeed.feed import history
from mirrorfeed.feed.keys import (
    KeysNotReadable,
    KeysUnavailable,
    Workspace,
    check_policies,
    in_unity_catalog,
    key_of,
    table_of,
)
from mirrorfeed.feed.ranges import Gap, PartitionsChanged, Published, recreated
from mirrorfeed.feed.read import FeedUnreadable
from mirrorfeed.landing.consumed import may_stand_at
from mirrorfeed.landing.log import Record
from mirrorfeed.landing.schema import ColumnsDropped, IncompatibleSchema
from mirrorfeed.publish import ledger
from mirrorfeed.publish.commit import TableLog
from mirrorfeed.publish.freshness import UNASKED, Beyond, Freshness, freshness
from mirrorfeed.publish.kept import FromHistory, KeptFeed, NotFromHistory, held
from mirrorfeed.publish.outcome import Outcome, Progress
from mirrorfeed.publish.partner import trouble_in_introducing
from mirrorfeed.publish.rebuild import Dropping, clear, dropping_by
from mirrorfeed.publish.source import DeltaFeed
from mirrorfeed.publish.table import Plan, look_ahead, preflight, publish
from mirrorfeed.publish.teller import ByMinute, Teller
from mirrorfeed.publish.view import BeginningMissing, View
from mirrorfeed.publish.zone import zone_of
from mirrorfeed.stores import Store

Work = Callable[[DeltaFeed, Store, Plan, Progress, Callable[[Progress], None]], object]
"""What is done for a table, which is told of as it goes on."""
_TRIES = 4
_FIRST_PAUSE, _LONGEST_PAUSE = 2.0, 60.0


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
    error: str | None = None
    feed: str | None = None
    """Which change data feed the source has; None if it could not be asked."""
    service: str | None = None
    """What Fabric says about the table; None if it was not asked."""
    fresh: Freshness | None = None
    """How far what was committed has come; None if the source or the landing zone could not be asked."""


@dataclass(frozen=True, slots=True)
class Standing:
    newest: Record | None = None
    """What was published last; None before a first publication."""
    candidates: tuple[Record, ...] = ()
    """Where the mirror may stand, the newest first."""
    waiting: int = 0
    """Files that the service has not taken, leaving out one that it may have."""


class Untidy(Transient):
    def __init__(self, table: str, cause: MirrorfeedError) -> None:
        self.table, self.cause = table, cause

    def what(self) -> str:
        return f"Leftovers beside {self.table} stay where they are: {self.cause.what()}"

    def next(self) -> str:
        return "They do no harm; each run tries again to remove them."


class MadeAnew(Transient):
    """Told once a run."""

    def __init__(self, tables: Sequence[str], differed: str) -> None:
        self.tables, self.differed = tuple(tables), differed

    def what(self) -> str:
        return f"Spark wrote files of {a_few(self.tables)} otherwise than files there are: {self.differed}."

    def next(self) -> str:
        return "The driver made them anew, so nothing is wrong with them; it takes longer."


def default_workspace() -> Workspace:
    """The Databricks workspace of the environment."""
    from databricks.sdk import WorkspaceClient  # takes seconds to import, and local runs never need it

    return WorkspaceClient()


def _warn(error: MirrorfeedError) -> None:
    warnings.warn(str(error), stacklevel=3)


def publish_tables(
    spark: SparkSession,
    config: Config,
    names: Sequence[str] = (),
    *,
    on_step: Callable[[str, Progress], None] = lambda _table, _progress: None,
    on_trouble: Callable[[MirrorfeedError], None] = _warn,
    dropping: Dropping | None = None,
    workspace: Callable[[], Workspace] = default_workspace,
    sleep: Callable[[float], None] = time.sleep,
    stop: Callable[[], bool] = lambda: False,
    work: Work | None = None,
    starts_again: bool = True,
    store: Store | None = None,
    most_tries: int = _TRIES,
) -> list[Outcome]:
    """Publishes all tables of the configuration, or those named, in its order. What goes wrong beside them, in saying
    who publishes or in the ledger, is told to `on_trouble` and stops nothing. Asked to stop, it begins no table, ends
    those in hand between two records, and gives the outcomes of those that it began. Runs of one process may share a
    store; then who asks for them tells the ledger. What starts no table again does not heed `reseed` in the
    configuration."""
    begun = datetime.now(UTC)
    do = work or partial(publish, stop=stop)
    alone, zone = store is None, store or zone_of(config)
    dropping = dropping or dropping_by(config)
    if alone and (trouble := trouble_in_introducing(zone, config)):
        on_trouble(trouble)

    def one(table: Table) -> Outcome | None:
        if stop():
            return None
        name, progress, started = str(table.target), Progress(), time.monotonic()
        tries, most = 0, most_tries
        error: MirrorfeedError | None = None
        trouble: MirrorfeedError | None = None
        """For which the table is to be started again."""
        reseeded = False
        gap: Gap | None = None
        """For which changes are read from the table's history, where it has them."""
        while tries == 0 or (tries < most and not stop()):
            tries += 1
            try:
                feed = _feed(spark, config, table, gap)
                plan = plan_of(table, workspace)
                if trouble and not reseeded:
                    with dropping(table):
                        clear(feed, zone, plan)
                    reseeded = True
                do(feed, zone, plan, progress, lambda so_far: on_step(name, so_far))
                error = None
                break
            except Transient as caught:
                error = caught
                if tries < most:
                    sleep(min(_LONGEST_PAUSE, _FIRST_PAUSE * 2 ** (tries - 1)))
            except Exception as caught:
                error = named(f"Publishing {name}", caught)
                if gap is None and isinstance(error, Gap) and _is_kept(spark, table, error, on_trouble):
                    gap, error, most = error, None, tries + most_tries
                    continue
                if trouble or not (starts_again and _reseeds(table, error)):
                    break
                trouble, error, most = error, None, tries + most_tries
        if gap and table.history and progress.made:
            on_trouble(FromHistory(gap, str(table.history.table)))
        reason = trouble if reseeded else None
        seconds = time.monotonic() - started
        found = Outcome(name, progress, seconds, table.check_keys, tries, error, reason)
        return replace(found, stopped=error is None and stop() and found.lag_versions != 0)

    chosen = config.select(names)
    teller = Teller(spark, config.ledger if alone else None, chosen, zone, begun)
    book = ByMinute(teller.tell)
    if alone:
        ledger.begin(spark, config.ledger)
    found = each_of(one, chosen, lambda come: book.hear(filter(None, come)))
    lost = book.flush()
    outcomes = [replace(each, published_before=each.table in teller.loaded_again) for each in found if each]
    for outcome in outcomes:
        if outcome.progress.short:
            on_trouble(outcome.progress.short)
        if outcome.progress.untidy:
            on_trouble(Untidy(outcome.table, outcome.progress.untidy))
    if differed := [outcome for outcome in outcomes if outcome.progress.differed]:
        on_trouble(MadeAnew([outcome.table for outcome in differed], differed[0].progress.differed))
    if lost:
        on_trouble(lost)
    return outcomes


def _feed(spark: SparkSession, config: Config, table: Table, gap: Gap | None) -> DeltaFeed:
    """The table's own feed; across a gap in it, its history."""
    if gap is None or table.history is None:
        return DeltaFeed(spark, table.source, config.handover, config.send)
    return KeptFeed(spark, table.source, config.handover, config.send, history=table.history.table)


def _is_kept(
    spark: SparkSession, table: Table, gap: Gap, on_trouble: Callable[[MirrorfeedError], None] = lambda _: None
) -> bool:
    """Whether the table's history holds what goes on from the published version. Why it cannot be asked is told."""
    if table.history is None:
        return False
    place = table.history.table
    try:
        return held(spark, place, gap.published, history.detail(spark, table.source).table_id) is not None
    except Exception as error:
        on_trouble(NotFromHistory(gap, str(place), named(f"Asking the history {place}", error)))
        return False


def _reseeds(table: Table, error: MirrorfeedError) -> bool:
    """Whether the configuration has a table with this trouble started again from a snapshot."""
    if isinstance(error, Gap | BeginningMissing):
        return table.on_gap == "reseed"
    if isinstance(error, ColumnsDropped):
        return table.on_dropped_column == "reseed"
    return (
        isinstance(error, IncompatibleSchema | PartitionsChanged | FeedUnreadable)
        and table.on_schema_change == "reseed"
    )


def rebuild_table(
    spark: SparkSession,
    config: Config,
    table: Table,
    dropping: Dropping,
    *,
    on_step: Callable[[str, Progress], None] = lambda _table, _progress: None,
    on_trouble: Callable[[MirrorfeedError], None] = _warn,
    workspace: Callable[[], Workspace] = default_workspace,
) -> Outcome:
    """Deletes the table's folder, waits for the service, and publishes. What goes wrong before that is raised."""
    with dropping(table):
        clear(DeltaFeed(spark, table.source), zone_of(config), plan_of(table, workspace))
    (outcome,) = publish_tables(
        spark, config, [str(table.target)], on_step=on_step, on_trouble=on_trouble, workspace=workspace
    )
    return outcome


def decisions(
    spark: SparkSession,
    config: Config,
    names: Sequence[str] = (),
    *,
    workspace: Callable[[], Workspace] = default_workspace,
) -> list[tuple[str, str | MirrorfeedError]]:
    """What `publish_tables` would do next for each table; touches nothing."""
    store = zone_of(config)

    def one(table: Table) -> tuple[str, str | MirrorfeedError]:
        try:
            plan = plan_of(table, workspace)
            view = TableLog(store, plan.folder).look()
            feed = _feed(spark, config, table, None)
            facts, decision = look_ahead(feed, plan, view)
            gap = decision if isinstance(decision, Gap) and _is_kept(spark, table, decision) else None
            if gap:
                feed = _feed(spark, config, table, gap)
                facts, decision = look_ahead(feed, plan, view)
            if isinstance(decision, MirrorfeedError):
                return str(table.target), decision
            preflight(feed, store, plan, view, facts, decision)
            waiting = len(view.unfinished) if view else 0
            notes = [", from its history"] * bool(gap) + [f", after renaming {waiting} recorded files"] * bool(waiting)
            return str(table.target), f"{decision}{''.join(notes)}"
        except Exception as error:
            return str(table.target), named(f"Deciding about {table.target}", error)

    return each_of(one, config.select(names))


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
        try:
            log = TableLog(store, table.target.folder)
            view = log.look()
            newest = view.newest if view else None
            published = newest.to_version_inclusive if newest else None
            found = history.commits(spark, table.source, published)
            detail = history.detail(spark, table.source)
            if newest:
                before = Published(newest.source_id, newest.to_version_inclusive)
                if finding := recreated(source, before, detail.table_id, found[-1].version):
                    raise finding
            new = [each for each in found if published is not None and each.version > published]
            feed = history.feed_of(spark, table.source, detail)
            unpublished = new[0].timestamp if new else None
            fresh = fresh_of(log, view, found[-1].timestamp, unpublished, beyond(table))
            return status_of(table, view, found[-1].version, feed, fresh, _seconds_since(unpublished))
        except Exception as error:
            return Status(name, source, error=str(named(f"Asking for the status of {name}", error)))

    return each_of(one, config.select(names))


def fresh_of(
    log: TableLog, view: View | None, committed: datetime | None, unpublished: datetime | None, beyond: Beyond
) -> Freshness:
    """By what its log says, and when its newest version and the oldest that is not published were committed."""
    if view is None:
        return freshness((), (), committed, unpublished, beyond=beyond)
    unfinished = bool(view.unfinished)
    return freshness(log.records(view), view.numbers, committed, unpublished, unfinished=unfinished, beyond=beyond)


def status_of(
    table: Table, view: View | None, newest: int, feed: history.Feed, fresh: Freshness, seconds: float = 0.0
) -> Status:
    """By what its log and its newest version say, and the seconds since what is not published was committed."""
    published = view.newest.to_version_inclusive if view and view.newest else None
    return Status(
        table=str(table.target),
        source=str(table.source),
        published_version=published,
        newest_version=newest,
        lag_versions=None if published is None else newest - published,
        lag_seconds=None if published is None else seconds,
        not_renamed=len(view.unfinished) if view else 0,
        not_consumed=max(0, len(view.data) - 1) if view else 0,
        feed=feed.value,
        fresh=fresh,
    )


def standings(config: Config, names: Sequence[str] = ()) -> list[tuple[Table, Standing]]:
    """What each table's log says was published, and how much of it the service has taken."""
    store = zone_of(config)
    return [(table, _standing(store, table.target.folder)) for table in config.select(names)]


def _standing(store: Store, folder: str) -> Standing:
    log = TableLog(store, folder)
    view = log.look()
    if view is None:
        return Standing()
    numbers, records = view.numbers, log.records(view)
    return Standing(view.newest, may_stand_at(records, min(numbers, default=None)), max(0, len(numbers) - 1))


def plan_of(table: Table, workspace: Callable[[], Workspace] = default_workspace) -> Plan:
    """How a table of the configuration is published; keys left out are asked of Unity Catalog."""
    keys = table.keys
    if in_unity_catalog(table.source):
        try:
            found = table_of(workspace(), table.source)
        except (KeysNotReadable, KeysUnavailable, ValueError):
            if keys is None:
                raise
            # What a person wrote does without a workspace. Of a row filter or a mask the engine tells then.
        else:
            check_policies(table.source, found)
            keys = key_of(found) if keys is None else keys
    keys = keys or ()
    return Plan(
        source=str(table.source),
        target=str(table.target),
        folder=table.target.folder,
        keys=keys,
        changes=table.changes,
        markers=table.markers,
        output=table.output,
        check_keys=table.check_keys,
        compression=table.compression,
        file_size=table.file_size,
        versions_per_range=table.versions_per_range,
        keep_records=table.keep_records,
        skip_unchanged=table.unchanged_rows == "skip",
        keep_dropped=table.on_dropped_column == "keep",
    )


def _seconds_since(moment: datetime | None) -> float:
    return 0.0 if moment is None else max(timedelta(0), datetime.now(UTC) - moment).total_seconds()
