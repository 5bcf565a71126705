"""The cloud's lifecycle rule for a table: written out, and judged where it was exported. Pure: JSON in, findings out.

Azure knows no filter that leaves something out, so a rule keeps away from `_delta_log` by the prefixes that it names.
"""

from __future__ import annotations

import re
import string
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mirrorfeed.amounts import a_few
from mirrorfeed.errors import Terminal

BY_CREATION = "daysAfterCreationGreaterThan"
_BY_ACCESS = "daysAfterLastAccessTimeGreaterThan"
_BY_CHANGE = "daysAfterModificationGreaterThan"
_PREFIXES_A_RULE = 10
_ADDRESS = re.compile(r"(?:abfss?|wasbs?)://([^@/]+)@[^/]+/(.*)|https://[^/]+/([^/]+)/(.*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Place:
    """Where a table is, as the rules of an account name it: the container, and the folder in it."""

    container: str
    folder: str

    @property
    def prefix(self) -> str:
        return f"{self.container}/{self.folder}/"


def place_of(location: str) -> Place | None:
    """None for a place that is not in Azure storage."""
    found = _ADDRESS.fullmatch(location.rstrip("/"))
    return Place(found[1] or found[3], (found[2] or found[4]).strip("/")) if found else None


def prefixes(place: Place, partition_columns: Sequence[str], random_names: bool) -> list[str]:
    """Those under which all files of a table stand but its log's. With random names (column mapping, or Delta's own
    setting) a file's folder begins with any letter or digit."""
    if random_names:
        starts = list(string.ascii_letters + string.digits)
    else:
        starts = [f"{partition_columns[0]}=" if partition_columns else "part-", "deletion_vector_"]
    return [place.prefix + start for start in [*starts, "_change_data/"]]


def rule_text(name: str, listed: Sequence[str], days: int) -> dict[str, Any]:
    """A policy ready to apply: a rule takes ten prefixes, so there may be several."""
    clean = re.sub(r"[^A-Za-z0-9]", "", name) or "table"
    parts = [listed[i : i + _PREFIXES_A_RULE] for i in range(0, len(listed), _PREFIXES_A_RULE)]
    return {
        "rules": [
            {
                "enabled": True,
                "name": f"archive{clean}{number}",
                "type": "Lifecycle",
                "definition": {
                    "filters": {"blobTypes": ["blockBlob"], "prefixMatch": list(part)},
                    "actions": {"baseBlob": {"tierToArchive": {BY_CREATION: days}}},
                },
            }
            for number, part in enumerate(parts, 1)
        ]
    }


@dataclass(frozen=True, slots=True)
class Finding:
    rule: str
    problem: str

    def __str__(self) -> str:
        return f"{self.rule}: {self.problem}" if self.rule else self.problem


def check(policy: Any, place: Place, expected: Sequence[str], days: int) -> list[Finding]:
    """What in an exported policy does not fit a table whose property says so many days; empty if it fits.
    `expected` are the table's prefixes, of `prefixes`."""
    found: list[Finding] = []
    covered: set[str] = set()
    for rule in _rules(policy):
        name = str(rule.get("name") or "a rule without a name")
        filters = rule.get("definition", {}).get("filters", {})
        actions = rule.get("definition", {}).get("actions", {}).get("baseBlob", {})
        reach = filters.get("prefixMatch") or [""]
        touching = [prefix for prefix in reach if place.prefix.startswith(prefix) or prefix.startswith(place.prefix)]
        if not rule.get("enabled", True) or not touching:
            continue
        if deletes := actions.get("delete"):
            found.append(Finding(name, f"deletes files of the table ({_spelled(deletes)}): only VACUUM may do that"))
        if (archive := actions.get("tierToArchive")) is None:
            continue
        if any((place.prefix + "_delta_log/").startswith(prefix) for prefix in touching):
            found.append(Finding(name, "reaches the table's _delta_log: the table could not be read at all any more"))
        if filters.get("blobIndexMatch"):
            found.append(Finding(name, "chooses files by tag: the log does not know which files that are"))
            continue
        if _BY_ACCESS in archive:
            found.append(Finding(name, "goes by access time: the log does not know which files that are"))
        elif _BY_CHANGE in archive:
            found.append(Finding(name, "goes by modification time, which a restore changes: go by creation time"))
        elif archive.get(BY_CREATION) != days:
            said = archive.get(BY_CREATION)
            found.append(Finding(name, f"says {said} days, and the table's property {days}: they must be equal"))
        covered |= {part for part in expected if any(part.startswith(prefix) for prefix in touching)}
    if missing := [part for part in expected if part not in covered]:
        found.append(Finding("", f"no rule archives {a_few(missing)}"))
    return found


def _rules(policy: Any) -> Iterator[Mapping[str, Any]]:
    """Of a policy as the portal shows it, or as templates and the command line export it."""
    for key in ("properties", "policy"):
        if isinstance(policy, Mapping) and key in policy:
            policy = policy[key]
    rules = policy.get("rules") if isinstance(policy, Mapping) else None
    if not isinstance(rules, list) or not all(isinstance(rule, Mapping) for rule in rules):
        raise NoRules()
    yield from rules


def _spelled(condition: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in condition.items())


class NoRules(Terminal):
    def what(self) -> str:
        return "This is no lifecycle policy of an Azure storage account: it holds no list `rules`."

    def next(self) -> str:
        return "Export it with `az storage account management-policy show`, or copy the code view of the portal."


class NotInAzure(Terminal):
    def __init__(self, table: str, location: str) -> None:
        self.table, self.location = table, location

    def what(self) -> str:
        return f"{self.table} is at {self.location}, which is not in Azure storage: there is no lifecycle rule for it."

    def next(self) -> str:
        return "Name a table whose folder has an address such as abfss://container@account.dfs.core.windows.net/folder."
