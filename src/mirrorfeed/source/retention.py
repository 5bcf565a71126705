"""How long a table keeps its log and its deleted files, and intervals such as `60 days`."""

from __future__ import annotations

import re
from collections.abc import Mapping

from mirrorfeed.errors import Terminal
from mirrorfeed.source.errors import KeptTooShort

FILES, LOG = "delta.deletedFileRetentionDuration", "delta.logRetentionDuration"
_DEFAULTS = {FILES: 7 * 86_400.0, LOG: 30 * 86_400.0}
_DURATION = re.compile(r"(\d+)\s*(second|minute|hour|day|week)s?", re.IGNORECASE)
_SECONDS = {"second": 1, "minute": 60, "hour": 3600, "day": 86_400, "week": 604_800}
LEAST = 2
"""So many times as long as a change waits it has to be kept: then one run may fail."""


def seconds_of(properties: Mapping[str, str], name: str) -> float | None:
    """How long a table keeps it; None where that is spelled in a way that is not known here."""
    if name not in properties:
        return _DEFAULTS[name]
    found = _DURATION.findall(properties[name])
    return float(sum(int(count) * _SECONDS[unit.lower()] for count, unit in found)) if found else None


def too_short(table: str, properties: Mapping[str, str], waited: float) -> KeptTooShort | None:
    """What is kept for too short a time, if the oldest change waited so many seconds."""
    kept = {name: seconds_of(properties, name) for name in (FILES, LOG)}
    short = {name: found for name, found in kept.items() if found is not None and found < LEAST * waited}
    name = min(short, key=short.__getitem__, default=None)
    return None if name is None else KeptTooShort(table=table, name=name, kept=short[name], waited=waited)


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
