"""`feed.fabric`: the mirrored database in Fabric."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from mirrorfeed.api.errors import nothing_to_mirror
from mirrorfeed.api.results import Result
from mirrorfeed.api.subject import Subject
from mirrorfeed.config.model import Config, zone_of
from mirrorfeed.display.progress import progress
from mirrorfeed.landing.names import Target, data_number

if TYPE_CHECKING:
    from mirrorfeed.api import results
    from mirrorfeed.mirror.fabric import MirroredDatabase


class Fabric(Subject):
    """Operations on the mirrored database in Fabric, with the same names as the commands `mirrorfeed fabric`.

    Require a landing zone in OneLake and a credential.
    """

    def create(self, name: str) -> Result[results.CreatedDatabase]:
        """Create the open mirrored database `name` in the workspace of the configured landing zone, unless it exists.

        Returns the address of the landing zone of this database, and whether the database was created. Needs no Spark.
        Raises `MirrorfeedError` if the configured landing zone is not in OneLake.
        """
        from mirrorfeed.mirror.fabric import client_of, create

        return Result((create(client_of(self._config), name, self._config.fabric),))

    def start(self, *, force: bool = False, minutes: float = 10.0) -> Result[results.DatabaseStatus]:
        """Start mirroring, and wait up to `minutes` until it is running. Return the status of the mirrored database.

        Raises `MirrorfeedError` if mirroring is not running in time or, without `force`, if a table has no file in the
        landing zone yet.
        """
        database = self._database  # report an error in the address first
        if not force and (tables := _find_without_files(self._current_config)):
            raise nothing_to_mirror(tables=tables)
        return Result((database.start(minutes * 60),))

    def stop(self, minutes: float = 10.0) -> Result[results.DatabaseStatus]:
        """Stop mirroring, and wait up to `minutes` until it has stopped. Return the status of the mirrored database.

        After the next start, Fabric replicates every table from the beginning. Raises `MirrorfeedError` if mirroring
        has not stopped in time.
        """
        return Result((self._database.stop(minutes * 60),))

    def resume(self, minutes: float = 10.0) -> Result[results.DatabaseStatus]:
        """Start mirroring again after its capacity was paused. Return the status of the mirrored database.

        Waits until mirroring is running. Raises `MirrorfeedError` if mirroring is not running after `minutes`. Also
        raises `MirrorfeedError` if the status before the start is not Paused, Starting or Running.
        """
        return Result((self._database.resume(minutes * 60),))

    def status(self) -> Result[results.TableState]:
        """Return the status of each table in Fabric, with the status of the database as a note. Needs no Spark."""
        database = self._database
        status, rows = database.status(), tuple(database.tables())
        note, summary = f"The mirrored database is {status}.", "" if rows else "The mirrored database has no tables."
        return Result(rows, (note,), summary)

    def log(self, hours: float = 24.0) -> Result[results.TableExecution]:
        """Return rows, bytes, latency and error of the last batch of each table that Fabric replicated.

        Reads the log of workspace monitoring, from the last `hours`. Raises `workspace_monitoring_off` if monitoring is
        off. Needs no Spark.
        """
        from mirrorfeed.mirror.fabric.execution_log import read_executions

        rows = tuple(read_executions(self._config, hours))
        return Result(rows, (), "" if rows else f"The log has no entry of the last {hours:g} hours.")

    def plan(self) -> Result[results.Setting]:
        """Return settings of the mirrored database that differ from `fabric` in the configuration. Changes nothing."""
        rows, values = self._database.plan(self._config.fabric)
        summary = "" if rows else "The settings in Fabric match the configuration."
        return Result(tuple(rows), (f"In Fabric: {values}.",), summary)

    def apply(self, confirm: Callable[..., None] | None = None) -> Result[results.Setting]:
        """Change the settings of the mirrored database that differ from `fabric` in the configuration.

        Returns the changed settings. The notes of the result contain the settings that cannot be changed now. Before
        the first change, a single call of `confirm` receives all settings that differ. Each argument is a line with the
        name, the current value and the new value of a setting. To prevent all changes, `confirm` can raise an error.
        """
        settings = self._database.apply(self._config.fabric, confirm)
        rows = tuple(each for each in settings if each.changes)
        left = tuple(each.in_words for each in settings if not each.changes)
        return Result(rows, left, "Fabric now has these settings." if rows else "No setting had to change.")

    def refresh(self) -> Result[results.TableSync]:
        """Refresh the SQL endpoint of the mirrored database, and return the result for each table.

        A refresh consumes computing time of the Fabric capacity.
        """
        progress.info("Refreshing the SQL endpoint")
        rows = tuple(self._database.refresh())
        return Result(rows, summary="" if rows else "The SQL endpoint has no tables.")

    @property
    def _database(self) -> MirroredDatabase:
        from mirrorfeed.mirror.fabric import database_of

        return database_of(self._config)


def _find_without_files(config: Config) -> list[str]:
    """Return the targets of configured tables that have no data file in the landing zone."""
    store = zone_of(config)

    def has_files(target: Target) -> bool:
        return any(data_number(entry.name, None) for entry in store.list(target.folder))

    return [str(table.target) for table in config.tables if not has_files(table.target)]
