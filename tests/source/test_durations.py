from __future__ import annotations

import pytest

from mirrorfeed.source.retention import BadInterval, parse_days, spell


@pytest.mark.parametrize(("text", "days"), [("60 days", 60), (" 1 day ", 1), ("90  DAYS", 90), ("36500 days", 36_500)])
def test_an_interval_is_a_number_of_days(text: str, days: int) -> None:
    assert parse_days(text) == days


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("0 days", "is no interval"),
        ("60", "is not a whole number of days"),
        ("60 hours", "is not a whole number of days"),
        ("2 months", "is not a whole number of days"),
        ("1.5 days", "is not a whole number of days"),
        ("-3 days", "is not a whole number of days"),
        ("interval 60 days", "is not a whole number of days"),
        ("", "is not a whole number of days"),
        ("36501 days", "is more than 36500 days"),
    ],
)
def test_any_other_interval_is_refused(text: str, reason: str) -> None:
    with pytest.raises(BadInterval) as caught:
        parse_days(text)
    assert str(caught.value) == (
        f"The interval {text!r} {reason}. Write it in days, at least one, as in '60 days': the cloud's rule knows no"
        " other unit."
    )


def test_an_interval_is_spelled_as_the_property_takes_it() -> None:
    assert spell(60) == "60 days"
