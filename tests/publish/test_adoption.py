"""The folder of another publisher is continued without a reload, or refused with the reason and left as it was."""

from __future__ import annotations

import io
import json
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fixtures.faults import PAGE, Crash, Fault, FaultyStore, faults_at
from fixtures.faults import Mode as FaultMode
from fixtures.memory import MemoryStore
from fixtures.mirror import Audit, Mirror, canonical
from mirrorfeed.config.model import Table as ConfigTable
from mirrorfeed.errors import TransientError
from mirrorfeed.landing.errors import keys_changed, setting_changed
from mirrorfeed.landing.log_record import Record
from mirrorfeed.publish.adoption import adopt
from mirrorfeed.publish.adoption_errors import AdoptionRefusedError
from mirrorfeed.publish.errors import (
    FileNumberConflictError,
    RecordsMissingError,
    RowsRefusedError,
    foreign_file,
    log_id_missing,
)
from mirrorfeed.publish.table_log.audit import describe_publication
from mirrorfeed.publish.table_publisher import publish
from mirrorfeed.source.errors import FeedGapError, GapReason
from mirrorfeed.storage import Store
from tests.publish.scenarios import orders, plan, two_orders
from tests.raised import raises
from tests.support.entries import FOLDER
from tests.support.tables import Table, TableFeed

_LATE: tuple[int | None, ...] = (1, 4, 9, 20, None)


def write(zone: Store, number: int, rows: list[dict[str, Any]]) -> None:
    """Write a data file with upserts."""
    content, table = io.BytesIO(), pa.Table.from_pylist(rows)
    pq.write_table(table.append_column("__rowMarker__", pa.array([4] * len(rows), pa.int32())), content)
    zone.create(f"{FOLDER}/{number:020d}.parquet", content.getvalue())


def filled(table: Table, version: int, *, files: int = 3, **metadata: Any) -> MemoryStore:
    """Return a landing zone that another publisher has filled up to `version`, and whose files Fabric has consumed."""
    zone = MemoryStore()
    zone.create(f"{FOLDER}/_metadata.json", json.dumps({"keyColumns": ["id"], **metadata}).encode())
    for number in range(1, files + 1):
        write(zone, number, table.at(version))
    return zone


def three_versions() -> Table:
    table = two_orders()
    table.update(1, status="paid")
    table.insert({"id": 3, "status": "new"})
    return table


def consumed(zone: MemoryStore) -> Mirror:
    mirror = Mirror(zone, FOLDER)
    mirror.take()
    return mirror


def everything(zone: Store, folder: str = FOLDER) -> dict[str, bytes | None]:
    found: dict[str, bytes | None] = {}
    for entry in zone.list(folder):
        path = f"{folder}/{entry.name}"
        found |= everything(zone, path) if entry.is_folder else {path: zone.read(path)}
    return found


def test_publication_continues_after_the_version_and_the_files_of_the_other_publisher() -> None:
    table = three_versions()
    zone = filled(table, 2)
    mirror = consumed(zone)
    before = everything(zone)

    record = adopt(TableFeed(table), zone, plan(), 2)

    assert before.items() <= everything(zone).items()
    assert describe_publication(record) == "version 2, by another publisher"
    assert (record.next_file_number, record.files, record.is_adoption) == (4, (), True)
    result = publish(TableFeed(table), zone, plan(target_file_size=10_000))
    assert [(each.from_version_exclusive, each.to_version_inclusive) for each in result.records] == [(2, 3)]
    assert [file.number for file in result.records[0].files] == [4]
    mirror.take()
    assert canonical(mirror.rows) == canonical(table.at(3))


def test_newest_version_is_adopted_and_nothing_is_published() -> None:
    table = three_versions()
    zone = filled(table, 3)
    consumed(zone)
    record = adopt(TableFeed(table), zone, plan(), 3)
    assert record.committed == "2026-01-01T00:03:00.000+00:00"
    assert not publish(TableFeed(table), zone, plan()).records


def _replaced(table: Table) -> Table:
    table._commit("CREATE OR REPLACE TABLE AS SELECT", table.rows, [])
    return table


def _log(zone: MemoryStore, table: Table) -> None:
    zone.remove_folder(FOLDER)
    publish(TableFeed(table), zone, plan())


def _lost_log(zone: MemoryStore, table: Table) -> None:
    _log(zone, table)
    zone.remove(f"{FOLDER}/_mirrorfeed/log.json")


def _newest(**row: Any) -> Callable[[MemoryStore, Table], None]:
    def replace_file(zone: MemoryStore, table: Table) -> None:
        zone.remove(f"{FOLDER}/{3:020d}.parquet")
        write(zone, 3, [row])

    return replace_file


@pytest.mark.parametrize(
    ("reason", "change", "options", "version"),
    [
        ("published", _log, {}, 2),
        ("empty", lambda zone, _: zone.remove(f"{FOLDER}/{3:020d}.parquet"), {}, 2),
        ("gap", lambda zone, _: zone.remove(f"{FOLDER}/_ProcessedFiles/{2:020d}.parquet"), {}, 2),
        ("waiting", lambda zone, table: write(zone, 4, table.at(2)), {}, 2),
        ("columns", _newest(id=1, state="new"), {}, 2),
        ("columns", _newest(id=1, status=2), {}, 2),
        ("columns", _newest(id=1), {}, 2),
        ("unreadable", lambda zone, _: zone.replace(f"{FOLDER}/{3:020d}.parquet", b"half"), {}, 2),
        ("option", lambda *_: None, {"changes": "compare"}, 2),
        ("version", lambda *_: None, {}, 9),
        ("replaced", lambda _, table: _replaced(table), {}, 2),
    ],
    ids=lambda value: value.__name__ if callable(value) else str(value),
)
def test_folder_that_cannot_be_continued_is_refused_and_unchanged(
    reason: str, change: Callable[[MemoryStore, Table], None], options: dict[str, Any], version: int
) -> None:
    table = three_versions()
    zone = filled(table, 2)
    consumed(zone)
    change(zone, table)
    before = everything(zone)
    with pytest.raises(AdoptionRefusedError) as caught:
        adopt(TableFeed(table), zone, plan(**options), version)
    assert caught.value.reason == reason
    assert everything(zone) == before


def test_refusals_of_a_publication_are_also_those_of_an_adoption() -> None:
    table = three_versions()
    zone = filled(table, 2, files=1)
    before = everything(zone)

    class Gap(TableFeed):
        def facts(self, published: Any, limit: int) -> Any:
            from dataclasses import replace

            facts = super().facts(published, limit)
            return replace(facts, unreadable={3: GapReason.NO_COMMIT}) if published else facts

    with pytest.raises(FeedGapError):
        adopt(Gap(table), zone, plan(), 2)
    with raises(keys_changed):
        adopt(TableFeed(table), zone, plan(keys=("status",)), 2)
    with raises(keys_changed):
        adopt(TableFeed(table), zone, plan(keys=()), 2)
    with raises(setting_changed):
        adopt(TableFeed(table), zone, plan(default_row_marker="upsert"), 2)
    shared = orders((1, "new"), (1, "paid"))
    with pytest.raises(RowsRefusedError):
        adopt(TableFeed(shared), zone, plan(), 1)
    assert everything(zone) == before


def test_keys_are_not_added_to_rows_that_were_published_without_keys() -> None:
    table = three_versions()
    zone = filled(table, 2, files=1, keyColumns=[])
    with pytest.raises(AdoptionRefusedError, match="has no key columns"):
        adopt(TableFeed(table), zone, plan(), 2)


def test_files_without_a_number_and_logs_without_an_id_are_refused() -> None:
    table = three_versions()
    zone = filled(table, 2, files=1)
    zone.create(f"{FOLDER}/part-0.parquet", b"")
    with raises(foreign_file):
        adopt(TableFeed(table), zone, plan(), 2)
    _lost_log(zone, table)
    with raises(log_id_missing):
        adopt(TableFeed(table), zone, plan(), 2)


def test_failed_proof_writes_nothing() -> None:
    table = three_versions()
    zone = filled(table, 2, files=1)
    before = everything(zone)

    def prove(record: Record) -> None:
        raise AdoptionRefusedError(
            reason="mirror", address="", table=record.source, version=record.to_version_inclusive, detail="different"
        )

    with pytest.raises(AdoptionRefusedError, match="not equal to version 2"):
        adopt(TableFeed(table), zone, plan(), 2, prove)
    assert everything(zone) == before


def test_file_that_the_other_publisher_still_writes_stops_adoption_and_publication() -> None:
    table = three_versions()
    zone = filled(table, 2, files=1)
    with pytest.raises(TransientError):
        adopt(TableFeed(table), zone, plan(), 2, lambda _: write(zone, 2, table.at(3)))
    zone.remove(f"{FOLDER}/{2:020d}.parquet")
    adopt(TableFeed(table), zone, plan(), 2)
    write(zone, 2, table.at(3))
    with pytest.raises(FileNumberConflictError):
        publish(TableFeed(table), zone, plan())


@pytest.mark.proof
def test_adoption_after_any_single_fault_completes_the_mirror(counted: Counter[str]) -> None:
    table = three_versions()
    calm = FaultyStore(_consumed_zone(table)[0], (), page=PAGE)
    adopt(TableFeed(table), calm, plan(), 2)
    faults = [
        fault for call, verb in enumerate(calm.verbs) for fault in (*faults_at(call, verb, _LATE), _deletion(call))
    ]
    assert len(faults) > 50
    for fault in faults:
        for between in (False, True):
            try:
                _play(table, fault, publishes_between=between)
            except BaseException as error:
                error.add_note(f"played with {fault}, {between=}")
                raise
            counted["crash points of adoptions"] += 1


def _consumed_zone(table: Table) -> tuple[MemoryStore, Audit, Mirror]:
    zone = filled(table, 2, files=2)
    return zone, Audit(zone, FOLDER), consumed(zone)


def _deletion(call: int) -> Fault:
    return Fault(call, FaultMode.DELETED)


def _play(table: Table, fault: Fault, *, publishes_between: bool) -> None:
    """Adopt with a fault, then adopt and publish while late calls arrive, and once more after them."""
    zone, audit, mirror = _consumed_zone(table)
    source, configured = TableFeed(table), plan()
    store = FaultyStore(zone, (fault,), delete=lambda: zone.remove_folder(FOLDER), page=PAGE)
    for _ in range(2):
        store.restart()
        with suppress(TransientError, Crash, AdoptionRefusedError):
            adopt(source, store, configured, 2)
        if publishes_between:
            _publish(source, store, configured)
    store.deliver()
    with suppress(AdoptionRefusedError):
        adopt(source, zone, configured, 2)
    _publish(source, zone, configured)
    if zone.list(FOLDER) and (log_id := audit.log_id):
        assert audit.published == table.latest, log_id
    mirror.take()
    assert canonical(mirror.rows) == canonical(table.at(table.latest))


def _publish(source: TableFeed, store: Store, configured: ConfigTable) -> None:
    """Publish. A folder that nobody has adopted yet is refused, and a deleted one is reloaded."""
    with suppress(TransientError, Crash):
        try:
            publish(source, store, configured)
        except FileNumberConflictError:
            return
        except RecordsMissingError:
            store.remove_folder(FOLDER)
            publish(source, store, configured)
