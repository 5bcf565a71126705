"""Write the results of a run to the ledger. Also add publications of earlier runs that the ledger does not contain."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from mirrorfeed.config.model import Table
from mirrorfeed.errors import MirrorfeedError, first_line
from mirrorfeed.orchestration import ledger
from mirrorfeed.orchestration.errors import LedgerNotWrittenError
from mirrorfeed.orchestration.ledger import PUBLISHED, RECOVERED, Known, LedgerRow, PublicationKey
from mirrorfeed.publish.table_log import TableLog
from mirrorfeed.publish.table_result import TableResult
from mirrorfeed.source.identifier import Source

if TYPE_CHECKING:
    from mirrorfeed.orchestration.run_context import RunContext

_log = logging.getLogger(__name__)

_INTERVAL = 60.0
"""Seconds between two commits to the ledger. One commit for each publication would create too many files."""


@dataclass
class LedgerWriter:
    """Writes the results of a run to the ledger, and publications of earlier runs that the ledger does not contain.

    If writing fails, the results are written together with the next results.
    """

    context: RunContext
    location: Source
    table: Callable[[str], Table]
    """Function that returns a configured table by its name."""
    run_started: datetime = field(default_factory=lambda: datetime.now(UTC), init=False)
    reloaded_tables: set[str] = field(default_factory=set, init=False)
    """Names of tables whose first load this run published, although the ledger has earlier publications of them."""
    _pending: list[TableResult] = field(default_factory=list, init=False)
    _is_prepared: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        self._written_at = self.context.clock.now()

    def begin(self) -> None:
        """Create the ledger, or add missing columns. Ignores errors: `write` tries again and returns the error."""
        self._is_prepared = True
        with suppress(MirrorfeedError):
            ledger.prepare(self.context.session, self.location)

    def add(self, results: Iterable[TableResult]) -> None:
        self._pending += results
        if self.context.clock.now() - self._written_at >= _INTERVAL:
            self.flush()

    def flush(self) -> MirrorfeedError | None:
        """Write the results not written yet. Returns an error instead of raising it. The next call retries."""
        error = self.write(self._pending) if self._pending else None
        self._written_at = self.context.clock.now()
        if error is None:
            self._pending = []
        return error

    def write(self, results: Sequence[TableResult]) -> MirrorfeedError | None:
        """Write `results`, and add missing publications of earlier runs. Returns an error instead of raising it."""
        now = datetime.now(UTC)
        names, new = {result.table for result in results}, ledger.rows(results, now)
        limit = max(self.table(name).log_retention_records for name in names)
        known = None if new else ledger.known_without_spark(self.location, limit)
        if known is not None and not self.rows(results, known, now):
            return None
        try:
            spark = self.context.session
        except Exception as error:
            return LedgerNotWrittenError(ledger=str(self.location), reason=first_line(str(error)))
        if not self._is_prepared:
            self.begin()
        try:
            known = ledger.known(spark, self.location, names, limit, min((row.time for row in new), default=now))
        except Exception as error:
            unreadable = LedgerNotWrittenError(ledger=str(self.location), reason=first_line(str(error)))
            return ledger.append(spark, self.location, new) or unreadable
        return ledger.append(spark, self.location, self.rows(results, known, now))

    def rows(self, results: Sequence[TableResult], known: dict[str, Known], now: datetime) -> list[LedgerRow]:
        """Return ledger rows for `results`, and for earlier publications that are missing in the ledger.

        Also returns a row for each table that is up to date again after an error, although nothing was published.
        `known` maps each table to its publications in the ledger. Adds the publications in the new rows to `known`.
        """
        rows: list[LedgerRow] = []
        for result in results:  # a table that is published continuously may have several results
            earlier = known.setdefault(result.table, Known())
            own = [row for row in ledger.rows([result], now) if row.key not in earlier.publications]
            new = [row.key for row in own if row.outcome == PUBLISHED]
            if new and result.first_load and earlier.publications:
                self.reloaded_tables.add(result.table)
            missing = self._missing(result, earlier.publications, new)
            rows += [*missing, *own]
            earlier.publications += [*(row.key for row in missing), *new]
            if earlier.stopped and result.is_idle:
                rows.append(ledger.state_row(result, RECOVERED, now, "The problem is solved, and nothing is new."))
                earlier.stopped = False
        return rows

    def _missing(
        self, result: TableResult, known: Sequence[PublicationKey], new: Sequence[PublicationKey]
    ) -> list[LedgerRow]:
        """Return ledger rows for earlier publications that are in the table's log, but not in `known` or `new`."""
        table = self.table(result.table)
        if is_complete(known[-table.log_retention_records :], new, result.published_version):
            return []
        try:
            log = TableLog(self.context.zone, table.target.folder)
            view = log.read_view()
            # Records have a precision of milliseconds.
            start = self.run_started.replace(microsecond=self.run_started.microsecond // 1_000 * 1_000)
            records = [each for each in log.records(view) if each.at < start] if view else []
        except Exception:  # the next publication reports the error
            _log.warning("Reading publications of %s that the ledger lacks failed", result.table, exc_info=True)
            return []
        before = TableResult(
            result.table, records=records[::-1], freshness_target_minutes=table.finite_freshness_target
        )
        return [row for row in ledger.rows([before], self.run_started) if row.key not in (*known, *new)]


def is_complete(known: Sequence[PublicationKey], new: Sequence[PublicationKey], published: int | None) -> bool:
    """Return whether `known` and `new` contain all publications from the first in `known` to the version `published`.
    If `known` is empty, `new` must begin with a snapshot. If `published` is None, the end is not checked."""
    ends = [key.to_version for key in (*known, *new)]
    starts = [*(key.from_version for key in (*known, *new)), published]
    # The ledger may lack publications before the first known one.
    pairs = zip(ends, starts[1:], strict=True) if known else zip([None, *ends], starts, strict=True)
    return all(start in (None, end) for end, start in pairs)
