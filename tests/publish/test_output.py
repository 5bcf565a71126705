"""File order, row markers and file formats, from the publisher to the replica."""

from __future__ import annotations

import io
import itertools
import random
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from fixtures.memory import MemoryStore
from fixtures.mirror import Mirror, canonical
from mirrorfeed.config.model import Table as ConfigTable
from mirrorfeed.errors import ConcurrentPublisherError, TerminalError, TransientError
from mirrorfeed.landing.errors import upserts_without_keys
from mirrorfeed.landing.output_format import Delimited, Output
from mirrorfeed.lint.linter import lint
from mirrorfeed.mirror.local_replica import Replica
from mirrorfeed.publish.errors import equal_file_times, storage_clock_behind
from mirrorfeed.publish.files.staging_job import Staged, StagingJob
from mirrorfeed.publish.table_publisher import publish
from mirrorfeed.source.snapshot_or_range import Facts, KeyRepair, Range, Snapshot
from mirrorfeed.storage import Entry
from tests.publish.scenarios import FOLDER, one_commit, orders, plan, three_commits, two_orders
from tests.raised import raises
from tests.support.tables import Table, TableFeed


class Ticking(MemoryStore):
    """Modification times in whole seconds, one second for every few writes. Files with equal times are listed in any
    order."""

    def __init__(self, seed: int, writes_per_second: int) -> None:
        super().__init__()
        self.random, self._writes, self.pause = random.Random(seed), 0, timedelta()
        self._per_second = writes_per_second
        self.clock = self._now

    def _now(self) -> datetime:
        self._writes += 1
        return datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=self._writes // self._per_second) + self.pause


class AnyOrder:
    """The store as the service sees it: files with equal times have another order in each listing."""

    def __init__(self, store: Ticking) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def list(self, folder: str) -> list[Entry]:
        entries = self._store.list(folder)
        return [
            Entry(e.name, e.is_folder, e.size, e.modified + timedelta(milliseconds=self._store.random.random()), e.etag)
            for e in entries
        ]


def mirrored(path: Path) -> list[dict[str, Any]]:
    rows: pa.Table = DeltaTable(path).to_pyarrow_table()
    return rows.to_pylist()


@pytest.mark.parametrize("upserts", [False, True], ids=["inserts by default", "upserts by default"])
@pytest.mark.parametrize("seed", range(3))
def test_files_with_equal_times_are_applied_in_their_order(tmp_path: Path, seed: int, upserts: bool) -> None:
    store = Ticking(seed, writes_per_second=7)
    replica = Replica(AnyOrder(store), str(tmp_path))
    table = orders(*((id_, "new") for id_ in range(6)))
    form = Delimited(schema_definition=False) if seed % 2 else None
    chosen = plan(output=Output(form, True, upserts), max_versions_per_publication=1)
    ties = 0
    for round_ in range(4):
        for _ in range(store.random.randint(1, 3)):
            rows = store.random.sample(range(8), 4)
            table.merge(*({"id": id_, "status": f"round {round_} {store.random.random()}"} for id_ in rows))
            table.delete(*store.random.sample(range(8), 2))
        while True:
            try:
                publish(TableFeed(table, partitions=2, rows_per_batch=2), store, chosen)
                break
            except ConcurrentPublisherError as error:
                if not equal_file_times.matches(error):
                    raise
                ties += 1
                store.pause += timedelta(seconds=1)
        if store.random.random() < 0.5:
            replica.run_pass()
    (report,) = replica.run_pass()

    assert report.message == ""
    assert ties > 0
    assert canonical(map(_texts, mirrored(tmp_path / "sales" / "orders"))) == canonical(
        map(_texts, table.at(table.latest))
    )
    assert lint(store)[0] == []


def _texts(row: dict[str, Any]) -> dict[str, Any]:
    return {name: str(value) for name, value in row.items()}


def test_files_with_the_time_of_earlier_files_are_not_published() -> None:
    store, table = MemoryStore(), two_orders()
    chosen = plan(output=Output(by_time=True))
    publish(TableFeed(table), store, chosen)
    table.delete(1)
    with raises(equal_file_times) as tie:
        publish(TableFeed(table), store, chosen)
    assert isinstance(tie.value, TransientError)
    assert tie.value.address == f"memory:/{FOLDER}"
    store.clock = lambda: datetime(2027, 1, 1, tzinfo=UTC)
    assert len(publish(TableFeed(table), store, chosen).records) == 1


def test_publication_is_refused_until_a_clock_that_went_back_has_caught_up() -> None:
    store, table, noon = MemoryStore(), two_orders(), datetime(2026, 1, 1, 12, tzinfo=UTC)
    chosen = plan(output=Output(by_time=True))
    store.clock = lambda: noon
    publish(TableFeed(table), store, chosen)
    table.delete(1)
    before = store.copy()

    store.clock = lambda: noon - timedelta(hours=1)
    with raises(
        storage_clock_behind, match=r"2026-01-01 12:00 UTC, but .* 11:00 UTC.*publish after 2026-01-01 12:00 UTC"
    ):
        publish(TableFeed(table), store, chosen)
    assert [store.list(path) for path in (FOLDER, f"{FOLDER}/_mirrorfeed")] == [
        before.list(path) for path in (FOLDER, f"{FOLDER}/_mirrorfeed")
    ]
    store.clock = lambda: noon - timedelta(seconds=30)
    with raises(equal_file_times):
        publish(TableFeed(table), store, chosen)

    late = store.copy()
    late.clock = lambda: noon + timedelta(seconds=1)
    assert len(publish(TableFeed(table), late, chosen).records) == 1
    store.remove_folder(FOLDER)  # as `mirrorfeed rebuild` does
    store.clock = lambda: noon - timedelta(hours=1)
    assert len(publish(TableFeed(table), store, chosen).records) == 1


class Correcting(TableFeed):
    """A publication whose last file corrects the files before it."""

    def stage(self, what: Range | Snapshot | KeyRepair, facts: Facts, table: ConfigTable, job: StagingJob) -> Staged:
        staged = super().stage(what, facts, table, job)
        return staged._replace(corrections=isinstance(what, Range))


@pytest.mark.parametrize("later", [0, 1])
def test_corrections_need_a_later_time_than_earlier_files(later: int) -> None:
    store, table = MemoryStore(), two_orders()
    chosen = plan(output=Output(by_time=True))
    publish(TableFeed(table), store, chosen)
    table.delete(1, 2)
    staged = itertools.count()

    def clock() -> datetime:
        return datetime(2027, 1, 1, tzinfo=UTC) + timedelta(seconds=later * next(staged))

    store.clock = clock
    feed = Correcting(table, partitions=2, rows_per_batch=1)
    if later:
        assert publish(feed, store, chosen).files == 2
    else:
        with raises(equal_file_times):
            publish(feed, store, chosen)


def test_column_named_almost_like_the_marker_is_an_ordinary_column() -> None:
    store, table = MemoryStore(), Table({"id": "long", "__rowmarker": "long", "RowMarker": "string"}, ("id",))
    table.insert({"id": 1, "__rowmarker": 7, "RowMarker": "x"})
    publish(TableFeed(table), store, plan())
    assert lint(store)[0] == []
    table.update(1, RowMarker="y")
    publish(TableFeed(table), store, plan())
    assert lint(store)[0] == []


def test_upsert_only_files_omit_the_marker_when_upsert_is_default() -> None:
    store, table = MemoryStore(), two_orders()
    chosen = plan(output=Output(Delimited(), upserts_by_default=True), compression="none")
    publish(TableFeed(table), store, chosen)
    table.merge({"id": 1, "status": "paid"}, {"id": 3, "status": "new"})
    table.delete(2)
    progress = publish(TableFeed(table, rows_per_batch=1), store, chosen)
    files = [store.read(f"{FOLDER}/{e.name}").decode() for e in store.list(FOLDER) if e.name.endswith(".csv")]
    headers = [text.splitlines()[0] for text in files]
    assert sorted(headers) == ["id,status", "id,status", "id,status", "id,status,__rowMarker__"]
    assert [text.splitlines()[1:] for text in files if "__rowMarker__" in text] == [["2,,2"]]
    assert progress.rows == {"upsert": 2, "delete": 1}
    assert lint(store)[0] == []


def test_upserts_by_default_require_keys() -> None:
    with raises(upserts_without_keys) as caught:
        publish(TableFeed(orders(keys=())), MemoryStore(), plan(keys=(), output=Output(upserts_by_default=True)))
    assert isinstance(caught.value, TerminalError)
    assert caught.value.facts == {"table": "main.sales.orders"}


def exchange(table: Table) -> None:
    """One commit deletes and inserts the same keys."""
    table.overwrite(*({"id": row["id"], "status": "exchanged"} for row in table.rows))


def swap(table: Table) -> None:
    table.update(1, status="changed")
    table.change_keys({1: 2, 2: 1})


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (one_commit, [(2, 1), (3, 0)]),
        (three_commits, [(2, 1), (3, 0), (1, 2), (11, 0), (2, 2)]),
        (exchange, [(1, 1), (2, 1)]),
        (swap, [(1, 1), (1, 1), (2, 1)]),
    ],
)
def test_exact_row_markers_match_commits_and_never_insert_existing_keys(
    change: Callable[[Table], None], expected: list[tuple[int, int]]
) -> None:
    store, table = MemoryStore(), two_orders()
    chosen = plan(changes="full", row_markers="exact")
    publish(TableFeed(table), store, chosen)
    change(table)
    publish(TableFeed(table, rows_per_batch=2), store, chosen)

    names = [entry.name for entry in store.list(FOLDER) if entry.name.endswith(".parquet")]
    changes = [pq.read_table(io.BytesIO(store.read(f"{FOLDER}/{name}"))) for name in names[1:]]
    assert [(row["id"], row["__rowMarker__"]) for part in changes for row in part.to_pylist()] == expected
    mirror = Mirror(store, FOLDER)
    mirror.take()
    assert canonical(mirror.rows) == canonical(table.at(table.latest))
    assert lint(store)[0] == []
