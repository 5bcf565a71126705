"""How often a table that is to be fresh within a time was published in time, day by day of a week."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from mirrorfeed.publish.ledger import PUBLISHED, Row

_WEEK = 7
NUMBERS = range(1, _WEEK + 1)
Days = Sequence[tuple[int, int]]
"""How many publications were in time, and of how many: of today, and of each day before."""


def in_time(rows: Iterable[Row], now: datetime) -> Mapping[str, Days]:
    """Of each table that says in which time it is to be fresh, by their names."""
    found: dict[str, list[tuple[int, int]]] = {}
    for row in rows:
        ago = (now.astimezone(UTC).date() - row.time.astimezone(UTC).date()).days
        if row.outcome != PUBLISHED or row.fresh_within is None or row.lag_seconds is None or not 0 <= ago < _WEEK:
            continue
        days = found.setdefault(row.table, [(0, 0)] * _WEEK)
        met, of = days[ago]
        days[ago] = met + (row.lag_seconds <= row.fresh_within * 60), of + 1
    return dict(sorted(found.items()))


def head(now: datetime) -> list[str]:
    days = (now.astimezone(UTC).date() - timedelta(days=ago) for ago in range(_WEEK))
    return ["Published in time", *(f"{day:%b} {day.day}" for day in days)]


def cells(table: str, days: Days) -> tuple[str, ...]:
    return table, *(f"{met:,} of {of:,}" if of else "-" for met, of in days)


def late(days: Days) -> list[int]:
    """The cells of days that had a publication too late."""
    return [at for at, (met, of) in enumerate(days, 1) if met < of]


def told(rows: Iterable[Row], now: datetime) -> list[dict[str, Any]]:
    """For programs."""
    today = now.astimezone(UTC).date()
    return [
        {"table": table, "day": today - timedelta(days=ago), "met": met, "publications": of}
        for table, days in in_time(rows, now).items()
        for ago, (met, of) in enumerate(days)
        if of
    ]
