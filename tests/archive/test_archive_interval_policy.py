from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirrorfeed.archive.archive_interval import (
    PROPERTY,
    Policy,
    SafeInterval,
    advance,
    change_rule,
    parse_policy,
    to_properties,
)
from mirrorfeed.archive.errors import InvalidIntervalError
from mirrorfeed.source.errors import IntervalTextError

START = datetime(2026, 1, 1, tzinfo=UTC)
DAY = timedelta(days=1)


@pytest.mark.parametrize(
    "given_",
    [
        Policy(60),
        Policy(60, SafeInterval(60, START, 90), exact=False),
        Policy(67, SafeInterval(60, START + timedelta(microseconds=5), 90), exact=True),
    ],
)
def test_policy_round_trips_through_its_properties(given_: Policy) -> None:
    assert parse_policy("t", to_properties(given_)) == given_


def test_table_without_the_property_has_no_policy() -> None:
    assert parse_policy("t", {"delta.appendOnly": "false"}) is None


def test_property_in_another_unit_is_refused() -> None:
    with pytest.raises(InvalidIntervalError) as caught:
        parse_policy("t", {PROPERTY: "2 months"})
    assert isinstance(caught.value.__cause__, IntervalTextError)


def test_change_is_stepped_until_it_is_done() -> None:
    found = change_rule(Policy(60), 90, exact=True, now=START)
    assert (found.days, found.rule) == (60, 90)
    assert advance(found, START + 7 * DAY).days == 67
    assert advance(advance(found, START + 7 * DAY), START + 365 * DAY).days == 90


def test_inexact_change_waits_until_the_end() -> None:
    found = change_rule(Policy(60), 90, exact=False, now=START)
    assert [advance(found, START + day * DAY).days for day in (0, 29, 30)] == [60, 60, 90]


@pytest.mark.parametrize("exact", [True, False])
def test_second_change_continues_from_the_first(exact: bool) -> None:
    found = change_rule(Policy(60), 90, exact, now=START)
    found = change_rule(found, 120, exact, now=START + 10 * DAY)
    done = [day for day in range(70) if advance(found, START + day * DAY).days == 120]
    assert done[0] == 60


def test_longer_interval_after_a_shorter_one_grows_from_there() -> None:
    found = change_rule(change_rule(Policy(60), 90, True, START), 50, True, START + 5 * DAY)
    assert (found.days, found.rule) == (50, 50)
    found = change_rule(found, 90, True, START + 6 * DAY)
    assert advance(found, START + 7 * DAY).days == 51


@given(days=st.integers(1, 100), by_hand=st.integers(1, 200), after=st.integers(0, 100))
def test_manually_raised_value_is_corrected_by_the_next_step(days: int, by_hand: int, after: int) -> None:
    found = change_rule(Policy(days), days + 50, True, START)
    raised = Policy(by_hand, found.safe_interval, found.exact)
    assert advance(raised, START + after * DAY).days == min(days + 50, days + after)
