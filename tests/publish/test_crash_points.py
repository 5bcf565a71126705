"""Every call of a publication fails in every way, and the next run makes the mirror equal to the source."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from deltalake import DeltaTable

from fixtures.faults import Fault, Mode, faults_at
from fixtures.mirror import canonical
from mirrorfeed.mirror.local_replica import Replica, State
from mirrorfeed.publish.table_publisher import publish
from tests.publish.scenarios import SCENARIOS, Scenario, Scene, Take

pytestmark = pytest.mark.proof

_Late = tuple[tuple[int | None, ...], ...]
"""Delays of late calls, in number of calls. The list is repeated for further calls."""
_LATE_FEW: _Late = ((1, 3, 8, 21, None), (2, 5, 13, 34, None))
_LATE_MANY: _Late = ((*range(1, 80), None),)
_CHANGES = ("create", "create_once", "replace", "rename", "remove", "remove_folder")

_LONG = (
    "pruning to one record",
    "server that overlooks the condition on renames",
    "repair of doubled rows, in several files",
)
every_scenario = pytest.mark.parametrize(
    "scenario",
    [pytest.param(each, id=each.name, marks=[pytest.mark.slow] if each.name in _LONG else []) for each in SCENARIOS],
)


@every_scenario
def test_next_run_after_any_single_fault_completes_the_mirror(scenario: Scenario, counted: Counter[str]) -> None:
    played = _play_every_fault(Scene(scenario), _LATE_FEW, both=False)
    assert played > 50
    counted["crash points, one fault in a run"] += played


@every_scenario
def test_next_run_after_a_fault_during_recovery_completes_the_mirror(scenario: Scenario, counted: Counter[str]) -> None:
    played = _play_pairs(Scene(scenario), [Mode.KILLED_AFTER, Mode.AGAIN], ((7, None),), at_most=2)
    assert played > 2
    counted["crash points, a second fault in the run that recovers"] += played


@pytest.mark.parametrize("scenario", [each for each in SCENARIOS if not each.spoiled], ids=lambda each: each.name)
@pytest.mark.parametrize("mode", [Mode.KILLED_AFTER, Mode.LOST])
def test_replica_equals_the_mirror_after_a_fault(
    scenario: Scenario, mode: Mode, tmp_path: Path, counted: Counter[str]
) -> None:
    scene = Scene(scenario)
    calls = scene.play()[0]
    last_change = max(call for call, verb in enumerate(calls) if verb in ("create", "create_once", "rename"))

    def end(take: Take) -> None:
        publish(take.feed, take.zone, take.plan)
        (report,) = Replica(take.zone, str(tmp_path)).run_pass()
        assert report.state is State.REPLICATING, report
        mirror = DeltaTable(str(tmp_path / "sales" / "orders")).to_pyarrow_table().to_pylist()
        assert canonical(mirror) == canonical(take.table.at(take.table.latest))

    scene.play(Fault(last_change, mode), end=end)
    counted["crash points through the replica"] += 1


@pytest.mark.soak
@every_scenario
def test_next_run_after_any_single_late_fault_completes_the_mirror(scenario: Scenario, counted: Counter[str]) -> None:
    counted["crash points, one fault in a run"] += _play_every_fault(Scene(scenario), _LATE_MANY, both=True)


def test_late_metadata_with_keys_does_no_harm() -> None:
    scene = Scene(next(scenario for scenario in SCENARIOS if scenario.name == "keys come later"))
    replacement = scene.play()[0].index("replace")

    for late in range(1, 40):
        _play(scene, Fault(replacement, Mode.LATE, late), service=False)


@pytest.mark.parametrize("name", ["first snapshot", "several files"])
def test_log_id_created_after_folder_deletion_loses_nothing(name: str, counted: Counter[str]) -> None:
    """The creation of `log.json` takes effect late."""
    scenario = next(scenario for scenario in SCENARIOS if scenario.name == name)
    scene = Scene(replace(scenario, published_before=False))
    calls = scene.play()[0]
    creation = calls.index("create_once")
    for deleted in range(creation + 1, len(calls)):
        for late in range(deleted - creation, 40, 4):
            mode = (Mode.LATE, Mode.KILLED_LATE)[deleted % 2]
            again = Fault(creation, mode, late + deleted % 4)
            _play(scene, again, Fault(deleted, Mode.DELETED), service=bool(late % 2))
            counted["logs whose id came late"] += 1


@pytest.mark.soak
@every_scenario
def test_next_run_after_any_two_faults_completes_the_mirror(scenario: Scenario, counted: Counter[str]) -> None:
    modes = [Mode.KILLED_AFTER, Mode.LOST, Mode.LATE, Mode.KILLED_LATE, Mode.AGAIN, Mode.DELETED]
    played = _play_pairs(Scene(scenario), modes, ((1, 4, 9, 20, None),), at_most=None)
    counted["crash points, a second fault in the run that recovers"] += played


def _play_every_fault(scene: Scene, late: _Late, *, both: bool) -> int:
    played = 0
    for fault in _faults(scene.play()[0], 0, late):
        for service in (False, True) if both else (bool(played % 2),):
            _play(scene, fault, service=service)
            played += 1
    return played


def _play_pairs(scene: Scene, modes: list[Mode], late: _Late, *, at_most: int | None) -> int:
    """Combine each first fault with second faults. `at_most` limits them to an evenly spread sample, different each
    time."""
    played = 0
    calm = scene.play()[0]
    changes = [call for call, verb in enumerate(calm) if verb in _CHANGES]
    for first in (Fault(call, mode, late=5) for call in changes for mode in modes):
        disturbed, recovering = scene.play(first)
        seconds = list(_faults(recovering, len(disturbed), late))
        step = 1 if at_most is None else len(seconds) // at_most or 1
        for second in seconds[played % step :: step]:
            _play(scene, first, second, service=bool(played % 2), runs=2)
            played += 1
    return played


def _faults(verbs: list[str], begin: int, late: _Late) -> Iterator[Fault]:
    for call, verb in enumerate(verbs, begin):
        yield from faults_at(call, verb, late[call % len(late)])
        yield Fault(call, Mode.DELETED)


def _play(scene: Scene, *faults: Fault, service: bool, runs: int = 1) -> None:
    try:
        scene.play(*faults, service=service, runs=runs)
    except BaseException as error:
        error.add_note(f"played with {faults}, {service=}")
        raise
