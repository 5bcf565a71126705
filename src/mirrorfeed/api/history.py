"""`feed.history`: the permanent histories of tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirrorfeed.api.results import Result
from mirrorfeed.api.subject import Subject
from mirrorfeed.display.progress import progress
from mirrorfeed.source.identifier import Source

if TYPE_CHECKING:
    from mirrorfeed.api import results


class Histories(Subject):
    """Permanent histories of the configured tables: Delta tables that store all versions of a source."""

    def append(self, *tables: str, reseed: bool = False) -> Result[results.Append]:
        """Append new versions to the permanent histories of the tables. Return the appended versions of each table.

        If the source no longer has the versions that the history needs next, the result for this table has an `error`.
        With `reseed`, or with `on_gap: reseed` in the configuration, the history continues with a snapshot of the
        source instead. Then the history does not contain the lost versions. Raises `MirrorfeedError` if no table has a
        history, or if one of `tables` has no history.
        """
        from mirrorfeed.orchestration.histories import append_histories

        return Result(tuple(append_histories(self._spark, self._current_config, tables, reseed=reseed)))

    def status(self, *tables: str) -> Result[results.History]:
        """Return the versions that the permanent history of each table contains. Changes nothing.

        A result also has the number of source versions that the history does not contain yet. Raises `MirrorfeedError`
        if no table has a history, or if one of `tables` has no history.
        """
        from mirrorfeed.orchestration.histories import read_histories

        return Result(tuple(read_histories(self._spark, self._current_config, tables)))

    def replay(self, table: str, into: str, at: int | str) -> Result[results.Replay]:
        """Create the table `into` from the permanent history of `table`, with the rows of one version.

        `at` is a version, or a time in the session's time zone. Returns the version, and whether `into` was created: if
        an earlier call created `into` for the same version, nothing is written. Raises `MirrorfeedError` if the table
        has no history, if the history does not contain the version, or if another table has the name `into`.
        """
        from mirrorfeed.history.replay import replay
        from mirrorfeed.orchestration.histories import select_tables

        (configured,) = select_tables(self._current_config, [table])
        assert configured.history is not None
        copy = Source.parse_argument(into)
        spark = self._spark()
        progress.info("Rebuilding %s from %s", configured.target, configured.history.table)
        return Result((replay(spark, configured.history.table, copy, at),))
