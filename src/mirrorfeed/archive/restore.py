"""Carrying a plan out: ask for what is in the archive, look until every file is back. It can be stopped at any time.

Nothing is remembered between runs but the plan: the tiers themselves say what is left to do.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from mirrorfeed.amounts import a_few
from mirrorfeed.archive.plan import Plan
from mirrorfeed.errors import Terminal, Transient
from mirrorfeed.stores.tiers import MOST_IN_A_BATCH, Priority, Tier, TierStore

_ROUNDS_WITHOUT_PROGRESS = 3


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
        raise PlanOfAnotherTable(plan.table, plan.table_id, table_id)
    if plan.version > newest:
        raise PlanOfAnotherTable(plan.table, f"{plan.table_id} at version {plan.version}", f"{table_id} at {newest}")


def progress(plan: Plan, tiers: TierStore) -> Progress:
    """Every file is looked at: one that was sampled says nothing about the others."""
    found = tiers.look([file.uri for file in plan.files])
    if gone := [uri for uri, tier in found.items() if tier is Tier.MISSING]:
        raise FilesGone(plan.table, gone)
    count = Counter(found.values())
    return Progress(
        ready=sum(number for tier, number in count.items() if tier.is_readable),
        pending=count[Tier.PENDING],
        archived=count[Tier.ARCHIVE],
    )


def ask(plan: Plan, tiers: TierStore) -> Progress:
    """Asks for what is in the archive and not on its way yet; what is not taken is asked for again, and then named."""
    refused: dict[str, str] = {}
    for _ in range(_ROUNDS_WITHOUT_PROGRESS):
        found = tiers.look([file.uri for file in plan.files])
        left = [uri for uri, tier in found.items() if tier is Tier.ARCHIVE]
        if not left:
            break
        refused = {}
        for start in range(0, len(left), MOST_IN_A_BATCH):
            refused |= tiers.bring_back(left[start : start + MOST_IN_A_BATCH], Priority[plan.priority])
        if not refused:
            break
    if refused:
        raise NotTaken(plan.table, refused)
    return progress(plan, tiers)


def follow(
    plan: Plan,
    tiers: TierStore,
    poll_seconds: float,
    report: Callable[[Progress], None] = lambda _: None,
    sleep: Callable[[float], None] = time.sleep,
) -> Progress:
    """Asks, and looks until all are back. One that is archived again meanwhile is asked for again."""
    while True:
        found = ask(plan, tiers)
        report(found)
        if found.done:
            return found
        sleep(poll_seconds)


class PlanOfAnotherTable(Terminal):
    def __init__(self, table: str, planned: str, found: str) -> None:
        self.table, self.planned, self.found = table, planned, found

    def what(self) -> str:
        return f"The plan is of another table than {self.table} is now: its id was {self.planned} and is {self.found}."

    def next(self) -> str:
        return "Make a new plan with `mirrorfeed archive plan`."


class FilesGone(Terminal):
    def __init__(self, table: str, uris: Sequence[str]) -> None:
        self.table, self.uris = table, tuple(uris)

    def what(self) -> str:
        return f"Files of {self.table} that the plan names are not there any more: {a_few(self.uris)}."

    def next(self) -> str:
        return "VACUUM may have removed them since: make a new plan, for a newer version."


class NotTaken(Transient):
    def __init__(self, table: str, refused: dict[str, str]) -> None:
        self.table, self.refused = table, refused

    def what(self) -> str:
        uri, reason = next(iter(self.refused.items()))
        return f"The storage did not take the request for {len(self.refused):,} files of {self.table}: {uri}: {reason}."

    def next(self) -> str:
        return "Run the same command again later; what is on its way is not asked for twice."
