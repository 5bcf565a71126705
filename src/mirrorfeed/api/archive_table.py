"""`ArchiveAwareTable`: all operations on a table whose old files are in an archive tier."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import cached_property, partial
from typing import Literal

from pyspark.sql import SparkSession

from mirrorfeed.api.results import Result
from mirrorfeed.archive import archive_interval as intervals
from mirrorfeed.archive import archive_report, has_interval, restore, table_maintenance
from mirrorfeed.archive.archive_interval import Interval, days_of
from mirrorfeed.archive.archive_report import Query, Share, Simulation
from mirrorfeed.archive.archived_files import DataFile
from mirrorfeed.archive.errors import StillArchived
from mirrorfeed.archive.guarded_table import GuardedTable, Session
from mirrorfeed.archive.lifecycle import Lifecycle, RuleState, compare_rules, merge_rules
from mirrorfeed.archive.restore import Restoring
from mirrorfeed.archive.restore_plan import RestorePlan, Terms
from mirrorfeed.archive.restore_planner import plan_feed, plan_query
from mirrorfeed.archive.table_maintenance import FileCheck, Maintained
from mirrorfeed.display.html import Chart
from mirrorfeed.display.rows import DataRow
from mirrorfeed.errors import with_code, wrap_error
from mirrorfeed.orchestration.ledger import append, archive_row
from mirrorfeed.source.change_preview import to_json_rows
from mirrorfeed.source.identifier import Source
from mirrorfeed.source.table_info import read_table_info
from mirrorfeed.storage.errors import NoTiers
from mirrorfeed.storage.prices import Prices, load_prices
from mirrorfeed.storage.tier_store import TierStore, tiers_at


class ArchiveAwareTable(GuardedTable):
    """A table with archived files, by name or path.

    Every result is correct and complete, or `MirrorfeedError` is raised before anything is read. The error names the
    archived files that are needed, and the command that restores them.

    A file that counts as archived may have been restored. If the storage has tiers, the tier of each file is read.
    `prices` and `ledger` are the defaults of the methods with these parameters.
    """

    def __init__(
        self, spark: Session, name: str | Source, *, prices: Prices | None = None, ledger: Source | None = None
    ) -> None:
        super().__init__(spark, name)
        self._prices, self._ledger = prices, ledger

    @property
    def name(self) -> str:
        """Name or path of the table."""
        return str(self.source)

    @property
    def interval_days(self) -> int:
        """Age in days from which files count as archived. Raises `MirrorfeedError` if the table has no interval."""
        return intervals.required(self._spark, self.source).days

    def first(self, count: int = 20, where: str | None = None, columns: Sequence[str] | None = None) -> Result[DataRow]:
        """Return the first rows that match a SQL condition, as JSON values."""
        return Result(tuple(map(DataRow, to_json_rows(self.query(where, columns).limit(count)))))

    def files(self, where: str | None = None, version: int | None = None, *, tiers: bool = False) -> Result[DataFile]:
        """Return the archived files that a query with this condition needs, including restored files. Reads no data
        file.

        With `tiers`, the tier of each file is read from the storage.
        """
        needed = self._needed(where, version)
        if tiers and self._tiers is None:
            raise NoTiers(table=self.name)
        tier_of = self._tiers.read_tiers([file.uri for file in needed.files]) if self._tiers and tiers else {}
        rows = [
            replace(file, why=_why_needed(file, where), tier=tier_of[file.uri].value if tier_of else None)
            for file in needed.files
        ]
        active = "" if needed.active is None else f", besides {needed.active:,} active"
        return Result(tuple(rows), summary=f"{self.name} at version {needed.version}: {len(rows):,} archived{active}")

    def interval(self) -> Interval:
        """Return the interval of the table, and the number of days that the lifecycle rule must have."""
        return Interval.of(self.source, intervals.required(self._spark, self.source))

    def set_interval(self, interval: str | int) -> Interval:
        """Set or shorten the interval, for example "60 days". Moves no file: set the lifecycle rule to the same
        value."""
        days = days_of(interval)
        policy = intervals.set_first(self._spark, self.source, days, self._now())
        return Interval.of(self.source, policy, moved=False)

    def change_interval(self, interval: str | int, *, exact: bool = False, rule_changed: bool = False) -> Interval:
        """Shorten the interval immediately, or start to increase it as far as is safe each day.

        With `exact`, `step` increases the interval daily. Otherwise the interval changes once the new value is safe. A
        longer interval needs `rule_changed`, which confirms that the lifecycle rule already has this value.
        """
        days = days_of(interval)
        return intervals.change_interval(self._spark, self.source, days, exact, self._now(), rule_changed=rule_changed)

    def unset_interval(self, *, nothing_archived: bool = False) -> Interval:
        """Remove the interval, so that no file counts as archived.

        `nothing_archived` confirms that there is no lifecycle rule and that all files are restored.
        """
        if not nothing_archived:
            raise StillArchived(table=self.name)
        intervals.unset(self._spark, self.source)
        return Interval(self.name, None, None, notes=("No file counts as archived.",))

    def step(self, *, prices: str | Prices | None = None, ledger: str | Source | None = None) -> Result[Interval]:
        """Increase the interval as far as is safe now, if it is being changed. Run this daily.

        Also writes the archived share of the table to the ledger.
        """
        rates, ledger = load_prices(prices, self._prices), ledger or self._ledger
        ledger = Source.parse_argument(ledger) if isinstance(ledger, str) else ledger
        policy = intervals.step(self._spark, self.source, self._now())
        shares = report_shares(self._spark, [self.source], rates, ledger)
        return Result((replace(Interval.of(self.source, policy), archived=shares[0]),), shares.notes)

    def lifecycle(
        self,
        exported: str | None = None,
        *,
        state: Literal["on", "paused", "gone"] = "on",
        take_over: bool = False,
        interval: str | int | None = None,
    ) -> Lifecycle:
        """Return the lifecycle policy of the storage account or bucket with the rules of this table.

        `exported` is a file with the existing policy. Its other rules are preserved. With `take_over`, the rules of
        this table replace foreign rules for the table. Use `interval` if the rule changes before the interval of the
        table.
        """
        days = None if interval is None else days_of(interval)
        return merge_rules(self._spark, self.source, exported, RuleState(state), take_over, days)

    def check_lifecycle(self, exported: str) -> Lifecycle:
        """Compare an exported lifecycle policy with the interval of the table."""
        return compare_rules(self._spark, self.source, exported)

    def share(self) -> Share:
        """Return the archived share of the table."""
        return archive_report.share(self._spark, self.source, self._now(), self._tiers)

    def chart(self) -> Chart:
        """Draw active and archived bytes by the age of their files. Empty on Databricks, which does not return ages.

        Raises `MirrorfeedError` if the table has no interval.
        """
        return archive_report.chart(self._spark, self.source, self._now())

    def simulate(
        self,
        *intervals: str | int,
        where: Iterable[str] = (),
        predicates: str | None = None,
        history_days: int | None = None,
        prices: str | Prices | None = None,
    ) -> Result[Simulation]:
        """Return the effect of intervals before one of them is set: archived bytes, costs, and queries that would
        fail.

        The queries are the conditions in `where` and in the file `predicates`, one per line, and on Databricks the
        queries of the last `history_days` days.
        """
        days, rates = list(dict.fromkeys(map(days_of, intervals))), load_prices(prices, self._prices)
        queries = [Query(each) for each in where]
        queries += archive_report.read_conditions(predicates) if predicates else []
        queries += archive_report.query_history(self._spark, self.source, history_days) if history_days else []
        rows, notes = archive_report.simulate(self._spark, self.source, days, queries, rates, self._now())
        return Result(tuple(rows), tuple(notes), f"{self.name} at version {rows[0].version}" if rows else "")

    def plan(
        self,
        where: str | None = None,
        *,
        feed_from: int | None = None,
        feed_to: int | None = None,
        priority: Literal["standard", "high"] = "standard",
        prices: str | Prices | None = None,
        save_as: str | None = None,
    ) -> RestorePlan:
        """Return the plan that restores the files that a query, or a range of the change data feed, needs.

        Reads no data file, and requests nothing. `save_as` is a new file for the plan.

        Raises `MirrorfeedError` if the table has no interval.
        """
        if feed_from is None:
            plan = partial(plan_query, source=self.source, where=where)
        else:
            plan = partial(plan_feed, source=self.source, first=feed_from, last=feed_to)
        return restore.plan_restore(lambda: self._spark, plan, priority, load_prices(prices, self._prices), save_as)

    def restore(self, plan: RestorePlan) -> Restoring:
        """Request the files of a plan that are archived and not pending. Call it again to see the progress.

        Raises `MirrorfeedError` if the storage has no tiers, or rejects the request.
        """
        return restore.restore(self._spark, plan, Terms())

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
        return table_maintenance.maintain(
            self._spark,
            self.source,
            self._now(),
            optimize=optimize,
            zorder=zorder,
            purge=purge,
            analyze=analyze,
            vacuum=vacuum,
        )

    def check(self) -> FileCheck:
        """Check that the active files exist."""
        return table_maintenance.check_files(self._spark, self.source, self._now(), self._tiers)

    def __repr__(self) -> str:
        return f"<table {self.name} with an archive>"

    @cached_property
    def _tiers(self) -> TierStore | None:
        return tiers_at(self._location)


def _why_needed(file: DataFile, where: str | None) -> str:
    if where is None:
        why = "all rows are requested"
    elif file.rows is None:
        why = "its statistics are unknown"
    else:
        why = "its partition and statistics do not rule out a match"
    return why if file.created else f"{why}; its age is unknown"


def report_shares(
    spark: SparkSession,
    sources: Sequence[Source],
    rates: Prices | None,
    ledger: Source | None,
    *,
    with_archive_only: bool = False,
) -> Result[Share]:
    """Return the archived share of each table, with monthly costs, and write the shares to the ledger.

    With `with_archive_only`, tables without an interval are left out.
    """
    rows, notes = [], []
    for source in sources:
        try:
            table = read_table_info(spark, source)
            if with_archive_only and not has_interval(table.properties):
                continue
            share = archive_report.share(spark, source, datetime.now(UTC), tiers_at(table.location), table)
        except Exception as error:
            share = Share(str(source), error=wrap_error(f"Reading how much of {source} is archived", error))
        rows.append(share.priced(rates))
        if share.ok and (problem := append(spark, ledger, [archive_row(rows[-1], datetime.now(UTC))])):
            notes.append(with_code(problem))
    return Result(tuple(rows), tuple(notes), "" if rows else "No configured table has an archive.")
