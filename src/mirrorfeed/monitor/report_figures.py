"""The fleet's archives over time, drawn from the ledger: what is hot, archived and restored, how old, what it costs."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta

from mirrorfeed.display.svg_charts import Point, bars, lines
from mirrorfeed.publish.ledger import ARCHIVE, Row

PARTS = HOT, ARCHIVED, RESTORED = "hot", "archived", "restored"
_GIB = 2**30


def charts(rows: Sequence[Row]) -> list[tuple[str, str]]:
    """Titles and drawings; none where no table has an archive."""
    found = sorted((row for row in rows if row.outcome == ARCHIVE), key=lambda row: row.time)
    if not found:
        return []
    drawn = [("Archived part of each table", _shares(found))]
    days = by_day(found)
    if any(row.archived_bytes is not None for row in found):
        parts = [(f"{day:%b} {day.day}", _sums(told)) for day, told in days]
        drawn.append(("GiB of all tables with an archive", bars(parts, PARTS, "GiB")))
    if any(row.bytes_by_age for row in found):
        drawn.append(("GiB by the age of files, as it is now", bars(_ages(days[-1][1].values()), ["bytes"], "GiB")))
    for currency in sorted({row.currency for row in found if row.currency}):
        drawn.append(("What a month costs, and what the archive saves of it", _money(days, currency)))
    return drawn


def by_day(rows: Iterable[Row]) -> list[tuple[datetime, dict[str, Row]]]:
    """For each day from the first row's to the last one's, the newest row of every table up to its end."""
    found: list[tuple[datetime, dict[str, Row]]] = []
    for row in sorted(rows, key=lambda row: row.time):
        day = row.time.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
        while found and found[-1][0] < day:
            found.append((found[-1][0] + timedelta(days=1), dict(found[-1][1])))
        if not found:
            found.append((day, {}))
        found[-1][1][row.table] = row
    return found


HELD = ("Table", "Hot, GiB", "Archived, GiB", "Restored, GiB", "A month costs", "and saves")


def newest(rows: Iterable[Row]) -> list[Row]:
    """The newest row of each table that has an archive, by their names."""
    found = {row.table: row for row in sorted(rows, key=lambda row: row.time) if row.outcome == ARCHIVE}
    return [found[name] for name in sorted(found)]


def held(rows: Iterable[Row]) -> list[tuple[str, ...]]:
    """In words, under `HELD`: each table with an archive, and the sums of all."""
    last = newest(rows)
    return [*map(_cells, last), *(_totals(last) if len(last) > 1 else ())]


def parts_of(row: Row) -> dict[str, float]:
    """GiB by where they are; empty where that is not told."""
    if row.archived_bytes is None or row.hot_bytes is None:
        return {}
    back = row.restored_bytes or 0
    told = {HOT: row.hot_bytes - back, ARCHIVED: row.archived_bytes - back, RESTORED: back}
    return {part: count / _GIB for part, count in told.items()}


def _sums(rows: Mapping[str, Row]) -> dict[str, float]:
    found = dict.fromkeys(PARTS, 0.0)
    for row in rows.values():
        for part, amount in parts_of(row).items():
            found[part] += amount
    return found


def _shares(rows: Iterable[Row]) -> str:
    """A line a table: how much of it was archived."""
    series: dict[str, list[Point]] = defaultdict(list)
    for row in rows:
        if row.archived_share is not None:
            series[row.table].append(Point(row.time, row.archived_share * 100))
    return lines(series, "%")


def _ages(rows: Iterable[Row]) -> list[tuple[str, dict[str, float]]]:
    found: dict[str, float] = {}
    for row in rows:
        for label, count in (row.bytes_by_age or {}).items():
            found[label] = found.get(label, 0.0) + count / _GIB
    return [(label, {"bytes": found[label]}) for label in sorted(found, key=_youngest)]


def _youngest(label: str) -> float:
    """The days that a label such as `30-90 d` begins with, for a map has no order."""
    first = re.match(r"\d+", label)
    return int(first[0]) if first else math.inf


def _money(days: Iterable[tuple[datetime, Mapping[str, Row]]], currency: str) -> str:
    series: dict[str, list[Point]] = {"cost": [], "saving": []}
    for day, told in days:
        own = [row for row in told.values() if row.currency == currency]
        series["cost"].append(Point(day, sum(row.month_cost or 0 for row in own)))
        series["saving"].append(Point(day, sum(row.month_saving or 0 for row in own)))
    return lines(series, currency)


def _cells(row: Row) -> tuple[str, ...]:
    told = parts_of(row)
    amounts = [_number(told.get(part)) for part in PARTS]
    if row.restored_bytes is None:
        amounts[-1] = "-"
    return row.table, *amounts, _price(row.month_cost, row.currency), _price(row.month_saving, row.currency)


def _totals(rows: Sequence[Row]) -> list[tuple[str, ...]]:
    sums = _sums({row.table: row for row in rows})
    amounts = [_number(sums[part]) for part in PARTS]
    currencies: list[str | None] = [*sorted({row.currency for row in rows if row.currency})]
    found: list[tuple[str, ...]] = []
    for currency in currencies or [None]:
        own = [row for row in rows if row.currency == currency]
        prices = [sum(getattr(row, name) or 0 for row in own) for name in ("month_cost", "month_saving")]
        found.append(("all", *amounts, *(_price(price if currency else None, currency) for price in prices)))
    return found


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:,.2f}"


def _price(value: float | None, currency: str | None) -> str:
    return "-" if value is None else f"{value:,.2f} {currency}"
