"""Lifecycle rules of an S3 bucket: check an exported configuration for a table, and merge rules into it. Pure.

A bucket has one configuration, which is replaced as a whole. It can contain 1,000 rules, and a rule one prefix. S3 has
no filter that excludes paths, so prefixes avoid `_delta_log`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mirrorfeed.archive.errors import NoBucketRules, TooManyRules
from mirrorfeed.archive.lifecycle import Finding, Wanted, prefixes_overlap
from mirrorfeed.display.humanize import a_few, counted

MOST_RULES = 1000
CLASSES = ("GLACIER", "DEEP_ARCHIVE")
"""Storage classes whose objects must be restored before they are read: Flexible Retrieval and Deep Archive."""
_NAME = re.compile(r"mirrorfeed\d+days(paused)?\d+")
_ADDRESS = re.compile(r"s3[an]?://[^/]+/(.*)", re.DOTALL)


def folder_of(location: str) -> str | None:
    """Return the folder of a table in its bucket, with a slash at the end. None outside S3."""
    found = _ADDRESS.fullmatch(location.rstrip("/"))
    return f"{found[1].strip('/')}/" if found else None


@dataclass(frozen=True, slots=True)
class S3Rules:
    folder: str
    """Folder of the table, with a slash at the end."""
    listed: Sequence[str]
    """Prefixes of the keys of the table's files."""

    def apply(self, policy: Any, exported: Any = None) -> str:
        if not policy["Rules"]:
            return (
                "S3 does not accept a configuration without rules. Delete the existing one: `aws s3api"
                " delete-bucket-lifecycle`."
            )
        return (
            "Applying this configuration replaces the existing one of the bucket. With `--merge`, it includes the"
            " exported rules. Apply it with `aws s3api put-bucket-lifecycle-configuration --lifecycle-configuration"
            f" file://FILE{option(exported)}`."
        )

    def policy(self, days: int, wanted: Wanted = Wanted.ON, exported: Any = None, take_over: bool = False) -> Any:
        """Return the configuration with the rules of this table. Existing rules of the table keep their storage
        class."""
        there = rules_in(exported or {"Rules": []})
        alike = [rule for rule in there if _archives_only(rule, self.folder)]
        kept = [rule for rule in there if rule not in alike or not (take_over or _is_ours(rule))]
        storage_class = alike[0]["Transitions"][0]["StorageClass"] if alike else CLASSES[0]
        kept = [_with_filter(rule) for rule in kept]
        taken = {rule.get("ID") for rule in kept}
        paused = "" if wanted is Wanted.ON else "paused"
        free = (name for n in range(1, MOST_RULES * 2) if (name := f"mirrorfeed{days}days{paused}{n}") not in taken)
        made = [
            {
                "ID": name,
                "Filter": {"Prefix": prefix},
                "Status": "Enabled" if wanted is Wanted.ON else "Disabled",
                "Transitions": [{"Days": days, "StorageClass": storage_class}],
            }
            for name, prefix in zip(free, [] if wanted is Wanted.GONE else self.listed, strict=False)
        ]
        if len(kept) + len(made) > MOST_RULES:
            raise TooManyRules(owner="A bucket", limit=MOST_RULES, needed=len(kept) + len(made), folder=self.folder)
        return {"Rules": kept + made}

    def of_others(self, exported: Any) -> list[str]:
        there = rules_in(exported or {"Rules": []})
        alike = (rule for rule in there if _archives_only(rule, self.folder) and not _is_ours(rule))
        return [str(rule.get("ID") or "a rule without a name") for rule in alike]

    def check(self, policy: Any, days: int) -> list[Finding]:
        found: list[Finding] = []
        covered: set[str] = set()
        for rule in rules_in(policy):
            name, prefix = str(rule.get("ID") or "a rule without a name"), _prefix(rule)
            if rule.get("Status") != "Enabled" or not prefixes_overlap(prefix, self.folder):
                continue
            expiration = rule.get("Expiration") or {}
            if expiration.keys() & {"Days", "Date"}:
                found.append(Finding(name, "deletes files of the table: only VACUUM may delete them"))
            moves = rule.get("Transitions") or []
            if any(move.get("StorageClass") == "INTELLIGENT_TIERING" for move in moves):
                problem = (
                    "moves files to Intelligent-Tiering, which archives by access time, but the Delta log has no"
                    " access times"
                )
                found.append(Finding(name, problem))
            archives = [move for move in moves if move.get("StorageClass") in CLASSES]
            if not archives:
                continue
            if prefixes_overlap(prefix, f"{self.folder}_delta_log/"):
                found.append(Finding(name, "archives the table's _delta_log, so that the table can no longer be read"))
            if _filters(rule).keys() & {"Tag", "Tags"}:
                found.append(Finding(name, "selects files by tag, but the Delta log has no tags"))
                continue
            if any("Days" not in move for move in archives):
                found.append(Finding(name, "archives on a date, not by the age of files"))
            elif (said := min(move["Days"] for move in archives)) != days:
                problem = f"says {counted(said, 'day')}, but the table's property has {days}: they must be equal"
                found.append(Finding(name, problem))
            covered |= {part for part in self.listed if part.startswith(prefix)}
        if missing := [part for part in self.listed if part not in covered]:
            found.append(Finding("", f"no rule archives {a_few(missing)}"))
        return found


def _with_filter(rule: dict[str, Any]) -> dict[str, Any]:
    """Return the rule with its prefix in a filter, because S3 rejects configurations that mix both forms."""
    if "Prefix" not in rule or rule.get("Filter") is not None:
        return rule
    others = {name: value for name, value in rule.items() if name not in ("Prefix", "Filter")}
    return {**others, "Filter": {"Prefix": rule["Prefix"]}}


def option(exported: Any) -> str:
    """Return the command option that lets S3 continue to archive files below 128 KiB.

    Without this option, applying a configuration stops the archiving of small files. The option is not part of the
    configuration.
    """
    varies = "varies_by_storage_class"
    if isinstance(exported, Mapping) and exported.get("TransitionDefaultMinimumObjectSize") == varies:
        return f" --transition-default-minimum-object-size {varies}"
    return ""


def rules_in(exported: Any) -> list[dict[str, Any]]:
    """Return the rules of a configuration as `aws s3api get-bucket-lifecycle-configuration` prints it.

    Raises `NoBucketRules`.
    """
    rules = exported.get("Rules") if isinstance(exported, Mapping) else None
    if not isinstance(rules, list) or not all(isinstance(rule, dict) and _is_sound(rule) for rule in rules):
        raise NoBucketRules()
    return rules


def _is_sound(rule: Mapping[str, Any]) -> bool:
    filters, moves = rule.get("Filter") or {}, rule.get("Transitions") or []
    parts = [filters, filters.get("And") or {} if isinstance(filters, Mapping) else None, rule.get("Expiration") or {}]
    lists = isinstance(moves, list) and all(isinstance(move, Mapping) for move in moves)
    return lists and all(isinstance(part, Mapping) for part in parts)


def _filters(rule: Mapping[str, Any]) -> Mapping[str, Any]:
    filters: Mapping[str, Any] = rule.get("Filter") or {}
    return filters.get("And") or filters


def _prefix(rule: Mapping[str, Any]) -> str:
    """Return the prefix of a rule. Rules of the older form have the prefix outside the filter."""
    return str(_filters(rule).get("Prefix") or rule.get("Prefix") or "")


def _is_ours(rule: Mapping[str, Any]) -> bool:
    return _NAME.fullmatch(str(rule.get("ID"))) is not None


def _archives_only(rule: Mapping[str, Any], place: str) -> bool:
    """Return whether a rule only archives files of this table by age, like the rules of mirrorfeed."""
    match rule:
        case {
            "Filter": {"Prefix": str(prefix), **others},
            "Transitions": [{"Days": int(), "StorageClass": ("GLACIER" | "DEEP_ARCHIVE"), **conditions}],
            **more,
        }:
            return prefix.startswith(place) and not others and not conditions and not more.keys() - {"ID", "Status"}
    return False
