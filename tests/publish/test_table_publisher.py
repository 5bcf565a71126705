from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest

from fixtures.faults import FaultyStore
from fixtures.memory import MemoryStore
from fixtures.mirror import Mirror
from mirrorfeed.config.model import Table as ConfigTable
from mirrorfeed.landing.names import published_name
from mirrorfeed.publish import table_publisher
from mirrorfeed.publish.errors import RowsRefusedError
from mirrorfeed.publish.files.staging_job import BadRow, Staged, StagingJob
from mirrorfeed.publish.key_repair import repair
from mirrorfeed.publish.table_log import TableLog
from mirrorfeed.publish.table_publisher import publish
from mirrorfeed.publish.table_result import TableResult
from mirrorfeed.source.errors import SourceRecreatedError
from mirrorfeed.source.snapshot_or_range import Facts, KeyRepair, PublishedVersion, Range, Snapshot
from tests.publish.scenarios import FOLDER, one_commit, orders, plan, two_orders
from tests.support.tables import Table, TableFeed


@dataclass
class Exchanged:
    """A source whose name moves to another table while its rows are read."""

    table: Table
    other: Table

    def facts(self, published: PublishedVersion | None, limit: int) -> Facts:
        return TableFeed(self.table).facts(published, limit)

    def is_unchanged(self, facts: Facts) -> bool:
        return self.table.id == facts.table_id

    def schema(self, version: int, facts: Facts) -> dict[str, Any]:
        return TableFeed(self.table).schema(version, facts)

    def bad_keys(self, version: int, table: ConfigTable) -> list[BadRow]:
        return []

    def check(self, what: Range | Snapshot, facts: Facts) -> None: ...

    def stage(self, what: Range | Snapshot | KeyRepair, facts: Facts, table: ConfigTable, job: StagingJob) -> Staged:
        self.table = self.other
        return TableFeed(self.table).stage(what, facts, table, job)


class Repeating(TableFeed):
    """Threads that repeat one store call for each file of a range, and three for a file of a snapshot."""

    def stage(self, what: Range | Snapshot | KeyRepair, facts: Facts, table: ConfigTable, job: StagingJob) -> Staged:
        staged = super().stage(what, facts, table, job)
        return staged._replace(retries=3 if isinstance(what, Snapshot) else len(staged.files))


def another() -> Table:
    table = orders((7, "of another table"))
    one_commit(table)
    table.id = "another id"
    return table


def test_first_publication_restarts_if_the_source_is_replaced() -> None:
    store, other = MemoryStore(), another()
    progress = publish(Exchanged(two_orders(), other), store, plan())
    mirror = Mirror(store, FOLDER)
    mirror.take()
    assert len(progress.records) == 1
    assert sorted(row["id"] for row in mirror.rows) == [2, 3, 7]


def test_metadata_file_is_written_if_the_folder_was_deleted_before_the_log_was_created() -> None:
    store, table, metadata = MemoryStore(), two_orders(), f"{FOLDER}/_metadata.json"
    publish(TableFeed(table), store, plan())
    found = store.read(metadata)
    store.remove_folder(FOLDER)
    store.create(metadata, found)

    def delete(verb: str) -> None:
        if verb == "create_once":
            store.remove_folder(FOLDER)

    publish(TableFeed(table), FaultyStore(store, before=delete), plan())
    assert store.read(metadata) == found


def test_changes_of_a_replaced_source_are_not_published() -> None:
    store, table = MemoryStore(), two_orders()
    publish(TableFeed(table), store, plan())
    files = [entry.name for entry in store.list(FOLDER)]
    one_commit(table)
    with pytest.raises(SourceRecreatedError):
        publish(Exchanged(table, another()), store, plan(target_file_size=10_000))
    assert [entry.name for entry in store.list(FOLDER)] == files


@dataclass
class RebuiltMeanwhile(MemoryStore):
    """Another process deletes the table and publishes it anew after the next read of `log.json`."""

    table: Table | None = None

    def __post_init__(self) -> None:
        super().__init__()

    def read(self, path: str) -> bytes:
        content = super().read(path)
        if self.table and path.endswith("/log.json"):
            table, self.table = self.table, None
            self.remove_folder(FOLDER)
            publish(TableFeed(table), self, plan())
        return content


def test_table_that_is_published_anew_while_its_log_is_read_is_repaired() -> None:
    store, table = RebuiltMeanwhile(), two_orders()
    publish(TableFeed(table), store, plan())
    store.table = table
    repaired = repair(TableFeed(table), store, plan(), [((1,), True)])
    assert [record.is_repair for record in repaired.records] == [True]


@pytest.mark.parametrize("run", [publish, partial(repair, keys=[(1,)])])
def test_lag_behind_a_recreated_source_is_unknown(run: Callable[..., TableResult]) -> None:
    store, table = MemoryStore(), two_orders()
    one_commit(table)
    published = publish(TableFeed(table), store, plan())
    result = replace(published, records=[])
    with pytest.raises(SourceRecreatedError):
        run(TableFeed(another()), store, plan(), result=result)
    assert (replace(published).lag_versions, replace(result).lag_versions) == (0, None)


@pytest.mark.parametrize(("ids", "reason"), [((1, 1, 2), "a key is not unique"), ((None, 2), "a key is NULL")])
def test_later_keys_must_be_valid_for_existing_rows(ids: tuple[Any, ...], reason: str) -> None:
    store, table = MemoryStore(), Table({"id": "long", "status": "string"}, ())
    table.insert(*({"id": id_, "status": "new"} for id_ in ids))
    publish(TableFeed(table), store, plan(keys=()))
    table.insert({"id": 3, "status": "new"})
    before = [entry.name for entry in store.list(FOLDER)], store.read(f"{FOLDER}/_metadata.json")
    with pytest.raises(RowsRefusedError, match=rf"cannot be published: at version 1 {reason}"):
        publish(TableFeed(table), store, plan())
    assert ([entry.name for entry in store.list(FOLDER)], store.read(f"{FOLDER}/_metadata.json")) == before
    publish(TableFeed(table), store, plan(validate_keys="none"))
    assert store.read(f"{FOLDER}/_metadata.json") == b'{"keyColumns": ["id"]}'


def test_publication_counts_retries_of_its_own_files() -> None:
    store, table = MemoryStore(), two_orders()
    first = publish(Repeating(table), store, plan())
    one_commit(table)
    table.update(1, 2, status="later")
    progress = publish(Repeating(table, rows_per_batch=1), store, plan(max_versions_per_publication=1))
    publications = [(result.measured[each.batch], each) for result in (first, progress) for each in result.records]
    assert [(len(record.files), measured["retries"]) for measured, record in publications] == [(1, 3), (2, 2), (2, 2)]


def test_publication_measures_its_lag_when_its_record_is_created(monkeypatch: pytest.MonkeyPatch) -> None:
    table, noon = two_orders(), datetime(2026, 1, 1, 12, tzinfo=UTC)
    one_commit(table)
    first, committed = table.latest, datetime(2026, 1, 1, tzinfo=UTC) + timedelta(minutes=table.latest)
    monkeypatch.setattr(table_publisher, "utc_now", lambda: noon)
    result = publish(TableFeed(table), MemoryStore(), plan())
    (record,) = result.records
    measured = result.measured[record.batch]
    assert (record.to_version_inclusive, measured["lag_versions"]) == (first, 0)
    assert measured["lag_seconds"] == (noon - committed).total_seconds()
    assert set(measured) == {
        *("stage_seconds", "record_seconds", "rename_seconds", "lag_seconds", "lag_versions", "retries")
    }


def test_staged_file_that_appears_again_after_its_rename_is_no_publication_of_the_next_run() -> None:
    feed, store = TableFeed(two_orders()), MemoryStore()
    (record,) = publish(feed, store, plan()).records
    log_id = TableLog(store, FOLDER).current_id()
    # A request to create the file took effect after the rename.
    store.create(f"{FOLDER}/_mirrorfeed/{log_id}/{record.files[0].staged}", b"")
    again = publish(feed, store, plan())
    assert (again.records, again.is_idle) == ([], True)


def test_publication_of_a_killed_run_is_reported_by_the_run_that_renames_its_files() -> None:
    feed, store = TableFeed(two_orders()), MemoryStore()
    (record,) = publish(feed, store, plan()).records
    staged = f"{FOLDER}/_mirrorfeed/{TableLog(store, FOLDER).current_id()}/{record.files[0].staged}"
    store.rename(f"{FOLDER}/{published_name(1, record.files[0].staged)}", staged)
    assert [publish(feed, store, plan()).records for _ in range(2)] == [[record], []]
