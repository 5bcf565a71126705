from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirrorfeed.archive.archive_interval import (
    PROPERTY,
    Frontier,
    Policy,
    changed,
    from_properties,
    stepped,
    to_properties,
)
from mirrorfeed.source.table_info import BadInterval

START = datetime(2026, 1, 1, tzinfo=UTC)
DAY = timedelta(days=1)


@pytest.mark.parametrize(
    "given_",
    [
        Policy(60),
        Policy(60, Frontier(60, START, 90), exact=False),
        Policy(67, Frontier(60, START + timedelta(microseconds=5), 90), exact=True),
    ],
)
def test_policy_round_trips_through_its_properties(given_: Policy) -> None:
    assert from_properties(to_properties(given_)) == given_


def test_table_without_the_property_has_no_policy() -> None:
    assert from_properties({"delta.appendOnly": "false"}) is None


def test_property_in_another_unit_is_refused() -> None:
    with pytest.raises(BadInterval):
        from_properties({PROPERTY: "2 months"})


def test_change_is_stepped_until_it_is_done() -> None:
    found = changed(Policy(60), 90, exact=True, now=START)
    assert (found.days, found.rule) == (60, 90)
    assert stepped(found, START + 7 * DAY).days == 67
    assert stepped(stepped(found, START + 7 * DAY), START + 365 * DAY).days == 90


def test_inexact_change_waits_until_the_end() -> None:
    found = changed(Policy(60), 90, exact=False, now=START)
    assert [stepped(found, START + day * DAY).days for day in (0, 29, 30)] == [60, 60, 90]


@pytest.mark.parametrize("exact", [True, False])
def test_second_change_continues_from_the_first(exact: bool) -> None:
    found = changed(Policy(60), 90, exact, now=START)
    found = changed(found, 120, exact, now=START + 10 * DAY)
    done = [day for day in range(70) if stepped(found, START + day * DAY).days == 120]
    assert done[0] == 60


def test_longer_interval_after_a_shorter_one_grows_from_there() -> None:
    found = changed(changed(Policy(60), 90, True, START), 50, True, START + 5 * DAY)
    assert (found.days, found.rule) == (50, 50)
    found = changed(found, 90, True, START + 6 * DAY)
    assert stepped(found, START + 7 * DAY).days == 51


@given(days=st.integers(1, 100), by_hand=st.integers(1, 200), after=st.integers(0, 100))
def test_manually_raised_value_is_corrected_by_the_next_step(days: int, by_hand: int, after: int) -> None:
    found = changed(Policy(days), days + 50, True, START)
    raised = Policy(by_hand, found.frontier, found.exact)
    assert stepped(raised, START + after * DAY).days == min(days + 50, days + after)
