"""`feed.archive`: tables whose old files are in an archive tier."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Literal

from mirrorfeed.api.errors import no_archive_named
from mirrorfeed.api.results import Result
from mirrorfeed.api.subject import Subject
from mirrorfeed.config.model import Config
from mirrorfeed.errors import MirrorfeedError, with_code
from mirrorfeed.errors.callbacks import guard_callback
from mirrorfeed.storage.prices import Prices, load_prices

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from mirrorfeed.api import results
    from mirrorfeed.api.archive_table import ArchiveAwareTable


class Archive(Subject):
    """Operations on tables whose old files are in an archive tier, and plans that restore archived files."""

    def __init__(self, config: Config, spark: Callable[..., SparkSession], table: str | None = None) -> None:
        super().__init__(config, spark)
        self._default_table = table

    def table(self, table: str | None = None) -> ArchiveAwareTable:
        """Return the operations on a table whose old files are in an archive tier.

        `table` is a configured target or source, or the name or path of any Delta table. The default in a notebook
        is the value of the widget `table`, or else the first table in the bundle variable `archive_tables`. Raises
        `MirrorfeedError` if no table is set.
        """
        from mirrorfeed.api.archive_table import ArchiveAwareTable

        name = table or self._default_table
        if name is None:
            raise no_archive_named()
        return ArchiveAwareTable(
            self._spark, self._current_config.source_of(name), prices=self._prices(None), ledger=self._config.ledger
        )

    def plan(
        self,
        query: str,
        *,
        priority: Literal["standard", "high"] = "standard",
        prices: str | Prices | None = None,
        save_as: str | None = None,
    ) -> results.RestorePlan:
        """Return a plan to restore the archived files that a SQL query on any number of tables needs.

        The plan has the full name of each table and its newest version, so later changes do not change the result. This
        method reads and requests no data file. To request the files, pass the plan to `restore`.

        Raises `MirrorfeedError` if `save_as` exists, or if the query reads a view, cannot be planned or needs no
        archived files. On Databricks, always raises `MirrorfeedError`: use `ArchiveAwareTable.plan` there.

        Args:
            query: SQL query that reads Delta tables by name or path.
            priority: `high` is faster and more expensive.
            prices: JSON file with prices. By default, the prices in the configuration.
            save_as: New file for the plan.
        """
        from mirrorfeed.archive.restore import plan_restore
        from mirrorfeed.archive.restore_planner import plan_statement

        plan = partial(plan_statement, sql=query)
        return plan_restore(self._spark, plan, priority, self._prices(prices), save_as)

    def restore(
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
        """Request the archived files of a restore plan, wait until all are restored, and return the progress.

        When all files are restored, the query of the plan runs if `into` or `rows` is set. You can stop the method and
        call it again: pending files are not requested twice.

        Raises `MirrorfeedError` and requests no file if a table was replaced after the plan was made, or if the rows
        cannot be copied into `into`. Also raises it if files are missing, or if the storage has no access tiers or
        rejects a request.

        Args:
            plan: Plan, or the path of its file.
            wait: Wait until all files are restored. With `False`, the method requests the files and returns.
            poll_seconds: Time between two checks of the files.
            tier: Tier to restore to. S3 supports only `hot`.
            keep_days: Number of days that restored copies stay. Only for S3.
            into: New table that receives all rows of the query.
            rows: Number of rows of the query in the result. Only without `into`.
            prices: JSON file with prices. By default, the prices in the configuration.
            on_step: Called with text: the costs, if there are prices, and the progress after each check.
        """
        from mirrorfeed.archive.restore import restore
        from mirrorfeed.archive.restore_plan import Terms
        from mirrorfeed.storage.tier_store import Tier

        terms, rates = Terms(Tier[tier.upper()], keep_days), self._prices(prices)
        poll, problems = poll_seconds if wait else None, list[MirrorfeedError]()
        show_step = guard_callback("on_step", on_step, problems.append, None)
        state = restore(self._spark, plan, terms, rates, poll, into, rows, show_step)
        return replace(state, notes=(*state.notes, *map(with_code, problems)))

    def report(self, *tables: str, prices: str | Prices | None = None) -> Result[results.Share]:
        """Return archived files, archived bytes and monthly costs of each table, and write these numbers to the ledger.

        `tables` can be configured tables, or names or paths of any Delta tables. The default is all configured tables
        with an archive interval. `prices` is a JSON file with prices. The default is the prices in the configuration.
        Without prices, costs are None.
        """
        from mirrorfeed.api.archive_table import report_shares

        rates, sources = self._prices(prices), [self._current_config.source_of(table) for table in tables]
        sources = sources or [table.source for table in self._current_config.tables]
        return report_shares(self._spark(), sources, rates, self._config.ledger, with_archive_only=not tables)

    def _prices(self, prices: str | Prices | None) -> Prices | None:
        return load_prices(prices, self._config.archive.prices if self._config.archive else None)
