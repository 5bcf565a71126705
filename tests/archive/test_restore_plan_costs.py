"""Cost estimates that a person can check by hand."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from mirrorfeed.archive.restore_plan import Terms, cost_of_restore, describe_costs
from mirrorfeed.storage.errors import invalid_prices
from mirrorfeed.storage.prices import Prices
from mirrorfeed.storage.tier_store import Priority, Tier, TierFacts
from tests.raised import raises

GIB = 2**30
NOW = datetime(2026, 11, 1, tzinfo=UTC)
PRICES: dict[str, Any] = {
    "currency": "EUR",
    "standard": {"per_gib": 0.02, "per_10k_files": 5},
    "high": {"per_gib": 0.1, "per_10k_files": 50},
    "stored": {"hot": 0.3, "cool": 0.15, "archive": 0.03},
    "archiving": 10,
}
RATES = Prices.model_validate(PRICES)
BARE = Prices.model_validate({name: PRICES[name] for name in ("currency", "standard", "high")})


def file(gib: float, days: float | None, tier: Tier = Tier.ARCHIVE) -> TierFacts:
    """A file that has been in its tier for this number of days."""
    return TierFacts(tier, int(gib * GIB), None if days is None else NOW - timedelta(days=days))


def costs(
    files: list[TierFacts],
    rates: Prices = RATES,
    priority: Priority = Priority.STANDARD,
    to: Tier = Tier.HOT,
    days: int = 1,
    copies: bool = False,
) -> dict[str, float | None]:
    found = cost_of_restore(files, rates, priority, Terms(to, days), copies, NOW)
    return {what: amount if amount is None else round(amount, 6) for what, amount in found.items()}


def test_azure_restore_costs_cover_retrieval_storage_and_early_deletion() -> None:
    assert costs([file(10, 150), file(10, 400), file(99, 9, Tier.HOT)], days=3) == {
        "retrieval": 0.4,
        "requests": 0.001,
        "3 days in hot": 0.6,
        "leaving the archive before 180 days": 0.3,  # 10 GiB for 30 more days
        "archiving again": 0.002,
    }


def test_high_priority_has_its_own_price() -> None:
    found = costs([file(10, 400)], priority=Priority.HIGH)
    assert (found["retrieval"], found["requests"]) == (1, 0.005)


def test_cool_tier_costs_at_least_thirty_days() -> None:
    assert costs([file(10, 400)], to=Tier.COOL, days=2)["leaving cool before 30 days"] == pytest.approx(1.4)
    assert "leaving cool before 30 days" not in costs([file(10, 400)], to=Tier.COOL, days=30)


def test_unknown_archive_time_costs_at_most_the_full_minimum() -> None:
    assert costs([file(10, None)])["leaving the archive before 180 days, at most"] == 1.8


def test_copies_cost_their_days_and_no_early_deletion() -> None:
    assert costs([file(10, 1)], days=7, copies=True) == {"retrieval": 0.2, "requests": 0.0005, "7 days in hot": 0.7}


def test_costs_without_a_price_are_named_and_not_summed() -> None:
    found = cost_of_restore([file(10, 1)], BARE, Priority.STANDARD, Terms(), False, NOW)
    assert describe_costs(found, "EUR") == (
        "Estimated costs: 0.20 EUR for retrieval, 0.20 EUR in total; without a price: 1 day in hot, leaving the archive"
        " before 180 days, archiving again."
    )
    assert describe_costs({"retrieval": 0.001}, "EUR") == "Estimated costs: 0.00 EUR in total."


def test_files_outside_the_archive_cost_nothing() -> None:
    assert set(costs([file(10, 1, Tier.HOT)]).values()) == {0}


def test_archived_bytes_save_the_price_difference_every_month() -> None:
    assert RATES.monthly_cost(10 * GIB, 100 * GIB) == (pytest.approx(6), pytest.approx(27))
    assert BARE.monthly_cost(GIB, GIB) is None


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (
            {"standard": {"per_gib": -1, "per_10k_files": 1}},
            "standard.per_gib: Input should be greater than or equal to 0",
        ),
        ({"high": {"per_gib": float("nan"), "per_10k_files": 1}}, "it is not valid JSON ("),
        ({"stored": {"hot": 1}}, "stored.archive: Field required"),
        ({"tape": 1}, "tape: Extra inputs are not permitted"),
    ],
)
def test_invalid_prices_are_refused(change: dict[str, Any], reason: str, tmp_path: Path) -> None:
    path = tmp_path / "prices.json"
    path.write_text(json.dumps(PRICES | change))
    with raises(invalid_prices) as caught:
        Prices.load(str(path))
    assert str(caught.value).startswith(f"{path} is not a valid file with prices: {reason}")
    assert Prices.load(str(_written(tmp_path))) == RATES


def _written(folder: Path) -> Path:
    path = folder / "good.json"
    path.write_text(json.dumps(PRICES))
    return path


@pytest.mark.parametrize("price", [-1, "0.02", True, None])
def test_price_is_a_number_of_at_least_zero(tmp_path: Path, price: Any) -> None:
    path = tmp_path / "prices.json"
    path.write_text(json.dumps(PRICES | {"standard": {"per_gib": price, "per_10k_files": 5}}))
    with raises(invalid_prices, match=r"standard\.per_gib: Input should be"):
        Prices.load(str(path))


@pytest.mark.parametrize("content", ["no JSON", "[]"])
def test_file_without_prices_is_refused_with_an_example(content: str, tmp_path: Path) -> None:
    path = tmp_path / "prices.json"
    path.write_text(content)
    with raises(invalid_prices, match="Write your prices as JSON"):
        Prices.load(str(path))
