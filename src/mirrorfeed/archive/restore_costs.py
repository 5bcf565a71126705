"""Estimate the costs to restore the archived files of a plan, and to store them until they are archived again."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from mirrorfeed.archive.restore_plan import Plan, RestorePlan
from mirrorfeed.display.humanize import counted
from mirrorfeed.storage.errors import OtherPlace, TiersUnavailable
from mirrorfeed.storage.prices import Prices
from mirrorfeed.storage.tiers import DEFAULT_COPY_DAYS, Facts, Priority, Tier, TierStore

_ARCHIVE_DAYS = 180
"""Minimum number of days that Azure charges for the archive, even if a file leaves it earlier."""
_MINIMUM_DAYS = {Tier.HOT: 0, Tier.COOL: 30, Tier.COLD: 90}
"""Minimum number of days that Azure charges for each tier to which a file can be restored."""
_RULE_INTERVAL_DAYS = 1
"""Approximate time after which a lifecycle rule archives a restored file again."""
_MONTH = 30
_ONLY_RETRIEVAL = "The estimate contains only the retrieval, because the tiers of the files cannot be read."


@dataclass(frozen=True, slots=True)
class Terms:
    """Target tier of a restore, and the days for which copies are stored."""

    to: Tier = Tier.HOT
    keep_days: int | None = None
    """Number of days for which copies are stored. None means the default of the storage service."""


DEFAULT_TERMS = Terms()


def estimate(plan: Plan, tiers: TierStore | None, rates: Prices | None, now: datetime) -> RestorePlan:
    """Return the plan with the costs that `restore` estimates by default, and with the files that are not archived.

    If the tiers cannot be read, all files count as archived, and the costs include only their retrieval.
    """
    try:
        facts = tiers.facts([file.uri for file in plan.files]) if tiers else {}
    except (TiersUnavailable, OtherPlace):
        tiers = None
    if tiers is not None:
        plan = replace(plan, readable=tuple(sorted(uri for uri, each in facts.items() if each.tier.is_readable)))
    if rates is None:
        return RestorePlan.of(plan)
    if tiers is None:
        facts = {file.uri: Facts(Tier.ARCHIVE, file.bytes) for file in plan.files}
    copies = tiers is not None and tiers.restores_copies
    costs = cost_of_restore(facts.values(), rates, Priority[plan.priority], DEFAULT_TERMS, copies, now)
    described = describe_costs(costs, rates.currency)
    if tiers is None:
        costs, described = {name: costs[name] for name in ("retrieval", "requests")}, _ONLY_RETRIEVAL
    cost = round(sum(filter(None, costs.values())), 4)
    return RestorePlan.of(replace(plan, cost=cost, currency=rates.currency), costs=described)


def cost_of_restore(
    files: Iterable[Facts], rates: Prices, priority: Priority, terms: Terms, copies: bool, now: datetime
) -> dict[str, float | None]:
    """Return the costs to restore the archived files among these, and to store them, by name. A cost without a
    configured price is None."""
    away = [file for file in files if file.tier is Tier.ARCHIVE]
    days = terms.keep_days or (DEFAULT_COPY_DAYS if copies else _RULE_INTERVAL_DAYS)
    price, to = rates.of_restore(priority.name), terms.to
    gib = _gib(away)
    month, archive = rates.per_month(to.name), rates.per_month(Tier.ARCHIVE.name)
    found: dict[str, float | None] = {
        "retrieval": gib * price.per_gib,
        "requests": len(away) / 10_000 * price.per_10k_files,
        f"{counted(days, 'day')} in {to.value}": _stored(gib * days, month),
    }
    if copies:
        return found
    early = [
        _gib([file]) * max(0.0, _ARCHIVE_DAYS - (0.0 if file.since is None else (now - file.since) / timedelta(days=1)))
        for file in away
    ]
    unknown = ", at most" if any(file.since is None for file in away) else ""
    found[f"leaving the archive before {_ARCHIVE_DAYS} days{unknown}"] = _stored(sum(early), archive)
    if (left := _MINIMUM_DAYS[to] - days) > 0:
        found[f"leaving {to.value} before {_MINIMUM_DAYS[to]} days"] = _stored(gib * left, month)
    found["archiving again"] = None if rates.archiving is None else len(away) / 10_000 * rates.archiving
    return found


def _stored(gib_days: float, month: float | None) -> float | None:
    return None if month is None else gib_days * month / _MONTH


def _gib(files: Iterable[Facts]) -> float:
    return sum(file.bytes or 0 for file in files) / 2**30


def describe_costs(costs: Mapping[str, float | None], currency: str) -> str:
    """Describe the known costs and their sum in a sentence."""
    known = {what: amount for what, amount in costs.items() if amount is not None}
    lines = [f"{amount:,.2f} {currency} for {what}" for what, amount in known.items() if round(amount, 2)]
    total = f"{sum(known.values()):,.2f} {currency} in total"
    unknown = [what for what in costs if what not in known]
    rest = f"; without a price: {', '.join(unknown)}" if unknown else ""
    return f"Estimated costs: {', '.join([*lines, total])}{rest}."
