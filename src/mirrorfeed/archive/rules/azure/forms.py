"""An account's policy as the tools take it that apply one: the command line, Bicep and Terraform. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from mirrorfeed.errors import Terminal

_ACCOUNT = re.compile(r"(/subscriptions/.+/storageAccounts/([^/]+))/managementPolicies/.*", re.IGNORECASE)
_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def az(policy: Mapping[str, Any], _: Any = None) -> str:
    """For `az storage account management-policy create --policy @FILE`."""
    return json.dumps(policy, indent=2, ensure_ascii=False)


def bicep(policy: Mapping[str, Any], exported: Any = None) -> str:
    """A whole file; the account's name is a parameter, with that of the export as its default."""
    account = _account(exported)
    default = f" = {_bicep(account[1])}" if account else ""
    return (
        f"param account string{default}\n\n"
        "resource storage 'Microsoft.Storage/storageAccounts@2023-05-01' existing = {\n  name: account\n}\n\n"
        "resource policy 'Microsoft.Storage/storageAccounts/managementPolicies@2023-05-01' = {\n"
        "  name: 'default'\n  parent: storage\n  properties: {\n"
        f"    policy: {_bicep(policy, 4)}\n  }}\n}}"
    )


def terraform(policy: Mapping[str, Any], exported: Any = None) -> str:
    """A whole file in Terraform's JSON form, to be named `….tf.json`; or `NotInTerraform`."""
    account = _account(exported)
    found: dict[str, Any] = {} if account else {"variable": {"storage_account_id": {"type": "string"}}}
    place = _literal(account[0]) if account else "${var.storage_account_id}"
    rules = [_terraform_rule(rule) for rule in policy["rules"]]
    resource = {"storage_account_id": place, "rule": rules}
    found["resource"] = {"azurerm_storage_management_policy": {"policy": resource}}
    return json.dumps(found, indent=2, ensure_ascii=False)


FORMS: dict[str, Callable[[Mapping[str, Any], Any], str]] = {"az": az, "bicep": bicep, "terraform": terraform}


def _account(exported: Any) -> tuple[str, str] | None:
    """Its id and its name, where the export tells them."""
    found = _ACCOUNT.fullmatch(str(exported.get("id"))) if isinstance(exported, Mapping) else None
    return (found[1], found[2]) if found else None


def _bicep(value: Any, indent: int = 0) -> str:
    pad, end = " " * (indent + 2), " " * indent
    if isinstance(value, Mapping):
        named = {key if _WORD.fullmatch(key) else _bicep(key): _bicep(each, indent + 2) for key, each in value.items()}
        return "{\n" + "".join(f"{pad}{key}: {each}\n" for key, each in named.items()) + end + "}" if named else "{}"
    if isinstance(value, list):
        return "[\n" + "".join(f"{pad}{_bicep(each, indent + 2)}\n" for each in value) + end + "]" if value else "[]"
    if isinstance(value, str):
        escaped = value.replace("\\", "\\\\").replace("'", "\\'").replace("${", "\\${").replace("\n", "\\n")
        return f"'{escaped}'"
    return json.dumps(value)


_TIMES = {
    "daysAfterModificationGreaterThan": "modification",
    "daysAfterCreationGreaterThan": "creation",
    "daysAfterLastAccessTimeGreaterThan": "last_access_time",
    "daysAfterLastTierChangeGreaterThan": "last_tier_change",
}
_ACTS = {
    "tierToCool": "tier_to_cool",
    "tierToCold": "tier_to_cold",
    "tierToArchive": "tier_to_archive",
    "delete": "delete",
}
_OWN_NAMES = {
    ("snapshot", "tierToArchive", "creation"): "change_tier_to_archive_after_days_since_creation",
    ("snapshot", "tierToCool", "creation"): "change_tier_to_cool_after_days_since_creation",
    ("version", "tierToArchive", "creation"): "change_tier_to_archive_after_days_since_creation",
    ("version", "tierToCool", "creation"): "change_tier_to_cool_after_days_since_creation",
    ("version", "delete", "creation"): "delete_after_days_since_creation",
}
"""Where the provider's names do not follow its own rule."""


def _terraform_rule(rule: Mapping[str, Any]) -> dict[str, Any]:
    name, definition = str(rule.get("name")), rule.get("definition", {})
    filters = definition.get("filters", {})
    reach: dict[str, Any] = {"blob_types": filters.get("blobTypes", ["blockBlob"])}
    if filters.get("prefixMatch"):
        reach["prefix_match"] = [_literal(prefix) for prefix in filters["prefixMatch"]]
    if filters.get("blobIndexMatch"):
        reach["match_blob_index_tag"] = [
            {"name": _literal(tag["name"]), "operation": tag.get("op", "=="), "value": _literal(tag["value"])}
            for tag in filters["blobIndexMatch"]
        ]
    actions = {
        {"baseBlob": "base_blob"}.get(of, of): _terraform_acts(name, of, acts)
        for of, acts in definition.get("actions", {}).items()
        if acts
    }
    return {"name": _literal(name), "enabled": rule.get("enabled", True), "filters": reach, "actions": actions}


def _terraform_acts(rule: str, of: str, acts: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for act, conditions in acts.items():
        if act == "enableAutoTierToHotFromCool":
            found["auto_tier_to_hot_from_cool_enabled"] = conditions
            continue
        for condition, days in conditions.items():
            time = _TIMES.get(condition)
            by_tier = act == "tierToArchive" and time == "last_tier_change"
            usual_time = time == "creation" or (of == "baseBlob" and time in ("modification", "last_access_time"))
            if act not in _ACTS or time is None or not (usual_time or by_tier):
                raise NotInTerraform(rule, f"{act} with {condition}")
            usual = f"{_ACTS[act]}_after_days_since_{time}_greater_than"
            found[_OWN_NAMES.get((of, act, time), usual)] = days
    return found


def _literal(text: str) -> str:
    """Not a template, which Terraform takes every text for."""
    return text.replace("${", "$${").replace("%{", "%%{")


class NotInTerraform(Terminal):
    """The policy holds something that Terraform has no field for, so it would get lost."""

    code = "MF5403"

    def __init__(self, rule: str, part: str) -> None:
        self.rule, self.part = rule, part

    def what(self) -> str:
        return (
            f"Terraform's azurerm_storage_management_policy has no field for {self.part}, as rule {self.rule!r} has it."
        )

    def next(self) -> str:
        return "Apply the policy with `--form az` or `--form bicep`, or change that rule."
