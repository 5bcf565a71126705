"""Carries out a restore plan: requests archived files, waits until they are readable, and copies the rows.

A run keeps no state except the plan, because the tiers of the files show what is left to do.
"""

from __future__ import annotations

import hashlib
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from pyspark.sql import DataFrame, SparkSession

from mirrorfeed.archive.errors import FilesGone, KeptByARule, NotTaken, OnlyHot, PlanOfAnotherTable, TargetThere
from mirrorfeed.archive.restore_plan import Plan, of_restore, spelled
from mirrorfeed.display.humanize import counted
from mirrorfeed.display.printable import shell_argument
from mirrorfeed.source.errors import NoTableAtPath, NotDelta, SourceMissing
from mirrorfeed.source.identifier import Source
from mirrorfeed.source.table_info import read_table_info
from mirrorfeed.storage.azure_tiers import BATCH_SIZE
from mirrorfeed.storage.errors import OtherPlace
from mirrorfeed.storage.prices import Prices
from mirrorfeed.storage.tiers import DEFAULT_COPY_DAYS, Facts, Priority, Tier, TierStore, tiers_at


@dataclass(frozen=True)
class TiersOfTables(TierStore):
    """Files of several tables, each where its own address says."""

    uris: tuple[str, ...]
    """All that it is asked about."""
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
                raise OtherPlace(uri=uri, root="a location with access tiers")
            same = next((part for other, part in found if other == store), None)
            if same is None:
                found.append((store, [uri]))
            else:
                same.append(uri)
        return found


_ROUNDS_WITHOUT_PROGRESS = 3
_BY_THE_RULE = 1
"""After about so many days a rule has archived a file again."""


@dataclass(frozen=True, slots=True)
class Progress:
    ready: int
    pending: int
    archived: int

    @property
    def done(self) -> bool:
        return not self.pending and not self.archived


def check_table(plan: Plan, table_id: str, newest: int) -> None:
    """Refuses a plan of another table, which also one is that was dropped and made again, or of a version to come."""
    if plan.table_id != table_id:
        raise PlanOfAnotherTable(table=plan.table, planned=plan.table_id, found=table_id)
    if plan.version > newest:
        raise PlanOfAnotherTable(
            table=plan.table, planned=f"{plan.table_id} at version {plan.version}", found=f"{table_id} at {newest}"
        )


def progress(plan: Plan, tiers: TierStore) -> Progress:
    """Every file is looked at: one that was sampled says nothing about the others."""
    found = tiers.read_tiers([file.uri for file in plan.files])
    if gone := [uri for uri, tier in found.items() if tier is Tier.MISSING]:
        raise FilesGone(table=plan.table, uris=gone)
    count = Counter(found.values())
    return Progress(
        ready=sum(number for tier, number in count.items() if tier.is_readable),
        pending=count[Tier.PENDING],
        archived=count[Tier.ARCHIVE],
    )


@dataclass(frozen=True, slots=True)
class Terms:
    """Where files are wanted, and for how long."""

    to: Tier = Tier.HOT
    keep_days: int | None = None
    """None: as long as the storage keeps them by itself."""


def ask(plan: Plan, tiers: TierStore, terms: Terms = Terms(), now: datetime | None = None) -> Progress:
    """Asks for what is in the archive and not on its way yet, and for what would go too early; what is not taken is
    asked for again, and then named. `KeptByARule` where the storage has no days, `OnlyHot` where it has no other tier.
    """
    check_terms(plan.table, tiers, terms)
    end = (now or datetime.now(UTC)) + timedelta(days=terms.keep_days or 0)
    refused: dict[str, str] = {}
    for _ in range(_ROUNDS_WITHOUT_PROGRESS):
        found = tiers.facts([file.uri for file in plan.files])
        left = [uri for uri, facts in found.items() if facts.tier is Tier.ARCHIVE or _goes_before(facts, end)]
        if not left:
            break
        refused = {}
        for start in range(0, len(left), BATCH_SIZE):
            batch = left[start : start + BATCH_SIZE]
            refused |= tiers.restore(batch, Priority[plan.priority], terms.to, terms.keep_days)
        if not refused:
            break
    if refused:
        raise NotTaken(table=plan.table, refused=refused)
    return progress(plan, tiers)


def check_terms(table: str, tiers: TierStore, terms: Terms) -> None:
    if terms.keep_days is not None and not tiers.restores_copies:
        raise KeptByARule(table=table, days=terms.keep_days)
    if terms.to is not Tier.HOT and tiers.restores_copies:
        raise OnlyHot(table=table, to=terms.to)


def _goes_before(facts: Facts, end: datetime) -> bool:
    return facts.tier.is_readable and facts.until is not None and facts.until < end


def follow(
    plan: Plan,
    tiers: TierStore,
    poll_seconds: float,
    terms: Terms = Terms(),
    report: Callable[[Progress], None] = lambda _: None,
    sleep: Callable[[float], None] = time.sleep,
) -> Progress:
    """Asks, and looks until all are back. One that is archived again meanwhile is asked for again."""
    began = datetime.now(UTC)
    while True:
        found = ask(plan, tiers, terms, began)
        report(found)
        if found.done:
            return found
        sleep(poll_seconds)


def costs(plan: Plan, tiers: TierStore, terms: Terms, rates: Prices | None, now: datetime) -> str | None:
    """What carrying the plan out costs, for people; None without prices."""
    check_terms(plan.table, tiers, terms)
    if rates is None:
        return None
    files = tiers.facts([file.uri for file in plan.files]).values()
    days = terms.keep_days or (DEFAULT_COPY_DAYS if tiers.restores_copies else _BY_THE_RULE)
    found = of_restore(files, rates, Priority[plan.priority], terms.to, days, tiers.restores_copies, now)
    return f"This costs about {spelled(found, rates.currency)}."


def afterwards(table: str, tiers: TierStore, terms: Terms) -> str:
    """What becomes of files that are brought back, for people."""
    if tiers.restores_copies:
        days = counted(terms.keep_days or DEFAULT_COPY_DAYS, "day")
        return f"The copies go {days} after they were asked for; the files stay in the archive. --keep makes it longer."
    return (
        f"Unless it is paused (`mirrorfeed archive rule {shell_argument(table)} --merge EXPORTED --paused`), the"
        " cloud's rule archives"
        " these files again at one of its next runs, which are daily, for they keep their creation time. --into copies"
        " the rows, so that this does no harm."
    )


_COPY_OF = "mirrorfeed.archive.copyOf"


def copy(spark: SparkSession, rows: DataFrame, plan: Plan, into: Source) -> bool:
    """Makes the table in one commit, which is all or nothing; False where an earlier run did. `TargetThere` where the
    table is something else."""
    if is_there(spark, plan, into):
        return False
    rows.writeTo(into.sql).using("delta").tableProperty(_COPY_OF, _named(plan)).create()
    return True


def is_there(spark: SparkSession, plan: Plan, into: Source) -> bool:
    """Whether this plan's rows were copied already; or `TargetThere`."""
    return made_before(spark, into, _COPY_OF, _named(plan), "copy of the rows of this plan")


def made_before(spark: SparkSession, into: Source, property_: str, told: str, expected: str) -> bool:
    """Whether the table is there and has this value of a property, as who made it gave it; or `TargetThere`."""
    try:
        found = read_table_info(spark, into)
    except (SourceMissing, NoTableAtPath):
        return False
    except NotDelta as error:
        raise TargetThere(table=str(into), expected=expected) from error
    if found.properties.get(property_) != told:
        raise TargetThere(table=str(into), expected=expected)
    return True


def _named(plan: Plan) -> str:
    """By what its rows depend on."""
    return hashlib.sha256(repr((plan.tables, plan.where, plan.sql, plan.zone)).encode()).hexdigest()[:32]
