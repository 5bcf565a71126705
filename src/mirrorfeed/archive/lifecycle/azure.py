"""The lifecycle rules of an Azure account, judged for a table as they were exported. Pure: JSON in, findings out.

Azure knows no filter that leaves something out, so a rule keeps away from `_delta_log` by the prefixes that it names.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mirrorfeed.archive.errors import NoRules
from mirrorfeed.archive.lifecycle.finding import Finding, meet
from mirrorfeed.display.humanize import a_few

BY_CREATION = "daysAfterCreationGreaterThan"
_BY_ACCESS = "daysAfterLastAccessTimeGreaterThan"
_BY_CHANGE = "daysAfterModificationGreaterThan"
_BY_TIER = "daysAfterLastTierChangeGreaterThan"
"""Azure takes it beside modification time alone."""
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


def check(policy: Any, place: Place, expected: Sequence[str], days: int) -> list[Finding]:
    """What in an exported policy does not fit a table whose property says so many days; empty if it fits.
    `expected` is what its files' names begin with, from the container on."""
    found: list[Finding] = []
    covered: set[str] = set()
    log = f"{place.prefix}_delta_log/"
    for rule in rules_in(policy):
        name = str(rule.get("name") or "a rule without a name")
        definition = _part(rule, "definition", name)
        filters = _part(definition, "filters", name)
        actions = _part(_part(definition, "actions", name), "baseBlob", name)
        reach = [str(prefix) for prefix in filters.get("prefixMatch") or [""]]
        touching = [prefix for prefix in reach if meet(prefix, place.prefix)]
        if not rule.get("enabled", True) or not touching or not _takes_blocks(filters):
            continue
        if deletes := _part(actions, "delete", name):
            found.append(Finding(name, f"deletes files of the table ({_spelled(deletes)}): only VACUUM may do that"))
        if "tierToArchive" not in actions:
            continue
        if any(meet(prefix, log) for prefix in touching):
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
    return f"says {said!r} days, and the table's property {days}: they must be equal"


def rules_in(policy: Any) -> list[dict[str, Any]]:
    """Of a policy as the portal shows it, or as templates, the command line (unused fields are `null` there) and
    PowerShell (names begin with capitals there) export it; or `NoRules`. What is `null` is left out."""
    policy = _plain(policy)
    for key in ("properties", "policy"):
        if isinstance(policy, dict) and key in policy:
            policy = policy[key]
    rules = policy.get("rules") if isinstance(policy, dict) else None
    if not isinstance(rules, list) or not all(isinstance(rule, dict) for rule in rules):
        raise NoRules(reason="it holds no list `rules`")
    return rules


def _plain(value: Any) -> Any:
    """With whole numbers as such: the command line writes days as 60.0."""
    if isinstance(value, Mapping):
        return {name[:1].lower() + name[1:]: _plain(each) for name, each in value.items() if each is not None}
    if isinstance(value, list):
        return [_plain(each) for each in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _part(whole: Mapping[str, Any], name: str, rule: str) -> Mapping[str, Any]:
    found = whole.get(name, {})
    if not isinstance(found, Mapping):
        raise NoRules(reason=f"its rule {rule!r} has a {name} that is no object")
    return found


def _takes_blocks(filters: Mapping[str, Any]) -> bool:
    """A table's files are block blobs."""
    return "blockblob" in [str(kind).lower() for kind in filters.get("blobTypes") or ["blockBlob"]]


def _spelled(condition: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in condition.items())
