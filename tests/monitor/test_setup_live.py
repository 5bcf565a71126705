"""What only the services can show: tried on the simulator, and listed on one page."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from fixtures.memory import MemoryStore
from fixtures.onelake import OneLake
from mirrorfeed.config import Config
from mirrorfeed.monitor.rules import Weight
from mirrorfeed.monitor.setup_checks import new_folder
from mirrorfeed.monitor.setup_live import BY_HAND, NotAsExpected, _creates_once, _renames, check_live
from mirrorfeed.storage import AlreadyThere
from tests.monitor.test_setup_checks import MADE_ANEW

PAGE = Path(__file__).parent.parent.parent / "docs/go-live-checklist.md"


def test_every_line_of_the_list_is_on_the_page_in_its_order() -> None:
    page = PAGE.read_text(encoding="utf-8")
    places = [page.lower().find(what.lower()) for what, _, _ in BY_HAND]
    assert -1 not in places
    assert places == sorted(places)
    assert all(how in page and seen in page for _, how, seen in BY_HAND)


def test_what_is_harmless_is_tried_and_the_rest_is_listed(spark: SparkSession, tmp_path: Path) -> None:
    config = Config(landing_zone=str(tmp_path / "zone"), tables=())
    found = list(check_live(spark, config, {}))
    not_asked = [Weight.UNKNOWN]
    assert [check.weight for check in found] == [*not_asked, *[Weight.OK] * 5, *not_asked * len(BY_HAND)]
    assert found[0].what == "the landing zone is not in OneLake"  # which alone asks for a credential
    assert found[5].what == f"{tmp_path}/zone/_mirrorfeed_files{MADE_ANEW}"
    assert not [path for path in (tmp_path / "zone").rglob("*") if path.is_file()]


@pytest.mark.parametrize("check", [_creates_once, _renames])
def test_onelakes_simulator_is_as_expected_and_left_clean(onelake: OneLake, check: object) -> None:
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


def test_a_place_that_lets_two_create_one_name_is_found_out() -> None:
    with pytest.raises(NotAsExpected) as found:
        _creates_once(Careless(), "x")
    assert str(found.value) == (
        "This is not as mirrorfeed expects it: the second creation was not refused: without that nothing is published"
        " exactly once. Do not publish there, and report it."
    )


def test_a_place_that_renames_onto_a_name_that_is_taken_is_found_out() -> None:
    with pytest.raises(NotAsExpected, match="the rename onto a name that is taken was not refused"):
        _renames(MemoryStore(checks_renames=False), "x")
