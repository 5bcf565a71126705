"""Intervals as people write them, in whole days: `60 days`."""

from __future__ import annotations

import re

from mirrorfeed.errors import Terminal

_FORM = re.compile(r"\s*(\d+)\s+days?\s*", re.IGNORECASE)
LONGEST = 36_500
"""A hundred years; beyond it somebody has taken days for another unit."""


def parse_days(text: str) -> int:
    """The days of an interval such as `60 days`, or `BadInterval`."""
    found = _FORM.fullmatch(text)
    if found is None:
        raise BadInterval(text, "is not a whole number of days")
    days = int(found[1])
    if not 1 <= days <= LONGEST:
        raise BadInterval(text, "is no interval" if days == 0 else f"is more than {LONGEST} days")
    return days


def spell(days: int) -> str:
    """As the table's property takes it."""
    return f"{days} days"


class BadInterval(Terminal):
    """An interval of the archive is not a whole number of days."""

    code = "MF1108"

    def __init__(self, text: str, reason: str) -> None:
        self.text, self.reason = text, reason

    def what(self) -> str:
        return f"The interval {self.text!r} {self.reason}."

    def next(self) -> str:
        return "Write it in days, at least one, as in '60 days': the cloud's rule knows no other unit."
