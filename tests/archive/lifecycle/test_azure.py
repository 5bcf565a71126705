from __future__ import annotations

from typing import Any

import pytest

from mirrorfeed.archive.errors import invalid_lifecycle_policy
from mirrorfeed.archive.lifecycle.azure import AzureRules, folder_of
from tests.archive.archived_table import prefixes
from tests.raised import raises

FOLDER = "lake/sales/orders/"
EXPECTED = prefixes(FOLDER, ("day",), False)
RULES = AzureRules(FOLDER, EXPECTED)
LOCATION = "abfss://lake@acct.dfs.core.windows.net/sales/orders"


def policy(
    archive: dict[str, Any] | None = None, prefix: list[str] | None = None, enabled: bool = True, **more: Any
) -> dict[str, Any]:
    """A policy with one rule, correct for the table above except for the given values."""
    found: dict[str, Any] = RULES.policy(60)
    rule = found["rules"][0]
    rule["enabled"] = enabled
    if prefix is not None:
        rule["definition"]["filters"]["prefixMatch"] = prefix
    if archive is not None:
        rule["definition"]["actions"]["baseBlob"]["tierToArchive"] = archive
    rule["definition"]["filters"] |= {name: value for name, value in more.items() if name == "blobIndexMatch"}
    rule["definition"]["actions"]["baseBlob"] |= {name: value for name, value in more.items() if name == "delete"}
    return found


@pytest.mark.parametrize(
    ("location", "folder"),
    [
        (LOCATION, FOLDER),
        ("abfs://lake@acct.dfs.core.windows.net/t/", "lake/t/"),
        ("wasbs://lake@acct.blob.core.windows.net/a b/é", "lake/a b/é/"),
        ("https://acct.blob.core.windows.net/lake/t", "lake/t/"),
        ("file:/tmp/t", None),
        ("s3://bucket/t", None),
    ],
)
def test_azure_location_contains_container_and_folder(location: str, folder: str | None) -> None:
    assert folder_of(location) == folder


def test_rule_covers_all_files_of_a_table_except_its_log() -> None:
    assert EXPECTED == [
        "lake/sales/orders/day=",
        "lake/sales/orders/deletion_vector_",
        "lake/sales/orders/_change_data/",
    ]
    assert prefixes(FOLDER, (), False)[0] == "lake/sales/orders/part-"


@pytest.mark.parametrize("wrap", [lambda p: p, lambda p: {"policy": p}, lambda p: {"properties": {"policy": p}}])
def test_printed_rule_passes_its_check_in_every_export_format(wrap: Any) -> None:
    assert RULES.check(wrap(policy()), 60) == []


def exported(archive: dict[str, Any], enabled: bool | None = True) -> dict[str, Any]:
    """An action as the Azure CLI exports it: unused fields are `null`, and days have a decimal point."""
    unused = dict.fromkeys(
        ("daysAfterCreationGreaterThan", "daysAfterLastAccessTimeGreaterThan", "daysAfterLastTierChangeGreaterThan")
    ) | {"daysAfterModificationGreaterThan": None}
    actions = dict.fromkeys(("delete", "enableAutoTierToHotFromCool", "tierToCold", "tierToCool", "tierToHot"))
    base = {**actions, "tierToArchive": unused | archive}
    filters = {"blobIndexMatch": None, "blobTypes": ["blockBlob"], "prefixMatch": EXPECTED}
    definition = {"actions": {"baseBlob": base, "snapshot": None, "version": None}, "filters": filters}
    rule = {"definition": definition, "enabled": enabled, "name": "ours", "type": "Lifecycle"}
    return {"id": "/subscriptions/s", "policy": {"rules": [rule]}, "type": "Microsoft.Storage/managementPolicies"}


@pytest.mark.parametrize("enabled", [True, None])
def test_correct_policy_passes_as_exported_by_the_azure_cli(enabled: bool | None) -> None:
    assert RULES.check(exported({"daysAfterCreationGreaterThan": 60.0}, enabled), 60) == []


def test_correct_policy_passes_as_exported_by_powershell() -> None:
    def capitals(value: Any) -> Any:
        if isinstance(value, dict):
            return {name[0].upper() + name[1:]: capitals(each) for name, each in value.items()}
        return [capitals(each) for each in value] if isinstance(value, list) else value

    found = capitals(exported({"daysAfterCreationGreaterThan": 60.0})["policy"])
    assert RULES.check(found, 60) == []


def test_different_days_are_shown_as_whole_numbers() -> None:
    (found,) = RULES.check(exported({"daysAfterCreationGreaterThan": 30.0}), 60)
    assert str(found) == "ours: says 30 days, but the table's property has 60: they must be equal"


@pytest.mark.parametrize(
    "rule",
    [
        {"name": "x", "definition": None},
        {"name": "x", "definition": {"actions": None, "filters": None}},
        {"name": "x", "definition": {"actions": {"baseBlob": None, "snapshot": {"delete": {}}}}},
    ],
)
def test_rule_that_does_not_affect_the_table_is_ignored(rule: dict[str, Any]) -> None:
    rules = [rule, *policy()["rules"]]
    assert RULES.check({"rules": rules}, 60) == []


def test_rule_for_another_blob_type_archives_no_file_of_the_table() -> None:
    given = policy()
    given["rules"][0]["definition"]["filters"]["blobTypes"] = ["appendBlob"]
    assert RULES.check(given, 60) == [f"no rule archives {', '.join(EXPECTED)}"]


@pytest.mark.parametrize("part", [{"definition": []}, {"definition": {"filters": ["x"]}}, {"definition": "x"}])
def test_rule_in_an_unknown_format_is_refused_by_name(part: dict[str, Any]) -> None:
    with raises(invalid_lifecycle_policy) as caught:
        RULES.check({"rules": [{"name": "odd", **part}]}, 60)
    assert caught.value.reason.startswith("its rule 'odd' has")


def test_rule_by_modification_time_is_flagged() -> None:
    (found,) = RULES.check(exported({"daysAfterModificationGreaterThan": 60.0}), 60)
    assert found.partition(",")[0] == "ours: uses the modification time"


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        (policy({"daysAfterLastAccessTimeGreaterThan": 60}), "uses the access time"),
        (policy({"daysAfterModificationGreaterThan": 60}), "uses the modification time"),
        (policy({"daysAfterCreationGreaterThan": 30}), "says 30 days, but the table's property has 60"),
        (policy({"daysAfterCreationGreaterThan": "60"}), "says '60' days, but the table's property has 60"),
        (policy({}), "sets no number of days after creation"),
        (
            policy({"daysAfterCreationGreaterThan": 60, "daysAfterLastTierChangeGreaterThan": 7}),
            "combines daysAfterCreationGreaterThan and daysAfterLastTierChangeGreaterThan, which Azure does not",
        ),
        (
            policy({"daysAfterCreationGreaterThan": 60, "daysAfterModificationGreaterThan": 60}),
            "combines daysAfterCreationGreaterThan and daysAfterModificationGreaterThan, which Azure does not support",
        ),
        (
            policy({"daysAfterModificationGreaterThan": 60, "daysAfterLastTierChangeGreaterThan": 7}),
            "uses the modification time",
        ),
        (policy(prefix=["lake/sales/orders/_delta_log/000"]), "archives the table's _delta_log"),
        (policy(prefix=["lake/sales/orders/_delta_log/_sidecars/"]), "archives the table's _delta_log"),
        (policy(prefix=["lake/sales/orders/_delta_log"]), "archives the table's _delta_log"),
        (policy(prefix=["lake/sales/"]), "archives the table's _delta_log"),
        (policy(prefix=["lake/sales/orders/"]), "archives the table's _delta_log"),
        (policy(prefix=["lake/sales/orders/_"]), "archives the table's _delta_log"),
        (policy(prefix=[]), "archives the table's _delta_log"),
        (policy(delete={"daysAfterCreationGreaterThan": 365}), "deletes files of the table"),
        (policy(blobIndexMatch=[{"name": "tier", "op": "==", "value": "old"}]), "selects files by tag"),
    ],
)
def test_rule_that_does_not_fit_is_flagged(given: dict[str, Any], problem: str) -> None:
    found = RULES.check(given, 60)
    assert [each.partition(": ")[0] for each in found if problem in each] == ["mirrorfeed60days1"]


@pytest.mark.parametrize("given", [policy(enabled=False), policy(prefix=["other/"]), {"rules": []}])
def test_table_without_a_matching_rule_is_flagged(given: dict[str, Any]) -> None:
    assert RULES.check(given, 60) == [f"no rule archives {', '.join(EXPECTED)}"]


def test_files_not_covered_by_a_rule_are_flagged() -> None:
    (finding,) = RULES.check(policy(prefix=["lake/sales/orders/day="]), 60)
    assert str(finding) == "no rule archives lake/sales/orders/deletion_vector_, lake/sales/orders/_change_data/"


@pytest.mark.parametrize("given", [{}, [], "rules", {"rules": {}}, {"rules": ["x"]}])
def test_invalid_policy_is_refused(given: Any) -> None:
    with raises(invalid_lifecycle_policy) as caught:
        RULES.check(given, 60)
    assert caught.value.reason == "it has no list `rules`"
