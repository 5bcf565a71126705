"""Who brings files into the landing zone, and why."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from mirrorfeed.config import Config
from mirrorfeed.publish.carry import InResult
from mirrorfeed.publish.handover import Handover
from mirrorfeed.publish.ways import (
    FOLDER,
    Choosing,
    ExecutorsShutOut,
    HandoverOutsideCatalog,
    Way,
    choose,
    decide,
    reach,
    within,
)
from mirrorfeed.stores import Entry, FolderStore, StoreUnavailable

SHUT = "there is no secret"


@pytest.mark.parametrize(
    ("writers", "shut_out", "found"),
    [
        ("auto", "", (False, "they reach it")),
        ("auto", SHUT, (True, "executors do not reach it (there is no secret)")),
        ("executors", "", (False, "they reach it")),
        ("driver", "", (True, "the configuration says so")),
        ("driver", SHUT, (True, "the configuration says so")),
    ],
)
def test_the_driver_writes_where_executors_do_not_reach(writers: Any, shut_out: str, found: tuple[bool, str]) -> None:
    assert decide(writers, shut_out, "/zone") == found


def test_executors_that_are_asked_to_write_and_cannot_are_refused_with_the_reason() -> None:
    with pytest.raises(ExecutorsShutOut) as refused:
        decide("executors", SHUT, "https://onelake/zone")
    assert str(refused.value) == (
        "Executors cannot write to https://onelake/zone: there is no secret. Nothing was staged. Leave out `writers:"
        " executors`, so that the driver writes what executors give it: on serverless compute and in standard access"
        " mode executors have no network of their own. Or use a dedicated cluster."
    )


@pytest.mark.parametrize(
    ("way", "words"),
    [
        (Way(None, "they reach it"), "Executors write into the landing zone: they reach it."),
        (
            Way(InResult(), "the configuration says so", "in the result of the query"),
            "The driver writes into the landing zone what executors give it in the result of the query: the"
            " configuration says so.",
        ),
    ],
)
def test_a_way_is_told_in_a_line(way: Way, words: str) -> None:
    assert str(way) == words


def test_on_one_machine_nothing_is_asked(spark: SparkSession, tmp_path: Path) -> None:
    way = choose(spark, Config(str(tmp_path / "zone"), ()), FolderStore(str(tmp_path / "zone")), {})
    assert way == Way(None, "Spark is on this machine", chosen=False)
    assert not (tmp_path / "zone").exists()


@pytest.mark.parametrize("there", [True, False])
def test_executors_reach_a_folder_that_they_share_and_nothing_is_left_in_it(
    spark: SparkSession, tmp_path: Path, there: bool
) -> None:
    store = FolderStore(str(tmp_path / "zone"))
    if there:
        store.create("orders/log", b"")
    before = sorted(tmp_path.rglob("*"))
    assert reach(spark, store) == ""
    assert [path for path in sorted(tmp_path.rglob("*")) if path not in before and path.name != "zone"] == []


class Elsewhere(FolderStore):
    """Where an executor finds another folder at the same address."""

    def __reduce__(self) -> Any:
        return FolderStore, (f"{self.root}-of-executors",)


@pytest.mark.parametrize("there", [True, False])
def test_another_folder_at_the_same_address_is_not_reached(spark: SparkSession, tmp_path: Path, there: bool) -> None:
    store = Elsewhere(str(tmp_path / "zone"))
    if there:
        store.create("orders/log", b"")
    assert "to its address" in reach(spark, store) or "at its address" in reach(spark, store)
    assert not (tmp_path / "zone" / FOLDER).exists()


class Locked(FolderStore):
    def list(self, folder: str) -> list[Entry]:
        if threading.current_thread() is threading.main_thread():
            return super().list(folder)
        raise StoreUnavailable("list", self.root, "the network cannot be reached")


def test_what_keeps_an_executor_out_is_told_in_its_words(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "zone/orders").mkdir(parents=True)
    assert reach(spark, Locked(str(tmp_path / "zone"))) == (
        f"Cannot list {tmp_path}/zone: the network cannot be reached"
    )


def test_a_network_that_swallows_what_is_sent_is_given_up(tmp_path: Path) -> None:
    end = threading.Event()

    def look() -> list[str]:
        end.wait()
        return []

    assert within(0.01, look) == ([], "no answer within 0 seconds")
    end.set()


def test_the_driver_is_asked_for_by_name(spark: SparkSession, tmp_path: Path) -> None:
    zone, handover = FolderStore(str(tmp_path / "zone")), str(tmp_path / "handover")
    through = choose(spark, Config(zone.root, (), writers="driver", handover=handover), zone, {})
    assert (through.carrier, through.through) == (Handover(spark, handover), f"through {handover}")
    assert isinstance(choose(spark, Config(zone.root, (), writers="driver"), zone, {}).carrier, InResult)


def test_a_handover_outside_the_catalog_is_refused_on_databricks(spark: SparkSession, tmp_path: Path) -> None:
    config = Config(str(tmp_path), (), writers="driver", handover="/tmp/handover")
    with pytest.raises(HandoverOutsideCatalog) as refused:
        choose(spark, config, FolderStore(str(tmp_path)), {"DATABRICKS_RUNTIME_VERSION": "client.4.9"})
    assert str(refused.value) == (
        "The handover /tmp/handover is no volume, and on Databricks only volumes are shared by all of Spark. Set"
        " `handover` to a volume of Unity Catalog, /Volumes/catalog/schema/volume. Nothing was staged."
    )


def test_the_way_is_asked_for_once_and_again_only_after_what_may_pass() -> None:
    asked: list[Way | Exception] = [StoreUnavailable("list", "/zone", "busy"), Way(None, "they reach it")]
    choosing = Choosing(lambda: _give(asked.pop(0)))
    assert choosing() == Way(None, "they reach it")
    assert choosing() == Way(None, "they reach it")
    assert choosing.found() == Way(None, "they reach it")
    assert asked == []


def test_a_way_that_is_refused_stays_refused() -> None:
    asked: list[Way | Exception] = [HandoverOutsideCatalog("/tmp/x")]
    choosing = Choosing(lambda: _give(asked.pop(0)))
    for _ in range(2):
        with pytest.raises(HandoverOutsideCatalog):
            choosing()
    assert choosing.found() is None


def _give(answer: Way | Exception) -> Way:
    if isinstance(answer, Exception):
        raise answer
    return answer
