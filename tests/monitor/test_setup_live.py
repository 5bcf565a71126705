"""Checks of live services, against the simulator and faulty stores."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from fixtures.memory import MemoryStore
from fixtures.onelake import OneLake
from mirrorfeed.config.model import Config
from mirrorfeed.monitor.errors import NotAsExpected
from mirrorfeed.monitor.findings import Severity
from mirrorfeed.monitor.setup_checks import CHECKS, MANUAL_CHECKS, check_live, creates_once, new_folder, renames
from mirrorfeed.storage.errors import AlreadyThere
from tests.monitor.test_setup_checks import MADE_ANEW

ROOT = Path(__file__).parent.parent.parent


def test_page_of_manual_checks_names_the_automatic_ones() -> None:
    page = (ROOT / MANUAL_CHECKS).read_text(encoding="utf-8")
    assert [check for check in CHECKS if check not in page] == []


def test_live_checks_pass_and_refer_to_manual_checks(spark: SparkSession, tmp_path: Path) -> None:
    config = Config(landing_zone=str(tmp_path / "zone"), tables=())
    found = list(check_live(spark, config, {}))
    assert [check.severity for check in found] == [Severity.UNKNOWN, *[Severity.OK] * 5, Severity.UNKNOWN]
    assert found[0].what == "the landing zone is not in OneLake"  # only OneLake needs a credential
    assert found[5].what == f"{tmp_path}/zone/_mirrorfeed_files{MADE_ANEW}"
    assert MANUAL_CHECKS in found[6].what
    assert not [path for path in (tmp_path / "zone").rglob("*") if path.is_file()]


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
        except AlreadyThere:
            self.replace(path, data)


def test_store_that_creates_one_name_twice_is_detected() -> None:
    with pytest.raises(NotAsExpected, match="the second creation was not refused"):
        creates_once(Careless(), "x")


def test_store_that_renames_to_an_existing_name_is_detected() -> None:
    with pytest.raises(NotAsExpected, match="a rename to an existing name was not refused"):
        renames(MemoryStore(checks_renames=False), "x")
