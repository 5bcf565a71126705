"""What it costs to bring files back and to have them: pure sums over what the user pays.

Azure and S3 differ in what a restore is. In Azure a file leaves the archive, which has a price where it does so before
its 180 days are over, and the lifecycle rule archives it again; S3 keeps it in the archive and lays a copy beside it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from mirrorfeed.display.humanize import counted
from mirrorfeed.storage.prices import Rates
from mirrorfeed.storage.tiers import Facts, Priority, Tier

ARCHIVE_DAYS = 180
"""A file that leaves Azure's archive earlier is paid for until then."""
_SHORTEST = {Tier.HOT: 0, Tier.COOL: 30, Tier.COLD: 90}
"""The same for the tiers that it may be brought back to."""
MONTH = 30


@dataclass(frozen=True, slots=True)
class Cost:
    what: str
    amount: float | None
    """None where a price is not given."""


def of_restore(
    files: Iterable[Facts],
    rates: Rates,
    priority: Priority,
    to: Tier,
    days: int,
    copies: bool,
    now: datetime,
) -> list[Cost]:
    """Of bringing back those that are in the archive, and of having them for so many days."""
    away = [file for file in files if file.tier is Tier.ARCHIVE]
    price = rates.of_restoring(priority.name)
    gib = _gib(away)
    month = rates.month(to.name)
    found = [
        Cost("retrieval", gib * price.gib),
        Cost("requests", len(away) / 10_000 * price.objects),
        Cost(f"{counted(days, 'day')} in {to.value}", None if month is None else gib * month * days / MONTH),
    ]
    if copies:
        return found
    return [*found, *_leaving(away, rates, to, days, now)]


def _leaving(away: Sequence[Facts], rates: Rates, to: Tier, days: int, now: datetime) -> Iterable[Cost]:
    """What only a file that leaves the archive costs."""
    short = [_gib([file]) * max(0.0, ARCHIVE_DAYS - _days(file, now)) for file in away]
    unknown = ", at most" if any(file.since is None for file in away) else ""
    archive = rates.month(Tier.ARCHIVE.name)
    yield Cost(
        f"leaving the archive before {ARCHIVE_DAYS} days{unknown}",
        None if archive is None else sum(short) * archive / MONTH,
    )
    if (left := _SHORTEST[to] - days) > 0:
        month = rates.month(to.name)
        yield Cost(
            f"leaving {to.value} before {_SHORTEST[to]} days",
            None if month is None else _gib(away) * month * left / MONTH,
        )
    yield Cost("archiving again", None if rates.archiving is None else len(away) / 10_000 * rates.archiving)


def _gib(files: Iterable[Facts]) -> float:
    return sum(file.bytes or 0 for file in files) / 2**30


def _days(file: Facts, now: datetime) -> float:
    return 0.0 if file.since is None else (now - file.since) / timedelta(days=1)


def spelled(costs: Sequence[Cost], currency: str) -> str:
    """For people, with the sum of what is known."""
    known = [cost for cost in costs if cost.amount is not None]
    lines = [f"{cost.amount:,.2f} {currency} for {cost.what}" for cost in known if round(cost.amount or 0, 2)]
    total = f"{sum(cost.amount or 0 for cost in known):,.2f} {currency} in all"
    unknown = [cost.what for cost in costs if cost.amount is None]
    rest = f"; without a price: {', '.join(unknown)}" if unknown else ""
    return f"{', '.join([*lines, total])}{rest}"
