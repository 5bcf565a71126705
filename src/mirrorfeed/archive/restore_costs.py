"""Estimate the costs of restoring archived files, and of storing them until they are archived again."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from mirrorfeed.display.humanize import counted
from mirrorfeed.storage.prices import Prices
from mirrorfeed.storage.tiers import Facts, Priority, Tier

_ARCHIVE_DAYS = 180
"""Minimum number of days that Azure charges for the archive, even if a file leaves it earlier."""
_MINIMUM_DAYS = {Tier.HOT: 0, Tier.COOL: 30, Tier.COLD: 90}
"""Minimum number of days that Azure charges for each tier to which a file can be restored."""
_MONTH = 30


@dataclass(frozen=True, slots=True)
class Cost:
    what: str
    amount: float | None
    """Amount in the currency of the prices. None if the price is not configured."""


def cost_of_restore(
    files: Iterable[Facts], rates: Prices, priority: Priority, to: Tier, days: int, copies: bool, now: datetime
) -> list[Cost]:
    """Return the costs of restoring the archived files among `files`, and of storing them for `days`."""
    away = [file for file in files if file.tier is Tier.ARCHIVE]
    price = rates.of_restore(priority.name)
    gib = _gib(away)
    month = rates.per_month(to.name)
    found = [
        Cost("retrieval", gib * price.per_gib),
        Cost("requests", len(away) / 10_000 * price.per_10k_files),
        Cost(f"{counted(days, 'day')} in {to.value}", None if month is None else gib * month * days / _MONTH),
    ]
    if copies:
        return found
    early = [
        _gib([file]) * max(0.0, _ARCHIVE_DAYS - (0.0 if file.since is None else (now - file.since) / timedelta(days=1)))
        for file in away
    ]
    unknown = ", at most" if any(file.since is None for file in away) else ""
    archive = rates.per_month(Tier.ARCHIVE.name)
    fee = None if archive is None else sum(early) * archive / _MONTH
    found.append(Cost(f"leaving the archive before {_ARCHIVE_DAYS} days{unknown}", fee))
    if (left := _MINIMUM_DAYS[to] - days) > 0:
        fee = None if month is None else gib * month * left / _MONTH
        found.append(Cost(f"leaving {to.value} before {_MINIMUM_DAYS[to]} days", fee))
    found.append(Cost("archiving again", None if rates.archiving is None else len(away) / 10_000 * rates.archiving))
    return found


def _gib(files: Iterable[Facts]) -> float:
    return sum(file.bytes or 0 for file in files) / 2**30


def describe_costs(costs: Sequence[Cost], currency: str) -> str:
    """Describe the known costs and their sum in a sentence."""
    known = [(cost.amount, cost.what) for cost in costs if cost.amount is not None]
    lines = [f"{amount:,.2f} {currency} for {what}" for amount, what in known if round(amount, 2)]
    total = f"{sum(amount for amount, _ in known):,.2f} {currency} in total"
    unknown = [cost.what for cost in costs if cost.amount is None]
    rest = f"; without a price: {', '.join(unknown)}" if unknown else ""
    return f"Estimated costs: {', '.join([*lines, total])}{rest}."
