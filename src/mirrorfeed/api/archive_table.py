"""A table with an archive: guarded reads and changes, its interval and lifecycle rules, and restores.

Methods import what needs Spark, so that `import mirrorfeed` does not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

from mirrorfeed.api.results import Result
from mirrorfeed.source.identifier import Source

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from mirrorfeed.api.results import (
        ArchivedFile,
        DataRow,
        FileCheck,
        Interval,
        Lifecycle,
        Maintained,
        Recent,
        RestorePlan,
        Restoring,
        Share,
        Simulation,
    )
    from mirrorfeed.archive.table import GuardedTable
    from mirrorfeed.display.html import Chart
    from mirrorfeed.storage.prices import Prices
    from mirrorfeed.storage.tiers import TierStore

    Session = SparkSession | Callable[[], SparkSession]


class ArchiveAwareTable:
    """A table by its name or path. Every result is correct and complete, or `MirrorfeedError` is raised before anything
    is read: it names the archived files that are needed, and the command that restores them.

    A file that counts as archived may have been restored. If the storage has tiers, the tier of each file is read.
    """

    def __init__(self, spark: Session, name: str | Source) -> None:
        self._session, self._source = spark, Source.parse_here(name) if isinstance(name, str) else name

    @property
    def name(self) -> str:
        """The name or path of the table."""
        return str(self._source)

    @property
    def interval_days(self) -> int:
        """The age in days from which files count as archived. Raises `MirrorfeedError` if the table has no interval."""
        from mirrorfeed.archive import interval as intervals

        return intervals.required(self._spark, self._source).days

    def query(
        self, where: str | None = None, columns: Sequence[str] | None = None, version: int | None = None
    ) -> DataFrame:
        """Return the rows that match a SQL condition, with all or some columns. The default version is the newest."""
        return self._guarded.query(where, columns, version)

    def first(self, count: int = 20, where: str | None = None, columns: Sequence[str] | None = None) -> Result[DataRow]:
        """Return the first rows that match a SQL condition, as JSON values."""
        from mirrorfeed.display.rows import DataRow
        from mirrorfeed.source.change_preview import to_json_rows

        return Result(tuple(map(DataRow, to_json_rows(self.query(where, columns).limit(count)))))

    def count(self, version: int | None = None) -> int:
        """Return the number of rows, from the log if it contains the number."""
        return self._guarded.count(version)

    def bounds(self, column: str, version: int | None = None) -> tuple[Any, Any]:
        """Return the smallest and largest value of a column, from the log if it is exact."""
        return self._guarded.bounds(column, version)

    def partitions(self, version: int | None = None) -> list[dict[str, str | None]]:
        """Return the values of the partition columns as in the log. Reads no data file."""
        return self._guarded.partitions(version)

    def limit(self, n: int, where: str | None = None) -> DataFrame:
        """Return any `n` rows, from active files only. The condition may name only partition columns.

        Raises `MirrorfeedError` also if active files contain fewer rows, and archived files may contain more.
        """
        return self._guarded.limit(n, where)

    def recent(self, columns: Sequence[str] | None = None) -> Recent:
        """Return the rows in active files, and the files that are left out. No other method leaves out rows."""
        return self._guarded.recent(columns)

    def stream(self, starting_version: int | None = None) -> DataFrame:
        """Return a streaming read of the whole table and its changes, or of the changes from a version on."""
        return self._guarded.stream(starting_version)

    def files(
        self, where: str | None = None, version: int | None = None, *, tiers: bool = False
    ) -> Result[ArchivedFile]:
        """Return the archived files that a query with this condition needs, restored or not. Reads no data file.

        With `tiers`, the tier of each file is read from the storage.
        """
        from mirrorfeed.storage.errors import NoTiers

        needed = self._guarded.needed(where, version)
        if tiers and self._tiers is None:
            raise NoTiers(table=self.name)
        rows = self._guarded.files(needed, where, with_tiers=tiers)
        active = "" if needed.active is None else f", besides {needed.active:,} active"
        return Result(tuple(rows), summary=f"{self.name} at version {needed.version}: {len(rows):,} archived{active}")

    def delete(self, where: str) -> None:
        """Delete the rows that match a SQL condition. Changes nothing if that needs an archived file."""
        self._guarded.delete(where)

    def update(self, assignments: Mapping[str, str], where: str | None = None) -> None:
        """Update columns of the rows that match a condition. Assignments are SQL expressions by column. Changes nothing
        if that needs an archived file."""
        self._guarded.update(assignments, where)

    def merge(self, rows: DataFrame, keys: Sequence[str], clauses: str, target_condition: str | None = None) -> None:
        """Merge rows `s` into the table `t` where all keys are equal and `target_condition`, which names columns of `t`
        only, is true. `clauses` are SQL, from the first WHEN on, without subqueries. The rows are read once. Changes
        nothing if that needs an archived file."""
        self._guarded.merge(rows, keys, clauses, target_condition)

    def overwrite(self, rows: DataFrame) -> None:
        """Replace all rows, whatever the partition overwrite mode of the session. Reads no file of the table."""
        self._guarded.overwrite(rows)

    def interval(self) -> Interval:
        """Return the interval of the table, and the number of days that the lifecycle rule must have."""
        from mirrorfeed.archive import interval as intervals

        return intervals.Interval.of(self._source, intervals.required(self._spark, self._source))

    def set_interval(self, interval: str | int) -> Interval:
        """Set or shorten the interval, for example "60 days". Moves no file: the lifecycle rule must be equal."""
        from mirrorfeed.archive import interval as intervals
        from mirrorfeed.archive.interval import days_of

        days = days_of(interval)
        policy = intervals.set_first(self._spark, self._source, days, datetime.now(UTC))
        return intervals.Interval.of(self._source, policy, moved=False)

    def change_interval(self, interval: str | int, *, exact: bool = False, rule_changed: bool = False) -> Interval:
        """Shorten the interval at once, or start to increase it as far as it is safe each day.

        With `exact`, it is increased daily by `step`. Otherwise it stays until the new interval is safe. A longer
        interval needs `rule_changed`, which confirms that the lifecycle rule already has it.
        """
        from mirrorfeed.archive import interval as intervals
        from mirrorfeed.archive.interval import days_of

        now, days = datetime.now(UTC), days_of(interval)
        return intervals.change_interval(self._spark, self._source, days, exact, now, rule_changed=rule_changed)

    def unset_interval(self, *, nothing_archived: bool = False) -> Interval:
        """Remove the interval, so that no file counts as archived. `nothing_archived` confirms that there is no
        lifecycle rule and that all files are restored."""
        from mirrorfeed.archive import interval as intervals
        from mirrorfeed.archive.errors import StillArchived

        if not nothing_archived:
            raise StillArchived(table=self.name)
        intervals.unset(self._spark, self._source)
        return intervals.Interval(self.name, None, None, notes=("No file counts as archived.",))

    def step(self, *, prices: str | Prices | None = None, ledger: str | Source | None = None) -> Result[Interval]:
        """Increase the interval as far as it is safe now, if it is being changed. Run this daily.

        Also writes how much of the table is archived to the ledger.
        """
        from dataclasses import replace

        from mirrorfeed.api.archives import report
        from mirrorfeed.archive import interval as intervals

        policy = intervals.step(self._spark, self._source, datetime.now(UTC))
        shares = report(self._session, [self._source], prices=prices, ledger=ledger)
        found = replace(intervals.Interval.of(self._source, policy), archived=shares[0])
        return Result((found,), shares.notes)

    def lifecycle(
        self,
        exported: str | None = None,
        *,
        state: Literal["on", "paused", "gone"] = "on",
        take_over: bool = False,
        interval: str | int | None = None,
    ) -> Lifecycle:
        """Return the lifecycle policy of the storage account or bucket with the rules of this table.

        `exported` is a file with the existing policy, whose other rules are kept. With `take_over`, the rules of this
        table replace those that others wrote for it. `interval` is for a rule that changes before the interval of the
        table.
        """
        from mirrorfeed.archive.interval import days_of
        from mirrorfeed.archive.lifecycle import Wanted, with_rules

        days = None if interval is None else days_of(interval)
        return with_rules(self._spark, self._source, exported, Wanted(state), take_over, days)

    def check_lifecycle(self, exported: str) -> Lifecycle:
        """Compare an exported lifecycle policy with the interval of the table."""
        from mirrorfeed.archive.lifecycle import compare_rules

        return compare_rules(self._spark, self._source, exported)

    def share(self) -> Share:
        """Return how much of the table is archived."""
        from mirrorfeed.archive import archived_share

        return archived_share.share(self._spark, self._source, datetime.now(UTC), self._tiers)

    def chart(self) -> Chart:
        """Draw active and archived bytes by the age of their files. Empty on Databricks, which does not return ages.

        Raises `MirrorfeedError` if the table has no interval.
        """
        from mirrorfeed.archive import archived_share

        return archived_share.chart(self._spark, self._source, datetime.now(UTC))

    def simulate(
        self,
        *intervals: str | int,
        where: Iterable[str] = (),
        predicates: str | None = None,
        history_days: int | None = None,
        prices: str | Prices | None = None,
    ) -> Result[Simulation]:
        """Return the effect of intervals before one is set: archived bytes, costs, and queries that would fail.

        The queries are the conditions in `where` and in the file `predicates`, one per line, and on Databricks the
        queries of the last `history_days` days.
        """
        from mirrorfeed.api.archives import rates_of
        from mirrorfeed.archive import archived_share
        from mirrorfeed.archive.interval import days_of

        days, rates = list(dict.fromkeys(map(days_of, intervals))), rates_of(prices)
        queries = [archived_share.Query(each) for each in where]
        queries += archived_share.read_conditions(predicates) if predicates else []
        queries += archived_share.query_history(self._spark, self._source, history_days) if history_days else []
        rows, notes = archived_share.simulate(self._spark, self._source, days, queries, rates, datetime.now(UTC))
        return Result(tuple(rows), tuple(notes), f"{self.name} at version {rows[0].version}" if rows else "")

    def plan(
        self,
        where: str | None = None,
        *,
        feed_from: int | None = None,
        feed_to: int | None = None,
        priority: Literal["standard", "high"] = "standard",
        prices: str | Prices | None = None,
    ) -> RestorePlan:
        """Return the plan that restores the files that a query, or a range of the change data feed, needs.

        Reads no data file, and requests nothing.

        Raises `MirrorfeedError` if the table has no interval.
        """
        from mirrorfeed.api.archives import rates_of, tiers_of
        from mirrorfeed.archive.restore import estimate
        from mirrorfeed.archive.restore_plan import make_plan
        from mirrorfeed.storage.tiers import Priority

        urgent, rates, now = Priority[priority.upper()], rates_of(prices), datetime.now(UTC)
        plan = make_plan(
            self._spark, self._source, urgent, rates, now, where=where, feed_from=feed_from, feed_to=feed_to
        )
        return estimate(self._spark, plan, tiers_of, rates, now)

    def restore(self, plan: RestorePlan) -> Restoring:
        """Request the files of a plan that are archived and not pending. Call it again to see the progress.

        Raises `MirrorfeedError` if the storage has no tiers, or rejects the request.
        """
        from mirrorfeed.api.archives import restore

        return restore(self._session, plan, wait=False)

    def maintain(
        self,
        *,
        optimize: bool = True,
        zorder: Sequence[str] = (),
        purge: bool = False,
        analyze: bool = False,
        vacuum: bool = False,
    ) -> Maintained:
        """Run OPTIMIZE, REORG, ANALYZE and VACUUM on active files."""
        from mirrorfeed.archive import maintenance
        from mirrorfeed.archive.maintenance import Maintenance

        wanted = Maintenance(optimize, tuple(zorder), purge, analyze, vacuum)
        return maintenance.maintain(self._spark, self._source, wanted, datetime.now(UTC))

    def check(self) -> FileCheck:
        """Check that the active files exist."""
        from mirrorfeed.archive import maintenance

        return maintenance.check_files(self._spark, self._source, datetime.now(UTC), self._tiers)

    def __repr__(self) -> str:
        return f"<table {self.name} with an archive>"

    @cached_property
    def _spark(self) -> SparkSession:
        from mirrorfeed.api.archives import session_of

        return session_of(self._session)

    @cached_property
    def _tiers(self) -> TierStore | None:
        from mirrorfeed.api.archives import tiers_of

        return tiers_of(self._spark, self._source)

    @cached_property
    def _guarded(self) -> GuardedTable:
        from mirrorfeed.archive.table import GuardedTable

        return GuardedTable(self._spark, self._source, self._tiers)
