"""Many tables at once: each on its own, so that the failure of one never stops the others."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property, partial
from threading import Event

from pyspark.sql import SparkSession

from mirrorfeed.amounts import a_few
from mirrorfeed.at_once import each_of
from mirrorfeed.config import Config, Table
from mirrorfeed.errors import MirrorfeedError, Transient, named
from mirrorfeed.feed.keys import Workspace
from mirrorfeed.publish import ledger
from mirrorfeed.publish.course import TRIES, Course, Rules, after, reseeds
from mirrorfeed.publish.idle import Idle, known_here
from mirrorfeed.publish.kept import FromHistory, feed_for, is_kept
from mirrorfeed.publish.outcome import Outcome, Progress
from mirrorfeed.publish.partner import trouble_in_introducing
from mirrorfeed.publish.plan import Plan, default_workspace, plan_of
from mirrorfeed.publish.rebuild import Dropping, clear, dropping_by
from mirrorfeed.publish.source import DeltaFeed
from mirrorfeed.publish.strays import left_behind
from mirrorfeed.publish.table import publish
from mirrorfeed.publish.teller import ByMinute, News, Teller
from mirrorfeed.publish.zone import zone_of
from mirrorfeed.stores import Store

Stop = Callable[[], bool]
Work = Callable[[DeltaFeed, Store, Plan, Progress, Callable[[Progress], None], Stop], object]
"""What is done for a table, which is told of as it goes on, and may be asked to stop."""


def _publish(
    feed: DeltaFeed, store: Store, plan: Plan, progress: Progress, on_step: Callable[[Progress], None], stop: Stop
) -> object:
    return publish(feed, store, plan, progress, on_step, stop=stop)


def _warn(error: MirrorfeedError) -> None:
    warnings.warn(str(error), stacklevel=3)


@dataclass(frozen=True, slots=True)
class Way:
    """How a run goes about each of its tables."""

    work: Work = _publish
    starts_again: bool = True
    """Whether `reseed` in the configuration is heeded."""
    most_tries: int = TRIES


@dataclass(frozen=True)
class Fleet:
    """What the tables of a run share. What goes wrong beside them, in saying who publishes or in the ledger, is told to
    `on_trouble` and stops nothing. Asked to stop, a run begins no table, and ends those in hand between two records."""

    spark: SparkSession
    config: Config
    on_step: Callable[[str, Progress], None] = lambda _table, _progress: None
    on_trouble: Callable[[MirrorfeedError], None] = _warn
    dropped_by: Dropping | None = None
    """Who is asked whether the service has dropped a table; None: as the configuration says."""
    workspace: Callable[[], Workspace] = default_workspace
    sleep: Callable[[float], None] = time.sleep
    stop: Stop = lambda: False
    way: Way = Way()
    store: Store | None = None
    """The landing zone, where runs share one; None: the configuration's."""

    @cached_property
    def zone(self) -> Store:
        return self.store or zone_of(self.config)

    @property
    def dropping(self) -> Dropping:
        return self.dropped_by or dropping_by(self.config)


class Untidy(Transient):
    """Leftovers in the landing zone could not be removed. They do no harm."""

    code = "MF3212"

    def __init__(self, table: str, cause: MirrorfeedError) -> None:
        self.table, self.cause = table, cause

    def what(self) -> str:
        return f"Leftovers beside {self.table} stay where they are: {self.cause.what()}"

    def next(self) -> str:
        return "They do no harm; each run tries again to remove them."


class MadeAnew(Transient):
    """A note beside a publication that went well: Spark's files did not look as those before, so the driver wrote them
    again."""

    code = "MF3213"

    def __init__(self, tables: Sequence[str], differed: str) -> None:
        self.tables, self.differed = tuple(tables), differed

    def what(self) -> str:
        return f"Spark wrote files of {a_few(self.tables)} otherwise than files there are: {self.differed}."

    def next(self) -> str:
        return "The driver made them anew, so nothing is wrong with them; it takes longer."


def publish_tables(fleet: Fleet, names: Sequence[str] = ()) -> list[Outcome]:
    """Publishes all tables of the configuration, or those named, in its order, says who publishes, and tells the
    ledger. The outcomes are those of the tables that were begun."""
    spark, config, begun = fleet.spark, fleet.config, datetime.now(UTC)
    if trouble := trouble_in_introducing(fleet.zone, config):
        fleet.on_trouble(trouble)
    if not names and (left := left_behind(fleet.zone, config)):
        fleet.on_trouble(left)
    news = News(config.select(names), fleet.zone, begun)
    book = ByMinute(Teller(spark, config.ledger, news).tell)
    ledger.begin(spark, config.ledger)
    outcomes = publish_each(fleet, names, book.hear)
    lost = book.flush()
    if lost:
        fleet.on_trouble(lost)
    return [replace(each, published_before=each.table in news.loaded_again) for each in outcomes]


def all_at_rest(config: Config, names: Sequence[str] = ()) -> list[Outcome] | None:
    """What publishing comes to where there is nothing to publish in any table, nor anything that the ledger lacks, and
    Spark need not be started; None where it has to be. Who publishes is said as ever."""
    zone, tables, now = zone_of(config), config.select(names), datetime.now(UTC)
    idle, some_new = Idle(config, zone), Event()

    def outcome(table: Table) -> Outcome | None:
        found = None if some_new.is_set() else idle.outcome(table)
        if found is None:
            some_new.set()  # the others need not be asked
        return found

    outcomes = [each for each in each_of(outcome, tables) if each]
    if some_new.is_set():
        return None
    if config.ledger is not None:
        news = News(tables, zone, now)
        known = known_here(config.ledger, news.most)
        if known is None or news.rows(outcomes, known, now):
            return None
    return None if trouble_in_introducing(zone, config) else outcomes


def publish_each(
    fleet: Fleet, names: Sequence[str] = (), hear: Callable[[Sequence[Outcome]], None] = lambda _: None
) -> list[Outcome]:
    """The same for runs of one process, who say themselves what is to be said of them. What has come of the tables is
    heard now and then."""
    _ = fleet.zone  # once, and not in each of the threads
    found = each_of(partial(_one, fleet), fleet.config.select(names), lambda come: hear(list(filter(None, come))))
    outcomes = [each for each in found if each]
    for outcome in outcomes:
        if outcome.progress.short:
            fleet.on_trouble(outcome.progress.short)
        if outcome.progress.untidy:
            fleet.on_trouble(Untidy(outcome.table, outcome.progress.untidy))
    if differed := [outcome for outcome in outcomes if outcome.progress.differed]:
        fleet.on_trouble(MadeAnew([outcome.table for outcome in differed], differed[0].progress.differed))
    return outcomes


def _one(fleet: Fleet, table: Table) -> Outcome | None:
    """What becomes of a table; None where none is to be begun any more."""
    if fleet.stop():
        return None
    if fleet.way.work is _publish and (at_rest := Idle(fleet.config, fleet.zone).outcome(table)):
        return at_rest
    progress, started = Progress(), time.monotonic()
    rules = Rules(
        is_kept=lambda gap: is_kept(fleet.spark, table, gap, fleet.on_trouble),
        starts_again=lambda error: fleet.way.starts_again and reseeds(table, error),
        most_tries=fleet.way.most_tries,
    )
    course = Course(left=rules.most_tries)
    while course.left and not (course.tries and fleet.stop()):
        course = _tried(fleet, table, progress, course, rules)
        if course.pause:
            fleet.sleep(course.pause)
    if course.gap and table.history and progress.made:
        fleet.on_trouble(FromHistory(course.gap, str(table.history.table)))
    seconds = time.monotonic() - started
    name, error = str(table.target), course.error
    found = Outcome(name, progress, seconds, table.check_keys, course.tries, error, course.reseeded)
    return replace(found, stopped=error is None and fleet.stop() and found.lag_versions != 0)


def _tried(fleet: Fleet, table: Table, progress: Progress, course: Course, rules: Rules) -> Course:
    """The course after one try."""
    name, error = str(table.target), None
    try:
        feed = feed_for(fleet.spark, fleet.config, table, course.gap)
        plan = plan_of(table, fleet.workspace)
        if course.clears:
            with fleet.dropping(table):
                clear(feed, fleet.zone, plan)
            course = replace(course, cleared=True)
        fleet.way.work(feed, fleet.zone, plan, progress, partial(fleet.on_step, name), fleet.stop)
    except Exception as caught:
        error = named(f"Publishing {name}", caught)
    return after(course, error, rules)


def rebuild_table(fleet: Fleet, table: Table) -> Outcome:
    """Deletes the table's folder, waits for the service, and publishes. What goes wrong before that is raised."""
    with fleet.dropping(table):
        clear(feed_for(fleet.spark, fleet.config, table), fleet.zone, plan_of(table, fleet.workspace))
    (outcome,) = publish_tables(fleet, [str(table.target)])
    return outcome
