"""`Feed`: the operations that jobs, notebooks and commands can run on the configured tables."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from mirrorfeed.api.results import Configured, Enabled, Result
from mirrorfeed.config import FILE, loader
from mirrorfeed.config.model import Config, Table, zone_of
from mirrorfeed.config.pattern_expansion import expand_patterns
from mirrorfeed.display.progress import progress
from mirrorfeed.errors import MirrorfeedError, with_code, wrap_error
from mirrorfeed.errors.callbacks import guard_callback
from mirrorfeed.landing.names import Target
from mirrorfeed.source.identifier import Source

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from mirrorfeed.api import results
    from mirrorfeed.api.archive import Archive
    from mirrorfeed.api.fabric import Fabric
    from mirrorfeed.api.history import Histories
    from mirrorfeed.api.setup import Setup
    from mirrorfeed.source.snapshot_or_range import Range
    from mirrorfeed.source.table_info import TableInfo
    from mirrorfeed.storage import Store


def load(
    path: str | Path = FILE,
    spark: SparkSession | None = None,
    *,
    landing_zone: str | None = None,
    ledger: str | None = None,
    staging_path: str | None = None,
    secret_scope: str | None = None,
    variables: Mapping[str, str] | None = None,
) -> Feed:
    """Read a configuration file and return the `Feed` of its tables. Publishes nothing and does not start Spark.

    Raises `MirrorfeedError` with all mistakes in the file and their lines.

    Args:
        path: Path of the configuration file.
        spark: Session to use. By default, the active session, or a session that is started when it is first needed.
        landing_zone: Overrides `landing_zone` in the file.
        ledger: Overrides `ledger` in the file.
        staging_path: Overrides `staging_path` in the file.
        secret_scope: Databricks secret scope of all secrets that have a `key` but no `scope` in the file.
        variables: Texts of variables in the file, such as `{"catalog": "dev"}` for `${catalog}`.
    """
    overrides = {"landing_zone": landing_zone, "ledger": ledger, "staging_path": staging_path}
    return Feed(loader.load(path, secret_scope=secret_scope, variables=variables, **overrides), spark)


@dataclass(frozen=True, repr=False, eq=False)
class Feed:
    """Operations on the tables of a configuration file. `load` returns a `Feed`.

    A method has the name of the command with the same effect. The operations on one subject are methods of `setup`,
    `fabric`, `history` and `archive`, as in `feed.fabric.start()`.

    A method with the parameter `tables` accepts targets such as `sales.orders`, or sources. By default, it applies to
    all configured tables. A table that fails does not stop the others: its row in the result has an `error`.
    `Result.check` then raises one error with all failed rows.

    Methods that require a configured table raise `MirrorfeedError` for any other table. All methods raise this error if
    a service that all tables need, such as the landing zone or Fabric, cannot be reached or rejects a request.
    """

    _config: Config
    """Configuration whose patterns are not expanded."""
    _session: SparkSession | Callable[..., SparkSession] | None = None
    """Session, or a function that returns the session to read given sources. None means the active or a new one."""
    _mirror: str | None = None
    """Folder of the mirrored tables. Only `mirrorfeed.api.notebook.deployed` sets this field."""
    _archived_table: str | None = None
    """Default table of `archive.table`. Only `mirrorfeed.api.notebook.deployed` sets this field."""

    @property
    def tables(self) -> tuple[str, ...]:
        """Targets of configured tables, then of tables that match patterns. Every access searches for matches again."""
        return tuple(str(table.target) for table in self._current_config.tables)

    @property
    def landing_zone(self) -> str:
        """Folder or OneLake address where the tables are published."""
        return self._config.landing_zone

    @property
    def setup(self) -> Setup:
        """Operations before the first publication."""
        from mirrorfeed.api.setup import Setup

        return Setup(self, self._config, self._spark)

    @property
    def fabric(self) -> Fabric:
        """Operations on the mirrored database in Fabric."""
        from mirrorfeed.api.fabric import Fabric

        return Fabric(self._config, self._spark)

    @property
    def history(self) -> Histories:
        """Operations on the permanent histories of the configured tables."""
        from mirrorfeed.api.history import Histories

        return Histories(self._config, self._spark)

    @property
    def archive(self) -> Archive:
        """Operations on tables whose old files are in an archive tier."""
        from mirrorfeed.api.archive import Archive

        return Archive(self._config, self._spark, self._archived_table)

    def sources(self) -> Result[results.Listed]:
        """Return a row for each table that has an entry in the configuration or matches a pattern.

        The row shows whether the table is selected and why, its keys, and whether inserts, updates and deletes can be
        published. It has an `error` if the source is missing, or has columns that cannot be published as configured.
        The method lists Unity Catalog to find tables that match a pattern, and reads there the keys that are not
        configured. If `load` got no Spark session, only sources in Unity Catalog and in local folders are checked.
        Raises `MirrorfeedError` if a pattern selects no table, or if two tables have the same target or history.
        """
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
        """Publish new changes of all configured tables, or only of `tables`. Return the result of each table.

        Safe to call at any time, also after a failure: unfinished work of earlier runs is completed first, and nothing
        is published twice. Transient errors are retried. For a paused table, the result has a note, but no row. If
        `load` got no Spark session, Spark starts only if there are new changes.

        Args:
            tables: Tables to publish. By default, all configured tables.
            on_step: Called with the name of a table and its current step, from several threads.
            on_done: Called with the result of each finished table.
            stop: Checked often. When it returns True, each running table stops after its current publication, and the
                result of each unfinished table is `stopped`.
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
        """Keep running, and publish new commits of all configured tables, or only of `tables`.

        The section `follow` of the configuration has three limits: the seconds since the last publication of a table,
        and the rows and bytes of its new commits. New commits are published as soon as one of the limits is reached.

        Returns the newest result of each table. Raises `MirrorfeedError` if a table has `changes: compare`.

        Args:
            tables: Tables to publish. By default, all configured tables.
            minutes: Time after which the method completes current publications and returns. By default, it runs
                forever.
            on_done: Called with the result of each publication and of each failed attempt.
            stop: Checked often. When it returns True, the method completes current publications and returns.
        """
        from mirrorfeed.orchestration.follow import follow_tables, stop_after

        ends, config = stop_after(minutes, stop), self._current_config  # `minutes` include the start of Spark
        return Result(*follow_tables(self._spark(), config, tables, self._config, ends, on_done))

    def publisher(self, *tables: str) -> Callable[[DataFrame, int], None]:
        """Return a function for `foreachBatch` of any stream. The function publishes the tables once per batch.

        The function does not read the rows of the batch. If a table fails, the function raises `MirrorfeedError`. Then
        the batch fails, and Spark repeats it.
        """
        from mirrorfeed.orchestration.follow import publisher

        return publisher(self._config, *tables)

    def dry_run(self, *tables: str) -> Result[results.Decision]:
        """Return the next step of `publish` for each table, with an `error` if the step would fail. Changes nothing.

        A note lists the variables of the configuration file.
        """
        from mirrorfeed.orchestration.dry_run import note_variables, plan_next_steps, summarize

        steps = tuple(plan_next_steps(self._spark, self._current_config, tables))
        return Result(steps, note_variables(self._config), summarize(steps))

    def status(
        self, *tables: str, behind: bool = False, fabric: bool = False, mirror: str | None = None
    ) -> Result[results.Status]:
        """Return published version, lag and number of unconsumed files for each table, most urgent first.

        Publishes nothing.

        Args:
            tables: Tables to read. By default, all configured tables.
            behind: Return only tables that fail, have unpublished changes, were never published or are paused.
            fabric: Add the status of each table in Fabric, and refresh the SQL endpoint. The refresh consumes computing
                time of the Fabric capacity.
            mirror: Folder of the mirrored tables. Adds the time of the last update of each mirror.
        """
        from mirrorfeed.monitor.status import read_status

        config = self._current_config
        return Result(*read_status(self._spark, config, tables, behind=behind, fabric=fabric, mirror=mirror))

    def verify(
        self,
        *tables: str,
        mirror: str | None = None,
        shown: int = 5,
        since_last: bool = False,
        sample: int = 0,
        quick: bool = False,
    ) -> Result[results.Comparison]:
        """Compare sources and mirrors row by row, at the version that each mirror shows. Return a row for each table.

        Writes the results to the ledger. If at most `auto_repair_max_keys` keys of a table differ, these keys are
        published again. The result of this table is still not `ok`. The result of a table that was never published has
        an `error`. Raises `MirrorfeedError` if there is neither a folder nor a mirrored database.

        Args:
            tables: Tables to compare. By default, all configured tables.
            mirror: Folder of the mirrored tables. The default in a notebook is the folder that the widget `mirror` or
                the Databricks bundle sets. Without a folder, the mirrored database in OneLake is read.
            shown: Maximum number of differences in the result of a table.
            since_last: Compare only the keys that changed since the last verification that found source and mirror
                equal, and count all rows. The result of a table without such a verification has an `error`.
            sample: With `since_last`, also compare this number of random rows.
            quick: Compare only the numbers of rows from the Delta logs, and write and repair nothing. The result of a
                table whose logs do not have the numbers is "not known", and `ok`.
        """
        from mirrorfeed.orchestration.quick_verification import verify_or_count

        rows, problems = verify_or_count(
            self._spark, self._current_config, tables, mirror or self._mirror, shown, quick, since_last, sample
        )
        return Result(rows, tuple(map(with_code, problems)))

    def repair(
        self,
        table: str,
        mirror: str | None = None,
        where: str | None = None,
        *,
        source_only: bool = False,
        on_step: Callable[[str, str], None] | None = None,
    ) -> Result[results.Repair]:
        """Publish again the rows of a table that differ between source and mirror. Return the result.

        The table remains available in Fabric. If some rows cannot be repaired, the result has an `error`. Raises
        `MirrorfeedError` if the table was never published, if the table is published by comparison
        (`changes: compare`), or if only `rebuild` can repair the table.

        Args:
            table: Table to repair.
            mirror: Folder of the mirrored tables, with the same default as in `verify`.
            where: SQL condition. Only the matching rows are published again, whether they differ or not.
            source_only: Do not read the mirror, so rows that exist only in the mirror are not deleted. Requires
                `where`.
            on_step: Called with the name of the table and its current step.
        """
        from mirrorfeed.mirror.verify import mirrors_folder
        from mirrorfeed.orchestration.run_context import Callbacks, RunContext
        from mirrorfeed.orchestration.verify_and_repair import repair_table

        config, problems = self._current_config, list[MirrorfeedError]()
        selected = config.select([table])
        if source_only and where is None:
            from mirrorfeed.api.errors import condition_missing

            raise condition_missing()
        folder = None if source_only else mirrors_folder(config, mirror or self._mirror)
        context = RunContext(self._spark(), config, Callbacks.guarded(problems.append, on_step))
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

        Fabric does not have the table until it is published. After a failure, call the method again. The result is the
        same as in `publish`. Raises `MirrorfeedError` if no snapshot of the source can be read (then nothing is
        deleted), or if Fabric does not drop the table in time.

        Args:
            table: Table to rebuild.
            minutes: Maximum time to wait until Fabric has dropped the table.
            confirm: Called with a description of the consequences before anything is deleted. To stop, it can raise an
                error.
            on_step: Called with the name of the table and its current step.
            on_done: Called with the result of the table.
            stop: Checked often. When it returns True, the table stops after its current publication, and its result is
                `stopped`.
        """
        from mirrorfeed.orchestration.rebuild import rebuild

        config, seconds = self._current_config, minutes * 60
        return Result(*rebuild(self._spark, config, table, seconds, confirm, on_step, on_done, stop))

    def adopt(self, table: str, published: int, mirror: str | None = None) -> Result[results.AdoptedTable]:
        """Continue the folder of a table that another publisher has filled, without a reload. Return the result.

        `published` is the version of the source up to which the other publisher has published. Stop that publisher
        first. `mirror` is the folder of the mirrored tables, with the same default as in `verify`: the mirror is
        compared with this version. Without a mirror, nothing proves the version. Raises `MirrorfeedError`, and writes
        nothing, if publishing cannot continue, for example because keys differ or files are not consumed.
        """
        from mirrorfeed.mirror.verify import mirrors_folder
        from mirrorfeed.orchestration.adopt import adopt_table

        config, folder = self._current_config, mirror or self._mirror
        if folder or config.onelake:
            folder = mirrors_folder(config, folder)
        return Result((adopt_table(self._spark, config, table, published, folder),))

    def log(self, table: str) -> Result[results.LogRecord]:
        """Return the recorded publications of a target, newest first. Empty if nothing was published.

        Reads the files of the newest publication completely. If a file is missing or differs from its log record, the
        first row has an `error`. Changes nothing, and needs no Spark. Raises `MirrorfeedError` if `table` is neither
        published nor configured, and the configuration does not select source tables by a pattern.
        """
        from mirrorfeed.publish.table_log.audit import audit_log

        target = Target.parse(table)
        progress.info("Reading the log of %s and the files of its newest publication", target)
        audit = audit_log(self._zone, target)
        if audit is None:
            if not self._config.patterns:
                self._config.select([table])  # an unknown name is an error
            return Result((), summary=f"{target} has no log, because nothing was published.")
        return Result(*audit)

    def history_view(self, table: str, name: str | None = None) -> Result[results.HistoryView]:
        """Return the T-SQL of a view that shows when each row of a table with `delivery: append` was valid.

        Run the statement on the SQL endpoint of the mirrored database. The view has the columns of the source, and
        `valid_from`, `valid_to` and `is_current`. `name` is the name of the view, by default `<table>_history`. Changes
        nothing, and needs no Spark. Raises `MirrorfeedError` if the table is not published, or has no keys or another
        delivery mode.
        """
        from mirrorfeed.api.history_view import view_of

        return Result((view_of(self._zone, self._current_config, table, name),))

    def lint(self, check_keys: bool = False) -> Result[results.LintFinding]:
        """Check all tables of the landing zone against the specification of open mirroring, and return the findings.

        Also checks tables that mirrorfeed did not publish. Changes nothing, and needs no Spark. Searches for duplicate
        keys in tables with up to 64 MiB of data files or, with `check_keys`, in all tables. A note names published
        tables without an entry in the configuration, if the configuration has no patterns.
        """
        from mirrorfeed.lint.linter import lint
        from mirrorfeed.orchestration.orphaned_targets import orphans_problem

        progress.info("Checking %s", self.landing_zone)
        findings, notes, summary = lint(self._zone, check_keys)
        is_complete = bool(self._config.tables) and not self._config.patterns
        orphans = orphans_problem(self._config) if is_complete else None
        return Result(tuple(findings), (*notes, *([with_code(orphans)] if orphans else [])), summary=summary)

    def replicate(
        self,
        folder: str,
        poll_seconds: float | None = None,
        on_pass: Callable[[Result[results.TableReport]], None] | None = None,
        stop: Callable[[], bool] | None = None,
    ) -> Result[results.TableReport]:
        """Apply the landing zone to Delta tables below `folder`, as Fabric would. For tests without Fabric.

        Returns a row for each table, from the last pass. Raises `MirrorfeedError` if a required Python package is not
        installed.

        Args:
            folder: Folder of the Delta tables.
            poll_seconds: Time between two passes. By default, the method makes only one pass.
            on_pass: Called with the result of each pass.
            stop: Checked before each pass. When it returns True, the method returns.
        """
        try:
            from mirrorfeed.mirror import local_replica
        except ModuleNotFoundError as error:
            from mirrorfeed.api.errors import replica_missing

            raise replica_missing(module=error.name or "") from error
        service = local_replica.Replica(self._zone, str(Path(folder).resolve()))
        result: Result[results.TableReport] = Result(())
        problems: list[MirrorfeedError] = []
        show_pass = guard_callback("on_pass", on_pass, problems.append, None)
        ends = guard_callback("stop", stop, problems.append, default=False)
        passes = [service.run_pass()] if poll_seconds is None else local_replica.run_passes(service, poll_seconds, ends)
        for outcome in passes:
            if isinstance(outcome, MirrorfeedError):
                result = Result((), (with_code(outcome),))
            else:
                result = Result(tuple(outcome), summary="" if outcome else "The landing zone contains no tables.")
            show_pass(result)
        return replace(result, notes=(*result.notes, *map(with_code, problems)))

    def doctor(
        self,
        *tables: str,
        fix: bool = False,
        deep: bool = False,
        on_finding: Callable[[results.Finding], None] | None = None,
        stop: Callable[[], bool] | None = None,
    ) -> Result[results.Finding]:
        """Diagnose problems between the source tables and Fabric, and return a finding with a fix for each.

        Args:
            tables: Tables to check, including their rows. By default, all configured tables.
            fix: Also apply the safe fixes. Every run of `publish` applies the same fixes.
            deep: Also read the rows of all sources up to 64 MiB, to find long texts and invalid keys, and the complete
                logs of all tables.
            on_finding: Called with each finding as soon as it is known.
            stop: Checked often. When it returns True, the method returns what it has found.
        """
        from mirrorfeed.monitor.doctor import diagnose

        problems = list[MirrorfeedError]()
        show = guard_callback("on_finding", on_finding, problems.append, None)
        ends = guard_callback("stop", stop, problems.append, default=False)
        found, notes, summary = diagnose(
            self._spark, self._current_config, tables, fix=fix, deep=deep, on_finding=show, stop=ends
        )
        return Result(found, (*notes, *map(with_code, problems)), summary)

    def check_alerts(
        self, mirror: str | None = None, *, deep: bool = False, stop: Callable[[], bool] | None = None
    ) -> Result[results.Alert]:
        """Check all tables and send an alert for each new problem and each resolved one, as configured in `alerts`.

        Returns a row for each current problem and for each problem that is now resolved. A row is not `ok` if the
        problem is new or due for a reminder. A channel that cannot be notified has a row with an `error`. The time of
        the last update of each mirror is read in the folder `mirror` or, by default, in OneLake. `deep` and `stop` have
        the same meaning as in `doctor`.
        """
        from mirrorfeed.monitor.alerts import check_alerts

        problems = list[MirrorfeedError]()
        ends = guard_callback("stop", stop, problems.append, default=False)
        rows, notes, summary = check_alerts(self._spark, self._current_config, mirror, deep=deep, stop=ends)
        return Result(rows, (*notes, *map(with_code, problems)), summary)

    def enable_cdf(self, *tables: str) -> Result[Enabled]:
        """Turn on the change data feed of the sources where it is off, and return the result for each table.

        The feed does not contain earlier changes. Tables that are published by comparison are not changed. Most tables
        in local folders are changed without Spark.
        """
        from mirrorfeed.source.feed_activation import DEFAULT_LINE

        selected = self._current_config.select(tables)
        rows = [_enable_feed(None, table) for table in selected]
        if None in rows:
            spark = self._spark()
            rows = [row or _enable_feed(spark, table) for row, table in zip(rows, selected, strict=True)]
        return Result(
            tuple(filter(None, rows)),
            (f"To turn on the feed of all new tables, add to the Spark configuration: {DEFAULT_LINE}",),
        )

    def changes(
        self,
        table: str,
        start: str | int | None = None,
        end: str | int | None = None,
        past_end: Literal["error", "empty"] = "error",
    ) -> results.Changes:
        """Return the change data feed of a table between two versions or times, both inclusive.

        Raises `MirrorfeedError` if the source no longer has the versions, or if the changes cannot be read.

        Args:
            table: Configured table, or the name or path of any Delta table.
            start: Version, or time in the session's time zone. By default, the first version from which the feed is
                complete.
            end: Version or time. By default, the newest version.
            past_end: If `start` or `end` is after the newest version: `error` raises `MirrorfeedError`, and `empty`
                returns only the changes that exist.
        """
        from mirrorfeed import archive
        from mirrorfeed.api.changes import Changes
        from mirrorfeed.runtime.spark_session import lossless_settings
        from mirrorfeed.source.change_preview import changes_between
        from mirrorfeed.source.feed_activation import first_version_with_feed

        source = self._current_config.source_of(table)
        spark = self._spark(source)
        progress.info("Reading the feed of %s", source)
        start = first_version_with_feed(spark, source) if start is None else start

        def check(range_: Range, found: TableInfo) -> None:
            archive.check(spark, source, range_, found.properties)

        with lossless_settings(spark):  # some of these settings apply when a query is planned
            range_, rows = changes_between(spark, source, 0 if start is None else start, end, past_end, check)
            rows = rows.orderBy("_commit_version")
        return Changes(str(source), range_.from_version_exclusive, range_.to_version_inclusive, rows)

    def drop(self, table: str, confirm: Callable[..., None] | None = None) -> Result[results.DroppedTable]:
        """Delete a published table that the configuration no longer contains, so that Fabric drops the table.

        `table` is the target in the landing zone. Before anything is deleted, `confirm` is called with a description of
        the consequences, and can raise an error to stop. Returns the address and the content of the deleted folder.
        Raises `MirrorfeedError` if the table is configured, or if mirrorfeed did not publish it.
        """
        from mirrorfeed.orchestration.orphaned_targets import drop_table

        return Result((drop_table(self._current_config, table, confirm),))

    def report(self) -> results.Report:
        """Return a report from the ledger: lag, tables, mirrors, archives, failures, and daily rows and sizes.

        Without a ledger, the report has only the state of the tables and the publications that their logs still have,
        and `Report.note` says what is missing. A notebook shows the report with charts.
        """
        if ledger := self._config.ledger:
            from mirrorfeed.monitor.report import report_of

            return report_of(self._spark, ledger)
        from mirrorfeed.monitor.log_report import read_log_report

        return read_log_report(self._spark, self._current_config)

    @property
    def _current_config(self) -> Config:
        """Configuration with the tables that match its patterns now. Every access lists the catalog or folder again."""
        return expand_patterns(self._config, self._spark).config

    @property
    def _zone(self) -> Store:
        return zone_of(self._config)

    def _spark(self, *sources: Source) -> SparkSession:
        """Return the session that `load` got, the active session, or a new one.

        In a command, raises `NoTableAtPathError` instead of starting a session if none of `sources` exists.
        """
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


def _enable_feed(spark: SparkSession | None, table: Table) -> Enabled | None:
    """Turn on the feed of a table. With `spark` None, returns None if Spark is needed."""
    from mirrorfeed.publish.change_sources.full_compare import COMPARED
    from mirrorfeed.source.feed_activation import enable_feed, enable_feed_without_spark

    name, source = str(table.target), str(table.source)
    if table.changes == "compare":
        return Enabled(name, source, COMPARED)
    progress.info("Enabling the change data feed of %s", source)
    try:
        feed = enable_feed(spark, table.source) if spark else enable_feed_without_spark(table.source)
    except Exception as error:
        return Enabled(name, source, None, wrap_error(f"Enabling the feed of {source}", error))
    return Enabled(name, source, feed) if feed else None
