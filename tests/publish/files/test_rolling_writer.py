from __future__ import annotations

import gc
import hashlib
import io
import warnings
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fixtures.faults import Fault, FaultyStore, Mode
from fixtures.memory import MemoryStore
from mirrorfeed.landing.log_record import File
from mirrorfeed.landing.names import staged_record_number
from mirrorfeed.landing.output_format import AS_PARQUET, Delimited, Output
from mirrorfeed.landing.schema import Column
from mirrorfeed.publish.files.rolling_writer import write_empty, write_files
from mirrorfeed.publish.files.staging_job import BadRow, BadRows, StagingJob
from mirrorfeed.publish.rows_and_markers import PROBLEM
from mirrorfeed.storage import Writer
from mirrorfeed.storage.errors import StorageUnavailableError
from tests.support.tables import stage_small_batch

COLUMNS = (Column("id", "long"), Column("text", "string"))


def job(store: MemoryStore | FaultyStore, **other: Any) -> StagingJob:
    output = other.pop("output", Output(compression="snappy", target_file_size=2**20))
    options = {name: other.pop(name) for name in ("compression", "target_file_size") if name in other}
    return replace(
        StagingJob(
            store=store,
            folder="orders/_mirrorfeed/abc",
            record_number=3,
            batch="ba7c4",
            columns=COLUMNS,
            keys=("id",),
            with_marker=True,
            output=replace(output, **options),
        ),
        **other,
    )


def batch(ids: list[int | None], marker: int = 4, problems: list[int | None] | None = None) -> pa.RecordBatch:
    columns = {
        "id": pa.array(ids, pa.int64()),
        "text": pa.array([f"order {id_}" for id_ in ids]),
        "__rowMarker__": pa.array([marker] * len(ids), pa.int32()),
    }
    if problems is not None:
        columns[PROBLEM] = pa.array(problems, pa.int32())
    return pa.RecordBatch.from_pydict(columns)


def content(store: MemoryStore, receipt: File) -> pa.Table:
    return pq.read_table(io.BytesIO(store.read(f"orders/_mirrorfeed/abc/{receipt.staged}")))


def test_row_marker_is_last_int32_column_and_all_columns_are_nullable() -> None:
    store = MemoryStore()

    (receipt,) = write_files(job(store), [batch([1])])

    schema = pq.read_schema(io.BytesIO(store.read(f"orders/_mirrorfeed/abc/{receipt.staged}")))
    assert [(field.name, field.type) for field in schema] == [
        ("id", pa.int64()),
        ("text", pa.string()),
        ("__rowMarker__", pa.int32()),
    ]
    assert all(field.nullable for field in schema)


def test_snapshot_has_no_row_marker() -> None:
    store = MemoryStore()

    (receipt,) = write_files(job(store, with_marker=False), [batch([1, 2]).drop_columns(["__rowMarker__"])])

    assert content(store, receipt).column_names == ["id", "text"]
    assert receipt.rows == {"insert": 2}


def test_source_types_are_cast_to_landing_zone_types() -> None:
    store = MemoryStore()
    rows = pa.RecordBatch.from_pydict(
        {
            "id": pa.array([1], pa.int32()),
            "text": pa.array(["a"], pa.large_string()),
            "__rowMarker__": pa.array([4], pa.int64()),
        }
    )

    (receipt,) = write_files(job(store), [rows])

    assert [field.type for field in content(store, receipt).schema] == [pa.int64(), pa.string(), pa.int32()]


def test_receipt_describes_the_file() -> None:
    store = MemoryStore()

    (receipt,) = write_files(job(store), [batch([1, 2]), batch([3], marker=2), batch([4], marker=4)])

    data = store.read(f"orders/_mirrorfeed/abc/{receipt.staged}")
    assert receipt.rows == {"upsert": 3, "delete": 1}
    assert (receipt.bytes, receipt.sha256) == (len(data), hashlib.sha256(data).hexdigest())
    assert staged_record_number(receipt.staged) == 3
    assert receipt.staged.split("-")[1] == "ba7c4"


def test_row_order_is_preserved_across_files_of_target_size() -> None:
    store = MemoryStore()
    batches = [batch(list(range(start, start + 500))) for start in range(0, 20_000, 500)]

    receipts = write_files(job(store, target_file_size=20_000, compression="none"), batches)

    assert len(receipts) > 5
    assert all(18_000 <= receipt.bytes < 24_000 for receipt in receipts[:-1])
    assert [id_ for receipt in receipts for id_ in content(store, receipt)["id"].to_pylist()] == list(range(20_000))


@pytest.mark.parametrize("form", [AS_PARQUET, Output(Delimited())], ids=["Parquet", "text"])
@pytest.mark.parametrize("compression", ["none", "snappy", "gzip", "zstd"])
def test_large_batch_is_split_into_files_near_target_size(form: Output, compression: str) -> None:
    store = MemoryStore()
    words = [f"{hashlib.sha256(str(id_).encode()).hexdigest()[:20]} and what repeats" for id_ in range(60_000)]
    rows = batch(list(range(60_000))).set_column(1, "text", pa.array(words))

    receipts = write_files(job(store, target_file_size=100_000, compression=compression, output=form), [rows])

    assert len(receipts) > 5
    assert [receipt.bytes for receipt in receipts[:-1] if not 90_000 <= receipt.bytes < 115_000] == []
    assert sum(count for receipt in receipts for count in receipt.rows.values()) == 60_000


def test_small_target_file_size_is_respected_with_wide_rows() -> None:
    store = MemoryStore()
    rows = batch([1, 2, 3]).set_column(1, "text", pa.array(["x" * 50_000] * 3))

    receipts = write_files(job(store, target_file_size=1024, compression="none"), [rows])

    assert [receipt.rows for receipt in receipts] == [{"upsert": 1}] * 3


def test_only_repeating_columns_have_dictionaries_and_all_have_statistics() -> None:
    store = MemoryStore()
    columns = (*COLUMNS, Column("a.b", "date"), Column("price", "double"))
    rows = batch([1, 2])
    rows = pa.RecordBatch.from_arrays(
        [*rows.columns[:2], pa.array([1, 2], pa.date32()), pa.array([0.5, 1.5]), rows.column(2)],
        names=["id", "text", "a.b", "price", "__rowMarker__"],
    )

    (receipt,) = write_files(job(store, columns=columns), [rows])

    group = pq.read_metadata(io.BytesIO(store.read(f"orders/_mirrorfeed/abc/{receipt.staged}"))).row_group(0)
    found = [group.column(at) for at in range(group.num_columns)]
    assert [column.has_dictionary_page for column in found] == [False, True, True, False, True]
    assert all(column.is_stats_set and column.statistics.has_min_max for column in found)


def test_small_batches_are_combined_into_one_row_group() -> None:
    store = MemoryStore()

    (receipt,) = write_files(job(store), [batch([id_]) for id_ in range(100)])

    assert pq.read_metadata(io.BytesIO(store.read(f"orders/_mirrorfeed/abc/{receipt.staged}"))).num_row_groups == 1


@pytest.mark.parametrize("batches", [[], [batch([])]])
def test_no_file_is_written_without_rows(batches: list[pa.RecordBatch]) -> None:
    store = MemoryStore()

    assert write_files(job(store), batches) == []
    assert store.list("orders/_mirrorfeed/abc") == []


def test_empty_file_has_a_schema_and_no_rows() -> None:
    store = MemoryStore()

    receipt = write_empty(job(store, with_marker=False))

    assert content(store, receipt).schema.names == ["id", "text"]
    assert content(store, receipt).num_rows == 0
    assert receipt.rows == {}


def test_at_most_five_bad_rows_are_reported_by_key() -> None:
    store = MemoryStore()
    rows = [batch([1, None], problems=[None, 1]), batch([2, *range(3, 20)], problems=[2] * 18)]

    with pytest.raises(BadRows) as caught:
        stage_small_batch(pa.Table.from_batches(rows), job(store))

    assert caught.value.rows[:2] == (BadRow(1, "id = NULL"), BadRow(2, "id = 2"))
    assert len(caught.value.rows) == 5
    assert store.list("orders/_mirrorfeed/abc") == []


def test_problem_column_is_not_written() -> None:
    store = MemoryStore()

    (receipt,), *_ = stage_small_batch(pa.Table.from_batches([batch([1], problems=[None])]), job(store))

    assert content(store, receipt).column_names == ["id", "text", "__rowMarker__"]


def test_unique_keys_are_checked_for_any_column_name() -> None:
    store = MemoryStore()
    columns = (Column(".id", "long"), Column("a.b", "string"))
    names = [".id", "a.b", PROBLEM]
    rows = pa.table([[1, 2, 1, 1], ["a", "a", "b", "a"], pa.nulls(4, pa.int32())], names)

    with pytest.raises(BadRows) as caught:
        stage_small_batch(rows, job(store, columns=columns, keys=(".id", "a.b"), with_marker=False), (".id", "a.b"))

    assert caught.value.rows == (BadRow(2, ".id = 1, a.b = 'a'"),)
    assert store.list("orders/_mirrorfeed/abc") == []


def test_retried_task_writes_under_other_names() -> None:
    store = MemoryStore()

    (first,) = write_files(job(store), [batch([1])])
    (second,) = write_files(job(store), [batch([1])])

    assert first.staged != second.staged
    assert first.sha256 == second.sha256


@pytest.fixture(scope="module")
def left_alone() -> Iterator[None]:
    """Exclude objects of earlier tests from garbage collection, because there may be many thousands."""
    yield
    gc.unfreeze()


@pytest.fixture
def without_garbage(left_alone: None) -> None:
    """Collect the garbage of earlier tests first, so that their warnings do not appear in this one."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        gc.collect()
    gc.freeze()


@pytest.mark.usefixtures("without_garbage")
@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("compression", ["none", "snappy", "gzip", "zstd"])
@pytest.mark.parametrize("form", [AS_PARQUET, Output(Delimited())], ids=["Parquet", "text"])
def test_failed_write_fails_the_task_without_a_receipt(form: Output, compression: str) -> None:
    options: dict[str, Any] = {"output": form, "compression": compression}
    rows = batch(list(range(300)))
    calm = FaultyStore(MemoryStore())
    write_files(job(calm, **options), [rows])

    for call, verb in enumerate(calm.verbs):
        mode = Mode.REFUSED if verb == "open_write" else Mode.SHORT
        with pytest.raises(StorageUnavailableError):
            write_files(job(FaultyStore(MemoryStore(), [Fault(call, mode)]), **options), [rows])
        gc.collect()
    assert len(calm.verbs) > 3


@pytest.mark.usefixtures("without_garbage")
@pytest.mark.filterwarnings("error")
def test_failing_row_iterator_leaves_no_open_file() -> None:
    store = FaultyStore(MemoryStore())

    def rows() -> Iterator[pa.RecordBatch]:
        yield batch([1])
        raise ValueError("the feed broke off")

    with pytest.raises(ValueError, match="the feed broke off"):
        write_files(job(store, target_file_size=1), rows())
    with pytest.raises(ValueError, match="the feed broke off"):
        write_files(job(store, target_file_size=10_000), rows())
    gc.collect()
    assert store.verbs.count("open_write") == store.verbs.count("close")


class Nowhere(Writer):
    def send(self, data: memoryview) -> None:
        pass

    def finish(self) -> None:
        pass


class Bottomless(MemoryStore):
    def open_write(self, path: str) -> Nowhere:
        return Nowhere()


@pytest.mark.process
def test_memory_does_not_grow_with_row_count() -> None:
    rows = pa.RecordBatch.from_pydict(
        {
            "id": pa.array(range(50_000), pa.int64()),
            "text": pa.array([f"{id_:090d}" for id_ in range(50_000)]),
            "__rowMarker__": pa.array([4] * 50_000, pa.int32()),
        }
    )
    held = []

    def batches() -> Iterator[pa.RecordBatch]:
        for _ in range(60):
            held.append(pa.total_allocated_bytes())
            yield pa.RecordBatch.from_struct_array(rows.to_struct_array().take(pa.array(range(50_000))))

    receipts = write_files(job(Bottomless(), target_file_size=100 * 2**20, compression="none"), batches())

    assert sum(receipt.bytes for receipt in receipts) > 200 * 2**20
    assert max(held) - held[0] < 120 * 2**20
