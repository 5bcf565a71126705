from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from mirrorfeed.archive import plan as planning
from mirrorfeed.archive.log import LogFile
from mirrorfeed.archive.plan import BadPlan, BadPrices, Plan, PlanInTheWay, PlannedFile, Prices
from mirrorfeed.stores.tiers import Priority

GIB = 2**30
FILES = [LogFile("a/2", 3 * GIB, vector="a/dv"), LogFile("a/1", GIB, vector="a/dv"), LogFile("a/3")]
PRICES = Prices("EUR", {"STANDARD": 0.02, "HIGH": 0.1}, {"STANDARD": 5.0, "HIGH": 50.0})


def made(priority: Priority = Priority.STANDARD, **more: Any) -> Plan:
    return planning.make("t", "id-1", 7, FILES, priority, **more)


def test_a_plan_names_each_data_file_and_deletion_vector_once() -> None:
    assert made().files == (
        PlannedFile("a/1", GIB),
        PlannedFile("a/2", 3 * GIB),
        PlannedFile("a/3", None),
        PlannedFile("a/dv", None),
    )
    assert made().bytes == 4 * GIB


def test_the_cost_is_bytes_and_objects_at_the_price_of_the_priority() -> None:
    assert made(prices=PRICES).cost == pytest.approx(4 * 0.02 + 4 / 10_000 * 5.0)
    assert made(Priority.HIGH, prices=PRICES).cost == pytest.approx(4 * 0.1 + 4 / 10_000 * 50.0)
    assert made().cost is None


@pytest.mark.parametrize(
    ("priority", "size", "hours"),
    [(Priority.STANDARD, 5 * GIB, 15), (Priority.HIGH, 5 * GIB, 1), (Priority.HIGH, 40 * GIB, 4)],
)
def test_how_long_it_takes_depends_on_priority_and_bytes(priority: Priority, size: int, hours: float) -> None:
    assert planning.make("t", "id", 1, [LogFile("a", size)], priority).hours == hours


def test_nothing_to_bring_back_takes_no_time() -> None:
    assert planning.make("t", "id", 1, [], Priority.STANDARD).hours == 0


def test_a_plan_survives_its_file(tmp_path: Path) -> None:
    path = str(tmp_path / "plan.json")
    plan = made(where="v = 'é'", prices=PRICES)
    plan.save(path)
    assert Plan.load(path) == plan
    with pytest.raises(PlanInTheWay) as caught:
        plan.save(path)
    assert str(caught.value) == (
        f"{path} is there already and is left as it is. Carry it out with `mirrorfeed archive restore`, remove it, or"
        " name another file."
    )


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('{"format": 2}', "it has the format 2, and 1 is read here"),
        ("[]", "AttributeError"),
        ("no JSON", "JSONDecodeError"),
        ('{"format": 1, "files": [], "priority": "FAST"}', "KeyError: 'FAST'"),
        ('{"format": 1, "files": [], "priority": "HIGH"}', "TypeError"),
    ],
)
def test_a_file_that_is_no_plan_is_refused(tmp_path: Path, text: str, reason: str) -> None:
    path = tmp_path / "plan.json"
    path.write_text(text)
    with pytest.raises(BadPlan) as caught:
        Plan.load(str(path))
    assert reason in str(caught.value)
    assert str(caught.value).endswith("Make a new one with `mirrorfeed archive plan`.")


def test_prices_are_the_users(tmp_path: Path) -> None:
    path = tmp_path / "prices.json"
    priced = {"currency": "EUR", "standard": {"gib": 0.02, "objects": 5}, "high": {"gib": 0.1, "objects": 50}}
    path.write_text(json.dumps(priced))
    assert Prices.load(str(path)) == PRICES
    path.write_text('{"currency": "EUR"}')
    with pytest.raises(BadPrices) as caught:
        Prices.load(str(path))
    assert str(caught.value) == (
        f"{path} is no table of prices (KeyError: 'standard'). Write JSON such as"
        ' {"currency": "EUR", "standard": {"gib": 0.02, "objects": 5.5}, "high": {"gib": 0.12, "objects": 60}} with'
        " your own prices: for a GiB, and for 10,000 objects."
    )
