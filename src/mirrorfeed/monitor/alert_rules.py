"""Selects the findings that are worth an alert, and the problems about which a check says nothing. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mirrorfeed.monitor.facts import DatabaseFacts, TableFacts
from mirrorfeed.monitor.freshness import AHEAD
from mirrorfeed.monitor.rules import ALERT_RULES, TABLE_RULES, Finding, database_findings, table_findings

_HIDING = frozenset({"MIRRORING_PAUSED", "CapacityPaused"})
"""Problems with which no other can be seen."""


@dataclass(frozen=True, slots=True)
class Check:
    """The result of one check of all tables."""

    problems: tuple[Finding, ...] = ()
    unknown: frozenset[tuple[str, str]] = frozenset()
    """Problems, by table and name, that may be there or not. Without a name all of the table, without a table all."""
    patience: float = 0.0
    """Seconds for which a problem that may pass must last before an alert is sent."""

    def hides(self, key: tuple[str, str]) -> bool:
        table, name = key
        return bool(self.unknown & {(table, name), (table, ""), ("", "")})

    def delay(self, problem: Finding) -> float:
        return self.patience if problem.passing else 0.0


def check_of(database: DatabaseFacts, tables: Sequence[TableFacts], patience: float = 0.0) -> Check:
    """Notes are no problems, and tables that are paused have none."""
    found = database_findings(database)
    unknown = {("", "")} if database.error else set()
    for facts in tables:
        if facts.paused or not facts.is_complete:
            unknown.add((facts.table, ""))
        if facts.paused:
            continue
        for rule, step in zip(ALERT_RULES, AHEAD, strict=True):
            if facts.fresh is None or step in facts.fresh.unknown:
                unknown.add((facts.table, rule.name))
        found += table_findings(facts, (*TABLE_RULES, *ALERT_RULES))
    problems = {each.key: each for each in found if not each.ok}
    unknown |= {(each.table, "") for each in problems.values() if each.name in _HIDING}
    return Check(tuple(problems.values()), frozenset(unknown), patience)
