"""Lifecycle rules of an Azure storage account: check an exported policy for a table, and merge rules into it. Pure.

An account has one policy, which is replaced as a whole. Foreign rules are not changed, except with `take_over`. Rules
of mirrorfeed are recognized by name and rewritten each time, one set for all tables with the same interval, because a
policy can contain 100 rules and a rule ten prefixes. Azure has no filter that excludes paths, so prefixes avoid
`_delta_log`.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mirrorfeed.archive.errors import NoRules, TooManyRules
from mirrorfeed.archive.lifecycle import Finding, Wanted, prefixes_overlap
from mirrorfeed.display.humanize import a_few

BY_CREATION = "daysAfterCreationGreaterThan"
_BY_ACCESS = "daysAfterLastAccessTimeGreaterThan"
_BY_CHANGE = "daysAfterModificationGreaterThan"
_BY_TIER = "daysAfterLastTierChangeGreaterThan"
"""Azure allows this condition only together with the modification time."""
_ADDRESS = re.compile(r"(?:abfss?|wasbs?)://([^@/]+)@[^/]+/(.*)|https://[^/]+/([^/]+)/(.*)", re.DOTALL)
MOST_RULES = 100
_PREFIXES_A_RULE = 10
_NAME = re.compile(r"mirrorfeed(\d+)days(paused)?\d+")


def folder_of(location: str) -> str | None:
    """Return container and folder of a table as in lifecycle rules. None outside Azure storage."""
    found = _ADDRESS.fullmatch(location.rstrip("/"))
    return f"{found[1] or found[3]}/{(found[2] or found[4]).strip('/')}/" if found else None


@dataclass(frozen=True, slots=True)
class AzureRules:
    folder: str
    """Container and folder of the table, with a slash at the end."""
    listed: Sequence[str]
    """Prefixes of the files, including the container."""

    def apply(self, policy: Any, exported: Any = None) -> str:
        if not policy["rules"]:
            return (
                "Azure does not accept a policy without rules. Delete the existing policy with `az storage account"
                " management-policy delete`."
            )
        return (
            "Applying this policy replaces the existing one of the account. With `--merge`, it includes the exported"
            " rules. Apply it with `az storage account management-policy create --policy @FILE`."
        )

    def policy(self, days: int, wanted: Wanted = Wanted.ON, exported: Any = None, take_over: bool = False) -> Any:
        theirs = self.of_others(exported) if take_over else []
        kept: list[dict[str, Any]] = []
        ours: dict[tuple[int, bool], set[str]] = defaultdict(set)
        for rule in rules_in(exported or {"rules": []}):
            found = _archived_by(rule)
            if str(rule.get("name")) in theirs:
                continue
            if found and _is_ours(rule):
                others = {prefix for prefix in found if not prefix.startswith(self.folder)}
                age = int(rule["definition"]["actions"]["baseBlob"]["tierToArchive"][BY_CREATION])
                ours[age, bool(rule.get("enabled", True))] |= others
            else:
                kept.append(rule)
        if wanted is not Wanted.GONE:
            ours[days, wanted is Wanted.ON] |= set(self.listed)
        names = {str(rule.get("name")) for rule in kept}
        made = [rule for (age, on), found in sorted(ours.items()) for rule in _rules(age, on, sorted(found), names)]
        if len(kept) + len(made) > MOST_RULES:
            raise TooManyRules(
                owner="A storage account", limit=MOST_RULES, needed=len(kept) + len(made), folder=self.folder
            )
        return {"rules": kept + made}

    def of_others(self, exported: Any) -> list[str]:
        return [
            str(rule.get("name"))
            for rule in rules_in(exported or {"rules": []})
            if not _is_ours(rule)
            and (found := _archived_by(rule))
            and all(each.startswith(self.folder) for each in found)
        ]

    def check(self, policy: Any, days: int) -> list[Finding]:
        found: list[Finding] = []
        covered: set[str] = set()
        for rule in rules_in(policy):
            name = str(rule.get("name") or "a rule without a name")
            definition = _part(rule, "definition", name)
            filters = _part(definition, "filters", name)
            actions = _part(_part(definition, "actions", name), "baseBlob", name)
            reach = [str(prefix) for prefix in filters.get("prefixMatch") or [""]]
            touching = [prefix for prefix in reach if prefixes_overlap(prefix, self.folder)]
            kinds = [str(kind).lower() for kind in filters.get("blobTypes") or ["blockBlob"]]  # files are block blobs
            if not rule.get("enabled", True) or not touching or "blockblob" not in kinds:
                continue
            if deletes := _part(actions, "delete", name):
                found.append(
                    Finding(name, f"deletes files of the table ({_listed(deletes)}): only VACUUM may delete them")
                )
            if "tierToArchive" not in actions:
                continue
            if any(prefixes_overlap(prefix, f"{self.folder}_delta_log/") for prefix in touching):
                found.append(Finding(name, "archives the table's _delta_log, so that the table can no longer be read"))
            if filters.get("blobIndexMatch"):
                found.append(Finding(name, "selects files by tag, but the Delta log has no tags"))
                continue
            if problem := _misfit(_part(actions, "tierToArchive", name), days):
                found.append(Finding(name, problem))
            covered |= {part for part in self.listed if any(part.startswith(prefix) for prefix in touching)}
        if missing := [part for part in self.listed if part not in covered]:
            found.append(Finding("", f"no rule archives {a_few(missing)}"))
        return found


def _misfit(archive: Mapping[str, Any], days: int) -> str | None:
    """Return the problem with the conditions under which a rule archives files, or None."""
    given = [name for name in (BY_CREATION, _BY_CHANGE, _BY_ACCESS, _BY_TIER) if name in archive]
    if len(given) > 1 and given != [_BY_CHANGE, _BY_TIER]:
        return f"combines {' and '.join(given)}, which Azure does not support"
    if _BY_ACCESS in archive:
        return "uses the access time, but the Delta log has no access times"
    if _BY_CHANGE in archive:
        return (
            "uses the modification time, which any change to a blob or its metadata resets and which the log does not"
            " contain. Use the creation time"
        )
    if BY_CREATION not in archive:
        return "sets no number of days after creation"
    said = archive[BY_CREATION]
    if said == days:
        return None
    return f"says {said!r} days, but the table's property has {days}: they must be equal"


def rules_in(policy: Any) -> list[dict[str, Any]]:
    """Return the rules of an exported policy, without fields that are `null`. Raises `NoRules`.

    Accepts the forms of the portal, templates, the command line (which writes `null` for unused fields) and PowerShell
    (which capitalizes names).
    """
    policy = _plain(policy)
    for key in ("properties", "policy"):
        if isinstance(policy, dict) and key in policy:
            policy = policy[key]
    rules = policy.get("rules") if isinstance(policy, dict) else None
    if not isinstance(rules, list) or not all(isinstance(rule, dict) for rule in rules):
        raise NoRules(reason="it has no list `rules`")
    return rules


def _plain(value: Any) -> Any:
    """Convert floats to integers, because the command line writes days as 60.0."""
    if isinstance(value, Mapping):
        return {name[:1].lower() + name[1:]: _plain(each) for name, each in value.items() if each is not None}
    if isinstance(value, list):
        return [_plain(each) for each in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _part(whole: Mapping[str, Any], name: str, rule: str) -> Mapping[str, Any]:
    found = whole.get(name, {})
    if not isinstance(found, Mapping):
        raise NoRules(reason=f"its rule {rule!r} has a {name} that is not an object")
    return found


def _listed(condition: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in condition.items())


def _is_ours(rule: Mapping[str, Any]) -> bool:
    return _NAME.fullmatch(str(rule.get("name"))) is not None


def _rules(days: int, on: bool, listed: Sequence[str], taken: set[str]) -> list[dict[str, Any]]:
    name = f"mirrorfeed{days}days{'' if on else 'paused'}"
    parts = [listed[i : i + _PREFIXES_A_RULE] for i in range(0, len(listed), _PREFIXES_A_RULE)]
    free = (f"{name}{number}" for number in range(1, len(parts) + len(taken) + 1) if f"{name}{number}" not in taken)
    return [
        {
            "enabled": on,
            "name": own,
            "type": "Lifecycle",
            "definition": {
                "filters": {"blobTypes": ["blockBlob"], "prefixMatch": list(part)},
                "actions": {"baseBlob": {"tierToArchive": {BY_CREATION: days}}},
            },
        }
        for own, part in zip(free, parts, strict=False)
    ]


def _archived_by(rule: Mapping[str, Any]) -> list[str] | None:
    """Return the prefixes of a rule that only archives block blobs by creation time, like the rules of mirrorfeed."""
    match rule.get("definition"):
        case {
            "filters": {"blobTypes": ["blockBlob"], "prefixMatch": [*listed], **more},
            "actions": {"baseBlob": {"tierToArchive": {"daysAfterCreationGreaterThan": int(), **conditions}, **acts}},
        } if not more and not conditions and not acts:
            others = {name for name, value in rule["definition"]["actions"].items() if value and name != "baseBlob"}
            return [str(prefix) for prefix in listed] if not others else None
    return None
