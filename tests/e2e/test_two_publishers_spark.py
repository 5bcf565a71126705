"""Two publishers of one table through Spark: one runs during a call of the other, or both at the same time."""

from __future__ import annotations

import os
import random
import shutil
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from mirrorfeed.errors import TransientError
from mirrorfeed.storage.local_folder import FolderStore
from tests.support.delta import DeltaTable
from tests.support.entries import changed
from tests.support.journeys import FOLDER, PLAN, Journey, newest_version

pytestmark = pytest.mark.usefixtures("several_files")

SEED = int(os.environ.get("MIRRORFEED_SEED", "20261121"))
SMALL = changed(PLAN, target_file_size=1, max_versions_per_publication=2)


class Interrupted:
    """A folder store that runs an action before its n-th call."""

    def __init__(self, inner: FolderStore, at: int, happen: Callable[[], object]) -> None:
        self._inner, self._at, self._happen, self.calls = inner, at, happen, 0

    def __getattr__(self, verb: str) -> Any:
        inner = getattr(self._inner, verb)

        def call(*arguments: Any) -> Any:
            if verb != "address":
                self.calls += 1
                if self.calls == self._at:
                    self._happen()
            return inner(*arguments)

        return call


def _other_publishes(other: Journey) -> None:
    other.publish()


def _others_publish_much_and_prune(other: Journey) -> None:
    """Others publish so much that the record numbers of this publisher are outdated and its records are pruned."""
    for _ in range(2):
        _commit(other, random.Random(other.place.name))
        other.publish()


def _the_folder_is_deleted(other: Journey) -> None:
    other.zone.remove_folder(FOLDER)


def _the_folder_is_deleted_and_created_again(other: Journey) -> None:
    other.zone.remove_folder(FOLDER)
    other.publish()


MOST_HAPPENS = (_others_publish_much_and_prune,)
"""Actions of the other publisher. The long form and `tests/publish/test_two_publishers` run all of them at every
call."""
HAPPENINGS = (*MOST_HAPPENS, _the_folder_is_deleted_and_created_again, _other_publishes, _the_folder_is_deleted)


@pytest.fixture(scope="module")
def ready(spark: SparkSession, several_files: None, tmp_path_factory: pytest.TempPathFactory) -> Journey:
    """A published snapshot, followed by three commits in two ranges."""
    place = tmp_path_factory.mktemp("ready")
    journey = Journey(spark, place / "source", place, ("id",), SMALL)
    table = _created(journey)
    journey.publish()
    table.sql("UPDATE {} SET id = id + 100 WHERE id < 2")
    table.sql("DELETE FROM {} WHERE id = 3")
    table.sql("INSERT INTO {} VALUES (3, 'again'), (200, NULL)")
    return journey


@pytest.fixture(scope="module")
def calls(ready: Journey, tmp_path_factory: pytest.TempPathFactory) -> int:
    """Number of calls of the driver without an interruption."""
    place = tmp_path_factory.mktemp("calm")
    shutil.copytree(ready.place / "zone", place / "zone")
    journey = replace(ready, place=place)
    store = Interrupted(journey.zone, 0, lambda: None)
    journey.publish(store)
    return store.calls


@pytest.mark.slow  # `publish/test_two_publishers` covers it without Spark
@pytest.mark.parametrize("happening", MOST_HAPPENS)
def test_paused_publisher_resumes_safely_among_others(
    ready: Journey, calls: int, happening: Callable[[Journey], None], tmp_path: Path, counted: Counter[str]
) -> None:
    at = random.Random(happening.__name__).randint(1, calls)
    _interrupt(ready, at, happening, tmp_path / "play")
    counted["interleavings through Spark"] += 1


@pytest.mark.soak
@pytest.mark.parametrize("happening", HAPPENINGS)
def test_publisher_paused_before_any_call_resumes_among_others(
    ready: Journey, calls: int, happening: Callable[[Journey], None], tmp_path: Path, counted: Counter[str]
) -> None:
    for at in range(1, calls + 1):
        _interrupt(ready, at, happening, tmp_path / str(at))
        counted["interleavings through Spark"] += 1


@pytest.mark.soak  # `publish/test_two_publishers` covers it without Spark
def test_two_concurrent_publishers_neither_lose_nor_duplicate_files(
    spark: SparkSession, tmp_path: Path, counted: Counter[str]
) -> None:
    _race(Journey(spark, tmp_path / "source", tmp_path, ("id",), SMALL), 2, counted)


@pytest.mark.soak
def test_many_concurrent_publisher_races_neither_lose_nor_duplicate_files(
    spark: SparkSession, tmp_path: Path, counted: Counter[str]
) -> None:
    _race(Journey(spark, tmp_path / "source", tmp_path, ("id",), changed(SMALL, log_retention_records=1)), 50, counted)


def _race(journey: Journey, rounds: int, counted: Counter[str]) -> None:
    choose = random.Random(SEED)
    print(f"MIRRORFEED_SEED={SEED} repeats the commits")
    _created(journey)
    with ThreadPoolExecutor(2) as pool:
        for _ in range(rounds):
            _commit(journey, choose)
            running = [pool.submit(journey.publish) for _ in range(2)]
            if choose.random() < 0.5:
                _commit(journey, choose)
            for publisher in running:
                with suppress(TransientError):
                    publisher.result()
            journey.publish()
            journey.replicate()
            journey.check(newest_version(journey.source))
            journey.check_files()
            counted["rounds of two publishers at once through Spark"] += 1


def _interrupt(ready: Journey, at: int, happening: Callable[[Journey], None], place: Path) -> None:
    """Run the action in copies of the folder and the source, because some actions change them."""
    shutil.copytree(ready.place / "zone", place / "zone")
    shutil.copytree(ready.source, place / "source")
    journey = replace(ready, source=place / "source", place=place)
    other = replace(journey, plan=changed(SMALL, log_retention_records=1))
    store = Interrupted(journey.zone, at, lambda: happening(other))
    try:
        with suppress(TransientError):
            journey.publish(store)
        journey.publish()
        journey.replicate()
        journey.check(newest_version(journey.source))
        journey.check_files()
    except BaseException as error:
        error.add_note(f"{happening.__name__} before call {at}")
        raise


def _created(journey: Journey) -> DeltaTable:
    table = DeltaTable(journey.spark, journey.source)
    for ids in ((0, 1, 2), (3, 4, 5)):  # one file each
        table.insert(*ids)
    return table


def _commit(journey: Journey, choose: random.Random) -> None:
    at = newest_version(journey.source)
    statement = choose.choice(
        (
            f"INSERT INTO {{}} SELECT cast({at} * 1000 + id AS int), 'later' FROM range(5)",
            f"UPDATE {{}} SET v = 'at {at}' WHERE id % 2 = 0",
            f"UPDATE {{}} SET id = -1 - id WHERE id >= 0 AND id % 7 = {at} % 7",
            f"DELETE FROM {{}} WHERE id % 5 = {at} % 5",
        )
    )
    DeltaTable.at(journey.spark, journey.source).sql(statement)
