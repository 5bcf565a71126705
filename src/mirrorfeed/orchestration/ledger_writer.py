"""What runs tell the ledger: what they did, once a minute, and what the landing zone's logs show of earlier runs that
did not live to tell."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property

from pyspark.sql import SparkSession

from mirrorfeed.config import Table
from mirrorfeed.errors import MirrorfeedError, first_line, named
from mirrorfeed.orchestration import ledger
from mirrorfeed.orchestration.ledger import PUBLISHED, Known, PublicationKey, Row
from mirrorfeed.publish.errors import LedgerNotWritten
from mirrorfeed.publish.log.table_log import TableLog
from mirrorfeed.publish.result import Progress, Publication, TableResult
from mirrorfeed.source.identifier import Source
from mirrorfeed.storage import Store

_EVERY = 60.0
"""Seconds between two commits to the ledger: one for each publication would be as many as there are files."""


class BatchedWriter:
    """Outcomes on their way to the ledger. What it could not be told is told with what comes next."""

    def __init__(
        self,
        tell: Callable[[Sequence[TableResult]], MirrorfeedError | None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._tell, self._clock, self._at = tell, clock, clock()
        self._untold: list[TableResult] = []

    def hear(self, outcomes: Iterable[TableResult]) -> None:
        self._untold += outcomes
        if self._clock() - self._at >= _EVERY:
            self.flush()

    def flush(self) -> MirrorfeedError | None:
        """Tells all that is left; what went wrong is told, never raised."""
        lost = self._tell(self._untold) if self._untold else None
        self._at = self._clock()
        if lost is None:
            self._untold = []
        return lost


@dataclass
class PendingRows:
    """What is to be told of runs over some tables that began at a moment: what others publish after it, they tell."""

    tables: Sequence[Table]
    store: Store | None
    """Where the tables' logs are; None where it cannot be asked."""
    begun: datetime
    loaded_again: set[str] = field(default_factory=set, init=False)
    """First loads of tables of which the ledger told publications before."""

    @cached_property
    def _by_name(self) -> dict[str, Table]:
        return {str(table.target): table for table in self.tables}

    @property
    def most(self) -> int:
        """So many publications of a table its log may still have."""
        return max(table.log_retention_records for table in self.tables)

    def rows(self, outcomes: Sequence[TableResult], known: dict[str, Known], now: datetime) -> list[Row]:
        """What these outcomes did, what earlier runs did for their tables and the ledger does not have, and of each
        table that is stopped in it and well in this run that it is, for nothing new is no row."""
        found: list[Row] = []
        for outcome in outcomes:  # of a table that is followed there may be several
            there = known.setdefault(outcome.table, Known())
            rows = [row for row in ledger.rows([outcome], now) if row.told not in there.publications]
            made = [row.told for row in rows if row.outcome == PUBLISHED]
            if made and outcome.progress.first_load and there.publications:
                self.loaded_again.add(outcome.table)
            left = self._left(outcome, there.publications, made)
            found += [*left, *rows]
            there.publications += [*(row.told for row in left), *made]
            if there.stopped and outcome.is_idle:
                found.append(ledger.well(outcome, now))
                there.stopped = False
        return found

    def _left(self, outcome: TableResult, told: Sequence[PublicationKey], made: Sequence[PublicationKey]) -> list[Row]:
        """What earlier runs published and did not tell, as far as the table's log still has it. The log is asked only
        where what is told has a gap."""
        table = self._by_name[outcome.table]
        if self.store is None or is_whole(told[-table.log_retention_records :], made, outcome.progress.published):
            return []
        log = TableLog(self.store, table.target.folder)
        try:
            view = log.read_view()
            begun = self.begun.replace(microsecond=self.begun.microsecond // 1_000 * 1_000)  # as records tell times
            records = [each for each in log.records(view) if each.at < begun] if view else []
        except Exception as error:  # it harms nothing, and whoever publishes is told of it
            named(f"Looking for what the ledger lacks of {outcome.table}", error)
            return []
        progress = Progress(made=[Publication(each, None, None, {}) for each in reversed(records)])
        before = TableResult(outcome.table, progress, 0.0, freshness_target_minutes=table.freshness_target_minutes)
        rows = ledger.rows([before], self.begun)
        return [row for row in rows if row.told not in (*told, *made)]


@dataclass
class LedgerWriter:
    """Tells the ledger the news."""

    spark: SparkSession
    place: Source | None
    news: PendingRows

    def tell(self, outcomes: Sequence[TableResult]) -> MirrorfeedError | None:
        """What went wrong is told, never raised."""
        if self.place is None:
            return None
        now = datetime.now(UTC)
        new = ledger.rows(outcomes, now)
        try:
            names, since = {each.table for each in outcomes}, min((row.time for row in new), default=now)
            known = ledger.known(self.spark, self.place, names, self.news.most, since)
        except Exception as error:
            return ledger.keep(self.spark, self.place, new) or LedgerNotWritten(
                ledger=str(self.place), reason=first_line(str(error))
            )
        return ledger.keep(self.spark, self.place, self.news.rows(outcomes, known, now))


def is_whole(told: Sequence[PublicationKey], made: Sequence[PublicationKey], published: int | None) -> bool:
    """Whether each publication begins where the one before ended, up to what is published: those that the ledger tells
    of, as many as the table's log still has, and those that are new to it."""
    ends = [each.to_version for each in (*told, *made)]
    begins = [*(each.from_version for each in (*told, *made)), published]
    # Nothing is said of what was before the first of those that are told.
    before = zip(ends, begins[1:], strict=True) if told else zip([None, *ends], begins, strict=True)
    return all(begin in (None, end) for end, begin in before)
