from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from mirrorfeed.archive.data_files import DataFile, NeededFiles
from mirrorfeed.archive.errors import invalid_plan, plan_file_exists, plan_not_written
from mirrorfeed.archive.restore_plan import Plan, check_path, estimate, plan_files
from mirrorfeed.storage.prices import Prices, RestorePrices
from mirrorfeed.storage.tier_store import Priority
from tests.raised import raises

GIB = 2**30
FILES = [
    DataFile("a/2", 3 * GIB, deletion_vector="a/dv"),
    DataFile("a/1", GIB, deletion_vector="a/dv"),
    DataFile("a/3"),
]
RATES = Prices(
    currency="EUR",
    standard=RestorePrices(per_gib=0.02, per_10k_files=5),
    high=RestorePrices(per_gib=0.1, per_10k_files=50),
)


def needed(table: str, files: Sequence[DataFile]) -> NeededFiles:
    return NeededFiles(table, f"id-{table}", f"file:/{table}", 7, tuple(files))


def make_plan(priority: Priority = Priority.STANDARD, **more: Any) -> Plan:
    return replace(plan_files([needed("t", FILES)], priority), **more)


def priced(plan: Plan) -> Plan:
    """With the costs that are known without the tiers of the files."""
    return estimate(plan, None, RATES, datetime.now(UTC))._plan


def of_table(**change: Any) -> dict[str, Any]:
    return {"tables": [{"table": "t", "table_id": "id-t", "location": "file:/t", "version": 7, "files": []} | change]}


def test_plan_lists_each_data_file_and_deletion_vector_once() -> None:
    assert make_plan().files == (
        DataFile("a/1", GIB),
        DataFile("a/2", 3 * GIB),
        DataFile("a/3", None),
        DataFile("a/dv", None),
    )
    assert make_plan().bytes == 4 * GIB


def test_cost_is_bytes_and_requests_at_the_price_of_the_priority() -> None:
    assert priced(make_plan()).cost == pytest.approx(4 * 0.02 + 4 / 10_000 * 5.0)
    assert priced(make_plan(Priority.HIGH)).cost == pytest.approx(4 * 0.1 + 4 / 10_000 * 50.0)
    assert make_plan().cost is None


@pytest.mark.parametrize(
    ("priority", "size", "hours"),
    [(Priority.STANDARD, 5 * GIB, 15), (Priority.HIGH, 5 * GIB, 1), (Priority.HIGH, 40 * GIB, 4)],
)
def test_duration_depends_on_priority_and_bytes(priority: Priority, size: int, hours: float) -> None:
    assert plan_files([needed("t", [DataFile("a", size)])], priority).hours == hours


def test_empty_plan_takes_no_time() -> None:
    assert plan_files([needed("t", [])], None).hours == 0


def test_plan_round_trips_through_its_file(tmp_path: Path) -> None:
    path = str(tmp_path / "plan.json")
    plan = priced(make_plan(where="v = 'é'"))
    plan.save(path)
    assert Plan.load(path) == plan
    with raises(plan_file_exists) as caught:
        plan.save(path)
    assert caught.value.path == path


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('{"format": 1}', "its format is 1, and this version reads 5"),
        ("[]", "it has no format number"),
        ("no JSON", "it is not valid JSON ("),
    ],
)
def test_file_that_is_not_a_plan_is_refused(tmp_path: Path, text: str, reason: str) -> None:
    path = tmp_path / "plan.json"
    path.write_text(text)
    with raises(invalid_plan) as caught:
        Plan.load(str(path))
    assert reason in str(caught.value)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (of_table(version="7"), "tables.0.version: Input should be a valid integer"),
        (of_table(version=None), "tables.0.version: Input should be a valid integer"),
        (of_table(version=True), "tables.0.version: Input should be a valid integer"),
        (of_table(version=-1), "tables.0.version: Input should be greater than or equal to 0"),
        (of_table(version=2.5), "tables.0.version: Input should be a valid integer"),
        ({"feed_from": -3}, "feed_from: Input should be greater than or equal to 0"),
        (of_table(table=5), "tables.0.table: Input should be a valid string"),
        ({"tables": []}, "tables: Tuple should have at least 1 item"),
        ({"where": 5}, "where: Input should be a valid string"),
        ({"priority": "FAST"}, "priority: Input should be 'STANDARD' or 'HIGH'"),
        (of_table(files=[{"uri": 5, "bytes": 1}]), "tables.0.files.0.uri: Input should be a valid string"),
        (
            of_table(files=[{"uri": "a", "bytes": -1}]),
            "tables.0.files.0.bytes: Input should be greater than or equal to 0",
        ),
        (of_table(files=[{"bytes": 1}]), "tables.0.files.0.uri: Field required"),
        ({"cost": -2.0}, "cost: Input should be greater than or equal to 0"),
        ({"cost": float("nan")}, "it is not valid JSON ("),
        ({"more": 1}, "more: Unexpected keyword argument"),
    ],
)
def test_plan_with_wrong_values_is_refused_with_the_field(tmp_path: Path, change: dict[str, Any], reason: str) -> None:
    path = tmp_path / "plan.json"
    priced(make_plan()).save(str(path))
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with raises(invalid_plan) as caught:
        Plan.load(str(path))
    assert reason in str(caught.value)


def test_statement_plan_has_files_of_all_its_tables(tmp_path: Path) -> None:
    listed = [needed("a", FILES[:1]), needed("b", FILES[1:])]
    plan = priced(replace(plan_files(listed, Priority.HIGH), sql="SELECT 1", zone="UTC"))
    assert [(each.table, each.table_id, each.version) for each in plan.tables] == [("a", "id-a", 7), ("b", "id-b", 7)]
    assert (plan.sql, plan.zone) == ("SELECT 1", "UTC")
    assert (plan.files, plan.cost) == (make_plan().files, priced(make_plan(Priority.HIGH)).cost)
    plan.save(str(tmp_path / "plan"))
    assert Plan.load(str(tmp_path / "plan")) == plan


def test_unwritable_plan_is_reported_before_planning(tmp_path: Path) -> None:
    path = str(tmp_path / "no" / "plan.json")
    with raises(plan_not_written) as caught:
        check_path(path)
    assert caught.value.reason == f"the folder {tmp_path / 'no'} does not exist"
    with raises(plan_not_written, match="No such file or directory"):
        make_plan().save(path)
    check_path(str(tmp_path / "plan"))
    make_plan().save(str(tmp_path / "plan"))
    with raises(plan_file_exists):
        check_path(str(tmp_path / "plan"))
