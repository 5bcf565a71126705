"""Status of each table: published version, lag, number of unconsumed files, and times of the last changes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from mirrorfeed.display.grid import Cell, split
from mirrorfeed.display.progress import progress
from mirrorfeed.display.rows import Row, counted, duration, nonzero, row, shown
from mirrorfeed.errors import MirrorfeedError, with_code
from mirrorfeed.monitor.fact_collector import Collector
from mirrorfeed.monitor.findings import TableFacts
from mirrorfeed.monitor.freshness import ENDPOINT_NOT_READ, Freshness, Step, read_endpoint
from mirrorfeed.orchestration.orphaned_targets import orphans_problem

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from mirrorfeed.config.model import Config
    from mirrorfeed.landing.load_part import LoadProgress

STATES = ("failing", "behind", "loading", "never published", "paused", "compared", "up to date")
"""States of tables, the most urgent first."""
_CURRENT = STATES[-2:]
"""States of tables that have no unpublished version, as far as known."""
_HEADINGS = {step: step.value for step in Step} | {
    Step.PUBLISHED: "published at",
    Step.CONSUMED: "consumed up to",  # the publication time of consumed files, because Fabric does not report its own
}


@row
class Status(Row):
    """Published version, lag and number of unconsumed files of a table, and times of the last changes."""

    QUIET = "{tables}: nothing to publish."

    table: str = shown("table")
    source: str
    state: str = shown("state")
    """`failing`, `behind`, `loading`, `never published`, `paused`, `compared` or `up to date`.

    `loading` means that parts of the first load are missing.
    `compared` means that each publication compares all rows (`changes: compare`), so the lag is unknown.
    """
    feed: str | None = shown("feed")
    """Kind of change data feed of the source. None if unknown."""
    service: str | None = shown("in Fabric")
    """Status of the table in Fabric, with row count and error. None if Fabric was not read."""
    published_version: int | None = shown("published")
    newest_version: int | None = shown("newest")
    lag_versions: int | None
    lag_seconds: float | None = shown("lag", lambda seconds: duration(seconds) if seconds else None, right=True)
    """Seconds since the commit of the oldest unpublished version. 0 if there is none, None if unknown."""
    not_renamed: int = shown("not renamed", nonzero)
    """Number of published files that still have staged names. The next run of `publish` renames them."""
    not_consumed: int = shown("not consumed", nonzero)
    """Number of files that Fabric has not consumed. Fabric keeps the last consumed file, which is not counted."""
    has_consumed: bool
    """True if Fabric has certainly consumed a file. If False, `not_consumed` can be one too high."""
    freshness: Freshness | None
    """Times when the newest changes were committed, published, consumed, mirrored and queryable in the SQL endpoint."""
    error: MirrorfeedError | None = None
    """Error that would stop the next run or, if none is found, the error that stopped the last run."""
    delivery: str | None = shown("delivery", default=None)
    """Delivery mode and the columns that it adds. None if the mirror equals the source (`upsert`)."""
    verified_through: int | None = shown("verified", default=None)
    """Newest version at which source and mirror were verified. None if there is none."""
    verified_at: datetime | None = None
    """Time of this verification."""
    paused: str | None = None
    """Reason and end of the pause. None if the table is not paused."""
    load: LoadProgress | None = None
    """Published share of a first load, if parts of it are missing."""
    special_step: str | None = None
    """Next step in words, if the next run reloads the table or does not read all changes from the feed."""
    at: datetime = field(default_factory=lambda: datetime.now(UTC), repr=False)

    @property
    def quiet(self) -> bool:
        has_waiting_files = self.has_consumed and self.not_consumed > 0
        in_fabric = self.service is None or self.service.startswith("Replicating")
        return self.state in _CURRENT and self.ok and in_fabric and not has_waiting_files

    @property
    def ok(self) -> bool:
        """True if the table is paused or has no error."""
        return self.paused is not None or self.error is None

    def cells(self) -> Mapping[str, Cell]:
        cells = dict(Row.cells(self))
        if self.freshness:
            cells |= {_HEADINGS[step]: Cell(self._age(self.freshness, step), False) for step in Step}
        if self.not_consumed and not self.has_consumed:
            cells["not consumed"] = Cell(f"at most {self.not_consumed:,}", True)
        return cells

    def remarks(self) -> Sequence[str]:
        if self.paused:
            return (f"{self.table}: {self.paused}",)
        load = (f"{self.table}: {self.load.in_words} of the first load are published.",) if self.load else ()
        step = (f"{self.table}: Next step: {self.special_step}",) if self.special_step and not self.error else ()
        return (*load, *step, *Row.remarks(self))

    def _age(self, freshness: Freshness, step: Step) -> str | None:
        """Return the time for which changes have waited to reach `step`, as text.

        If no change waits, returns the time since the last change reached `step`. Returns None if the time is unknown.
        """
        if waited := freshness.lag(step, self.at):
            return f"waits {duration(waited)}"
        at = None if step in freshness.unknown else freshness.times.get(step)
        return f"{duration(max(0.0, (self.at - at).total_seconds()))} ago" if at else None


def status_of(facts: TableFacts) -> Status:
    log, source = facts.log_facts, facts.source_facts
    error, lag = next(iter(facts.errors), facts.last_failure or log.lost), None
    if source.newest_version is not None and log.published is not None:
        lag = source.newest_version - log.published
    if facts.paused:
        state = "paused"
    elif error or not log.is_read:
        state = "failing"
    elif log.load:
        state = "loading"
    elif log.published is None:
        state = "never published"
    elif lag or log.unfinished:
        state = "behind"
    else:
        state = "compared" if lag is None else "up to date"
    return Status(
        table=facts.table,
        source=facts.source_name,
        state=state,
        feed=source.feed or None,
        service=(facts.service.in_words if facts.service else "no such table") if facts.read_service else None,
        published_version=log.published,
        newest_version=source.newest_version,
        lag_versions=lag,
        lag_seconds=source.lag_seconds,
        not_renamed=log.unfinished,
        not_consumed=0 if log.published is None and log.load is None else max(0, log.data_files - facts.has_consumed),
        has_consumed=facts.has_consumed,
        freshness=facts.freshness,
        error=error,
        delivery=facts.delivery.other_mode,
        verified_through=log.mark.verified_through if log.mark else None,
        verified_at=log.mark.at if log.mark else None,
        paused=facts.paused,
        load=log.load,
        special_step=facts.special_step,
        at=facts.at,
    )


def read_status(
    spark: Callable[[], SparkSession],
    config: Config,
    names: Sequence[str] = (),
    *,
    behind: bool = False,
    fabric: bool = False,
    mirror: str | None = None,
) -> tuple[tuple[Status, ...], tuple[str, ...], str]:
    """Return the status of each table (most urgent first), notes and a summary.

    Reads only the tables `names` or, if `names` is empty, all tables. With `behind`, leaves out tables that are up to
    date, and tables whose lag is unknown because each publication compares all rows (state `compared`). With `fabric`,
    also reads the status in Fabric, and refreshes the SQL endpoint. If `mirror` is set, mirrored tables are read from
    this folder, not from OneLake. If a table cannot be read, its row has an `error`.
    """
    progress.info("Reading the newest versions")
    collector = Collector(config, spark, syncs=ENDPOINT_NOT_READ if mirror else None, mirror=mirror)
    if fabric:
        from mirrorfeed.mirror.fabric import database_of

        collector = replace(collector, states=database_of(config).tables(), syncs=read_endpoint(config))
    statuses = map(status_of, collector.collect(config.select(names)))
    rows = sorted(statuses, key=lambda each: (STATES.index(each.state), -(each.lag_seconds or 0.0)))
    orphans = None if names else orphans_problem(config)
    notes = [*([with_code(orphans)] if orphans else []), *unknown_consumption(rows)]
    return tuple(row for row in rows if not behind or row.state not in _CURRENT), tuple(notes), summary_of(rows)


def unknown_consumption(rows: Sequence[Status]) -> Sequence[str]:
    """Return a note with the number of tables for which it is unknown whether Fabric has consumed a file.

    Counts only hidden tables: if many tables need no attention, one line replaces their rows. Returns an empty sequence
    if the number is 0.
    """
    _, not_listed, _ = split(rows)
    unknown = sum(row.not_consumed > 0 and not row.has_consumed for row in not_listed)
    if not unknown:
        return ()
    return (
        f"{counted(unknown, 'table')}: nothing shows that Fabric has consumed a file."
        " `mirrorfeed status --fabric` reads its status.",
    )


def summary_of(rows: Sequence[Status]) -> str:
    counts = Counter(each.state for each in rows)
    states = [f"{counts[state]:,} {state}" for state in reversed(STATES) if counts[state]]
    return f"{counted(len(rows), 'table')}: {', '.join(states)}"
