"""Independent publishers of one table. A scheduler in the test decides which one makes the next call."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from itertools import product
from random import Random

import pytest

from fixtures.faults import MODES, Fault, Mode
from mirrorfeed.publish.table_publisher import publish
from mirrorfeed.storage import Store
from tests.publish.scenarios import FOLDER, SCENARIOS, Scene, Take, one_commit, plan, three_commits, two_orders
from tests.publish.scenarios import Scenario as _Scenario
from tests.support.stepped_process import Process
from tests.support.tables import Table

pytestmark = pytest.mark.proof

Others = Callable[[Take, Store], None]


def another_publisher(take: Take, store: Store) -> None:
    take.publish(store)


def a_publisher_beside_a_repair(take: Take, store: Store) -> None:
    publish(take.feed, store, take.plan)


def many_publications(take: Take, store: Store) -> None:
    """With pruning down to one record, the record that the sleeping publisher knows is deleted."""
    for id_ in range(20, 24):
        take.table.insert({"id": id_, "status": "new"})
        take.publish(store)
        take.mirror.take()


def a_folder_deleted_and_made_again(take: Take, store: Store) -> None:
    store.remove_folder(FOLDER)
    take.publish(store)
    take.table.update(1, status="paid")
    take.publish(store)


def a_folder_deleted_twice(take: Take, store: Store) -> None:
    for _ in range(2):
        store.remove_folder(FOLDER)
        take.publish(store)
        take.mirror.take()


def _by_name(name: str) -> _Scenario:
    return next(scenario for scenario in SCENARIOS if scenario.name == name)


_SLEEPER = _Scenario("two files, one record kept", two_orders, three_commits, plan(log_retention_records=1))

PAIRS = [
    (_by_name("first snapshot"), another_publisher),
    (_by_name("several files"), another_publisher),
    (_by_name("keys come later"), another_publisher),
    (_by_name("server that overlooks the condition on renames"), another_publisher),
    (_by_name("repair"), another_publisher),
    (_by_name("repair of doubled rows, in several files"), a_publisher_beside_a_repair),
    (_SLEEPER, many_publications),
    (_SLEEPER, a_folder_deleted_and_made_again),
    (_by_name("first snapshot"), a_folder_deleted_twice),
]
every_pair = pytest.mark.parametrize(
    ("scenario", "others"), PAIRS, ids=[f"{scenario.name}-{others.__name__}" for scenario, others in PAIRS]
)


@every_pair
def test_schedules_with_two_switches_end_equal(scenario: _Scenario, others: Others, counted: Counter[str]) -> None:
    played = _play_two_switches(Scene(scenario), others, at_most=50)
    assert played > 35
    counted["schedules of two publishers with two switches"] += played


@pytest.mark.soak
@every_pair
def test_all_schedules_with_two_switches_end_equal(scenario: _Scenario, others: Others, counted: Counter[str]) -> None:
    played = _play_two_switches(Scene(scenario), others, at_most=None)
    counted["schedules of two publishers with two switches"] += played


@pytest.mark.parametrize("each", [2, pytest.param(1, marks=pytest.mark.soak)])
def test_record_added_during_a_listing_is_finished_first(each: int, counted: Counter[str]) -> None:
    """A listing of many orphaned files may show a record but not its files, which were staged earlier."""
    scenario = _Scenario("ranges", two_orders, three_commits, plan(max_versions_per_publication=1), leftovers=5)
    scene = Scene(scenario)
    alone = scene.open()
    calls = _calls(alone, alone.publish)
    for i, j in product(range(1, 9), range(1, calls)):
        if (i + j) % each:
            continue
        _play_two(scene, i, j, another_publisher)
        counted["schedules of two publishers, one of which lists"] += 1


def test_log_creation_during_folder_deletion_loses_nothing(counted: Counter[str]) -> None:
    """If the same id could be created twice, the second publisher would continue the log of the first. A record of that
    log counts although its files are deleted."""
    scene = Scene(_by_name("first snapshot"))
    verbs = scene.play()[0]
    creation = next(call for call, verb in enumerate(verbs) if verb.startswith("create"))
    alone = scene.open()
    calls = _calls(alone, alone.publish)
    late = [mode for mode in MODES[verbs[creation]] if mode in (Mode.LATE, Mode.KILLED_LATE, Mode.AGAIN)]
    for mode, i, j in product(late, range(creation + 1, calls), range(1, calls)):
        take = scene.open()
        first = Process(take.zone, take.publish, [Fault(creation, mode)])
        with first as one, Process(take.zone, take.publish) as two:
            one.step(i)
            take.zone.remove_folder(FOLDER)
            one.store.deliver()
            two.step(j)
            one.finish()
            two.finish()
        take.ends_equal()
        counted["schedules of two publishers, a log and a folder deleted"] += 1


def test_random_schedules_with_faults_end_equal(counted: Counter[str]) -> None:
    found_by_the_long_form = (1296, 18972)
    for seed in (*range(50), *found_by_the_long_form):
        _play_random(seed)
        counted["random schedules of publishers with faults"] += 1


@pytest.mark.soak
def test_many_random_schedules_with_faults_end_equal(counted: Counter[str]) -> None:
    for seed in range(1_000, 31_000):
        _play_random(seed)
        counted["random schedules of publishers with faults"] += 1


def _play_two_switches(scene: Scene, others: Others, at_most: int | None) -> int:
    """Stop the first publisher after call i, run the others up to call j, then complete the first.

    `at_most` limits the pairs (i, j) to an evenly spread sample."""
    alone = scene.open()
    calls = _calls(alone, alone.publish)
    alone = scene.open()
    calls_of_others = _calls(alone, lambda store: others(alone, store))
    pairs = [(i, j) for i in range(calls + 1) for j in range(1, calls_of_others + 1)]
    stride = 1 if at_most is None else max(1, len(pairs) // at_most)
    for i, j in pairs[::stride]:
        _play_two(scene, i, j, others)
    return len(pairs[::stride])


def _play_two(scene: Scene, i: int, j: int, others: Others) -> None:
    take = scene.open()
    try:
        with Process(take.zone, take.publish) as one, Process(take.zone, lambda store: others(take, store)) as two:
            one.step(i)
            two.step(j)
            one.finish()
            two.finish()
        take.ends_equal()
    except BaseException as error:
        error.add_note(f"switched after calls {i} and {j}")
        raise


def _calls(take: Take, body: Callable[[Store], None]) -> int:
    with Process(take.zone, body) as process:
        return process.step(100_000)


def _play_random(seed: int) -> None:
    """Two or three publishers that fail, are killed and restart, while the source changes and the service consumes
    files."""
    random = Random(seed)
    deletes = random.random() < 0.5
    take = _random_scene(random).open()
    processes: list[Process] = []
    past: list[Process] = []
    try:
        for _ in range(random.randrange(2, 4)):
            processes.append(_begin(random, take))
        for _ in range(random.randrange(20, 120)):
            at = random.randrange(len(processes))
            processes[at].step(random.choice((1, 1, 2, 5, 30)))
            if processes[at].ended:
                past.append(processes[at])
                processes[at] = _begin(random, take)
            if random.random() < 0.1:
                take.mirror.take(random.randrange(1, 4))
            if random.random() < 0.05:
                take.table.merge({"id": random.randrange(6), "status": str(seed)}, {"id": 1, "status": "new"})
            if random.random() < 0.05:
                random.choice(past + processes).store.deliver()
            if deletes and random.random() < 0.02:
                take.zone.remove_folder(FOLDER)
        for process in processes:
            process.finish()
        for process in past + processes:
            process.store.deliver()
        take.ends_equal()
    except BaseException as error:
        error.add_note(f"played with seed {seed}")
        raise
    finally:
        for process in processes:
            process.__exit__(None, None, None)


def _random_scene(random: Random) -> Scene:
    """Create a new scene for each seed, because its names and keys are random anyway."""
    options = {
        "log_retention_records": random.choice((1, 2, 10)),
        "max_versions_per_publication": random.choice((1, 2, 500)),
        "changes": random.choice(("net", "full")),
    }
    begin: Callable[[Table], None] = random.choice((one_commit, three_commits))
    feed = {"partitions": random.choice((1, 2)), "rows_per_batch": random.choice((1, 100))}
    return Scene(
        _Scenario(
            "random",
            two_orders,
            begin,
            plan(**options),
            feed=feed,
            published_before=random.random() < 0.7,
            checks_renames=random.random() < 0.8,
        )
    )


def _begin(random: Random, take: Take) -> Process:
    faults = []
    for _ in range(random.choice((0, 0, 1, 1, 2))):
        verb = random.choice(list(MODES))
        fault = Fault(random.randrange(60), random.choice(MODES[verb]), random.choice((1, 3, 10, None)))
        faults.append(fault)
    return Process(take.zone, take.publish, faults)
