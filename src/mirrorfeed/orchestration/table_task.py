"""Task that publishes one table in a run: all its attempts, and their result."""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from mirrorfeed.config.model import Table
from mirrorfeed.errors import MirrorfeedError, with_code, wrap_error
from mirrorfeed.orchestration.errors import TableTimeoutError
from mirrorfeed.orchestration.retry_policy import ATTEMPTS, RetryState, needs_reload, next_state
from mirrorfeed.orchestration.run_context import RunContext, Stop
from mirrorfeed.orchestration.scheduler import QueuedTable
from mirrorfeed.publish.change_sources import NO_SPARK, ChangeSource, needs_no_spark, source_for
from mirrorfeed.publish.next_publication import unpublished_since, with_keys, with_tags
from mirrorfeed.publish.table_publisher import publish
from mirrorfeed.publish.table_result import TableResult
from mirrorfeed.source.errors import FeedGapError, SourceRecreatedError

_log = logging.getLogger(__name__)


@dataclass
class TableTask:
    """Task that publishes one table in a run. Makes all attempts and keeps their result."""

    context: RunContext
    table: Table
    _published_at: float | None = field(default=None, init=False)
    """Start time of the last attempt that published something, in continuous publishing."""
    _read_at: float = field(default=0.0, init=False)
    _due_since: float | None = field(default=None, init=False)
    """Time since which an attempt is due, in continuous publishing. None if the next attempt only checks this."""

    def __post_init__(self) -> None:
        context = self.context
        self._attempts = math.inf if context.follows else ATTEMPTS
        self.state = RetryState(remaining=self._attempts)
        self.result = self._new_result()

    @property
    def name(self) -> str:
        return str(self.table.target)

    @property
    def limit(self) -> float:
        """Remaining seconds of `table_timeout_minutes`. Infinite if it is not set."""
        minutes = self.table.table_timeout_minutes
        return math.inf if minutes is None else minutes * 60 - self.result.seconds

    def attempt_without_spark(self) -> TableResult | None:
        """Check without Spark whether the table is up to date, or is stopped by a known error.

        Return its result if so, otherwise None.
        """
        context, started = self.context, self.context.clock.now()
        if context.callbacks.stop() or not needs_no_spark(self.table):
            return None
        try:
            source = source_for(NO_SPARK, context.config, self.table)
            publish(source, context.zone, with_keys(self.table), self.result, self._on_step, context.callbacks.stop)
        except Exception:  # the attempt with Spark reports other errors, and has the whole time limit
            self.result.latest, self.result.decision = None, ""
            return self._known_stop(started)
        self.result.seconds += context.clock.now() - started
        return None if self._lags else replace(self.result)

    def _known_stop(self, started: float) -> TableResult | None:
        """Return the result of a table that stops with a known error. None if an attempt with Spark must decide."""
        from mirrorfeed.orchestration.known_stop import find_known_stop  # imported late: serverless never needs it

        if (stop := find_known_stop(self.context, self.table)) is None:
            return None
        self.result.latest, self.result.decision, self.result.stopped_since = stop.latest, stop.decision, stop.since
        self.result.seconds += self.context.clock.now() - started
        self.state = RetryState(remaining=0, tries=1, error=stop.error)
        return self.finished()

    def queued(self, *, ordered: bool = False) -> QueuedTable:
        """Return the table's entry for the queue.

        The field `due` of the entry decides which table starts first: a table gets an earlier `due` if its unpublished
        changes have waited longer. In continuous publishing, an entry is first a check whether there are such changes.
        In other runs, `due` is infinite unless `ordered` is True.
        """
        context, table, not_before = self.context, self.table, self.context.clock.now() + self.state.pause
        within = table.freshness_target_minutes or context.config.alerts.max_lag_minutes.published or math.inf
        if context.follows:
            if self._due_since is None and self._needs_attempt():
                self._due_since = not_before
            if (waits := self._due_since) is None:
                return QueuedTable(self.name, not_before=not_before, is_check=True)
            return QueuedTable(self.name, table.priority, waits + within * 60, not_before, self.limit, waits)
        since = unpublished_since(context.zone, table) if ordered and not context.callbacks.stop() else None
        due = math.inf if since is None else since.timestamp() + within * 60
        return QueuedTable(self.name, table.priority, due, not_before, self.limit)

    def attempt(self) -> TableResult | None:
        """Make one attempt to publish. Returns the result if the table is done, or None if another attempt follows.

        In continuous publishing, also returns the result if the attempt failed, and returns None if no attempt is due.
        """
        context = self.context
        if context.follows and self._due_since is None:
            checked_at = context.clock.now()
            self._due_since = checked_at if self._is_due() else None
            self.state = replace(self.state, pause=0.0 if self._due_since is not None else self.table.follow.poll)
            return None
        started, limit, error = context.clock.now(), self.limit, None
        try:
            table = with_keys(with_tags(self.table, lambda: context.session), lambda: context.client)
            source = source_for(context.session, context.config, table)
            self._publish(source, table, lambda: context.callbacks.stop() or context.clock.now() - started >= limit)
        except Exception as caught:
            error = wrap_error(f"Publishing {self.name}", caught)
        self.result.seconds += context.clock.now() - started
        self._update_state(error)
        if self.state.remaining and not (context.follows and self.state.error):
            return None
        finished = self.finished()
        if context.follows:
            self._begin_again(started)
        return finished

    def _publish(self, source: ChangeSource, table: Table, ends: Stop) -> None:
        """Publish a table with its keys, after its folder is deleted if it is to be reloaded. `ends` returns True at
        the end of the time limit, and if the run is stopped."""
        context = self.context
        if self.state.clears:
            from mirrorfeed.orchestration.table_reload import clear_table  # imported late: few runs reload a table

            clear_table(context, table, source)
            self.state = replace(self.state, cleared=True)
        try:
            publish(source, context.zone, table, self.result, self._on_step, ends)
        except (FeedGapError, SourceRecreatedError) as finding:
            from mirrorfeed.publish.change_sources.feed_gap import bridge_gap  # imported late: few feeds have a gap

            if (bridge := bridge_gap(source, table, finding, context.callbacks.on_problem)) is None:
                raise
            publish(bridge, context.zone, table, self.result, self._on_step, ends)

    def _needs_reload(self, error: MirrorfeedError) -> bool:
        return needs_reload(self.table, error)

    def _update_state(self, error: MirrorfeedError | None) -> None:
        """Decide what follows after an attempt that failed with `error`, or succeeded if `error` is None."""
        attempted, reloads = self.state, error is not None and self._needs_reload(error)
        self.state = next_state(attempted, error, reloads=reloads, attempts=self._attempts)
        if error:
            _log.info("%s: attempt %d failed: %s", self.name, self.state.tries, with_code(error))
        if self.limit <= 0 and (self.state.error or self._lags):
            timeout = TableTimeoutError(
                table=self.name,
                minutes=self.table.table_timeout_minutes or 0.0,
                published=self.result.published_version,
                latest=self.result.latest,
                cause=self.state.error,
                load=self.result.load.in_words if self.result.load else "",
            )
            self.state = next_state(attempted, timeout, attempts=self._attempts)

    def _begin_again(self, started: float) -> None:
        """In continuous publishing, prepare the next publication. `started` is the start time of the last attempt."""
        result, self._due_since = self.result, None
        self._published_at, self._read_at = started if result.records else self._published_at, started
        measured = {batch: result.measured[batch] for batch in result.sent}
        self.result = self._new_result(published_version=result.published_version, sent=result.sent, measured=measured)
        if self.state.error is None:
            self.state = RetryState(self._attempts, pause=self.table.follow.poll)

    def _on_step(self, result: TableResult) -> None:
        _log.info("%s: %s", result.table, result.step)
        self.context.callbacks.on_step(result.table, result.step)

    def _needs_attempt(self) -> bool:
        """Return whether an attempt follows in continuous publishing, whether there are new changes or not."""
        is_new = self.result.published_version is None or self.state.tries > 0
        return is_new and not self.table.pause_at(datetime.now(UTC))

    def _is_due(self) -> bool:
        table, published, now = self.table, self.result.published_version, self.context.clock.now()
        if table.pause_at(datetime.now(UTC)):
            return False
        if published is None:
            return True
        from mirrorfeed.orchestration.follow_limits import is_due  # imported late: only continuous publishing needs it

        since_publication = None if self._published_at is None else now - self._published_at
        return is_due(table.follow, self.context.pending(table, published), since_publication, now - self._read_at)

    def finished(self) -> TableResult:
        """Return the result of all attempts.

        Reports a problem if changes were published from a history or a comparison instead of the feed.
        """
        state, context, result = self.state, self.context, self.result
        if result.source_note and result.records:
            context.callbacks.on_problem(result.source_note)
        stopped = state.error is None and context.callbacks.stop() and self._lags
        return replace(result, tries=state.tries, error=state.error, reseeded=state.reloaded, stopped=stopped)

    @property
    def _lags(self) -> bool:
        """True if the source may have unpublished versions."""
        return self.result.latest is None or self.result.published_version != self.result.latest

    def _new_result(self, **facts: Any) -> TableResult:
        table = self.table
        return TableResult(
            self.name,
            keys_checked=table.validate_keys != "none",
            keys_configured=table.keys is not None,
            freshness_target_minutes=table.finite_freshness_target,
            **facts,
        )
