from __future__ import annotations

from typing import Any

import pytest

from mirrorfeed.archive.errors import invalid_lifecycle_policy, too_many_lifecycle_rules
from mirrorfeed.archive.lifecycle import RuleState, rules_of
from mirrorfeed.archive.lifecycle.azure import AzureRules
from mirrorfeed.archive.lifecycle.s3 import S3Rules, folder_of
from mirrorfeed.source.identifier import Source
from mirrorfeed.source.table_info import TableInfo
from mirrorfeed.storage.errors import no_access_tiers
from tests.raised import raises

TABLE = Source.parse("main.sales.orders")
FOLDER = "sales/orders/"
EXPECTED = [f"{FOLDER}day=", f"{FOLDER}deletion_vector_", f"{FOLDER}_change_data/"]
RULES = S3Rules(FOLDER, EXPECTED)
OTHER = {"ID": "logs", "Filter": {"Prefix": "logs/"}, "Status": "Enabled", "Expiration": {"Days": 30}}


def put(days: int = 60, state: RuleState = RuleState.ON, into: Any = None) -> Any:
    return RULES.policy(days, state, into)


def rule(**change: Any) -> dict[str, Any]:
    moves = [{"Days": 60, "StorageClass": "GLACIER"}]
    found = {"ID": "r", "Filter": {"Prefix": f"{FOLDER}day="}, "Status": "Enabled", "Transitions": moves} | change
    return {name: value for name, value in found.items() if value is not None}


@pytest.mark.parametrize(
    ("location", "folder"),
    [
        ("s3://bucket/sales/orders", "sales/orders/"),
        ("s3a://bucket/t/", "t/"),
        ("file:/tmp/t", None),
        ("abfss://c@a.dfs.core.windows.net/t", None),
    ],
)
def test_s3_location_contains_the_folder(location: str, folder: str | None) -> None:
    assert folder_of(location) == folder


def test_table_gets_a_valid_rule_per_prefix_and_others_are_unchanged() -> None:
    found = put(into={"Rules": [OTHER], "TransitionDefaultMinimumObjectSize": "all_storage_classes_128K"})
    assert found["Rules"][0] == OTHER
    assert found["Rules"][1] == {
        "ID": "mirrorfeed60days1",
        "Filter": {"Prefix": "sales/orders/day="},
        "Status": "Enabled",
        "Transitions": [{"Days": 60, "StorageClass": "GLACIER"}],
    }
    assert RULES.check(found, 60) == []
    assert put(into=found) == found
    assert put(state=RuleState.GONE, into=found) == {"Rules": [OTHER]}
    paused = put(state=RuleState.PAUSED, into=found)
    assert {each["Status"] for each in paused["Rules"][1:]} == {"Disabled"}
    assert put(into=paused) == found


def test_rules_of_our_other_tables_have_the_same_names() -> None:
    other = S3Rules("sales/lines/", ["sales/lines/part-"]).policy(60)
    assert [each["ID"] for each in put(into=other)["Rules"]] == [f"mirrorfeed60days{n}" for n in (1, 2, 3, 4)]


def test_foreign_rule_for_the_table_remains_unless_taken_over() -> None:
    legal_hold = rule(ID="legal-hold", Transitions=[{"Days": 30, "StorageClass": "DEEP_ARCHIVE"}])
    exported = {"Rules": [OTHER, legal_hold, rule(ID=None)]}
    assert RULES.foreign_rules(exported) == ["legal-hold", "a rule without a name"]
    assert S3Rules("sales/lines/", ()).foreign_rules(exported) == RULES.foreign_rules(put()) == []
    for state in RuleState:
        assert put(state=state, into=exported)["Rules"][:3] == exported["Rules"]
    assert {each["Transitions"][0]["StorageClass"] for each in put(into=exported)["Rules"][3:]} == {"DEEP_ARCHIVE"}
    assert "says 30 days" in str(RULES.check(put(into=exported), 60)[0])
    without_rules = RULES.policy(60, RuleState.GONE, exported, take_over=True)
    assert without_rules == {"Rules": [OTHER]}


def test_storage_class_chosen_by_the_user_is_preserved() -> None:
    deep = put()
    for each in deep["Rules"]:
        each["Transitions"][0]["StorageClass"] = "DEEP_ARCHIVE"
    found = put(90, into=deep)
    assert {each["Transitions"][0]["StorageClass"] for each in found["Rules"]} == {"DEEP_ARCHIVE"}
    assert RULES.check(found, 90) == []


def test_rules_with_a_base_level_prefix_are_converted_to_filters() -> None:
    """S3 rejects both forms in one configuration: "Base level prefix cannot be used in Lifecycle V2"."""
    older = {"ID": "old", "Prefix": "logs/", "Status": "Enabled", "Expiration": {"Days": 30}}
    everything = {**older, "ID": "all", "Prefix": "", "Filter": None}
    found = put(into={"Rules": [older, everything, OTHER]})["Rules"]
    assert not any("Prefix" in each for each in found)
    assert found[0] == {**OTHER, "ID": "old"}
    assert found[1] == {**OTHER, "ID": "all", "Filter": {"Prefix": ""}}
    assert found[2] == OTHER


def test_too_many_rules_for_a_bucket_are_refused_with_their_number() -> None:
    with raises(too_many_lifecycle_rules) as caught:
        put(into={"Rules": [{**OTHER, "ID": f"r{n}"} for n in range(998)]})
    assert (caught.value.limit, caught.value.needed) == (1000, 1001)
    assert caught.value.folder == "sales/orders/"


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        (rule(Transitions=[{"Days": 30, "StorageClass": "GLACIER"}]), "says 30 days, but the table's property has 60"),
        (rule(Transitions=[{"Days": 30, "StorageClass": "DEEP_ARCHIVE"}]), "says 30 days"),
        (
            rule(Transitions=[{"Days": "60", "StorageClass": "GLACIER"}]),
            "says '60' days, but the table's property has 60",
        ),
        (rule(Transitions=[{"Date": "2026-01-01", "StorageClass": "GLACIER"}]), "archives on a date"),
        (rule(Filter={"Prefix": "sales/"}), "archives the table's _delta_log"),
        (rule(Filter={"Prefix": "sales/orders/_delta_log/00"}), "archives the table's _delta_log"),
        (rule(Filter={}), "archives the table's _delta_log"),
        (rule(Filter=None), "archives the table's _delta_log"),
        (rule(Filter=None, Prefix="sales/orders"), "archives the table's _delta_log"),
        (rule(Filter={"And": {"Prefix": "sales/orders/day=", "Tags": [{"Key": "a"}]}}), "selects files by tag"),
        (rule(Filter={"Tag": {"Key": "a", "Value": "b"}}), "selects files by tag"),
        (rule(Expiration={"Days": 900}), "deletes files of the table"),
        (rule(Transitions=[{"Days": 0, "StorageClass": "INTELLIGENT_TIERING"}]), "moves files to Intelligent-Tiering"),
    ],
)
def test_rule_that_does_not_fit_is_flagged(given: dict[str, Any], problem: str) -> None:
    found = RULES.check({"Rules": [given]}, 60)
    assert [each.partition(": ")[0] for each in found if problem in each] == ["r"]


@pytest.mark.parametrize(
    "given",
    [
        rule(Status="Disabled"),
        rule(Filter={"Prefix": "other/"}),
        rule(Transitions=[{"Days": 60, "StorageClass": "GLACIER_IR"}]),
        rule(Transitions=None, Expiration={"ExpiredObjectDeleteMarker": True}),
    ],
)
def test_rule_without_an_archive_transition_covers_nothing(given: dict[str, Any]) -> None:
    assert RULES.check({"Rules": [given]}, 60) == [f"no rule archives {', '.join(EXPECTED)}"]


def test_deeper_archive_and_minimum_size_are_allowed() -> None:
    moves = [{"Days": 60, "StorageClass": "GLACIER"}, {"Days": 180, "StorageClass": "DEEP_ARCHIVE"}]
    reach = {"And": {"Prefix": "sales/orders/day=", "ObjectSizeGreaterThan": 131072}}
    assert S3Rules(FOLDER, EXPECTED[:1]).check({"Rules": [rule(Filter=reach, Transitions=moves)]}, 60) == []


@pytest.mark.parametrize("given", [{}, [], {"rules": []}, {"Rules": ["x"]}, {"Rules": [{"Filter": "x"}]}])
def test_invalid_lifecycle_configuration_is_refused(given: Any) -> None:
    with raises(invalid_lifecycle_policy) as caught:
        RULES.check(given, 60)
    assert "no valid list `Rules`" in str(caught.value)


def test_minimum_object_size_of_the_bucket_is_preserved() -> None:
    for default_size, option in (("varies_by_storage_class", True), ("all_storage_classes_128K", False)):
        exported = {"Rules": [OTHER], "TransitionDefaultMinimumObjectSize": default_size}
        text = RULES.apply(RULES.policy(60, exported=exported), exported)
        assert ("--transition-default-minimum-object-size varies_by_storage_class`" in text) is option


def test_location_of_a_table_selects_the_cloud() -> None:
    azure = rules_of(TABLE, TableInfo("id", "abfss://lake@a.dfs.core.windows.net/t", {}, (), 0, 0))
    bucket = rules_of(TABLE, TableInfo("id", "s3://lake/t", {}, (), 0, 0))
    assert isinstance(azure, AzureRules)
    assert isinstance(bucket, S3Rules)
    assert azure.prefixes[0] == "lake/t/part-"
    assert bucket.prefixes[0] == "t/part-"
    for rules in (azure, bucket):
        assert rules.check(rules.policy(60), 60) == []
        assert "replaces the existing one" in rules.apply(rules.policy(60))
    assert "`az storage account management-policy delete`" in azure.apply(azure.policy(60, RuleState.GONE))
    assert "`aws s3api delete-bucket-lifecycle`" in bucket.apply(bucket.policy(60, RuleState.GONE))
    with raises(no_access_tiers, match="file:/tmp/t is neither in Azure storage nor in S3"):
        rules_of(TABLE, TableInfo("id", "file:/tmp/t", {}, (), 0, 0))
