"""Carries out a restore plan: requests archived files, waits until they are readable, and copies the rows.

A run keeps no state except the plan, because the tiers of the files show what is left to do.
"""

from __future__ import annotations

import hashlib
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from mirrorfeed.archive.errors import CannotKeep, FilesGone, OnlyHot, OnlyRows, RestoreRejected, TargetExists
from mirrorfeed.archive.restore_plan import Plan, cost_of_restore, describe_costs
from mirrorfeed.archive.restore_planner import check_plan, in_zone, run_query
from mirrorfeed.display.humanize import counted
from mirrorfeed.display.printable import shell_argument
from mirrorfeed.display.rows import DataRow, Row, row, shown
from mirrorfeed.source.change_feed import to_json_rows
from mirrorfeed.source.errors import NoTableAtPath, NotDelta, SourceMissing
from mirrorfeed.source.identifier import Source
from mirrorfeed.source.table_info import read_table_info
from mirrorfeed.storage.errors import NoTiers, OtherPlace
from mirrorfeed.storage.tiers import DEFAULT_COPY_DAYS, Facts, Prices, Priority, Tier, TierStore, tiers_at

_ROUNDS_WITHOUT_PROGRESS = 3
_RULE_INTERVAL_DAYS = 1
"""After about this time a lifecycle rule has archived a restored file again."""
_COPY_OF = "mirrorfeed.archive.copyOf"


@row
class Restoring(Row):
    """Progress of a restore plan."""

    table: str = shown("table")
    ready: int | None = shown("restored")
    pending: int | None = shown("pending")
    archived: int | None = shown("archived")
    into: str | None = shown("copied into", default=None)
    rows: Sequence[Mapping[str, Any]] | None = None
    """The rows of the query, if all files are restored and rows were requested."""
    notes: Sequence[str] = ()

    @property
    def done(self) -> bool:
        """Whether all files are restored."""
        return not self.pending and not self.archived

    def to_dict(self) -> dict[str, Any]:
        return {"done": self.done, **Row.to_dict(self)}

    def remarks(self) -> Sequence[str]:
        from mirrorfeed.display.render import text_of

        shown_rows = text_of([DataRow(each) for each in self.rows]).split("\n") if self.rows else ()
        return (*shown_rows, *self.notes)


@dataclass(frozen=True, slots=True)
class Terms:
    """The tier to restore to, and for how long."""

    to: Tier = Tier.HOT
    keep_days: int | None = None
    """None: the default of the storage service."""


@dataclass(frozen=True)
class TiersOfTables(TierStore):
    """The tiers of files in the folders of several tables."""

    uris: tuple[str, ...]
    at: Callable[[str], TierStore | None] = tiers_at

    @property
    def restores_copies(self) -> bool:
        return all(store.restores_copies for store, _ in self._parts(self.uris))

    def facts(self, uris: Sequence[str]) -> dict[str, Facts]:
        return {uri: facts for store, part in self._parts(uris) for uri, facts in store.facts(part).items()}

    def restore(
        self, uris: Sequence[str], priority: Priority, to: Tier = Tier.HOT, days: int | None = None
    ) -> dict[str, str]:
        answers = (store.restore(part, priority, to, days) for store, part in self._parts(uris))
        return {uri: why for refused in answers for uri, why in refused.items()}

    def _parts(self, uris: Sequence[str]) -> list[tuple[TierStore, list[str]]]:
        found: list[tuple[TierStore, list[str]]] = []
        for uri in uris:
            store = self.at(uri)
            if store is None:
                raise OtherPlace(uri=uri, root="a storage account or bucket with access tiers")
            same = next((part for other, part in found if other == store), None)
            if same is None:
                found.append((store, [uri]))
            else:
                same.append(uri)
        return found


def carry_out(
    spark: Callable[[], SparkSession],
    plan: Plan,
    tiers_of: Callable[[SparkSession, Source], TierStore | None],
    terms: Terms,
    rates: Prices | None = None,
    poll_seconds: float | None = None,
    into: Source | None = None,
    rows: int | None = None,
    on_step: Callable[[str], None] = lambda _: None,
) -> Restoring:
    """Request the files of a plan, and with `poll_seconds` wait until all are restored.

    Then copies the rows of its query into the new table `into`, or returns the first `rows` rows.
    """
    if into and not plan.has_rows:
        raise OnlyRows(table=plan.table)
    session = spark()
    check_plan(session, plan)
    if into and is_copied(session, plan, into):
        note = f"{into} already contains the rows of the plan."
        return Restoring(plan.table, None, None, None, str(into), notes=(note,))
    several = TiersOfTables(tuple(file.uri for file in plan.files))
    tiers = several if len(plan.tables) > 1 else tiers_of(session, Source.parse(plan.table))
    if tiers is None:
        raise NoTiers(table=plan.table)
    if paid := costs(plan, tiers, terms, rates, datetime.now(UTC)):
        on_step(paid)

    def report(found: Restoring) -> None:
        on_step(f"{found.ready:,} restored, {found.pending:,} pending, {found.archived:,} archived")

    waits = poll_seconds is not None
    found = follow(plan, tiers, poll_seconds or 0.0, terms, report) if waits else request(plan, tiers, terms)
    notes = [next_steps(plan.table, tiers, terms)]
    if not found.done or (rows is None and into is None):
        return replace(found, notes=tuple(notes))
    with in_zone(session, plan.zone):
        frame = run_query(session, plan, tiers, datetime.now(UTC))
        if frame is None:
            from_ = plan.feed_from
            changes = "" if from_ is None else f" for the changes from version {from_} to {plan.version}"
            return replace(found, notes=(f"All planned files{changes} can be read.", *notes))
        if into is None:
            return replace(found, rows=to_json_rows(frame.limit(rows or 0)), notes=tuple(notes))
        copy(session, frame, plan, into)
        return replace(found, into=str(into), notes=(f"Copied the rows into {into}.",))


def progress(plan: Plan, tiers: TierStore) -> Restoring:
    """Reads the tier of every file, because a sample says nothing about the others."""
    found = tiers.read_tiers([file.uri for file in plan.files])
    if gone := [uri for uri, tier in found.items() if tier is Tier.MISSING]:
        raise FilesGone(table=plan.table, uris=gone)
    count = Counter(found.values())
    ready = sum(number for tier, number in count.items() if tier.is_readable)
    return Restoring(plan.table, ready, count[Tier.PENDING], count[Tier.ARCHIVE])


def request(plan: Plan, tiers: TierStore, terms: Terms = Terms(), now: datetime | None = None) -> Restoring:
    """Request the files that are archived and not pending, and copies that would expire too early.

    Rejected files are requested again a few times. Raises `RestoreRejected`, `CannotKeep` or `OnlyHot`.
    """
    from mirrorfeed.storage.cloud_tiers import BATCH_SIZE  # imports cloud clients

    check_terms(plan.table, tiers, terms)
    end = (now or datetime.now(UTC)) + timedelta(days=terms.keep_days or 0)
    refused: dict[str, str] = {}
    for _ in range(_ROUNDS_WITHOUT_PROGRESS):
        found = tiers.facts([file.uri for file in plan.files])
        left = [uri for uri, facts in found.items() if facts.tier is Tier.ARCHIVE or _expires_before(facts, end)]
        refused = {}
        for start in range(0, len(left), BATCH_SIZE):
            batch = left[start : start + BATCH_SIZE]
            refused |= tiers.restore(batch, Priority[plan.priority], terms.to, terms.keep_days)
        if not refused:
            return progress(plan, tiers)
    raise RestoreRejected(table=plan.table, refused=refused)


def check_terms(table: str, tiers: TierStore, terms: Terms) -> None:
    if terms.keep_days is not None and not tiers.restores_copies:
        raise CannotKeep(table=table, days=terms.keep_days)
    if terms.to is not Tier.HOT and tiers.restores_copies:
        raise OnlyHot(table=table, to=terms.to)


def _expires_before(facts: Facts, end: datetime) -> bool:
    return facts.tier.is_readable and facts.until is not None and facts.until < end


def follow(
    plan: Plan,
    tiers: TierStore,
    poll_seconds: float,
    terms: Terms = Terms(),
    report: Callable[[Restoring], None] = lambda _: None,
    sleep: Callable[[float], None] = time.sleep,
) -> Restoring:
    """Request the files, and wait until all are restored. A file that is archived meanwhile is requested again."""
    began = datetime.now(UTC)
    while True:
        found = request(plan, tiers, terms, began)
        report(found)
        if found.done:
            return found
        sleep(poll_seconds)


def costs(plan: Plan, tiers: TierStore, terms: Terms, rates: Prices | None, now: datetime) -> str | None:
    """The costs of the restore in words, or None without prices."""
    check_terms(plan.table, tiers, terms)
    if rates is None:
        return None
    files = tiers.facts([file.uri for file in plan.files]).values()
    days = terms.keep_days or (DEFAULT_COPY_DAYS if tiers.restores_copies else _RULE_INTERVAL_DAYS)
    found = cost_of_restore(files, rates, Priority[plan.priority], terms.to, days, tiers.restores_copies, now)
    return f"Estimated costs: {describe_costs(found, rates.currency)}."


def next_steps(table: str, tiers: TierStore, terms: Terms) -> str:
    """How long restored files stay readable, in words."""
    if tiers.restores_copies:
        days = counted(terms.keep_days or DEFAULT_COPY_DAYS, "day")
        return f"The copies expire {days} after the request. The archived files stay. Use --keep for a longer time."
    return (
        "The lifecycle rule archives these files again within about a day, because they keep their creation time. Pause"
        f" it with `mirrorfeed archive rule {shell_argument(table)} --merge EXPORTED --paused`, or copy the rows with"
        " --into."
    )


def copy(spark: SparkSession, rows: DataFrame, plan: Plan, into: Source) -> bool:
    """Create the table `into` in one commit. False if an earlier run created it. Raises `TargetExists`."""
    if is_copied(spark, plan, into):
        return False
    rows.writeTo(into.sql).using("delta").tableProperty(_COPY_OF, _fingerprint(plan)).create()
    return True


def is_copied(spark: SparkSession, plan: Plan, into: Source) -> bool:
    return made_before(spark, into, _COPY_OF, _fingerprint(plan), "copy of the rows of this plan")


def made_before(spark: SparkSession, into: Source, property_: str, value: str, expected: str) -> bool:
    """Whether the table exists and has this value of a property. Raises `TargetExists` if it has another value."""
    try:
        found = read_table_info(spark, into)
    except (SourceMissing, NoTableAtPath):
        return False
    except NotDelta as error:
        raise TargetExists(table=str(into), expected=expected) from error
    if found.properties.get(property_) != value:
        raise TargetExists(table=str(into), expected=expected)
    return True


def _fingerprint(plan: Plan) -> str:
    """Depends on everything that its rows depend on."""
    tables = [(each.table, each.table_id, each.version) for each in plan.tables]
    return hashlib.sha256(repr((tables, plan.where, plan.sql, plan.zone)).encode()).hexdigest()[:32]
