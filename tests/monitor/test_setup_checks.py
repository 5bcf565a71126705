"""The whole list, for a configuration on this machine."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from databricks.sdk.service.catalog import ColumnInfo, ColumnMask, TableInfo
from pyspark.sql import SparkSession

from fixtures.fakes import RecordingGrants, RecordingWorkspace
from mirrorfeed.config import Config, load
from mirrorfeed.feed.settings import ALL_DAYS
from mirrorfeed.landing.limits import SPREAD
from mirrorfeed.monitor.setup_check import Check, State
from mirrorfeed.monitor.setup_checks import (
    ExecutorsElsewhere,
    _policies,
    check_changes,
    check_credential,
    check_days,
    check_tables,
    preflight,
)
from tests.delta import SPARK_4_0, DeltaTable

DECIMALS = "column 'price' as OPTIONAL INT32 Decimal (precision 9, scale 2)"
MADE_ANEW = f": made anew on their way, for {DECIMALS}" if SPARK_4_0 else ""
"""Spark 4.0 heeds no option of a write about its form."""


def config(folder: Path, *tables: str, zone: str = "zone") -> Config:
    listed = "".join(f"  - {{source: {source}, target: t{n}, keys: [id]}}\n" for n, source in enumerate(tables))
    (folder / "mirrorfeed.yml").write_text(f"landing_zone: ./{zone}\ntables:\n{listed}")
    return load(folder / "mirrorfeed.yml")


def nowhere() -> RecordingGrants:
    raise ValueError("no credentials are configured")


def test_all_is_told_in_one_list_and_nothing_is_left_behind(spark: SparkSession, tmp_path: Path) -> None:
    DeltaTable(spark, tmp_path / "on")
    DeltaTable(spark, tmp_path / "silent", feed=False)
    found = list(preflight(spark, config(tmp_path, "./on", "./silent", "./gone", "main.sales.orders"), nowhere))
    assert [(check.what.replace(str(tmp_path), "."), check.state) for check in found] == [
        ("rights in Unity Catalog", State.NOT_CHECKED),
        ("credential", State.NOT_CHECKED),
        ("landing zone, written by the driver", State.OK),
        ("files, written by Spark and read by the driver", State.OK),
        ("change data feed of ./on", State.OK),
        ("change data feed of ./silent", State.MISSING),
        ("change data feed of ./gone", State.MISSING),
        ("change data feed of main.sales.orders", State.MISSING),
        ("room for the tables in one mirrored database", State.OK),
        ("days from 1582-10-05 to 1582-10-14 in change feeds", State.OK),
    ]
    assert found[0].detail == (
        "no workspace is configured here: catalog main, schema main.sales, table main.sales.orders"
    )
    assert found[5].detail == "it is off: run `mirrorfeed enable`"
    assert found[6].detail.startswith("There is no Delta table at")
    assert [check.code for check in found] == [*[None] * 5, "MF2101", "MF2002", "MF2001", None, None]
    assert found[3].detail == f"{tmp_path}/zone/_mirrorfeed_files{MADE_ANEW}"
    assert not list((tmp_path / "zone").glob("_mirrorfeed_preflight*"))
    assert list((tmp_path / "zone/_mirrorfeed_files").iterdir()) == []


@pytest.mark.parametrize(
    ("count", "state", "detail"),
    [
        (449, State.OK, "449 of 500"),
        (450, State.OK, f"450 tables, and a mirrored database takes 500. {SPREAD}"),
        (500, State.OK, f"500 tables, and a mirrored database takes 500. {SPREAD}"),
        (501, State.MISSING, f"501 tables, and a mirrored database takes 500. {SPREAD}"),
    ],
)
def test_the_tables_that_one_database_takes_are_told_before_they_are_met(count: int, state: State, detail: str) -> None:
    assert check_tables(count) == Check("room for the tables in one mirrored database", state, detail)


@pytest.mark.parametrize(
    ("count", "state", "detail"),
    [
        (0, State.OK, "0 B of about 931.3 GiB"),
        (9 * 10**11 - 1, State.OK, "838.2 GiB of about 931.3 GiB"),
        (9 * 10**11, State.OK, f"838.2 GiB of about 931.3 GiB. {SPREAD}"),
        (10**12 + 1, State.MISSING, f"931.3 GiB of about 931.3 GiB. {SPREAD}"),
    ],
)
def test_the_changes_that_one_database_takes_in_a_day_are_told_before_they_are_met(
    count: int, state: State, detail: str
) -> None:
    assert check_changes(count) == Check("room for the changes of a day in one mirrored database", state, detail)


def test_a_session_that_does_not_let_all_days_be_read_is_told_with_what_to_do() -> None:
    closed: Any = SimpleNamespace(conf=SimpleNamespace(get={ALL_DAYS: "false"}.__getitem__))
    found = check_days(closed)
    assert (found.what, found.state) == ("days from 1582-10-05 to 1582-10-14 in change feeds", State.NOT_CHECKED)
    assert found.detail == (
        "this session does not let spark.sql.datetime.java8API.enabled be set, without which Delta's feed gives"
        " 1582-10-15 for each of them: where a table may have such dates or times, publish it by compute whose Spark"
        " settings can be set"
    )


def test_a_session_with_a_setting_that_changes_values_and_stays_is_refused() -> None:
    closed: Any = SimpleNamespace(conf=SimpleNamespace(get={"spark.sql.readSideCharPadding": "false"}.__getitem__))
    found = check_days(closed)
    assert (found.what, found.state, found.code) == ("settings of the Spark session", State.MISSING, "MF2207")
    assert "Set spark.sql.readSideCharPadding to true in the Spark configuration of the compute." in found.detail


def test_a_landing_zone_that_cannot_be_written_is_told_for_the_driver_and_for_executors(
    spark: SparkSession, tmp_path: Path
) -> None:
    (tmp_path / "zone").write_text("no folder")
    asked = config(tmp_path, "./gone").model_copy(update={"send": "executors"})
    found = {check.what: check for check in preflight(spark, asked, nowhere)}
    for who in ("the driver", "executors"):
        check = found[f"landing zone, written by {who}"]
        assert check.state is State.MISSING
        assert f"{tmp_path}/zone" in check.detail
        assert "Traceback" not in check.detail


def test_executors_that_write_elsewhere_are_said_with_what_to_do() -> None:
    assert str(ExecutorsElsewhere("/landing")) == (
        "What an executor wrote to /landing is not there for the driver. Use a landing zone that all machines of the"
        " cluster share."
    )


def test_a_credential_that_gives_no_token_is_missing_with_its_reason(tmp_path: Path) -> None:
    zone = "onelake://0f8fad5b-d9cb-469f-a165-70867728950e/7c9e6679-7425-40de-944b-e07fc1f90ae7"
    (tmp_path / "mirrorfeed.yml").write_text(
        f"landing_zone: {zone}\ncredential: {{service_credential: fabric}}\ntables: [{{source: a, target: b}}]\n"
    )
    check = check_credential(load(tmp_path / "mirrorfeed.yml"))
    assert (check.what, check.state) == ("credential", State.MISSING)
    assert check.detail.startswith("The service credential fabric of Unity Catalog cannot be used here")


def test_a_table_that_hides_something_is_told_before_anything_is_published(tmp_path: Path) -> None:
    masked = TableInfo(columns=[ColumnInfo(name="card", mask=ColumnMask(function_name="main.rules.last_four"))])
    answers = {"main.sales.orders": masked, "main.sales.notes": TableInfo()}
    tables = config(tmp_path, "main.sales.orders", "./local", "main.sales.notes")
    orders, notes = _policies(tables, lambda: RecordingWorkspace(answers))  # type: ignore[arg-type, return-value]
    assert (orders.what, orders.state) == ("no row filter and no column mask on main.sales.orders", State.MISSING)
    assert orders.detail.startswith("main.sales.orders has column masks on card.")
    assert (notes.what, notes.state) == ("no row filter and no column mask on main.sales.notes", State.OK)
