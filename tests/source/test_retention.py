from __future__ import annotations

import pytest

from mirrorfeed.source.errors import IntervalTextError
from mirrorfeed.source.table_info import FILES, LOG, check_retention, parse_days, retention_seconds

DAY = 86_400.0


@pytest.mark.parametrize(
    ("spelled", "seconds"),
    [
        (None, 7 * DAY),
        ("interval 30 days", 30 * DAY),
        ("interval 1 week", 7 * DAY),
        ("168 hours", 7 * DAY),
        ("INTERVAL 1 DAY 12 HOURS", 1.5 * DAY),
        ("interval 1 blue moon", None),
    ],
)
def test_retention_is_parsed_in_delta_notation(spelled: str | None, seconds: float | None) -> None:
    assert retention_seconds({} if spelled is None else {FILES: spelled}, FILES) == seconds


@pytest.mark.parametrize(
    ("properties", "waited", "property_name"),
    [
        ({}, 3.5 * DAY, None),
        ({}, 3.6 * DAY, FILES),
        ({FILES: "interval 60 days"}, 16 * DAY, LOG),
        ({FILES: "interval 1 hour", LOG: "interval 2 hours"}, DAY, FILES),
        ({FILES: "interval a while", LOG: "interval a while"}, 900 * DAY, None),
    ],
)
def test_retention_too_short_for_the_wait_is_reported(
    properties: dict[str, str], waited: float, property_name: str | None
) -> None:
    found = check_retention("a.b.c", properties, waited)
    assert (found and found.name) == property_name


def test_warning_has_both_durations() -> None:
    found = check_retention("a.b.c", {}, 5 * DAY)
    assert found is not None
    assert "keeps changes for 7.0 d (delta.deletedFileRetentionDuration)" in found.problem
    assert "5.0 d after its commit" in found.problem


@pytest.mark.parametrize(("text", "days"), [("60 days", 60), (" 1 day ", 1), ("90  DAYS", 90), ("36500 days", 36_500)])
def test_interval_is_a_number_of_days(text: str, days: int) -> None:
    assert parse_days(text) == days


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("0 days", "is empty"),
        ("60", "is not a whole number of days"),
        ("60 hours", "is not a whole number of days"),
        ("2 months", "is not a whole number of days"),
        ("1.5 days", "is not a whole number of days"),
        ("-3 days", "is not a whole number of days"),
        ("interval 60 days", "is not a whole number of days"),
        ("", "is not a whole number of days"),
        ("36501 days", "is longer than 36500 days"),
    ],
)
def test_invalid_intervals_are_rejected(text: str, reason: str) -> None:
    with pytest.raises(IntervalTextError) as caught:
        parse_days(text)
    assert (caught.value.text, caught.value.reason) == (text, reason)
