"""Lifecycle rules of an Azure storage account: check an exported policy, or merge a table's rules into the policy.

An account has one policy. A change replaces the whole policy. A policy can contain 100 rules with ten prefixes each, so
tables with the same archive interval share rules. mirrorfeed recognizes its own rules by their names, and writes all of
them again in each new policy. The Delta log must never be archived. Azure has no filter that excludes paths, so the
rules contain prefixes of all other files.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from mirrorfeed.archive.errors import invalid_lifecycle_policy
from mirrorfeed.archive.lifecycle import PolicyRule, Rules, RuleState, free_names

BY_CREATION = "daysAfterCreationGreaterThan"
_BY_ACCESS = "daysAfterLastAccessTimeGreaterThan"
_BY_CHANGE = "daysAfterModificationGreaterThan"
_BY_TIER = "daysAfterLastTierChangeGreaterThan"
"""Condition on the last tier change. Azure allows it only together with a condition on the modification time."""
_ADDRESS = re.compile(r"(?:abfss?|wasbs?)://([^@/]+)@[^/]+/(.*)|https://[^/]+/([^/]+)/(.*)", re.DOTALL)
_PREFIXES_A_RULE = 10


def folder_of(location: str) -> str | None:
    """Return container and folder of a table, such as "container/folder/". None if not in Azure storage."""
    match_ = _ADDRESS.fullmatch(location.rstrip("/"))
    return f"{match_[1] or match_[3]}/{(match_[2] or match_[4]).strip('/')}/" if match_ else None


class AzureRules(Rules):
    cloud, owner, key, name_key, limit = "Azure", "storage account", "rules", "name", 100
    delete_command = "az storage account management-policy delete"
    apply_command = "az storage account management-policy create --policy @FILE"

    def policy(self, days: int, state: RuleState = RuleState.ON, exported: Any = None, take_over: bool = False) -> Any:
        other_rules: list[dict[str, Any]] = []
        own_prefixes: dict[tuple[int, bool], set[str]] = defaultdict(set)
        for rule in self.all_rules(exported or {"rules": []}):
            prefixes = self.archived_prefixes(rule)
            if prefixes and self.is_own(rule):
                age = int(rule["definition"]["actions"]["baseBlob"]["tierToArchive"][BY_CREATION])
                of_other_tables = {prefix for prefix in prefixes if not prefix.startswith(self.folder)}
                own_prefixes[age, bool(rule.get("enabled", True))] |= of_other_tables
            elif not (take_over and self.is_for_table(rule)):
                other_rules.append(rule)
        if state is not RuleState.GONE:
            own_prefixes[days, state is RuleState.ON] |= set(self.prefixes)
        used_names = {rule.get("name") for rule in other_rules}
        own_rules = [
            rule for (age, on), own in sorted(own_prefixes.items()) for rule in _rules(age, on, sorted(own), used_names)
        ]
        return self.policy_of(other_rules + own_rules)

    def enabled_rules(self, policy: Any, days: int) -> Iterator[PolicyRule]:
        for rule in self.all_rules(policy):
            name = self.name_of(rule)
            definition = _part(rule, "definition", name)
            filters = _part(definition, "filters", name)
            actions = _part(_part(definition, "actions", name), "baseBlob", name)
            deletes = ", ".join(f"{key} {value}" for key, value in _part(actions, "delete", name).items())
            archive = _part(actions, "tierToArchive", name)
            kinds = [str(kind).lower() for kind in filters.get("blobTypes") or ["blockBlob"]]  # files are block blobs
            if rule.get("enabled", True) and "blockblob" in kinds:
                yield PolicyRule(
                    name,
                    [str(prefix) for prefix in filters.get("prefixMatch") or [""]],
                    [f"deletes files of the table ({deletes}): only VACUUM may delete them"] if deletes else [],
                    "tierToArchive" in actions,
                    bool(filters.get("blobIndexMatch")),
                    _wrong_age(archive, days),
                )

    def all_rules(self, exported: Any) -> list[dict[str, Any]]:
        """Return the rules of an exported policy, without `null` fields. Raises `invalid_lifecycle_policy` if it is
        invalid.

        Accepts the formats of the portal, templates, the command line, and PowerShell, which capitalizes names.
        """
        policy = _plain(exported)
        for key in ("properties", "policy"):
            if isinstance(policy, dict) and key in policy:
                policy = policy[key]
        rules = policy.get("rules") if isinstance(policy, dict) else None
        if not isinstance(rules, list) or not all(isinstance(rule, dict) for rule in rules):
            raise invalid_lifecycle_policy(reason="it has no list `rules`")
        return rules

    def archived_prefixes(self, rule: Mapping[str, Any]) -> list[str]:
        match rule.get("definition"):
            case {
                "filters": {"blobTypes": ["blockBlob"], "prefixMatch": [*listed], **more},
                "actions": {
                    "baseBlob": {"tierToArchive": {"daysAfterCreationGreaterThan": int(), **conditions}, **acts},
                    **others,
                },
            } if not (more or conditions or acts or any(others.values())):
                return [str(prefix) for prefix in listed]
        return []


def _wrong_age(archive: Mapping[str, Any], days: int) -> str | None:
    """Return the reason why a rule does not archive files `days` days after creation, or None if the rule is right."""
    conditions = [name for name in (BY_CREATION, _BY_CHANGE, _BY_ACCESS, _BY_TIER) if name in archive]
    if len(conditions) > 1 and conditions != [_BY_CHANGE, _BY_TIER]:
        return f"combines {' and '.join(conditions)}, which Azure does not support"
    if _BY_ACCESS in archive:
        return "uses the access time, but the Delta log has no access times"
    if _BY_CHANGE in archive:
        return (
            "uses the modification time, which any change to a blob or its metadata resets and which the log does not"
            " contain. Use the creation time"
        )
    if BY_CREATION not in archive:
        return "sets no number of days after creation"
    age = archive[BY_CREATION]
    if age == days:
        return None
    return f"says {age!r} days, but the table's property has {days}: they must be equal"


def _plain(value: Any) -> Any:
    """Return a policy without `null` fields. Makes the first letter of field names lowercase, and 60.0 an integer."""
    if isinstance(value, Mapping):
        return {name[:1].lower() + name[1:]: _plain(each) for name, each in value.items() if each is not None}
    if isinstance(value, list):
        return [_plain(each) for each in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _part(parent: Mapping[str, Any], name: str, rule: str) -> Mapping[str, Any]:
    part = parent.get(name, {})
    if not isinstance(part, Mapping):
        raise invalid_lifecycle_policy(reason=f"its rule {rule!r} has a {name} that is not an object")
    return part


def _rules(days: int, on: bool, prefixes: Sequence[str], used_names: set[Any]) -> list[dict[str, Any]]:
    parts = [prefixes[start : start + _PREFIXES_A_RULE] for start in range(0, len(prefixes), _PREFIXES_A_RULE)]
    return [
        {
            "enabled": on,
            "name": name,
            "type": "Lifecycle",
            "definition": {
                "filters": {"blobTypes": ["blockBlob"], "prefixMatch": part},
                "actions": {"baseBlob": {"tierToArchive": {BY_CREATION: days}}},
            },
        }
        for name, part in zip(free_names(days, on, used_names), parts, strict=False)
    ]
