"""Calls fail in every way, for small batches and for Spark's files, and the next run makes the mirror equal."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from fixtures.faults import Crash, Fault, Mode, faults_at
from fixtures.mirror import canonical
from fixtures.shared_faults import NoRenames, SharedFaultyStore
from mirrorfeed.errors import TransientError
from mirrorfeed.publish.files import row_staging
from tests.support.delta import DeltaTable
from tests.support.entries import changed
from tests.support.journeys import FOLDER, PLAN, Journey, newest_version

SMALL = changed(PLAN, target_file_size=1)
LATE = (1, 6, None)


@dataclass(frozen=True)
class Scene:
    """A source, its published versions, and the work of the run with a fault."""

    spark: SparkSession
    place: Path
    expected: Counter[str]
    verbs: tuple[str, ...]
    """Calls of the run without faults."""
    modes: tuple[Mode, ...]
    """Calls that the short form plays."""

    @property
    def source(self) -> Path:
        return self.place / "source"

    def play(self, fault: Fault, place: Path) -> str | None:
        """Inject a fault, check that the mirror is equal afterwards, and return the verb that failed."""
        shutil.copytree(self.place / "zone", place / "zone")
        journey = Journey(self.spark, self.source, place, ("id",), SMALL)
        store = SharedFaultyStore.begin(journey.zone, FOLDER, place / "calls", fault)
        _disturbed(lambda: journey.publish(store))
        journey.replicate()
        store.restart()
        with suppress(TransientError):  # for example when a late call takes effect during this run
            journey.publish(store)
        if store.deliver() or fault.late is not None:
            journey.publish()
        journey.replicate()
        journey.check(newest_version(self.source), self.expected)
        journey.check_files()
        return store.struck


def _disturbed(publish: Callable[[], object]) -> None:
    """Run with a fault. The run may be killed or fail with a transient error, but no error may require a person."""
    with suppress(Crash, TransientError):
        publish()


def _first_snapshot(journey: Journey) -> DeltaTable:
    table = DeltaTable(journey.spark, journey.source)
    for ids in ((0, 1, 2), (3, 4, 5)):  # one file each
        table.insert(*ids)
    return table


def _range_of_several_files(journey: Journey) -> None:
    table = _first_snapshot(journey)
    journey.publish()
    table.sql("UPDATE {} SET id = id + 100 WHERE id < 2")
    table.sql("DELETE FROM {} WHERE id = 3")
    table.sql("INSERT INTO {} VALUES (7, NULL), (3, 'again')")


def _recovery(journey: Journey) -> None:
    """A publication that is staged and recorded, but not renamed."""
    _range_of_several_files(journey)
    with pytest.raises(Crash):
        journey.publish(NoRenames(journey.zone.root))


PREPARED = {
    "first snapshot": (_first_snapshot, row_staging.SMALL_BATCH_ROWS),
    "first snapshot in Spark's files": (_first_snapshot, 0),
    "a range of several files": (_range_of_several_files, row_staging.SMALL_BATCH_ROWS),
    "a range of several of Spark's files": (_range_of_several_files, 0),
    "recovery": (_recovery, row_staging.SMALL_BATCH_ROWS),
}
"""Row limit of small batches."""
MOST = "a range of several of Spark's files"
"""`publish/test_crash_points` plays every fault without Spark, and `test_run_modes` crashes with few rows."""


@pytest.fixture(scope="module")
def prepared(
    spark: SparkSession, several_files: None, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[Callable[[Journey], object]], Journey]:
    """All scenes, prepared once and copied for each play."""

    @cache
    def copy_of_prepared(prepare: Callable[[Journey], object]) -> Journey:
        place = tmp_path_factory.mktemp("scene")
        journey = Journey(spark, place / "source", place, ("id",), SMALL)
        (place / "zone").mkdir()
        prepare(journey)
        return journey

    return copy_of_prepared


@pytest.fixture(
    scope="module",
    params=[pytest.param(name, marks=[] if name == MOST else pytest.mark.slow) for name in PREPARED],
)
def scene(
    request: pytest.FixtureRequest,
    spark: SparkSession,
    prepared: Callable[[Callable[[Journey], object]], Journey],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Scene]:
    prepare, few_rows = PREPARED[request.param]
    journey = prepared(prepare)
    place = journey.place
    expected = canonical(DeltaTable.at(spark, journey.source).rows())
    calm = replace(journey, place=tmp_path_factory.mktemp("calm"))
    shutil.copytree(place / "zone", calm.place / "zone")
    store = SharedFaultyStore.begin(calm.zone, FOLDER, calm.place / "calls", None)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(row_staging, "SMALL_BATCH_ROWS", few_rows)
        calm.publish(store)
        modes = list(Mode)[list(PREPARED).index(request.param) :: len(PREPARED)]
        yield Scene(spark, place, expected, tuple(store.verbs), tuple(modes))


def test_next_run_after_a_fault_completes_the_mirror(scene: Scene, tmp_path: Path, counted: Counter[str]) -> None:
    """Every second fault mode, each in one of the scenes. The long form covers every fault in each scene."""
    for mode in scene.modes[::2]:
        faults = [fault for fault in _faults(scene) if fault.mode is mode]
        counted["crash points through Spark"] += _play(scene, faults[len(faults) * 2 // 3], tmp_path / mode.name)


@pytest.mark.soak
def test_next_run_after_every_fault_completes_the_mirror(scene: Scene, tmp_path: Path, counted: Counter[str]) -> None:
    for place, fault in enumerate(_faults(scene)):
        counted["crash points through Spark"] += _play(scene, fault, tmp_path / str(place))


def _faults(scene: Scene) -> Iterator[Fault]:
    for call, verb in enumerate(scene.verbs):
        yield from faults_at(call, verb, LATE)
        yield Fault(call, Mode.DELETED)


def _play(scene: Scene, fault: Fault, place: Path) -> bool:
    try:
        return scene.play(fault, place) is not None
    except BaseException as error:
        error.add_note(f"played with {fault}")
        raise
    finally:
        shutil.rmtree(place, ignore_errors=True)
