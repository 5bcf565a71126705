"""Execute a restore plan: estimate costs, request archived files, wait, and copy the query's rows into a new table.

A run stores no state except the plan, because the tiers of the files show the remaining work.
"""

from __future__ import annotations

import hashlib
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from mirrorfeed.archive import guard
from mirrorfeed.archive.data_files import NeededFiles
from mirrorfeed.archive.data_skipping import apply_condition
from mirrorfeed.archive.engines import engine_of
from mirrorfeed.archive.errors import (
    plan_of_another_table,
    plan_without_rows,
    planned_files_deleted,
    restore_cannot_last,
    restore_rejected,
    restore_tier_not_supported,
    rows_not_copyable,
)
from mirrorfeed.archive.guard import Guarded
from mirrorfeed.archive.guarded_table import GuardedTable
from mirrorfeed.archive.restore_plan import (
    DEFAULT_TERMS,
    Plan,
    RestorePlan,
    Terms,
    check_path,
    cost_of_restore,
    describe_costs,
    estimate,
)
from mirrorfeed.archive.restore_planner import check_readable
from mirrorfeed.display.redact import shell_argument
from mirrorfeed.display.rows import DataRow, Row, counted, row, shown
from mirrorfeed.runtime.spark_session import original_setting, setting
from mirrorfeed.source import table_copy, versions
from mirrorfeed.source.change_preview import to_json_rows
from mirrorfeed.source.identifier import Source
from mirrorfeed.source.snapshot_or_range import Range
from mirrorfeed.source.table_info import read_table_info
from mirrorfeed.storage import tiers_at
from mirrorfeed.storage.errors import no_access_tiers
from mirrorfeed.storage.prices import Prices
from mirrorfeed.storage.tier_store import DEFAULT_COPY_DAYS, Priority, Tier, TiersOfTables, TierStore

_ROUNDS_WITHOUT_PROGRESS = 3
_ZONE = "spark.sql.session.timeZone"
_COPY_OF = "mirrorfeed.archive.copyOf"


@row
class Restoring(Row):
    """Progress of a restore plan. File numbers are None if an earlier run already copied the planned query's rows."""

    table: str = shown("table")
    ready: int | None = shown("restored")
    pending: int | None = shown("pending")
    archived: int | None = shown("archived")
    into: str | None = shown("copied into", default=None)
    rows: Sequence[Mapping[str, Any]] | None = None
    """Rows of the query, if all files are restored and rows were requested. Otherwise None."""
    notes: Sequence[str] = ()

    @property
    def done(self) -> bool:
        """True if all files are restored."""
        return not self.pending and not self.archived

    def to_dict(self) -> dict[str, Any]:
        return {"done": self.done, **Row.to_dict(self)}

    def remarks(self) -> Sequence[str]:
        from mirrorfeed.display.terminal import text_of

        shown_rows = text_of([DataRow(each) for each in self.rows]).split("\n") if self.rows else ()
        return (*shown_rows, *self.notes)


def tiers_of(plan: Plan) -> TierStore | None:
    location, uris = plan.tables[0].location, tuple(file.uri for file in plan.files)
    # Files of a clone can be in other buckets than the clone.
    if len(plan.tables) > 1 or len({tiers_at(uri) for uri in (location, *uris)}) > 1:
        return TiersOfTables(uris)
    return tiers_at(location)


def plan_restore(
    session: Callable[[], SparkSession],
    make_plan: Callable[[SparkSession, Priority, datetime], Plan],
    priority: str,
    rates: Prices | None,
    save_as: str | None,
) -> RestorePlan:
    """Return the restore plan that `make_plan` creates. With the prices `rates`, the plan has estimated costs.

    If `save_as` is given, saves the plan in this new file. Before Spark starts, raises `plan_file_exists` if this file
    exists, and `plan_not_written` if its folder does not exist.
    """
    check_path(save_as)
    now = datetime.now(UTC)
    with original_setting(_ZONE):  # a restore in another thread may have another time zone
        plan = make_plan(session(), Priority[priority.upper()], now)
    estimated = estimate(plan, tiers_of(plan), rates, now)
    return estimated.save(save_as) if save_as else estimated


def restore(
    session: Callable[[], SparkSession],
    restore_plan: RestorePlan | str,
    terms: Terms,
    rates: Prices | None = None,
    poll_seconds: float | None = None,
    into: str | None = None,
    rows: int | None = None,
    on_step: Callable[[str], None] = lambda _: None,
) -> Restoring:
    """Request the restore of a plan's archived files, and return the progress. With `poll_seconds`, wait for all files.

    When all files are restored, copies the rows of the planned query into the new table `into`. If `into` is None, the
    result has the first `rows` rows. If `rows` is also None, the query does not run. `restore_plan` can be the path of
    a saved plan. `on_step` is called with the estimated costs and the progress as text.

    Raises `no_access_tiers` if the storage has no tiers, `plan_of_another_table` if a table was replaced, and
    `plan_without_rows` if `into` is set but the plan has no query. Raises `copy_target_exists` if the table `into`
    already exists, unless an earlier run of this plan created it, and `rows_not_copyable` if it cannot have the columns
    of the query. Also raises the errors of `planned_rows`, `check_terms` and `request_files`.
    """
    plan = Plan.load(restore_plan) if isinstance(restore_plan, str) else restore_plan._plan
    target = None if into is None else Source.parse_argument(into)
    if target and not plan.has_rows:
        raise plan_without_rows(table=plan.table)
    spark = session()
    check_plan(spark, plan)
    if target and is_copied(spark, plan, target):
        note = f"{target} already contains the rows of the plan."
        return Restoring(plan.table, None, None, None, str(target), notes=(note,))
    tiers = tiers_of(plan)
    if tiers is None:
        raise no_access_tiers(table=plan.table, location=plan.tables[0].location)
    check_terms(plan.table, tiers, terms)
    if plan.has_rows and (target or rows is not None):
        schema = planned_rows(spark, plan).schema
        if target and (reasons := table_copy.find_copy_obstacles(spark, target, schema)):
            raise rows_not_copyable(table=plan.table, into=str(target), reasons=reasons)
    if costs := describe_restore_costs(plan, tiers, terms, rates, datetime.now(UTC)):
        on_step(costs)

    def report(state: Restoring) -> None:
        on_step(f"{state.ready:,} restored, {state.pending:,} pending, {state.archived:,} archived")

    if poll_seconds is None:
        state = request_files(plan, tiers, terms)
    else:
        state = request_and_wait(plan, tiers, poll_seconds, terms, report)
    state = replace(state, notes=(next_steps(plan.table, tiers, terms),))
    if not state.done or (rows is None and target is None):
        return state
    check_plan(spark, plan)  # the wait can take hours
    with session_time_zone(spark, plan.zone):
        frame = run_query(spark, plan, tiers, datetime.now(UTC))
        if frame is None:
            first = plan.feed_from
            changes = "" if first is None else f" for the changes from version {first} to {plan.version}"
            return replace(state, notes=(f"All planned files{changes} can be read.", *state.notes))
        if target is None:
            return replace(state, rows=to_json_rows(frame.limit(rows or 0)))
        if not is_copied(spark, plan, target):  # another run may have copied the rows meanwhile
            table_copy.create(frame, target, {_COPY_OF: _fingerprint(plan)})
        return replace(state, into=str(target), notes=(f"Copied the rows into {target}.",))


def read_progress(plan: Plan, tiers: TierStore) -> Restoring:
    """Return the numbers of restored, pending and archived files. Raises `planned_files_deleted` if files no longer
    exist.
    """
    tier_by_uri = tiers.read_tiers([file.uri for file in plan.files])
    if missing := [uri for uri, tier in tier_by_uri.items() if tier is Tier.MISSING]:
        raise planned_files_deleted(table=plan.table, uris=missing)
    counts = Counter(tier_by_uri.values())
    ready = sum(count for tier, count in counts.items() if tier.is_readable)
    return Restoring(plan.table, ready, counts[Tier.PENDING], counts[Tier.ARCHIVE])


def request_files(plan: Plan, tiers: TierStore, terms: Terms = DEFAULT_TERMS, now: datetime | None = None) -> Restoring:
    """Request the restore of the archived files of a plan, and return the progress.

    Restored copies that expire in less than `terms.keep_days` days are requested again. Raises `restore_rejected` if
    the storage rejects files several times, and `planned_files_deleted` if files no longer exist.
    """
    end = (now or datetime.now(UTC)) + timedelta(days=terms.keep_days or 0)
    rejected: dict[str, str] = {}
    for _ in range(_ROUNDS_WITHOUT_PROGRESS):
        facts_by_uri = tiers.facts([file.uri for file in plan.files])
        remaining = [
            uri
            for uri, facts in facts_by_uri.items()
            if facts.tier is Tier.ARCHIVE or (facts.tier.is_readable and facts.until is not None and facts.until < end)
        ]
        rejected = tiers.restore(remaining, Priority[plan.priority], terms.to, terms.keep_days)
        if not rejected:
            return read_progress(plan, tiers)
    raise restore_rejected(table=plan.table, refused=rejected)


def check_terms(table: str, tiers: TierStore, terms: Terms) -> None:
    """Raise `restore_cannot_last` if `terms` sets `keep_days` in Azure, and `restore_tier_not_supported` if it sets
    another tier than hot in S3.
    """
    if terms.keep_days is not None and not tiers.restores_copies:
        raise restore_cannot_last(table=table, days=terms.keep_days)
    if terms.to is not Tier.HOT and tiers.restores_copies:
        raise restore_tier_not_supported(table=table, to=terms.to)


def request_and_wait(
    plan: Plan,
    tiers: TierStore,
    poll_seconds: float,
    terms: Terms = DEFAULT_TERMS,
    report: Callable[[Restoring], None] = lambda _: None,
    sleep: Callable[[float], None] = time.sleep,
) -> Restoring:
    """Request the restore of the archived files of a plan, and return the progress when all files are restored.

    Calls `report` every `poll_seconds` seconds. If a file is archived again during the wait, requests the file again.
    """
    started = datetime.now(UTC)
    while True:
        state = request_files(plan, tiers, terms, started)
        report(state)
        if state.done:
            return state
        sleep(poll_seconds)


def describe_restore_costs(
    plan: Plan, tiers: TierStore, terms: Terms, rates: Prices | None, now: datetime
) -> str | None:
    """Return a sentence with the estimated costs of a restore, or None if there are no prices (`rates`)."""
    if rates is None:
        return None
    files = tiers.facts([file.uri for file in plan.files]).values()
    costs = cost_of_restore(files, rates, Priority[plan.priority], terms, tiers.restores_copies, now)
    return describe_costs(costs, rates.currency)


def next_steps(table: str, tiers: TierStore, terms: Terms) -> str:
    """Return a note on how long the restored files remain readable, and how to keep them longer."""
    if tiers.restores_copies:
        days = counted(terms.keep_days or DEFAULT_COPY_DAYS, "day")
        return f"The restored copies expire {days} after the request. To keep the copies longer, use --keep."
    return (
        "The lifecycle rule archives these files again within about a day, because they keep their creation time. Pause"
        f" it with `mirrorfeed archive rule {shell_argument(table)} --merge EXPORTED --paused`, or copy the rows with"
        " --into."
    )


def is_copied(spark: SparkSession, plan: Plan, into: Source) -> bool:
    return table_copy.is_existing_copy(spark, into, _COPY_OF, _fingerprint(plan), "copy of the rows of this plan")


def _fingerprint(plan: Plan) -> str:
    """Return a hash of a plan's tables, versions, query and time zone. Plans with equal hashes read the same rows."""
    tables = [(each.table, each.table_id, each.version) for each in plan.tables]
    return hashlib.sha256(repr((tables, plan.where, plan.sql, plan.zone)).encode()).hexdigest()[:32]


def session_time_zone(spark: SparkSession, zone: str | None) -> AbstractContextManager[None]:
    """Context manager that sets the time zone of the session to `zone`. Does nothing if `zone` is None."""
    return nullcontext() if zone is None else setting(spark, _ZONE, zone)


def check_plan(spark: SparkSession, plan: Plan) -> None:
    for table in plan.tables:
        source = Source.parse(table.table)
        check_table(table, read_table_info(spark, source).table_id, versions.newest_version(spark, source))


def check_table(planned: NeededFiles, table_id: str, newest: int) -> None:
    """Raise `plan_of_another_table` if `table_id` is not the planned id,
    or if `newest` is below the planned version."""
    if planned.table_id != table_id:
        raise plan_of_another_table(table=planned.table, planned=planned.table_id, found=table_id)
    if planned.version > newest:
        then, now = f"{planned.table_id} at version {planned.version}", f"{table_id} at {newest}"
        raise plan_of_another_table(table=planned.table, planned=then, found=now)


def planned_rows(spark: SparkSession, plan: Plan) -> DataFrame:
    """Return the rows of the planned query, which is not a range of the change data feed. Checks no archived file.

    Raises `InvalidQueryError` if a SQL query is no longer valid, and `InvalidPredicateError` if a condition is no
    longer valid.
    """
    engine = engine_of(spark)
    if plan.sql is not None:
        return spark.sql(plan.sql) if engine.guards_itself else engine.query(plan.sql)
    source = Source.parse(plan.table)
    return apply_condition(engine.read(source, plan.version), str(source), plan.where)


def run_query(spark: SparkSession, plan: Plan, tiers: TierStore, now: datetime) -> DataFrame | None:
    """Return the rows of the planned query, or None for a plan without a query.

    Raises `ArchivedFilesNeededError` if the query needs archived files that are not restored. For a range of the change
    data feed, raises an error if the changes cannot be read.
    """
    source = Source.parse(plan.table)
    if plan.sql is not None:
        return Guarded(spark, lambda _: tiers, lambda: now).sql(plan.sql)
    if plan.files_alone:
        return None
    if plan.feed_from is None:
        return GuardedTable(spark, source, lambda _: tiers, lambda: now).query(plan.where, version=plan.version)
    range_ = Range(plan.feed_from - 1, plan.version)
    guard.check(spark, source, range_, lambda _: tiers, now)
    check_readable(spark, source, range_)
    return None
