from __future__ import annotations

import json
from typing import Any

import pytest

from mirrorfeed.archive.rules.azure.forms import NotInTerraform, az, bicep, terraform

ACCOUNT = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Storage/storageAccounts/lake"
EXPORT = {"id": f"{ACCOUNT}/managementPolicies/default"}


def policy(prefix: str = "lake/t/part-", **actions: Any) -> dict[str, Any]:
    archive = {"baseBlob": {"tierToArchive": {"daysAfterCreationGreaterThan": 60}}}
    definition = {"filters": {"blobTypes": ["blockBlob"], "prefixMatch": [prefix]}, "actions": actions or archive}
    return {"rules": [{"enabled": True, "name": "r1", "type": "Lifecycle", "definition": definition}]}


def test_the_command_line_takes_the_policy_as_it_is() -> None:
    assert json.loads(az(policy())) == policy()


def test_bicep_takes_the_policy_as_the_one_of_an_account_that_is_there() -> None:
    assert (
        bicep(policy(), EXPORT)
        == """param account string = 'lake'

resource storage 'Microsoft.Storage/storageAccounts@2023-05-01' existing = {
  name: account
}

resource policy 'Microsoft.Storage/storageAccounts/managementPolicies@2023-05-01' = {
  name: 'default'
  parent: storage
  properties: {
    policy: {
      rules: [
        {
          enabled: true
          name: 'r1'
          type: 'Lifecycle'
          definition: {
            filters: {
              blobTypes: [
                'blockBlob'
              ]
              prefixMatch: [
                'lake/t/part-'
              ]
            }
            actions: {
              baseBlob: {
                tierToArchive: {
                  daysAfterCreationGreaterThan: 60
                }
              }
            }
          }
        }
      ]
    }
  }
}"""
    )


def test_what_would_be_read_as_something_else_in_bicep_is_escaped() -> None:
    assert "'lake/\\'t\\\\ \\${x}/'" in bicep(policy("lake/'t\\ ${x}/"))
    assert bicep(policy()).startswith("param account string\n")


def test_terraform_gets_its_own_names() -> None:
    assert json.loads(terraform(policy(), EXPORT)) == {
        "resource": {
            "azurerm_storage_management_policy": {
                "policy": {
                    "storage_account_id": ACCOUNT,
                    "rule": [
                        {
                            "name": "r1",
                            "enabled": True,
                            "filters": {"blob_types": ["blockBlob"], "prefix_match": ["lake/t/part-"]},
                            "actions": {"base_blob": {"tier_to_archive_after_days_since_creation_greater_than": 60}},
                        }
                    ],
                }
            }
        }
    }


def test_without_an_account_in_the_export_terraform_gets_a_variable() -> None:
    found = json.loads(terraform(policy("lake/${t}/")))
    assert found["variable"] == {"storage_account_id": {"type": "string"}}
    (rule,) = found["resource"]["azurerm_storage_management_policy"]["policy"]["rule"]
    assert rule["filters"]["prefix_match"] == ["lake/$${t}/"]


@pytest.mark.parametrize(
    ("of", "acts", "expected"),
    [
        ("baseBlob", {"delete": {"daysAfterModificationGreaterThan": 3}},
         {"base_blob": {"delete_after_days_since_modification_greater_than": 3}}),
        ("baseBlob", {"tierToCool": {"daysAfterLastAccessTimeGreaterThan": 3}, "enableAutoTierToHotFromCool": True},
         {"base_blob": {"tier_to_cool_after_days_since_last_access_time_greater_than": 3,
                        "auto_tier_to_hot_from_cool_enabled": True}}),
        ("baseBlob",
         {"tierToArchive": {"daysAfterModificationGreaterThan": 9, "daysAfterLastTierChangeGreaterThan": 3}},
         {"base_blob": {"tier_to_archive_after_days_since_modification_greater_than": 9,
                        "tier_to_archive_after_days_since_last_tier_change_greater_than": 3}}),
        ("snapshot", {"delete": {"daysAfterCreationGreaterThan": 3}},
         {"snapshot": {"delete_after_days_since_creation_greater_than": 3}}),
        ("snapshot", {"tierToCool": {"daysAfterCreationGreaterThan": 3}},
         {"snapshot": {"change_tier_to_cool_after_days_since_creation": 3}}),
        ("version", {"delete": {"daysAfterCreationGreaterThan": 3}, "tierToCold": {"daysAfterCreationGreaterThan": 2}},
         {"version": {"delete_after_days_since_creation": 3,
                      "tier_to_cold_after_days_since_creation_greater_than": 2}}),
    ],
)  # fmt: skip
def test_actions_of_others_are_kept_in_terraform(of: str, acts: dict[str, Any], expected: dict[str, Any]) -> None:
    found = json.loads(terraform(policy(**{of: acts})))
    (rule,) = found["resource"]["azurerm_storage_management_policy"]["policy"]["rule"]
    assert rule["actions"] == expected


@pytest.mark.parametrize(
    ("of", "act", "condition"),
    [
        ("baseBlob", "delete", "daysAfterLastTierChangeGreaterThan"),
        ("snapshot", "delete", "daysAfterModificationGreaterThan"),
        ("version", "tierToCool", "daysAfterLastAccessTimeGreaterThan"),
        ("baseBlob", "tierToArchive", "daysAfterTheNextFullMoon"),
    ],
)
def test_no_field_is_made_up_for_terraform(of: str, act: str, condition: str) -> None:
    with pytest.raises(NotInTerraform, match=f"no field for {act} with {condition}"):
        terraform(policy(**{of: {act: {condition: 1}}}))


def test_what_terraform_cannot_say_is_refused_by_name() -> None:
    with pytest.raises(NotInTerraform) as caught:
        terraform(policy(baseBlob={"tierToHot": {"daysAfterModificationGreaterThan": 1}}))
    assert str(caught.value) == (
        "Terraform's azurerm_storage_management_policy has no field for tierToHot with"
        " daysAfterModificationGreaterThan, as rule 'r1' has it. Apply the policy with `--form az` or `--form bicep`,"
        " or change that rule."
    )
