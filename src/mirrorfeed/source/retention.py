"""How long a table keeps its log and its deleted files, and intervals such as `60 days`."""

from __future__ import annotations

import re
from collections.abc import Mapping

from mirrorfeed.source.errors import BadInterval, RetentionTooShort

FILES, LOG = "delta.deletedFileRetentionDuration", "delta.logRetentionDuration"
MIN_FACTOR = 2
"""Retention must be this many times the longest wait of a change, so that one run may fail."""
MAX_DAYS = 36_500
"""A hundred years. A longer interval was probably meant in another unit."""
_DEFAULTS = {FILES: 7 * 86_400.0, LOG: 30 * 86_400.0}
_DURATION = re.compile(r"(\d+)\s*(second|minute|hour|day|week)s?", re.IGNORECASE)
_SECONDS = {"second": 1, "minute": 60, "hour": 3600, "day": 86_400, "week": 604_800}
_DAYS = re.compile(r"\s*(\d+)\s+days?\s*", re.IGNORECASE)


def retention_seconds(properties: Mapping[str, str], name: str) -> float | None:
    """The value of a retention property; None if it cannot be parsed."""
    if name not in properties:
        return _DEFAULTS[name]
    found = _DURATION.findall(properties[name])
    return float(sum(int(count) * _SECONDS[unit.lower()] for count, unit in found)) if found else None


def check_retention(table: str, properties: Mapping[str, str], waited: float) -> RetentionTooShort | None:
    """A warning if a retention is too short for changes that wait this many seconds."""
    kept = {name: retention_seconds(properties, name) for name in (FILES, LOG)}
    short = {name: found for name, found in kept.items() if found is not None and found < MIN_FACTOR * waited}
    name = min(short, key=short.__getitem__, default=None)
    return None if name is None else RetentionTooShort(table=table, name=name, kept=short[name], waited=waited)


def parse_days(text: str) -> int:
    """The days of an interval such as `60 days`. Raise `BadInterval`."""
    found = _DAYS.fullmatch(text)
    if found is None:
        raise BadInterval(text=text, reason="is not a whole number of days")
    if not 1 <= (days := int(found[1])) <= MAX_DAYS:
        raise BadInterval(text=text, reason="is empty" if days == 0 else f"is longer than {MAX_DAYS} days")
    return days
