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
from mirrorfeed.archive.archive_report import Share, Simulation
from mirrorfeed.archive.data_files import DataFile
from mirrorfeed.archive.errors import files_still_archived
from mirrorfeed.archive.guarded_table import GuardedTable, Session
from mirrorfeed.archive.lifecycle import Lifecycle, RuleState, compare_rules, merge_rules
from mirrorfeed.archive.restore_plan import RestorePlan
from mirrorfeed.archive.restore_planner import plan_feed, plan_query
from mirrorfeed.archive.table_maintenance import FileCheck, Maintained
from mirrorfeed.display.rows import DataRow
from mirrorfeed.errors import with_code, wrap_error
from mirrorfeed.orchestration.ledger import append, archive_row
from mirrorfeed.source.change_preview import to_json_rows
from mirrorfeed.source.identifier import Source
from mirrorfeed.source.table_info import read_table_info
from mirrorfeed.storage import tiers_at
from mirrorfeed.storage.errors import no_access_tiers
from mirrorfeed.storage.prices import Prices, load_prices
from mirrorfeed.storage.tier_store import TierStore


class ArchiveAwareTable(GuardedTable):
    """Delta table whose old files are in an archive tier.

    If a query needs archived files that are not restored, the query raises `MirrorfeedError` and reads no data file.
    The error names the files and the command that restores them. To leave out the rows in these files, use `recent`.

    A file older than the archive interval counts as archived. If the file's access tier shows that it is restored,
    queries can read the file. In a storage without access tiers, queries cannot read files that count as archived.

    Args:
        spark: Session that reads the table.
        name: Name or path of the table.
        prices: JSON file with prices. It is the default of the methods that have this parameter.
        ledger: Name or path of the ledger. It is the default of the methods that have this parameter.
    """

    def __init__(
        self,
        spark: Session,
        name: str | Source,
        *,
        prices: str | Prices | None = None,
        ledger: str | Source | None = None,
    ) -> None:
        super().__init__(spark, name)
        self._prices, self._ledger = load_prices(prices, None), _parse_name(ledger)

    @property
    def name(self) -> str:
        """Name or path of the table."""
        return str(self.source)

    def first(self, count: int = 20, where: str | None = None, columns: Sequence[str] | None = None) -> Result[DataRow]:
        """Return up to `count` rows that match the SQL condition `where`, as JSON values.

        By default, all rows match, and all columns are returned. Raises `MirrorfeedError` if archived files are needed.
        """
        return Result(tuple(map(DataRow, to_json_rows(self.query(where, columns).limit(count)))))

    def files(self, where: str | None = None, version: int | None = None, *, tiers: bool = False) -> Result[DataFile]:
        """Return the archived files that a query with the SQL condition `where` needs, including restored files.

        By default, the query is for all rows of the newest `version`. No data file is read. With `tiers`, each row has
        the access tier of its file. Raises `MirrorfeedError` if `tiers` is set, but the storage has no access tiers.
        """
        needed = self._needed(where, version)
        if tiers and self._tiers is None:
            raise no_access_tiers(table=self.name, location=needed.location)
        tier_of = self._tiers.read_tiers([file.uri for file in needed.files]) if self._tiers and tiers else {}
        rows = [
            replace(file, why=_why_needed(file, where), tier=tier_of[file.uri].value if tier_of else None)
            for file in needed.files
        ]
        active = "" if needed.active is None else f", besides {needed.active:,} active"
        return Result(tuple(rows), summary=f"{self.name} at version {needed.version}: {len(rows):,} archived{active}")

    def interval(self) -> Interval:
        """Return the archive interval of the table. Raises `MirrorfeedError` if the table has none."""
        return Interval.of(self.source, intervals.required(self._spark, self.source))

    def set_interval(self, interval: str | int) -> Interval:
        """Set or shorten the archive interval, and return the new interval.

        `interval` is a number of days, or text such as "60 days". The method moves no files. You must set the lifecycle
        rule of the storage to the same number of days. Raises `MirrorfeedError` if the table already has a shorter
        interval. To increase an interval, use `change_interval`.
        """
        days = days_of(interval)
        policy = intervals.set_first(self._spark, self.source, days, self._now())
        return Interval.of(self.source, policy, moved=False)

    def change_interval(self, interval: str | int, *, exact: bool = False, rule_changed: bool = False) -> Interval:
        """Shorten the archive interval immediately, or start to increase it. Return the interval that applies now.

        To increase the interval, first change the lifecycle rule, and confirm the change with `rule_changed`. Then call
        `step` daily. With `exact`, the interval increases by one day each day. Without `exact`, the interval increases
        in one step, when every file that the cloud has archived is at least as old as the new interval. Until then,
        some files count as archived before the lifecycle rule archives them.

        Raises `MirrorfeedError` if the table has no interval. Also raises `MirrorfeedError` if `interval` needs a
        longer lifecycle rule, but `rule_changed` is not set.
        """
        days = days_of(interval)
        return intervals.change_interval(self._spark, self.source, days, exact, self._now(), rule_changed=rule_changed)

    def unset_interval(self, *, nothing_archived: bool = False) -> Interval:
        """Remove the archive interval, so that no file counts as archived. Return an `Interval` without days.

        `nothing_archived=True` confirms that there is no lifecycle rule and that all files are restored. Without it,
        the method raises `MirrorfeedError` and changes nothing.
        """
        if not nothing_archived:
            raise files_still_archived(table=self.name)
        intervals.unset(self._spark, self.source)
        return Interval(self.name, None, None, notes=("No file counts as archived.",))

    def step(self, *, prices: str | Prices | None = None, ledger: str | Source | None = None) -> Result[Interval]:
        """Continue to increase the archive interval. After `change_interval` starts an increase, call `step` daily.

        With the increased interval, every file that the cloud has archived still counts as archived. If no increase is
        unfinished, the interval stays unchanged.

        Returns one row: the interval, with the number and bytes of archived files in `archived`. Also writes these
        numbers to `ledger`, the name or path of a table. If the ledger cannot be written, the result has a note.
        `prices` is a JSON file with prices. Raises `MirrorfeedError` if the table has no interval.
        """
        rates = load_prices(prices, self._prices)
        policy = intervals.step(self._spark, self.source, self._now())
        shares = report_shares(self._spark, [self.source], rates, _parse_name(ledger) or self._ledger)
        return Result((replace(Interval.of(self.source, policy), archived=shares[0]),), shares.notes)

    def lifecycle(
        self,
        exported: str | None = None,
        *,
        state: Literal["on", "paused", "gone"] = "on",
        take_over: bool = False,
        interval: str | int | None = None,
    ) -> Lifecycle:
        """Return a lifecycle policy for the storage account or bucket, with the rules that archive this table's files.

        The policy is not applied. Raises `MirrorfeedError` if `exported` is not a policy, if the table is not in Azure
        or S3, or if neither `interval` nor an interval of the table is set.

        Args:
            exported: File with the existing policy, exported from Azure or S3. All rules in this file are preserved,
                except the rules that mirrorfeed wrote for this table.
            state: `paused` disables the rules of this table, so that restored files are not archived again. `gone`
                removes the rules.
            take_over: Also replace other rules that are only for this table.
            interval: Age at which the rules archive files. By default, the age that matches the archive interval of the
                table.
        """
        days = None if interval is None else days_of(interval)
        return merge_rules(self._spark, self.source, exported, RuleState(state), take_over, days)

    def check_lifecycle(self, exported: str) -> Lifecycle:
        """Compare a lifecycle policy with the table's archive interval. The result has the differences as `problems`.

        `exported` is a file with the policy, exported from Azure or S3. Raises `MirrorfeedError` if the file is not a
        policy, if the table is not in Azure or S3, or if the table has no interval.
        """
        return compare_rules(self._spark, self.source, exported)

    def share(self) -> Share:
        """Return how many files and bytes the newest version has, how many are archived, and how many are restored."""
        return archive_report.share(self._spark, self.source, self._now(), self._tiers)

    def simulate(
        self,
        *intervals: str | int,
        where: Iterable[str] = (),
        predicates: str | None = None,
        prices: str | Prices | None = None,
    ) -> Result[Simulation]:
        """Return the effect of each archive interval: archived bytes, costs per month, and queries that would fail.

        Changes nothing. If Spark rejects a query, a note names the query. Raises `MirrorfeedError` on Databricks and
        with Spark Connect, which do not show the files that a query reads. Also raises `MirrorfeedError` if
        `predicates` cannot be read.

        Args:
            intervals: Numbers of days, or text such as "60 days".
            where: SQL conditions of queries.
            predicates: File with SQL conditions of queries, one per line.
            prices: JSON file with prices. By default, the prices of the table. Without prices, costs are None.
        """
        days, rates = list(dict.fromkeys(map(days_of, intervals))), load_prices(prices, self._prices)
        queries = [*where, *(archive_report.read_conditions(predicates) if predicates else ())]
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
        """Return a plan to restore the archived files that a query of the table or its change data feed needs.

        This method reads no data file and restores no file. To restore the files, pass the plan to
        `feed.archive.restore`. Raises `MirrorfeedError` if the table has no archive interval, and `ValueError` if
        `feed_from` is combined with `where`, or `feed_to` is used without `feed_from`.

        Args:
            where: SQL condition of the query. By default, all rows.
            feed_from: Plan for the changes from this version on, instead of a query of the table.
            feed_to: Last version of the changes. By default, the newest version.
            priority: `high` is faster and more expensive.
            prices: JSON file with prices. By default, the prices of the table.
            save_as: New file for the plan.
        """
        if (where is not None and feed_from is not None) or (feed_to is not None and feed_from is None):
            raise ValueError("changes are always read completely: use where, or feed_from with or without feed_to")
        if feed_from is None:
            plan = partial(plan_query, source=self.source, where=where)
        else:
            plan = partial(plan_feed, source=self.source, first=feed_from, last=feed_to)
        return restore.plan_restore(lambda: self._spark, plan, priority, load_prices(prices, self._prices), save_as)

    def maintain(
        self,
        *,
        optimize: bool = True,
        zorder: Sequence[str] = (),
        purge: bool = False,
        analyze: bool = False,
        vacuum: bool = False,
    ) -> Maintained:
        """Run the selected maintenance statements without reading archived files. Return the statements.

        Outside Databricks, the partitions with archived files are not rewritten. The result lists these partitions in
        `left_out`.

        Args:
            optimize: Run OPTIMIZE, which compacts small files.
            zorder: Run OPTIMIZE, and sort the rows by these columns.
            purge: Run REORG, which rewrites files that have deletion vectors.
            analyze: Run ANALYZE, which collects statistics. Only on Databricks.
            vacuum: Run VACUUM, which deletes files that no retained version needs.
        """
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
        """Check whether all active files of the newest version exist in the storage. Archived files are not checked.

        The result contains the missing files. Its property `ok` is True if no file is missing. Raises `MirrorfeedError`
        outside Databricks if the files are neither local nor in a storage with access tiers.
        """
        return table_maintenance.check_files(self._spark, self.source, self._now(), self._tiers)

    def __repr__(self) -> str:
        return f"<table {self.name} with an archive>"

    @cached_property
    def _tiers(self) -> TierStore | None:
        return tiers_at(read_table_info(self._spark, self.source).location)


def _parse_name(table: str | Source | None) -> Source | None:
    return Source.parse_argument(table) if isinstance(table, str) else table


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
    """Return the archived share of each table, and write the shares to the ledger, if any.

    With the prices `rates`, rows have monthly costs. A table that cannot be read has a row with an `error`. If the
    ledger cannot be written, the result has a note. `with_archive_only` omits tables without an archive interval.
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
