"""Lifecycle rules of an S3 bucket: check an exported configuration, or merge a table's rules into the configuration.

A bucket has one configuration. A change replaces the whole configuration. A configuration can contain 1,000 rules with
one prefix each. The Delta log must never be archived. S3 has no filter that excludes paths, so the rules contain
prefixes of all other files.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from mirrorfeed.archive.errors import invalid_lifecycle_policy
from mirrorfeed.archive.lifecycle import PolicyRule, Rules, RuleState, free_names
from mirrorfeed.display.rows import counted

CLASSES = ("GLACIER", "DEEP_ARCHIVE")
"""Storage classes whose objects must be restored before they are read: Flexible Retrieval and Deep Archive."""
_ADDRESS = re.compile(r"s3[an]?://[^/]+/(.*)", re.DOTALL)


def folder_of(location: str) -> str | None:
    """Return the folder of a table in its bucket, with a slash at the end. None outside S3."""
    match_ = _ADDRESS.fullmatch(location.rstrip("/"))
    return f"{match_[1].strip('/')}/" if match_ else None


class S3Rules(Rules):
    cloud, owner, key, name_key, limit = "S3", "bucket", "Rules", "ID", 1000
    delete_command = "aws s3api delete-bucket-lifecycle"
    apply_command = "aws s3api put-bucket-lifecycle-configuration --lifecycle-configuration file://FILE"

    def options(self, exported: Any) -> str:
        # Lets S3 archive files below 128 KiB. S3 does not accept this setting as part of a configuration.
        varies = "varies_by_storage_class"
        if isinstance(exported, Mapping) and exported.get("TransitionDefaultMinimumObjectSize") == varies:
            return f" --transition-default-minimum-object-size {varies}"
        return ""

    def policy(self, days: int, state: RuleState = RuleState.ON, exported: Any = None, take_over: bool = False) -> Any:
        existing = self.all_rules(exported or {"Rules": []})
        table_rules = [rule for rule in existing if self.is_for_table(rule)]
        other_rules = [
            _with_filter(rule) for rule in existing if rule not in table_rules or not (take_over or self.is_own(rule))
        ]
        # Keep the storage class of the existing rules of the table.
        storage_class = table_rules[0]["Transitions"][0]["StorageClass"] if table_rules else CLASSES[0]
        on = state is RuleState.ON
        own_rules = [
            {
                "ID": name,
                "Filter": {"Prefix": prefix},
                "Status": "Enabled" if on else "Disabled",
                "Transitions": [{"Days": days, "StorageClass": storage_class}],
            }
            for prefix, name in zip(
                [] if state is RuleState.GONE else self.prefixes,
                free_names(days, on, {rule.get("ID") for rule in other_rules}),
                strict=False,
            )
        ]
        return self.policy_of(other_rules + own_rules)

    def enabled_rules(self, policy: Any, days: int) -> Iterator[PolicyRule]:
        for rule in self.all_rules(policy):
            if rule.get("Status") != "Enabled":
                continue
            filters, moves, problems = rule.get("Filter") or {}, rule.get("Transitions") or [], []
            filters = filters.get("And") or filters
            if (rule.get("Expiration") or {}).keys() & {"Days", "Date"}:
                problems.append("deletes files of the table: only VACUUM may delete them")
            if any(move.get("StorageClass") == "INTELLIGENT_TIERING" for move in moves):
                problems.append(
                    "moves files to Intelligent-Tiering, which archives by access time, but the Delta log has no"
                    " access times"
                )
            prefix = str(filters.get("Prefix") or rule.get("Prefix") or "")  # older rules have the prefix outside
            ages = [move.get("Days") for move in moves if move.get("StorageClass") in CLASSES]
            by_tag = bool(filters.keys() & {"Tag", "Tags"})
            yield PolicyRule(self.name_of(rule), [prefix], problems, bool(ages), by_tag, _wrong_age(ages, days))

    def all_rules(self, exported: Any) -> list[dict[str, Any]]:
        rules = exported.get("Rules") if isinstance(exported, Mapping) else None
        if not isinstance(rules, list) or not all(isinstance(rule, dict) and _has_valid_form(rule) for rule in rules):
            raise invalid_lifecycle_policy(reason="it has no valid list `Rules`")
        return rules

    def archived_prefixes(self, rule: Mapping[str, Any]) -> list[str]:
        match rule:
            case {
                "Filter": {"Prefix": str(prefix), **others},
                "Transitions": [{"Days": int(), "StorageClass": ("GLACIER" | "DEEP_ARCHIVE"), **conditions}],
                **more,
            } if not others and not conditions and not more.keys() - {"ID", "Status"}:
                return [prefix]
        return []


def _wrong_age(ages: Sequence[Any], days: int) -> str | None:
    if None in ages:
        return "archives on a date, not by the age of files"
    unreadable = [f"{age!r} days" for age in ages if not isinstance(age, int | float)]
    if unreadable or min(ages, default=days) != days:
        found = unreadable[0] if unreadable else counted(min(ages), "day")
        return f"says {found}, but the table's property has {days}: they must be equal"
    return None


def _with_filter(rule: dict[str, Any]) -> dict[str, Any]:
    """Return the rule with its prefix in a filter. S3 rejects configurations in which only some rules have filters."""
    if "Prefix" not in rule or rule.get("Filter") is not None:
        return rule
    others = {name: value for name, value in rule.items() if name not in ("Prefix", "Filter")}
    return {**others, "Filter": {"Prefix": rule["Prefix"]}}


def _has_valid_form(rule: Mapping[str, Any]) -> bool:
    filters, moves = rule.get("Filter") or {}, rule.get("Transitions") or []
    parts = [filters, filters.get("And") or {} if isinstance(filters, Mapping) else None, rule.get("Expiration") or {}]
    lists = isinstance(moves, list) and all(isinstance(move, Mapping) for move in moves)
    return lists and all(isinstance(part, Mapping) for part in parts)
