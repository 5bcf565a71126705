"""Reload a table: after a crash at any call, a second rebuild or a publication makes the mirror equal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest

from fixtures.faults import Crash, Fault, FaultyStore, faults_at
from fixtures.memory import MemoryStore
from mirrorfeed.errors import MirrorfeedError, TransientError
from mirrorfeed.landing.names import data_name
from mirrorfeed.orchestration.table_reload import clear
from mirrorfeed.publish.errors import RowsRefusedError
from mirrorfeed.publish.table_publisher import publish
from mirrorfeed.publish.table_result import TableResult
from mirrorfeed.source.errors import feed_off
from mirrorfeed.source.snapshot_or_range import PublishedVersion
from mirrorfeed.storage import Store
from mirrorfeed.storage.errors import StorageUnavailableError
from tests.publish.scenarios import FOLDER, SCENARIOS, Scenario, Scene, Take, one_commit, plan, two_orders
from tests.raised import raises
from tests.support.tables import Table, TableFeed

REBUILT = ("first snapshot", "one file", "several files", "inserts only", "folder deleted between")
LATE = (1, 3, 8, None)


def no_pause(_: float) -> None: ...


def rebuild(take: Take, store: Store) -> TableResult:
    """Rebuild as the command does. The service lists the folder meanwhile."""
    clear(take.feed, store, take.plan, no_pause)
    take.mirror.take()
    return publish(take.feed, store, take.plan)


@pytest.mark.proof
@pytest.mark.parametrize("scenario", [each for each in SCENARIOS if each.name in REBUILT], ids=lambda each: each.name)
@pytest.mark.parametrize("next_run", ["rebuild", "publish"])
def test_next_run_after_any_fault_completes_the_mirror(
    scenario: Scenario, next_run: str, counted: Counter[str]
) -> None:
    scene = Scene(scenario)
    calls = _play(scene, None, next_run)
    for fault in _faults(calls):
        try:
            _play(scene, fault, next_run)
        except BaseException as error:
            error.add_note(f"played with {fault}")
            raise
        counted["crash points of a rebuild"] += 1


def _faults(calls: list[str]) -> Iterator[Fault]:
    for call, verb in enumerate(calls):
        yield from faults_at(call, verb, LATE)


def _play(scene: Scene, fault: Fault | None, next_run: str) -> list[str]:
    take = scene.open()
    take.mirror.take()
    store = FaultyStore(take.zone, [fault] if fault else [])
    with suppress(TransientError, Crash):
        rebuild(take, store)
    calls = list(store.verbs)
    store.restart()
    with suppress(TransientError):
        if next_run == "rebuild":
            rebuild(take, store)
        else:
            publish(take.feed, store, take.plan)
    store.deliver()
    take.ends_equal()
    return calls


def test_rebuilt_table_starts_at_file_one_with_a_new_log() -> None:
    take = Scene(next(each for each in SCENARIOS if each.name == "several files")).open()
    publish(take.feed, take.zone, take.plan)
    take.mirror.take()
    before = take.audit.log_id
    clear(take.feed, take.zone, take.plan, no_pause)
    assert take.zone.list("sales.schema") == []
    progress = publish(take.feed, take.zone, take.plan)

    assert (progress.from_version_exclusive, progress.to_version_inclusive) == (None, take.table.latest)
    assert take.zone.list(FOLDER)[0].name == data_name(1)
    assert take.audit.log_id != before
    take.ends_equal()


def test_unpublished_table_is_published_by_rebuild() -> None:
    take = Scene(next(each for each in SCENARIOS if each.name == "first snapshot")).open()
    rebuild(take, take.zone)
    take.ends_equal()


@pytest.mark.parametrize(
    "harm",
    [
        lambda zone: zone.replace(f"{FOLDER}/_mirrorfeed/log.json", b"no log"),
        lambda zone: zone.create(f"{FOLDER}/{data_name(9)}", b"foreign"),
        lambda zone: zone.create(f"{FOLDER}/notes.txt", b"foreign"),
        lambda zone: zone.replace(f"{FOLDER}/_metadata.json", b'{"keyColumns": ["status"]}'),
    ],
    ids=["log that names no log", "foreign number", "foreign file", "other keys"],
)
def test_rebuild_repairs_a_folder_that_stops_publication(harm: Callable[[MemoryStore], object]) -> None:
    zone, feed = MemoryStore(), TableFeed(two_orders())
    publish(feed, zone, plan())
    one_commit(feed.table)
    harm(zone)
    with pytest.raises(MirrorfeedError):
        publish(feed, zone, plan())
    clear(feed, zone, plan(), no_pause)
    publish(feed, zone, plan())
    one_commit(feed.table)
    assert publish(feed, zone, plan()).published_version == feed.table.latest


class Unready(TableFeed):
    """A source whose snapshots cannot be followed by changes."""

    def facts(self, published: PublishedVersion | None, limit: int) -> object:
        raise feed_off(table="main.sales.orders", version=3)


def test_rebuild_deletes_nothing_if_no_snapshot_can_follow() -> None:
    zone, table = MemoryStore(), two_orders()
    publish(TableFeed(table), zone, plan())
    before = zone.list(FOLDER)
    with raises(feed_off):
        clear(Unready(table), zone, plan(), no_pause)
    assert zone.list(FOLDER) == before


@pytest.mark.parametrize(("key", "reason"), [(1, "a key is not unique"), (None, "a key is NULL")])
@pytest.mark.parametrize("options", [{}, {"validate_keys": "range"}, {"changes": "compare", "validate_keys": "none"}])
def test_rebuild_deletes_nothing_if_keys_of_the_source_are_invalid(
    key: int | None, reason: str, options: dict[str, Any]
) -> None:
    zone, table = MemoryStore(), two_orders()
    publish(TableFeed(table), zone, plan())
    table.insert({"id": key, "status": "another"})
    before = zone.list(FOLDER)
    with pytest.raises(RowsRefusedError, match=rf"at version {table.latest} {reason}"):
        clear(TableFeed(table), zone, plan(**options), no_pause)
    assert zone.list(FOLDER) == before


@pytest.mark.parametrize("options", [{"keys": ()}, {"validate_keys": "none"}])
def test_rebuild_does_not_check_keys_that_the_snapshot_does_not_check(options: dict[str, Any]) -> None:
    zone, table = MemoryStore(), two_orders()
    table.insert({"id": 1, "status": "another"})
    publish(TableFeed(table), zone, plan(**options))
    clear(TableFeed(table), zone, plan(**options), no_pause)
    assert zone.list(FOLDER) == []


class BeingRead(MemoryStore):
    """The service reads the folder for some time."""

    refusals = 0

    def remove_folder(self, folder: str) -> None:
        if self.refusals:
            self.refusals -= 1
            raise StorageUnavailableError(action="remove", address=self.address(folder), reason="it is being read")
        super().remove_folder(folder)


@pytest.mark.parametrize("refusals", [3, 1000])
def test_deletion_of_a_folder_in_use_is_retried_for_two_minutes(refusals: int) -> None:
    zone, table, pauses = BeingRead(), Table({"id": "long"}, ("id",)), list[float]()
    publish(TableFeed(table), zone, plan())
    zone.refusals = refusals
    if refusals == 3:
        clear(TableFeed(table), zone, plan(), pauses.append)
        assert (zone.list(FOLDER), pauses) == ([], [10.0] * 3)
    else:
        with pytest.raises(StorageUnavailableError, match="it is being read"):
            clear(TableFeed(table), zone, plan(), pauses.append)
        assert 100 < sum(pauses) <= 120
        assert zone.list(FOLDER)
