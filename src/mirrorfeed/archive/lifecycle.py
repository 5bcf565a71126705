"""The cloud's lifecycle rule for a table: written out, and judged where it was exported. Pure: JSON in, findings out.

Azure knows no filter that leaves something out, so a rule keeps away from `_delta_log` by the prefixes that it names.
"""

from __future__ import annotations

import re
import string
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mirrorfeed.amounts import a_few
from mirrorfeed.errors import Terminal

BY_CREATION = "daysAfterCreationGreaterThan"
_BY_ACCESS = "daysAfterLastAccessTimeGreaterThan"
_BY_CHANGE = "daysAfterModificationGreaterThan"
_BY_TIER = "daysAfterLastTierChangeGreaterThan"
"""Azure takes it beside modification time alone."""
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
    log = f"{place.prefix}_delta_log/"
    for rule in rules_in(policy):
        name = str(rule.get("name") or "a rule without a name")
        definition = _part(rule, "definition", name)
        filters = _part(definition, "filters", name)
        actions = _part(_part(definition, "actions", name), "baseBlob", name)
        reach = [str(prefix) for prefix in filters.get("prefixMatch") or [""]]
        touching = [prefix for prefix in reach if _meet(prefix, place.prefix)]
        if not rule.get("enabled", True) or not touching or not _takes_blocks(filters):
            continue
        if deletes := _part(actions, "delete", name):
            found.append(Finding(name, f"deletes files of the table ({_spelled(deletes)}): only VACUUM may do that"))
        if "tierToArchive" not in actions:
            continue
        if any(_meet(prefix, log) for prefix in touching):
            found.append(Finding(name, "reaches the table's _delta_log: the table could not be read at all any more"))
        if filters.get("blobIndexMatch"):
            found.append(Finding(name, "chooses files by tag: the log does not know which files that are"))
            continue
        if problem := _misfit(_part(actions, "tierToArchive", name), days):
            found.append(Finding(name, problem))
        covered |= {part for part in expected if any(part.startswith(prefix) for prefix in touching)}
    if missing := [part for part in expected if part not in covered]:
        found.append(Finding("", f"no rule archives {a_few(missing)}"))
    return found


def _misfit(archive: Mapping[str, Any], days: int) -> str | None:
    """What is wrong with the conditions on which a rule archives."""
    given = [name for name in (BY_CREATION, _BY_CHANGE, _BY_ACCESS, _BY_TIER) if name in archive]
    if len(given) > 1 and given != [_BY_CHANGE, _BY_TIER]:
        return f"joins {' and '.join(given)}, which Azure does not take"
    if _BY_ACCESS in archive:
        return "goes by access time: the log does not know which files that are"
    if _BY_CHANGE in archive:
        return (
            "goes by modification time, which any change to a blob sets anew, as of its metadata: the log does not know"
            " of it. Go by creation time"
        )
    if BY_CREATION not in archive:
        return "names no days after creation"
    said = archive[BY_CREATION]
    if said == days:
        return None
    spelled = f"{said:g}" if isinstance(said, int | float) else repr(said)
    return f"says {spelled} days, and the table's property {days}: they must be equal"


def rules_in(policy: Any) -> list[dict[str, Any]]:
    """Of a policy as the portal shows it, or as templates, the command line (unused fields are `null` there) and
    PowerShell (names begin with capitals there) export it; or `NoRules`. What is `null` is left out."""
    policy = _plain(policy)
    for key in ("properties", "policy"):
        if isinstance(policy, dict) and key in policy:
            policy = policy[key]
    rules = policy.get("rules") if isinstance(policy, dict) else None
    if not isinstance(rules, list) or not all(isinstance(rule, dict) for rule in rules):
        raise NoRules("it holds no list `rules`")
    return rules


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name[:1].lower() + name[1:]: _plain(each) for name, each in value.items() if each is not None}
    return [_plain(each) for each in value] if isinstance(value, list) else value


def _part(whole: Mapping[str, Any], name: str, rule: str) -> Mapping[str, Any]:
    found = whole.get(name, {})
    if not isinstance(found, Mapping):
        raise NoRules(f"its rule {rule!r} has a {name} that is no object")
    return found


def _meet(prefix: str, folder: str) -> bool:
    """Whether something in this folder may begin so."""
    return folder.startswith(prefix) or prefix.startswith(folder)


def _takes_blocks(filters: Mapping[str, Any]) -> bool:
    """A table's files are block blobs."""
    return "blockblob" in [str(kind).lower() for kind in filters.get("blobTypes") or ["blockBlob"]]


def _spelled(condition: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in condition.items())


class NoRules(Terminal):
    def __init__(self, reason: str) -> None:
        self.reason = reason

    def what(self) -> str:
        return f"This is no lifecycle policy of an Azure storage account: {self.reason}."

    def next(self) -> str:
        return "Export it with `az storage account management-policy show`, or copy the code view of the portal."


class NotInAzure(Terminal):
    def __init__(self, table: str, location: str) -> None:
        self.table, self.location = table, location

    def what(self) -> str:
        return f"{self.table} is at {self.location}, which is not in Azure storage: there is no lifecycle rule for it."

    def next(self) -> str:
        return "Name a table whose folder has an address such as abfss://container@account.dfs.core.windows.net/folder."
