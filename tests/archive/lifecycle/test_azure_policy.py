"""The lifecycle policy of a storage account: foreign rules stay unchanged, and conflicts are reported."""

from __future__ import annotations

from typing import Any

import pytest

from mirrorfeed.archive.errors import too_many_lifecycle_rules
from mirrorfeed.archive.lifecycle import RuleState
from mirrorfeed.archive.lifecycle.azure import AzureRules
from tests.archive.archived_table import prefixes
from tests.raised import raises


def rules(folder: str, *partition_columns: str, random_names: bool = False) -> AzureRules:
    return AzureRules(folder, prefixes(folder, partition_columns, random_names))


ORDERS, LINES = rules("lake/sales/orders/", "day"), rules("lake/sales/lines/")
RANDOM = rules("lake/sales/mapped/", random_names=True)
OTHER = {
    "enabled": True,
    "name": "logs",
    "type": "Lifecycle",
    "definition": {
        "filters": {"blobTypes": ["appendBlob"], "prefixMatch": ["logs/"]},
        "actions": {"baseBlob": {"delete": {"daysAfterModificationGreaterThan": 30}}},
    },
}


def put(table: AzureRules, days: int = 60, state: RuleState = RuleState.ON, into: Any = None) -> Any:
    return table.policy(days, state, into)


def enabled_prefixes(found: Any) -> dict[str, tuple[bool, list[str]]]:
    """For each rule name, whether the rule is enabled, and its prefixes."""
    return {rule["name"]: (rule["enabled"], rule["definition"]["filters"]["prefixMatch"]) for rule in found["rules"]}


def test_single_table_gets_a_valid_policy() -> None:
    found = put(ORDERS)
    assert enabled_prefixes(found) == {"mirrorfeed60days1": (True, sorted(ORDERS.prefixes))}
    assert ORDERS.check(found, 60) == []


def test_foreign_rules_are_not_changed() -> None:
    exported = {"policy": {"rules": [{**OTHER, "definition": {**OTHER["definition"]}}]}}  # type: ignore[dict-item]
    assert put(ORDERS, into=exported)["rules"][0] == OTHER


def test_tables_share_rules_only_with_the_same_interval() -> None:
    both = put(LINES, into=put(ORDERS))
    assert enabled_prefixes(both) == {"mirrorfeed60days1": (True, sorted([*ORDERS.prefixes, *LINES.prefixes]))}
    third = put(LINES, 90, into=both)
    assert enabled_prefixes(third) == {
        "mirrorfeed60days1": (True, sorted(ORDERS.prefixes)),
        "mirrorfeed90days1": (True, sorted(LINES.prefixes)),
    }
    assert ORDERS.check(third, 60) == LINES.check(third, 90) == []


def test_merging_twice_changes_nothing() -> None:
    once = put(ORDERS, into={"rules": [OTHER]})
    assert put(ORDERS, into=once) == once


def test_thirty_plain_tables_need_nine_rules_and_a_mapped_one_seven() -> None:
    found: Any = None
    for number in range(30):
        found = rules(f"lake/t{number}/").policy(60, exported=found)
    assert len(found["rules"]) == 9
    assert len(put(RANDOM)["rules"]) == 7
    assert RANDOM.check(put(RANDOM), 60) == []


def test_paused_table_has_disabled_rules_and_others_are_unchanged() -> None:
    found = put(ORDERS, state=RuleState.PAUSED, into=put(LINES, into=put(ORDERS)))
    assert enabled_prefixes(found) == {
        "mirrorfeed60dayspaused1": (False, sorted(ORDERS.prefixes)),
        "mirrorfeed60days1": (True, sorted(LINES.prefixes)),
    }
    assert ORDERS.check(found, 60) == [f"no rule archives {', '.join(ORDERS.prefixes)}"]
    assert put(ORDERS, into=found) == put(LINES, into=put(ORDERS))


def test_table_is_removed_completely() -> None:
    assert put(ORDERS, state=RuleState.GONE, into=put(LINES, into=put(ORDERS))) == put(LINES)
    assert put(ORDERS, state=RuleState.GONE, into={"rules": [OTHER]}) == {"rules": [OTHER]}


def test_foreign_rule_for_the_table_remains_unless_taken_over() -> None:
    by_hand = put(ORDERS, 30)
    by_hand["rules"][0]["name"] = "legalhold"
    exported = {"rules": [OTHER, *by_hand["rules"]]}
    assert ORDERS.foreign_rules(exported) == ["legalhold"]
    assert (
        LINES.foreign_rules(exported)
        == ORDERS.foreign_rules(put(LINES, into=put(ORDERS)))
        == ORDERS.foreign_rules(None)
        == []
    )
    for state in RuleState:
        assert put(ORDERS, 60, state, exported)["rules"][:2] == exported["rules"]
    assert ORDERS.check(put(ORDERS, into=exported), 60) == [
        "legalhold: says 30 days, but the table's property has 60: they must be equal"
    ]
    assert ORDERS.policy(60, exported=exported, take_over=True) == put(ORDERS, into={"rules": [OTHER]})
    without_rules = ORDERS.policy(60, RuleState.GONE, exported, take_over=True)
    assert without_rules == {"rules": [OTHER]}


@pytest.mark.parametrize(
    "change",
    [
        lambda rule: rule["definition"]["actions"]["baseBlob"].update(tierToCool={"daysAfterCreationGreaterThan": 7}),
        lambda rule: rule["definition"]["actions"].update(snapshot={"delete": {"daysAfterCreationGreaterThan": 7}}),
        lambda rule: rule["definition"]["filters"].update(blobIndexMatch=[{"name": "a", "op": "==", "value": "b"}]),
        lambda rule: rule["definition"]["filters"].pop("prefixMatch"),
    ],
)
def test_rule_with_additional_actions_is_foreign_even_under_our_name(change: Any) -> None:
    foreign = put(ORDERS)
    change(foreign["rules"][0])
    found = put(ORDERS, into=foreign)
    assert found["rules"][0] == foreign["rules"][0]
    assert [rule["name"] for rule in found["rules"]] == ["mirrorfeed60days1", "mirrorfeed60days2"]


def test_foreign_actions_on_the_table_are_found_in_the_merged_policy() -> None:
    foreign = {
        "rules": [{**OTHER, "definition": {"actions": {"baseBlob": {"delete": {"daysAfterCreationGreaterThan": 9}}}}}]
    }
    found = ORDERS.check(put(ORDERS, into=foreign), 60)
    assert found == ["logs: deletes files of the table (daysAfterCreationGreaterThan 9): only VACUUM may delete them"]


def test_too_many_rules_for_an_account_are_refused_with_their_number() -> None:
    others = {"rules": [{**OTHER, "name": f"other{number}"} for number in range(95)]}
    assert len(put(ORDERS, into=others)["rules"]) == 96
    with raises(too_many_lifecycle_rules) as caught:
        put(RANDOM, into=put(ORDERS, into=others))
    assert (caught.value.limit, caught.value.needed) == (100, 102)
    assert caught.value.folder == "lake/sales/mapped/"
