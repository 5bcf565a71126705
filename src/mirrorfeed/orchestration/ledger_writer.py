"""Write the results of a run to the ledger. Also add publications of earlier runs that the ledger does not contain."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import TYPE_CHECKING

from mirrorfeed.config.model import Table
from mirrorfeed.errors import MirrorfeedError, first_line
from mirrorfeed.orchestration import ledger, ledger_maintenance
from mirrorfeed.orchestration.errors import LedgerNotWrittenError
from mirrorfeed.orchestration.ledger import RECORD_OUTCOMES, RECOVERED, UNCHANGED, Known, LedgerRow, PublicationKey
from mirrorfeed.orchestration.ledger_state import LedgerState, TableState
from mirrorfeed.publish.table_log import TableLog
from mirrorfeed.publish.table_result import TableResult
from mirrorfeed.source.identifier import Source

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from mirrorfeed.orchestration.run_context import RunContext

_log = logging.getLogger(__name__)

_INTERVAL = 60.0
"""Seconds between two commits to the ledger. One commit for each publication would create too many files."""
_LOOK_BACK = timedelta(days=30)
"""Age of the rows in which a run looks for a table that the state of the ledger does not have."""
_REPEAT_AFTER = timedelta(days=30)
"""A table without new changes gets a row when its newest row has this age, so that reports need no older rows."""
_REPEAT_STOPPED_AFTER = timedelta(days=1)
"""A table that an error still stops gets a row when its newest row has this age, not a row for each run."""


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
    _repeats: bool = field(default=False, init=False)
    """True if the last write failed. It may have taken effect."""

    def __post_init__(self) -> None:
        self._written_at = self.context.clock.now()
        self._state = LedgerState(lambda: self.context.zone, self.location)
        # Records have a precision of milliseconds.
        start = self.run_started
        self.run_started = start.replace(microsecond=start.microsecond // 1_000 * 1_000)

    def begin(self) -> None:
        """Create the ledger, or add missing columns. Ignores errors: `write` tries again and returns the error."""
        self._is_prepared = True
        with suppress(MirrorfeedError):
            ledger.prepare(self.context.session, self.location, self._state.remove)

    def add(self, results: Iterable[TableResult]) -> None:
        self._pending += results
        if self.context.clock.now() - self._written_at >= _INTERVAL:
            self.flush()

    def flush(self) -> MirrorfeedError | None:
        """Write the results not written yet. Returns an error instead of raising it. The next call retries."""
        error = self.write(self._pending) if self._pending else None
        self._written_at = self.context.clock.now()
        self._repeats = error is not None
        if error is None:
            self._pending = []
        return error

    def write(self, results: Sequence[TableResult]) -> MirrorfeedError | None:
        """Write `results`, and add missing publications of earlier runs. Returns an error instead of raising it.

        Reads the ledger only for tables without an entry in its state, and to look up publications of earlier runs.
        """
        now = datetime.now(UTC)
        try:
            try:
                rows, states = self._plan(results, now)
            except Exception as error:
                unreadable = self._not_written(error)
                new = ledger.rows(results, now)
                return ledger.append(self._prepared_session(), self.location, new) or unreadable
            if rows and (lost := ledger.append(self._prepared_session(), self.location, rows)):
                return lost
        except Exception as error:  # for example because the session did not start
            return self._not_written(error)
        before = self._state.maintained_at
        is_due = bool(rows) and (before is None or now - before >= ledger_maintenance.INTERVAL)
        if self._state.update(states, now if is_due else None) and before:  # then no other run does it now
            retention_days = self.context.config.ledger_retention_days
            ledger_maintenance.maintain(self.context.session, self.location, retention_days, now)
        return None

    def _not_written(self, error: Exception) -> LedgerNotWrittenError:
        return LedgerNotWrittenError(ledger=str(self.location), reason=first_line(str(error)))

    def _prepared_session(self) -> SparkSession:
        session = self.context.session
        if not self._is_prepared:
            self.begin()
        return session

    def _plan(self, results: Sequence[TableResult], now: datetime) -> tuple[list[LedgerRow], dict[str, TableState]]:
        """Return ledger rows for `results`, and for earlier publications that are missing in the ledger. Also return
        the state of each table after these rows were written.

        Also returns a row for each table that is up to date again after an error, although nothing was published.
        """
        known = self._known({result.table for result in results}, now)
        chains = {name: each.publications[-1:] for name, each in known.items()}
        stopped = {name: each.stopped for name, each in known.items()}
        rows, doubtful = list[LedgerRow](), list[LedgerRow]()
        for result in results:  # a table that is published continuously may have several results
            name, earlier = result.table, known[result.table]
            own = [] if is_reported(result, earlier, now) else ledger.rows([result], now)
            own = [row for row in own if row.key not in earlier.publications]
            new = [row.key for row in own if row.outcome in RECORD_OUTCOMES]
            if new and result.first_load and earlier.publications:
                self.reloaded_tables.add(name)
            missing: list[LedgerRow] = []
            in_parts = any(record.load for record in result.records)  # all parts of a load have the same versions
            if in_parts or not is_complete(chains[name], new, result.published_version):
                logged = self._logged(result)
                missing = [row for row in logged if row.key not in (*earlier.publications, *new)]
                chains[name] = [row.key for row in logged if row.key not in new] or chains[name]
            added = [*missing, *own]
            doubtful += [row for row in added if row in missing or self._may_be_written(row, earlier)]
            earlier.publications += [*(row.key for row in missing), *new]
            chains[name] += new
            if any(row.outcome in ledger.STOPPED for row in own):
                stopped[name] = True
            elif new:
                stopped[name] = False
            if earlier.stopped and result.is_idle:
                added.append(ledger.state_row(result, RECOVERED, now, "The problem is solved, and nothing is new."))
                earlier.stopped = stopped[name] = False
            times = [row.time for row in added if row.outcome in ledger.STATE_OUTCOMES]
            earlier.reported_at = max([*times, *filter(None, [earlier.reported_at])], default=None)
            if result.is_idle and chains[name] and _is_old(earlier.reported_at, now):
                row = ledger.state_row(result, UNCHANGED, now, "Nothing is new.")
                mode = self.table(name).delivery.mode
                added.append(replace(row, published_at=chains[name][-1].time, delivery=mode))
                earlier.reported_at = now
            rows += added
        if doubtful:
            written = ledger.find_publications(self._prepared_session(), self.location, doubtful)
            rows = [row for row in rows if row not in doubtful or (row.table, row.key) not in written]
        return rows, {name: _state(name, each, chains[name], is_stopped=stopped[name]) for name, each in known.items()}

    def _known(self, names: Collection[str], now: datetime) -> dict[str, Known]:
        """Return what is known about each table: from the state of the ledger, otherwise from the ledger."""
        states = self._state.tables
        known = {name: states[name].known for name in names if name in states}
        if others := names - known.keys():
            known |= {name: Known() for name in others}
            known |= ledger.read_states(self._prepared_session(), self.location, others, now - _LOOK_BACK)
        return known

    def _may_be_written(self, row: LedgerRow, known: Known) -> bool:
        """Return whether another run, or this run before an error, may have written a publication."""
        if row.outcome not in RECORD_OUTCOMES:
            return False
        is_old = row.time < self.run_started or any(row.time <= key.time for key in known.publications)
        return is_old or self._repeats

    def _logged(self, result: TableResult) -> list[LedgerRow]:
        """Return ledger rows for all publications in the table's log from before this run, oldest first.

        Publications of other runs since then are left to those runs.
        """
        table = self.table(result.table)
        try:
            log = TableLog(self.context.zone, table.target.folder)
            view = log.read_view()
            records = [each for each in log.records(view) if each.at < self.run_started] if view else []
        except Exception:  # the next publication reports the error
            _log.warning("Reading publications of %s that the ledger lacks failed", result.table, exc_info=True)
            return []
        before = TableResult(
            result.table, records=records[::-1], freshness_target_minutes=table.finite_freshness_target
        )
        return ledger.rows([before], self.run_started)


def is_reported(result: TableResult, known: Known, now: datetime) -> bool:
    """Return whether the ledger has a new enough row of the error that stopped a table in the last run, too."""
    since, reported = result.stopped_since, known.reported_at
    return bool(known.stopped and since and reported and since <= reported and now - reported < _REPEAT_STOPPED_AFTER)


def _is_old(reported_at: datetime | None, now: datetime) -> bool:
    return reported_at is None or now - reported_at >= _REPEAT_AFTER


def _state(table: str, known: Known, chain: Sequence[PublicationKey], *, is_stopped: bool) -> TableState:
    """Return the state of a table with the last publication in `chain` before a gap."""
    newest = chain[0] if chain else None
    for before, key in pairwise(chain):
        if key.from_version not in (None, before.to_version):
            break
        newest = key
    time, from_version, to_version = newest or (None, None, None)
    return TableState(table, is_stopped, time, from_version, to_version, known.reported_at)


def is_complete(known: Sequence[PublicationKey], new: Sequence[PublicationKey], published: int | None) -> bool:
    """Return whether `known` and `new` contain all publications from the first in `known` to the version `published`.
    If `known` is empty, `new` must begin with a snapshot. If `published` is None, the end is not checked."""
    ends = [key.to_version for key in (*known, *new)]
    starts = [*(key.from_version for key in (*known, *new)), published]
    # The ledger may lack publications before the first known one.
    pairs = zip(ends, starts[1:], strict=True) if known else zip([None, *ends], starts, strict=True)
    return all(start in (None, end) for end, start in pairs)
