from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from mirrorfeed.archive import policy
from mirrorfeed.archive.interval import BadInterval, Frontier, parse_days
from mirrorfeed.archive.policy import (
    PROPERTY,
    Change,
    LongerInterval,
    NoPolicy,
    NotUnderstood,
    Policy,
    changed,
    stepped,
)
from mirrorfeed.feed import history
from tests.delta import DeltaTable

START = datetime(2026, 1, 1, tzinfo=UTC)
DAY = timedelta(days=1)


@pytest.mark.parametrize(
    "given_",
    [
        Policy(60),
        Policy(60, Change(Frontier(60, START, 90), exact=False)),
        Policy(67, Change(Frontier(60, START + timedelta(microseconds=5), 90), exact=True)),
    ],
)
def test_a_policy_survives_its_properties(given_: Policy) -> None:
    assert policy.from_properties(policy.to_properties(given_)) == given_


def test_a_table_without_the_property_has_no_policy() -> None:
    assert policy.from_properties({"delta.appendOnly": "false"}) is None


def test_a_property_that_somebody_set_in_another_unit_is_refused() -> None:
    with pytest.raises(BadInterval):
        policy.from_properties({PROPERTY: "2 months"})


def test_a_change_is_stepped_until_it_is_done() -> None:
    found = changed(Policy(60), 90, exact=True, now=START)
    assert (found.days, found.rule) == (60, 90)
    assert stepped(found, START + 7 * DAY).days == 67
    assert stepped(stepped(found, START + 7 * DAY), START + 365 * DAY).days == 90


def test_a_change_that_is_not_exact_waits() -> None:
    found = changed(Policy(60), 90, exact=False, now=START)
    assert [stepped(found, START + day * DAY).days for day in (0, 29, 30)] == [60, 60, 90]


@pytest.mark.parametrize("exact", [True, False])
def test_a_second_change_remembers_what_the_first_knew(exact: bool) -> None:
    found = changed(Policy(60), 90, exact, now=START)
    found = changed(found, 120, exact, now=START + 10 * DAY)
    done = [day for day in range(70) if stepped(found, START + day * DAY).days == 120]
    assert done[0] == 60


def test_after_a_shorter_interval_a_longer_one_begins_from_there() -> None:
    found = changed(changed(Policy(60), 90, True, START), 50, True, START + 5 * DAY)
    assert (found.days, found.rule) == (50, 50)
    found = changed(found, 90, True, START + 6 * DAY)
    assert stepped(found, START + 7 * DAY).days == 51


@given(days=st.integers(1, 100), by_hand=st.integers(1, 200), after=st.integers(0, 100))
def test_a_value_that_was_raised_by_hand_is_taken_back_by_the_next_step(days: int, by_hand: int, after: int) -> None:
    found = changed(Policy(days), days + 50, True, START)
    raised = Policy(by_hand, found.change)
    assert stepped(raised, START + after * DAY).days == min(days + 50, days + after)


def test_the_interval_of_a_table_is_set_changed_stepped_and_unset(spark: SparkSession, tmp_path: Path) -> None:
    table = DeltaTable(spark, tmp_path / "t")
    with pytest.raises(NoPolicy) as missing:
        policy.step(spark, table.source, START)
    assert str(missing.value) == (
        f"{tmp_path}/t has no archive: delta.timeUntilArchived is not set. Run `mirrorfeed archive set {tmp_path}/t"
        " 'X days'` with the days of the cloud's lifecycle rule."
    )
    assert policy.read(spark, table.source) is None
    policy.set_first(spark, table.source, parse_days("60 days"), START)
    assert history.detail(spark, table.source).properties[PROPERTY] == "60 days"
    with pytest.raises(LongerInterval) as longer:
        policy.set_first(spark, table.source, 90, START)
    assert str(longer.value) == (
        f"{tmp_path}/t counts files as archived from 60 days. To say 90 days at once would make hot files of those that"
        " the cloud has moved already, for it brings none back. Change the cloud's rule, then run `mirrorfeed archive"
        f" change-interval {tmp_path}/t --to '90 days'`."
    )
    policy.change_interval(spark, table.source, 90, exact=True, now=START)
    assert policy.step(spark, table.source, START + 7 * DAY).days == 67
    before = table.latest
    assert policy.step(spark, table.source, START + 7 * DAY).days == 67
    assert table.latest == before  # nothing to do writes nothing
    assert policy.set_first(spark, table.source, 30, START + 8 * DAY).days == 30
    assert policy.step(spark, table.source, START + 99 * DAY).days == 30
    assert spark.conf.get("spark.databricks.delta.allowArbitraryProperties.enabled") == "false"
    policy.unset(spark, table.source)
    assert [name for name in history.detail(spark, table.source).properties if "rchive" in name] == []


@pytest.mark.parametrize(
    "broken",
    [
        {PROPERTY: "2 months"},
        {PROPERTY: "60 days", "mirrorfeed.archive.movedFrom": "60 days"},
        {
            **policy.to_properties(Policy(60, Change(Frontier(60, START, 90), True))),
            "mirrorfeed.archive.movedFromSince": "yesterday",
        },
    ],
)
def test_what_is_not_understood_is_said_and_repaired_by_set_and_by_unset(
    spark: SparkSession, tmp_path: Path, broken: dict[str, str]
) -> None:
    table = DeltaTable(spark, tmp_path / "t")
    listed = ", ".join(f"'{name}' = '{value}'" for name, value in broken.items())

    def break_it() -> None:
        with policy.any_property(spark):
            table.sql(f"ALTER TABLE {{}} SET TBLPROPERTIES ({listed})")
        with pytest.raises(NotUnderstood) as caught:
            policy.step(spark, table.source, START)
        assert str(caught.value).startswith(
            f"What the properties of {table.path} say of its archive is not understood: "
        )
        assert f"`mirrorfeed archive set {table.path} 'X days'`" in str(caught.value)

    break_it()
    assert policy.set_first(spark, table.source, 90, START) == Policy(90)
    assert policy.read(spark, table.source) == Policy(90)
    break_it()
    policy.unset(spark, table.source)
    assert policy.read(spark, table.source) is None
    assert spark.conf.get("spark.databricks.delta.allowArbitraryProperties.enabled", None) is None
