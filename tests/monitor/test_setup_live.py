"""Checks of live services, against the simulator and faulty stores."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest
from pyspark.sql import SparkSession

from fixtures.files_api import files_api
from fixtures.memory import MemoryStore
from fixtures.onelake import OneLake
from fixtures.volume_mount import VOLUME, Refusals, mounted, needs_fuse
from mirrorfeed.config.model import Config
from mirrorfeed.monitor import platform_checks, setup_checks
from mirrorfeed.monitor.findings import Severity, not_checked, passed
from mirrorfeed.monitor.platform_checks import check_mount, check_settings, check_spark_writes
from mirrorfeed.monitor.setup_checks import (
    CHECKS,
    MANUAL_CHECKS,
    check_platform,
    creates_once,
    new_folder,
    renames,
    storage_check_failed,
)
from mirrorfeed.publish.files.staging_area import StagingArea, staging_area_for
from mirrorfeed.runtime.spark_session import ALL_DAYS, IGNORE_FILE_SETTINGS
from mirrorfeed.storage.databricks_volume import VolumeStore
from mirrorfeed.storage.errors import PathExistsError
from tests.monitor.test_setup_checks import MADE_ANEW
from tests.raised import raises

ROOT = Path(__file__).parent.parent.parent


def test_page_of_manual_checks_names_the_automatic_ones() -> None:
    page = (ROOT / MANUAL_CHECKS).read_text(encoding="utf-8")
    assert [check for check in CHECKS if check not in page] == []


@pytest.mark.parametrize(
    ("metrics", "severity", "text"),
    [
        ({"rows": 3}, Severity.OK, "counts 3 of 3 rows"),
        ({}, Severity.OK, "returns no metrics"),  # then publications count in another way
        ({"rows": 1}, Severity.WRONG, "counts 1 of 3 rows"),
        ({"rows": 0}, Severity.WRONG, "counts 0 of 3 rows"),
    ],
    ids=str,
)
def test_wrong_count_of_written_rows_fails(
    monkeypatch: pytest.MonkeyPatch, metrics: dict[str, int], severity: Severity, text: str
) -> None:
    monkeypatch.setattr(platform_checks, "Observation", lambda: MagicMock(get=metrics))
    monkeypatch.setattr(platform_checks, "F", MagicMock())
    observed = next(check_spark_writes(MagicMock(), MagicMock(root="file:/x")))
    assert (observed.severity, observed.what) == (severity, text)


def test_live_checks_pass_in_the_order_of_the_page_and_choose_the_staging_area_once(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen: list[StagingArea | None] = []

    def choose(*facts: Any) -> StagingArea | None:
        chosen.append(staging_area_for(*facts))
        return chosen[-1]

    monkeypatch.setattr(setup_checks, "staging_area_for", choose)
    config = Config(landing_zone=str(tmp_path / "zone"), tables=())
    found = list(check_platform(spark, config))
    assert [(each.name, each.severity) for each in found] == [
        ("environment", Severity.OK),
        *((f"landing zone: {what}", Severity.OK) for what in CHECKS),
        ("files, written by Spark and read by the driver", Severity.OK),
        ("`observe` of a write", Severity.OK),
        ("`inputFiles` of written files", Severity.OK),
        ("settings of the Spark session", Severity.OK),
        ("credential", Severity.NOT_APPLICABLE),  # only OneLake needs one
        ("manual checks", Severity.UNKNOWN),
    ]
    texts = {each.name: each.what for each in found}
    assert re.search(
        r"^mirrorfeed \S+, no Databricks runtime, Spark .*, Python 3.*, azure-core 1", texts["environment"]
    )
    assert texts["landing zone: a rename moves a file, and refuses an existing name"] == "in one step"
    assert texts["files, written by Spark and read by the driver"] == f"<landing zone>/_mirrorfeed_files{MADE_ANEW}"
    assert texts["`observe` of a write"] == "counts 3 of 3 rows"
    assert re.fullmatch(
        r"(file://<folder>/part-0000\d-<id>-c000\.snappy\.parquet(, )?)+", texts["`inputFiles` of written files"]
    )
    assert MANUAL_CHECKS in texts["manual checks"]
    assert not [path for path in (tmp_path / "zone").rglob("*") if path.is_file()]
    assert len(chosen) == 1


def test_settings_that_cannot_be_changed_are_listed_with_their_values(spark: SparkSession) -> None:
    def refuse(*_: str) -> None:
        raise ValueError

    values = {ALL_DAYS: "false", IGNORE_FILE_SETTINGS[0]: "false"}
    closed: Any = SimpleNamespace(conf=SimpleNamespace(get=values.__getitem__, set=refuse))
    found = check_settings(closed)
    assert found.severity is Severity.UNKNOWN
    assert f"{ALL_DAYS} (false)" in found.what
    assert f"{IGNORE_FILE_SETTINGS[1]} (unknown)" in found.what
    assert IGNORE_FILE_SETTINGS[0] not in found.what
    before = {name: spark.conf.get(name, None) for name in (ALL_DAYS, *IGNORE_FILE_SETTINGS)}
    assert check_settings(spark).ok
    assert {name: spark.conf.get(name, None) for name in before} == before


def test_live_findings_name_no_volume_and_no_person(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    with files_api() as api:
        error = "User ann@example.com may not write to 'main.sales.landing', see /Volumes/main/sales/landing/x"
        api.refuse = lambda _method, _path: (403, error)
        store = VolumeStore(api.volume, api.workspace)
        monkeypatch.setattr(setup_checks, "zone_of", lambda _: store)
        found = list(check_platform(spark, Config(landing_zone=api.volume, tables=())))
    failed = [each.what for each in found if each.code == "MF4009"]
    assert len(failed) >= len(CHECKS)
    assert not [each for each in found if "sales" in f"{each.what}{each.fix}" or "ann@" in each.what]
    assert "User <user> may not write to '<volume>', see <landing zone>/x" in failed[0]


def test_rename_of_a_volume_is_reported_as_two_steps() -> None:
    with files_api() as api:
        assert renames(VolumeStore(api.volume, api.workspace), "x").startswith("in two steps")


@needs_fuse
@pytest.mark.parametrize(
    ("refusals", "found"),
    [
        (VOLUME, "lacks fsync (EPERM), hard links (EPERM), appends (ENOTSUP), random writes (ENOTSUP), renames"
                 " (ENOSYS), stable inode numbers"),
        (Refusals(random_writes=True), "lacks appends (ENOTSUP), random writes (ENOTSUP)"),
        (Refusals(), "lacks nothing"),
    ],
)  # fmt: skip
def test_refusals_of_a_mount_are_listed(tmp_path: Path, refusals: Refusals, found: str) -> None:
    with mounted(tmp_path / "folder", tmp_path / "mount", refusals) as mount:
        assert check_mount("mount", str(mount)) == passed("mount", found)
    assert list((tmp_path / "folder").iterdir()) == []


def test_volume_that_is_not_mounted_is_not_checked() -> None:
    found = check_mount("mount", "/Volumes/no/such/volume")
    assert found == not_checked("mount", "it is not mounted here, so mirrorfeed uses the Files API")


@pytest.mark.parametrize("check", [creates_once, renames])
def test_onelake_simulator_passes_the_checks_and_is_left_clean(onelake: OneLake, check: object) -> None:
    store = onelake.store()
    folder = new_folder()
    check(store, folder)  # type: ignore[operator]
    store.remove_folder(folder)
    assert store.list("") == []


class Careless(MemoryStore):
    def create(self, path: str, data: bytes) -> None:
        try:
            super().create(path, data)
        except PathExistsError:
            self.replace(path, data)


def test_store_that_creates_one_name_twice_is_detected() -> None:
    with raises(storage_check_failed, match="the second creation of a file was not refused"):
        creates_once(Careless(), "x")


def test_store_that_renames_to_an_existing_name_is_detected() -> None:
    with raises(storage_check_failed, match="a rename to an existing name was not refused"):
        renames(MemoryStore(checks_renames=False), "x")
