"""All setup checks, for a local configuration."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql import SparkSession

from fixtures.fakes import RecordingGrants
from fixtures.memory import MemoryStore
from mirrorfeed.config.loader import load
from mirrorfeed.config.model import Config
from mirrorfeed.landing.names import SPREAD, TABLE_LIMITS
from mirrorfeed.monitor import setup_checks
from mirrorfeed.monitor.findings import Finding, LogFacts, Severity, SourceFacts, TableFacts, failed, passed
from mirrorfeed.monitor.setup_checks import (
    check_changes,
    check_credential,
    check_days,
    check_setup,
    check_source,
    check_tables,
    executors_use_other_folder,
)
from mirrorfeed.runtime.spark_session import ALL_DAYS
from mirrorfeed.source.errors import rows_protected
from mirrorfeed.storage.errors import PathMissingError
from tests.support.delta import SPARK_4_0, DeltaTable

DECIMALS = "column 'price' as OPTIONAL INT32 Decimal (precision 9, scale 2)"
MADE_ANEW = f": rewritten by the driver, because Spark writes {DECIMALS}" if SPARK_4_0 else ""
"""Spark 4.0 ignores write options for the decimal format."""


def config(folder: Path, *tables: str, zone: str = "zone") -> Config:
    listed = "".join(f"  - {{source: {source}, target: t{n}, keys: [id]}}\n" for n, source in enumerate(tables))
    (folder / "mirrorfeed.yml").write_text(f"landing_zone: ./{zone}\ntables:\n{listed}")
    return load(folder / "mirrorfeed.yml")


def nowhere() -> RecordingGrants:
    raise ValueError("no credentials are configured")


def test_all_checks_are_listed_and_leave_no_files(spark: SparkSession, tmp_path: Path) -> None:
    DeltaTable(spark, tmp_path / "on")
    DeltaTable(spark, tmp_path / "silent", feed=False)
    found = list(check_setup(spark, config(tmp_path, "./on", "./silent", "./gone", "main.sales.orders"), nowhere))
    assert [(check.name.replace(str(tmp_path), "."), check.severity) for check in found] == [
        ("privileges in Unity Catalog", Severity.UNKNOWN),
        ("credential", Severity.NOT_APPLICABLE),
        ("landing zone, written by the driver", Severity.OK),
        ("files, written by Spark and read by the driver", Severity.OK),
        ("changes of ./on", Severity.OK),
        ("changes of ./silent", Severity.WRONG),
        ("changes of ./gone", Severity.WRONG),
        ("changes of main.sales.orders", Severity.WRONG),
        ("number of tables in one mirrored database", Severity.OK),
        ("days from 1582-10-05 to 1582-10-14 in change feeds", Severity.OK),
    ]
    assert found[0].what == (
        "no workspace is configured here: catalog main, schema main.sales, table main.sales.orders"
    )
    assert found[5].fix == "Run `mirrorfeed enable-cdf`, then `mirrorfeed publish`."
    assert found[6].what.startswith("There is no Delta table at")
    assert [check.code for check in found] == [*[""] * 5, "MF2101", "MF2002", "MF2001", "", ""]
    assert found[1].what == "the landing zone is not in OneLake"  # only OneLake needs a credential
    assert found[3].what == f"{tmp_path}/zone/_mirrorfeed_files{MADE_ANEW}"
    assert not list((tmp_path / "zone").glob("_mirrorfeed_setup*"))
    assert list((tmp_path / "zone/_mirrorfeed_files").iterdir()) == []


TABLES, CHANGES = "number of tables in one mirrored database", "changes of one day in one mirrored database"


@pytest.mark.parametrize(
    ("count", "expected"),
    [
        (449, passed(TABLES, "449")),
        (450, passed(TABLES, f"450 tables. {TABLE_LIMITS} {SPREAD}")),
        (1001, passed(TABLES, f"1001 tables. {TABLE_LIMITS} {SPREAD}")),
    ],
)
def test_number_of_tables_never_fails_the_check(count: int, expected: Finding) -> None:
    assert check_tables(count) == expected


@pytest.mark.parametrize(
    ("count", "expected"),
    [
        (0, passed(CHANGES, "0 B of about 931.3 GiB")),
        (9 * 10**11 - 1, passed(CHANGES, "838.2 GiB of about 931.3 GiB")),
        (9 * 10**11, passed(CHANGES, f"838.2 GiB of about 931.3 GiB. {SPREAD}")),
        (10**12 + 1, failed(CHANGES, "931.3 GiB of about 931.3 GiB", SPREAD)),
    ],
)
def test_change_limit_is_reported_before_it_is_reached(count: int, expected: Finding) -> None:
    assert check_changes(count) == expected


def test_session_that_cannot_read_all_days_is_reported() -> None:
    closed: Any = SimpleNamespace(conf=SimpleNamespace(get={ALL_DAYS: "false"}.__getitem__))
    found = check_days(closed)
    assert (found.name, found.severity) == ("days from 1582-10-05 to 1582-10-14 in change feeds", Severity.UNKNOWN)
    assert found.what.startswith("this session does not allow changing spark.sql.datetime.java8API.enabled")


def test_session_with_a_fixed_value_changing_setting_is_refused() -> None:
    closed: Any = SimpleNamespace(conf=SimpleNamespace(get={"spark.sql.readSideCharPadding": "false"}.__getitem__))
    found = check_days(closed)
    assert (found.name, found.severity, found.code) == ("settings of the Spark session", Severity.WRONG, "MF2207")
    assert found.fix == "Set spark.sql.readSideCharPadding to true in the Spark configuration of the compute."


def test_unwritable_landing_zone_is_reported_for_driver_and_executors(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "zone").write_text("no folder")
    requested = config(tmp_path, "./gone").model_copy(update={"upload_from": "executors"})
    found = {check.name: check for check in check_setup(spark, requested, nowhere)}
    for who in ("the driver", "executors"):
        check = found[f"landing zone, written by {who}"]
        assert check.severity is Severity.WRONG
        assert f"{tmp_path}/zone" in check.what
        assert "Traceback" not in check.what


def test_file_visible_only_to_executors_is_reported(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(setup_checks, "zone_of", lambda _: MemoryStore())  # executors write into copies of the store
    requested = Config(landing_zone="memory:", tables=(), upload_from="executors")
    found = {check.name: check for check in check_setup(spark, requested, nowhere)}
    assert found["landing zone, written by executors"].code == executors_use_other_folder.code


def test_credential_without_a_token_is_reported_with_its_reason(tmp_path: Path) -> None:
    zone = "onelake://0f8fad5b-d9cb-469f-a165-70867728950e/7c9e6679-7425-40de-944b-e07fc1f90ae7"
    (tmp_path / "mirrorfeed.yml").write_text(
        f"landing_zone: {zone}\ncredential: {{service_credential: fabric}}\ntables: [{{source: a, target: b}}]\n"
    )
    check = check_credential(load(tmp_path / "mirrorfeed.yml"))
    assert (check.name, check.severity) == ("credential", Severity.WRONG)
    assert check.what.startswith("Cannot use the service credential fabric of Unity Catalog")


def test_source_error_is_reported_and_landing_zone_error_only_once() -> None:
    masked, missing = rows_protected(table="a", row_filter=None, masked=("card",)), PathMissingError(address="zone")
    read, log = SourceFacts("on"), LogFacts()
    known = TableFacts("t", "a", "a", source_facts=read, log_facts=log)
    assert check_source(known) == passed("changes of a", "on")
    assert check_source(replace(known, log_facts=LogFacts(is_read=False), errors=(missing,))) == passed(
        "changes of a", "on"
    )
    unread = replace(known, log_facts=LogFacts(is_read=False), errors=(missing, masked))
    for facts in (replace(known, errors=(masked,)), TableFacts("t", "a", "a", errors=(missing, masked)), unread):
        found = check_source(facts)
        assert (found.severity, found.code) == (Severity.WRONG, "MF2201")
