"""Write the results of a run to the ledger, and send them to other systems."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mirrorfeed.config.model import Table
    from mirrorfeed.orchestration.exporter import Exporter
    from mirrorfeed.orchestration.ledger_writer import LedgerWriter
    from mirrorfeed.orchestration.run_context import RunContext
    from mirrorfeed.publish.table_result import TableResult


class ResultWriter:
    """Passes results to the ledger and to the exporter, if the configuration has them. Reports their problems."""

    def __init__(self, context: RunContext, table: Callable[[str], Table]) -> None:
        """`table` returns a configured table by its name."""
        self._on_problem, self._table = context.callbacks.on_problem, table
        self._run_started = None if context.follows else datetime.now(UTC)
        self._ledger: LedgerWriter | None = None
        self._exporter: Exporter | None = None
        if location := context.config.ledger:
            from mirrorfeed.orchestration.ledger_writer import LedgerWriter

            self._ledger = LedgerWriter(context, location, table)
        if context.config.lineage or context.config.telemetry:
            from mirrorfeed.orchestration.exporter import Exporter

            self._exporter = Exporter(context.config, self._on_problem)

    def begin(self) -> None:
        """Create the ledger, or add missing columns."""
        if self._ledger:
            self._ledger.begin()

    def add(self, results: Sequence[TableResult]) -> None:
        if self._ledger:
            self._ledger.add(results)
        if self._exporter:
            from mirrorfeed.orchestration.exporter import Finished

            for result in results:
                self._exporter.add(Finished(self._table(result.table), result, run_started=self._run_started))

    def finish(self) -> None:
        """Write the results that are not written yet, and wait until all results are sent, but not for long."""
        if self._ledger and (lost := self._ledger.flush()):
            self._on_problem(lost)
        if self._exporter:
            self._exporter.finish()

    @property
    def reloaded_tables(self) -> Collection[str]:
        """Names of tables whose first load this run published, although the ledger has earlier publications of them."""
        return self._ledger.reloaded_tables if self._ledger else ()
