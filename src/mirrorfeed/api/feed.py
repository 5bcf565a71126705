"""`Feed`: one method for each operation that jobs, notebooks and commands can run on the configured tables."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from mirrorfeed.api.results import Configured, Enabled, PartnerFile, Result
from mirrorfeed.config import FILE
from mirrorfeed.display.progress import progress
from mirrorfeed.errors import MirrorfeedError, with_code, wrap_error

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from mirrorfeed.api import results
    from mirrorfeed.api.archive_table import ArchiveAwareTable
    from mirrorfeed.config.model import Config, Table
    from mirrorfeed.display.html import Chart
    from mirrorfeed.mirror.fabric import MirroredDatabase
    from mirrorfeed.source.identifier import Source
    from mirrorfeed.storage import Store
    from mirrorfeed.storage.prices import Prices


def load(
    path: str | Path = FILE,
    spark: SparkSession | None = None,
    *,
    landing_zone: str | None = None,
    ledger: str | None = None,
    staging_path: str | None = None,
    secret_scope: str | None = None,
) -> Feed:
    """Read a configuration and return the feed of its tables. Publishes nothing and starts no session.

    `spark` is the session to use. By default, the active session is used, or a session is started when it is first
    needed. `landing_zone`, `ledger` and `staging_path` override the file, and `secret_scope` is the scope of secrets
    that have only a key, so that several deployments can share one file.

    Raises `MirrorfeedError` with all mistakes in the file and their lines.
    """
    from mirrorfeed.config import loader

    config = loader.load(
        path, landing_zone=landing_zone, ledger=ledger, staging_path=staging_path, secret_scope=secret_scope
    )
    return Feed(config, spark)


@dataclass(frozen=True, repr=False, eq=False)
class Feed:
    """The tables of a configuration. `load` returns a feed.

    Methods with `tables` accept targets such as `sales.orders`, or sources. By default, they apply to all configured
    tables. A table that fails does not stop the others: its row in the result has an `error`, and `check` of the result
    raises the errors. All methods raise `MirrorfeedError` for an unknown name, and if the landing zone, the ledger or
    Fabric cannot be reached or refuses a request.
    """

    _config: Config
    """Configuration as written, with its patterns."""
    _session: SparkSession | Callable[..., SparkSession] | None = None
    """Session, or a function that starts a session. The arguments of the function are the sources to read."""
    _mirror: str | None = None
    """Folder of the mirrored tables in this deployment."""
    _archived_table: str | None = None
    """First table with an archive in this deployment."""

    @property
    def tables(self) -> tuple[str, ...]:
        """Targets in the order of the configuration, followed by the targets of tables that match its patterns now."""
        return tuple(str(table.target) for table in self._current_config.tables)

    @property
    def landing_zone(self) -> str:
        """Folder or OneLake address where the tables are published."""
        return self._config.landing_zone

    def sources(self) -> Result[results.Listed]:
        """Return each table that has an entry in the configuration or matches a pattern.

        A row shows whether the table is selected and why, its keys, and the kinds of changes that can be published. The
        catalog is read for patterns, and for keys that are not configured. A row has an `error` if its source is
        missing or has columns that do not fit the entry. Without a session, only tables in Unity Catalog and in local
        folders are checked.

        Raises `MirrorfeedError` if a pattern matches nothing, or if two tables have the same target.
        """
        from mirrorfeed.config.pattern_expansion import expand_patterns
        from mirrorfeed.orchestration.dry_run import list_configured_tables

        session = None if callable(self._session) else self._session
        return Result(*list_configured_tables(expand_patterns(self._config, self._spark), session))

    def publish(
        self,
        *tables: str,
        on_step: Callable[[str, str], None] | None = None,
        on_done: Callable[[results.TableResult], None] | None = None,
        stop: Callable[[], bool] | None = None,
    ) -> Result[results.TableResult]:
        """Publish new changes of all configured tables, or only of `tables`.

        Safe to call at any time, also after a failure: unfinished work of earlier runs is completed first, and nothing
        is published twice. Transient errors are retried. A table that fails does not stop the others. Its row has an
        `error`. Without a session, Spark starts only if there is something new.

        `on_step` is called with a table and its current step, `on_done` with the result of each finished table. Both
        are called from several threads. If `stop` returns True, running tables end after their current files, and the
        rows of unfinished tables are `stopped`.
        """
        from mirrorfeed.orchestration.publish_run import publish_new

        return Result(*publish_new(self._spark, self._current_config, tables, on_step, on_done, stop))

    def follow(
        self,
        *tables: str,
        minutes: float | None = None,
        on_done: Callable[[results.TableResult], None] | None = None,
        stop: Callable[[], bool] | None = None,
    ) -> Result[results.TableResult]:
        """Keep running and publish new commits as they arrive, within the limits of `follow` in the configuration.

        Stops between two files, after `minutes` or when `stop` returns True. `on_done` is called with each publication
        and each failed attempt. Returns the newest result of each table that was published.

        Raises `MirrorfeedError` if a table has no change data feed to follow.
        """
        from mirrorfeed.orchestration.publish_run import follow_tables, stop_after

        ends, config = stop_after(minutes, stop), self._current_config  # the time starts before Spark does
        return Result(*follow_tables(self._spark(), config, tables, self._config, ends, on_done))

    def publisher(self, *tables: str) -> Callable[[DataFrame, int], None]:
        """Return a function for `foreachBatch` of any stream. The function publishes the tables once per batch.

        The rows of a batch are not read. If publishing fails, the batch fails, and Spark repeats the batch.
        """
        from mirrorfeed.orchestration.publish_run import publisher

        return publisher(self._config, *tables)

    def dry_run(self, *tables: str) -> Result[results.Decision]:
        """Return the next step of `publish` for each table, or the reason why it would fail. Changes nothing."""
        from mirrorfeed.orchestration.dry_run import plan_next_steps

        return Result(tuple(plan_next_steps(self._spark, self._current_config, tables)))

    def status(
        self, *tables: str, behind: bool = False, fabric: bool = False, mirror: str | None = None
    ) -> Result[results.Status]:
        """Return how far each table is published, consumed and mirrored, most urgent tables first. Changes nothing.

        With `behind`, tables with nothing to publish are left out. With `fabric`, Fabric and its SQL endpoint are read
        as well, and the endpoint loads new changes. `mirror` is the folder of the replicated tables.
        """
        from mirrorfeed.monitor.status import read_status

        config = self._current_config
        return Result(*read_status(self._spark, config, tables, behind=behind, fabric=fabric, mirror=mirror))

    def verify(self, *tables: str, mirror: str | None = None, shown: int = 5) -> Result[results.Comparison]:
        """Compare sources and mirrors row by row, at the version that each mirror shows.

        `mirror` is the folder of the replicated tables. The default is the folder of the deployment, or the tables of
        the mirrored database in OneLake. Each row has up to `shown` differences.

        Writes the results to the ledger. If at most `auto_repair_max_keys` keys of a table differ, their rows are
        published again, and the table is still not `ok`. A table that was never published has an `error`.

        Raises `MirrorfeedError` if the location of the mirror is unknown.
        """
        from mirrorfeed.mirror.verify import mirrors_folder
        from mirrorfeed.orchestration.verify_and_repair import verify_tables

        config, problems = self._current_config, list[MirrorfeedError]()
        config.select(tables)
        folder = mirrors_folder(config, mirror or self._mirror)
        rows = verify_tables(self._spark(), config, tables, folder, shown, problems.append)
        return Result(tuple(rows), tuple(map(with_code, problems)))

    def repair(
        self,
        table: str,
        mirror: str | None = None,
        where: str | None = None,
        *,
        source_only: bool = False,
        on_step: Callable[[str, str], None] | None = None,
    ) -> Result[results.Repair]:
        """Publish again the rows of a table that differ in its mirror or, with `where`, all rows that match a
        condition.

        The table remains available in Fabric. `mirror` is the same as in `verify`. With `source_only`, the mirror is
        not read, so rows that exist only in the mirror are not deleted. `source_only` requires `where`. The `error` of
        a row names rows that could not be repaired.

        Raises `MirrorfeedError` if the table was never published, or if only `rebuild` can repair the table.
        """
        from mirrorfeed.api.errors import ConditionMissing
        from mirrorfeed.mirror.verify import mirrors_folder
        from mirrorfeed.orchestration.publish_run import run_context
        from mirrorfeed.orchestration.verify_and_repair import repair_table

        config, problems = self._current_config, list[MirrorfeedError]()
        selected = config.select([table])
        if source_only and where is None:
            raise ConditionMissing()
        folder = None if source_only else mirrors_folder(config, mirror or self._mirror)
        context = run_context(self._spark(), config, problems, on_step)
        progress.info("%s: reading the rows to publish again", table)
        rows = tuple(repair_table(context, each, folder, where) for each in selected)
        return Result(rows, tuple(map(with_code, problems)))

    def rebuild(
        self,
        table: str,
        minutes: float = 10.0,
        confirm: Callable[..., None] | None = None,
        *,
        on_step: Callable[[str, str], None] | None = None,
        on_done: Callable[[results.TableResult], None] | None = None,
        stop: Callable[[], bool] | None = None,
    ) -> Result[results.TableResult]:
        """Delete a table in the landing zone, wait until Fabric has dropped it, and publish it again from the start.

        Waits up to `minutes`. Fabric does not have the table until it is published. After a failure, call the method
        again. `confirm` is called with the consequences before anything is deleted, and can raise an error to prevent
        the deletion. `on_step`, `on_done` and `stop` are the same as in `publish`.

        Raises `MirrorfeedError` if no snapshot could follow (then nothing is deleted), or if Fabric does not drop the
        table in time.
        """
        from mirrorfeed.orchestration.table_reload import rebuild

        config, seconds = self._current_config, minutes * 60
        return Result(*rebuild(self._spark, config, table, seconds, confirm, on_step, on_done, stop))

    def log(self, table: str) -> Result[results.LogRecord]:
        """Return the recorded publications of a target, newest first. Compares the files of the newest publication with
        its record.

        Reads these files completely, changes nothing, and needs no Spark.
        """
        from mirrorfeed.landing.names import Target
        from mirrorfeed.publish.table_log.audit import audit_log

        target = Target.parse(table)
        progress.info("Reading the log of %s and the files of its newest publication", target)
        audit = audit_log(self._zone, target)
        if audit is None:
            if not self._config.patterns:
                self._config.select([table])  # an unknown name is an error
            return Result((), summary=f"{target} has no log, because nothing was published.")
        return Result(*audit)

    def lint(self, check_keys: bool = False) -> Result[results.LintFinding]:
        """Check all tables of the landing zone, of any publisher, against the specification of open mirroring.

        Changes nothing, and needs no Spark. Duplicate keys are searched in tables with up to 64 MiB of data files, or
        in all tables with `check_keys`.
        """
        from mirrorfeed.lint.linter import lint

        progress.info("Checking %s", self.landing_zone)
        report = lint(self._zone, check_keys)
        return Result(report.findings, report.notes, summary=report.summary)

    def replicate(
        self,
        folder: str,
        poll_seconds: float | None = None,
        on_pass: Callable[[Result[results.TableReport]], None] | None = None,
        stop: Callable[[], bool] | None = None,
    ) -> Result[results.TableReport]:
        """Apply the landing zone to Delta tables below `folder`, as Fabric would. For tests without Fabric.

        With `poll_seconds`, passes are repeated until `stop` returns True, and `on_pass` is called with the result of
        each. Returns the result of the last pass. Raises `MirrorfeedError` if a package is missing.
        """
        from mirrorfeed.api.errors import ReplicaMissing

        try:
            from mirrorfeed.mirror import local_replica
        except ModuleNotFoundError as error:
            raise ReplicaMissing(module=error.name or "") from error
        service = local_replica.Replica(self._zone, str(Path(folder).resolve()))
        result: Result[results.TableReport] = Result(())
        passes = (
            [service.run_pass()]
            if poll_seconds is None
            else local_replica.run_passes(service, poll_seconds, stop or bool)
        )
        for outcome in passes:
            reports = () if isinstance(outcome, MirrorfeedError) else tuple(outcome)
            notes = (with_code(outcome),) if isinstance(outcome, MirrorfeedError) else ()
            result = Result(reports, notes, "" if reports else "The landing zone contains no tables.")
            if on_pass:
                on_pass(result)
        return result

    def doctor(
        self, *tables: str, fix: bool = False, setup: bool = False, live: bool = False
    ) -> Result[results.Finding]:
        """Diagnose problems between the source tables and Fabric, and suggest a fix for each.

        With `fix`, apply the fixes that do only what every run does first. With `setup`, check instead what publishing
        needs (permissions, credential, landing zone and sources), and create the ledger. With `live`, check instead the
        behavior of the platform, for which no table may be named.
        """
        if setup or live:
            from mirrorfeed.monitor.setup_checks import check_live, check_setup

            return Result(tuple((check_live if live else check_setup)(self._spark(), self._current_config)))
        from mirrorfeed.monitor.doctor import diagnose

        return Result(*diagnose(self._spark, self._current_config, tables, fix=fix))

    def check_alerts(self, mirror: str | None = None) -> Result[results.Alert]:
        """Check all tables and send an alert for each new problem and each resolved one, as configured in `alerts`.

        A row is a current problem, or one that this check found resolved. A row is not `ok` if the problem is new or an
        alert could not be sent. `mirror` is the folder of the replicated tables.
        """
        from mirrorfeed.monitor.alerts import check_alerts

        return Result(*check_alerts(self._spark, self._current_config, mirror))

    def enable_cdf(self, *tables: str) -> Result[Enabled]:
        """Turn on the change data feed of the sources where it is off. The feed does not contain earlier changes."""
        from mirrorfeed.orchestration.publish_run import delta_sources
        from mirrorfeed.source.change_feed import DEFAULT_LINE

        selected = self._current_config.select(tables)
        spark = self._spark(*delta_sources(selected))
        rows = tuple(_enable_feed(spark, table) for table in selected)
        return Result(rows, (f"To turn on the feed of all new tables, add to the Spark configuration: {DEFAULT_LINE}",))

    def changes(
        self,
        table: str,
        start: str | int | None = None,
        end: str | int | None = None,
        past_end: Literal["error", "empty"] = "error",
    ) -> results.Changes:
        """Return the change data feed of a table from one version or time to another, both inclusive.

        `table` is a table of the configuration, or any other name or path. Without `start`, the changes start at the
        first version that has a feed. Without `end`, they end at the newest version. A bound after the newest version
        is an error or, with `past_end="empty"`, is reduced to the newest version.

        Raises `MirrorfeedError` if the history does not reach that far, or the changes cannot be read.
        """
        from mirrorfeed.api.changes import Changes
        from mirrorfeed.source.change_feed import first_version_with_feed
        from mirrorfeed.source.change_preview import changes_between

        source = self._source(table)
        spark = self._spark(source)
        progress.info("Reading the feed of %s", source)
        start = first_version_with_feed(spark, source) if start is None else start
        range_, rows = changes_between(spark, source, 0 if start is None else start, end, past_end)
        first, last = range_.from_version_exclusive, range_.to_version_inclusive
        return Changes(str(source), first, last, rows.orderBy("_commit_version"))

    def append_history(self, *tables: str, begin_again: bool = False) -> Result[results.Append]:
        """Append new versions to the permanent histories of the tables.

        With `begin_again`, a history continues with a snapshot if the source has lost versions.

        Raises `MirrorfeedError` if none of the tables has a history, or a named table has none.
        """
        from mirrorfeed.orchestration.histories import append_histories

        return Result(tuple(append_histories(self._spark, self._current_config, tables, begin_again=begin_again)))

    def history(self, *tables: str) -> Result[results.History]:
        """Return the versions that the permanent histories of the tables contain, and their lag. Changes nothing.

        Raises `MirrorfeedError` if none of the tables has a history, or a named table has none.
        """
        from mirrorfeed.orchestration.histories import read_histories

        return Result(tuple(read_histories(self._spark, self._current_config, tables)))

    def replay_history(self, table: str, into: str, at: int | str) -> Result[results.Replay]:
        """Rebuild a table in the new table `into` as of a version, or as of a time in the session's time zone.

        The source is not read. Raises `MirrorfeedError` if the history does not contain the version, or another table
        has the name `into`.
        """
        from mirrorfeed.history.replay import replay
        from mirrorfeed.orchestration.histories import select_tables
        from mirrorfeed.source.identifier import Source

        (configured,) = select_tables(self._current_config, [table])
        assert configured.history is not None
        copy = Source.parse_argument(into)
        spark = self._spark()
        progress.info("Rebuilding %s from %s", configured.target, configured.history.table)
        return Result((replay(spark, configured.history.table, copy, at),))

    def partner(self, force: bool = False) -> Result[PartnerFile]:
        """Write `partner` of the configuration to the landing zone. `publish` does the same if the file does not
        exist.

        Raises `MirrorfeedError` if the file has other content. With `force`, the file is overwritten.
        """
        from mirrorfeed.landing.output_format import PARTNER_EVENTS
        from mirrorfeed.publish.table_log.metadata_files import write_partner_events

        if self._config.partner is None:
            return Result((), summary="The configuration does not set `partner`, so there is nothing to write.")
        written = write_partner_events(self._zone, self._config, force=force)
        return Result((PartnerFile(self._zone.address(PARTNER_EVENTS), written),))

    def drop(self, table: str, confirm: Callable[..., None] | None = None) -> Result[results.DroppedTable]:
        """Delete a table that is no longer configured from the landing zone, so that Fabric drops it.

        `confirm` is called with the consequences before anything is deleted, and can raise an error to prevent the
        deletion.

        Raises `MirrorfeedError` if the table is configured, or if mirrorfeed did not publish it.
        """
        from mirrorfeed.orchestration.orphaned_targets import drop_table

        return Result((drop_table(self._current_config, table, confirm),))

    def report(self) -> results.Report:
        """Return lag, state of tables and mirrors, rows and sizes per day, archives and failures, from the ledger.

        A notebook shows the report with charts. Raises `MirrorfeedError` if the configuration has no ledger.
        """
        from mirrorfeed.monitor.report import report_of

        return report_of(self._spark, self._config)

    def chart(self) -> Chart:
        """Return two charts of the report: lag from commit to publication, and rows per day by operation.

        Both are empty if the configuration has no ledger.
        """
        from mirrorfeed.monitor.report import publication_chart

        return publication_chart(self._spark, self._config.ledger)

    def fabric_create(self, name: str) -> Result[results.CreatedDatabase]:
        """Create an open mirrored database in the workspace of the landing zone, if it is missing. Needs no Spark."""
        from mirrorfeed.mirror.fabric import create_configured

        return Result((create_configured(self._config, name),))

    def fabric_start(self, *, force: bool = False, minutes: float = 10.0) -> Result[results.DatabaseStatus]:
        """Start mirroring, and wait until it is running.

        Raises `MirrorfeedError` if a table has no file yet (unless `force` is set), or if mirroring is not running in
        time.
        """
        from mirrorfeed.api.errors import NothingToMirror
        from mirrorfeed.config.model import without_files

        database = self._database  # report an error in the address first
        if not force and (tables := without_files(self._current_config)):
            raise NothingToMirror(tables=tables)
        return _switch_mirroring(database, database.start, minutes)

    def fabric_stop(self, minutes: float = 10.0) -> Result[results.DatabaseStatus]:
        """Stop mirroring, and wait until it has stopped. After the next start, Fabric replicates every table from the
        start."""
        database = self._database
        return _switch_mirroring(database, database.stop, minutes)

    def fabric_resume(self, minutes: float = 10.0) -> Result[results.DatabaseStatus]:
        """Start mirroring that is Paused because its capacity was paused, and wait until it is running.

        Raises `MirrorfeedError` if mirroring is stopped, or is not running in time.
        """
        database = self._database
        return _switch_mirroring(database, database.resume, minutes)

    def fabric_status(self) -> Result[results.TableState]:
        """Return the status of each table as Fabric reports it, and the database's status as a note. Needs no Spark."""
        database = self._database
        status, rows = database.status(), tuple(database.tables())
        note, summary = f"The mirrored database is {status}.", "" if rows else "The mirrored database has no tables."
        return Result(rows, (note,), summary)

    def fabric_plan(self) -> Result[results.Setting]:
        """Return the settings of the mirrored database that differ from `fabric` in the configuration. Needs no
        Spark."""
        from mirrorfeed.mirror.fabric import plan_settings

        return Result(*plan_settings(self._config))

    def fabric_apply(self, confirm: Callable[..., None] | None = None) -> Result[results.Setting]:
        """Change the settings that `fabric_plan` shows, except those that cannot be changed. Returns the changed
        settings.

        `confirm` is called with the changes before anything is changed, and can raise an error to prevent the change.
        """
        from mirrorfeed.mirror.fabric import apply_settings

        return Result(*apply_settings(self._config, confirm))

    def fabric_refresh(self) -> Result[results.TableSync]:
        """Refresh the SQL endpoint of the mirrored database, and return its report for each table. Uses capacity."""
        progress.info("Refreshing the SQL endpoint")
        rows = tuple(self._database.refresh())
        return Result(rows, summary="" if rows else "The SQL endpoint has no tables.")

    def archive(self, table: str | None = None) -> ArchiveAwareTable:
        """Return a table whose old files are in an archive tier.

        `table` is a target or source of the configuration, or any other name or path. None means the first archived
        table of the deployment. Raises `MirrorfeedError` if there is none.
        """
        from mirrorfeed.api.archive_table import ArchiveAwareTable
        from mirrorfeed.api.errors import NoArchiveNamed

        name = table or self._archived_table
        if name is None:
            raise NoArchiveNamed()
        return ArchiveAwareTable(self._spark, self._source(name), prices=self._prices(None), ledger=self._config.ledger)

    def archive_plan(
        self,
        query: str,
        *,
        priority: Literal["standard", "high"] = "standard",
        prices: str | Prices | None = None,
        save_as: str | None = None,
    ) -> results.RestorePlan:
        """Return a plan that restores the archived files that a query needs, over any number of tables.

        Reads no data file, and requests nothing. `save_as` is a new file for the plan.
        """
        from mirrorfeed.archive.restore import plan_restore
        from mirrorfeed.archive.restore_planner import plan_statement

        plan = partial(plan_statement, sql=query)
        return plan_restore(self._spark, plan, priority, self._prices(prices), save_as)

    def archive_restore(
        self,
        plan: results.RestorePlan | str,
        *,
        wait: bool = True,
        poll_seconds: float = 300.0,
        tier: Literal["hot", "cool", "cold"] = "hot",
        keep_days: int | None = None,
        into: str | None = None,
        rows: int | None = None,
        prices: str | Prices | None = None,
        on_step: Callable[[str], None] | None = None,
    ) -> results.Restoring:
        """Request the files of a plan (or of its file) and, with `wait`, wait until all are restored.

        Then copy the rows of the plan's query into the new table `into`, or return the first `rows` rows. `on_step` is
        called with the costs and with each progress in words. You can stop the method and call it again at any time.
        """
        from mirrorfeed.archive.restore import restore
        from mirrorfeed.archive.restore_plan import Terms
        from mirrorfeed.storage.tier_store import Tier

        terms, rates = Terms(Tier[tier.upper()], keep_days), self._prices(prices)
        poll = poll_seconds if wait else None
        return restore(self._spark, plan, terms, rates, poll, into, rows, on_step or (lambda _: None))

    def archive_report(self, *tables: str, prices: str | Prices | None = None) -> Result[results.Share]:
        """Return the archived share of each table with monthly costs, and write it to the ledger.

        The default for `tables` is all configured tables with an archive.
        """
        from mirrorfeed.api.archive_table import report_shares

        rates, sources = self._prices(prices), [self._source(table) for table in tables]
        sources = sources or [table.source for table in self._current_config.tables]
        return report_shares(self._spark(), sources, rates, self._config.ledger, with_archive_only=not tables)

    def _source(self, table: str) -> Source:
        """Return the source of a configured table, or of any other name or path."""
        from mirrorfeed.config.errors import UnknownTable
        from mirrorfeed.source.identifier import Source

        try:
            return self._current_config.select([table])[0].source
        except UnknownTable:
            return Source.parse_argument(table)

    def _prices(self, prices: str | Prices | None) -> Prices | None:
        from mirrorfeed.storage.prices import load_prices

        return load_prices(prices, self._config.archive.prices if self._config.archive else None)

    @property
    def _current_config(self) -> Config:
        """Configuration with the tables that its patterns match now. Lists the catalog at every access."""
        from mirrorfeed.config.pattern_expansion import expand_patterns

        return expand_patterns(self._config, self._spark).config

    @property
    def _zone(self) -> Store:
        from mirrorfeed.config.model import zone_of

        return zone_of(self._config)

    @property
    def _database(self) -> MirroredDatabase:
        from mirrorfeed.mirror.fabric import database_of

        return database_of(self._config)

    def _spark(self, *sources: Source) -> SparkSession:
        """Return the session. A command raises `NoTableAtPath` instead of starting one if no source exists."""
        if self._session is None:
            from mirrorfeed.runtime.spark_session import get_session

            return get_session()
        return self._session(*sources) if callable(self._session) else self._session

    def __repr__(self) -> str:
        names = [str(table.target) for table in self._config.tables]
        names += [str(pattern.sources) for pattern in self._config.patterns]
        return f"<feed of {self._config.path}: {', '.join(names)}, into {self.landing_zone}>"

    def _repr_html_(self) -> str:
        from mirrorfeed.display.html import html_of

        entries = [(str(table.target), str(table.source), table.keys) for table in self._config.tables]
        entries += [(each.target, str(each.sources), each.keys) for each in self._config.patterns]
        unknown = ("keys in Unity Catalog",)
        rows = [Configured(target, source, unknown if keys is None else keys) for target, source, keys in entries]
        return html_of(rows, (f"{self._config.path}, into {self.landing_zone}",))


def _enable_feed(spark: SparkSession, table: Table) -> Enabled:
    from mirrorfeed.publish.change_sources.full_compare import COMPARED
    from mirrorfeed.source.change_feed import enable_feed

    name, source = str(table.target), str(table.source)
    if table.changes == "compare":
        return Enabled(name, source, COMPARED)
    progress.info("Enabling the change data feed of %s", source)
    try:
        return Enabled(name, source, enable_feed(spark, table.source))
    except Exception as error:
        return Enabled(name, source, None, wrap_error(f"Enabling the feed of {source}", error))


def _switch_mirroring(
    database: MirroredDatabase, switch: Callable[[Callable[[str], None], float], None], minutes: float
) -> Result[results.DatabaseStatus]:
    from mirrorfeed.mirror.fabric.status_and_settings import DatabaseStatus

    switch(partial(progress.info, "The mirrored database is %s"), minutes * 60)
    return Result((DatabaseStatus(database.status()),))
