"""Files that the driver sends for executors: the parts, the lots, and what is held against receipts."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product
from typing import Any, BinaryIO

import pyarrow as pa
import pytest

from fixtures.memory import MemoryStore
from mirrorfeed.landing.schema import Column
from mirrorfeed.publish.carry import InResult, PartsLost, ResultTooLarge, lots, send
from mirrorfeed.publish.parts import PART_BYTES, Parts
from mirrorfeed.publish.writer import CARRIED, Receipt, StagingJob, receipts_in, stage
from mirrorfeed.stores import StoreUnavailable

FOLDER = "orders/_mirrorfeed/abc"
MIB = 2**20


def job(store: MemoryStore, **other: Any) -> StagingJob:
    facts: dict[str, Any] = {
        "store": store,
        "folder": FOLDER,
        "record_number": 3,
        "batch": "ba7c4",
        "columns": (Column("id", "long"), Column("text", "string")),
        "keys": ("id",),
        "with_marker": False,
        "compression": "none",
        "file_size": 3 * MIB,
    }
    return StagingJob(**facts | other)


def rows(count: int) -> list[pa.RecordBatch]:
    texts = [hashlib.sha256(str(id_).encode()).hexdigest() for id_ in range(count)]
    whole = pa.RecordBatch.from_pydict({"id": pa.array(range(count), pa.int64()), "text": pa.array(texts)})
    return [whole.slice(start, 10_000) for start in range(0, count, 10_000)]


class Held:
    """What tasks gave, as rows, in any order."""

    def __init__(self, batches: Sequence[pa.RecordBatch]) -> None:
        given = [row for batch in batches for row in batch.to_pylist()]
        self.rows = [row for row in given if row["part"] is None]
        self.given = {(row["staged"], row["part"]): row["data"] for row in given if row["part"] is not None}
        self.asked: list[tuple[int, int, int]] = []

    def parts(self, names: Sequence[str], first: int, end: int) -> Iterator[tuple[str, bytes]]:
        self.asked.append((len(names), first, end))
        for name, number in product(names, range(first, end)):
            if (name, number) in self.given:
                yield name, self.given[name, number]


def content(store: MemoryStore) -> list[bytes]:
    return [store.read(f"{FOLDER}/{entry.name}") for entry in store.list(FOLDER)]


def test_the_driver_sends_the_same_files_with_the_same_receipts_that_executors_would_write() -> None:
    direct, carried = MemoryStore(), MemoryStore()
    told, _ = receipts_in(row for batch in stage(job(direct), 0, rows(100_000)) for row in batch.to_pylist())

    given = list(stage(job(carried).carried(), 0, rows(100_000)))
    held = Held(given)
    receipts, bad = receipts_in(held.rows)
    sent = send(job(carried), receipts, held)

    assert len(sent) > 2
    assert bad == []
    assert [replace(each, staged="") for each in sent] == [replace(each, staged="") for each in told]
    assert [carried.read(f"{FOLDER}/{each.staged}") for each in sent] == [
        direct.read(f"{FOLDER}/{each.staged}") for each in told
    ]
    assert all(batch.schema == CARRIED for batch in given)
    assert {len(data) for data in held.given.values() if len(data) != PART_BYTES} != set()
    assert max(map(len, held.given.values())) == PART_BYTES
    assert max(batch.nbytes for batch in given) < 2 * MIB


def test_parts_leave_a_task_as_they_fill_up() -> None:
    given = stage(job(MemoryStore(), file_size=MIB).carried(), 0, rows(200_000))
    taken = [batch["part"][0].as_py() is not None for batch in given]

    assert taken.count(True) > 10
    assert taken[-1] is False
    assert taken[:-1] == [True] * (len(taken) - 1)


def test_a_job_whose_files_are_carried_names_nobody_and_no_place() -> None:
    assert job(MemoryStore()).carried().store == Parts()


def receipt(size: int, staged: str = "a", sha256: str = "") -> Receipt:
    return Receipt(0, 0, staged, {}, size, sha256)


@pytest.mark.parametrize(
    ("mib", "found"),
    [
        ([], []),
        ([1], [1]),
        ([1, 2, 3], [3]),
        ([1] * 9, [8, 1]),
        ([10, 6, 1], [2, 1]),
        ([10, 7], [1, 1]),
        ([128, 1, 1], [1, 2]),
        ([1, 128, 1], [1, 1, 1]),
    ],
)
def test_small_files_are_fetched_together_and_large_ones_alone(mib: list[int], found: list[int]) -> None:
    receipts = [receipt(count * MIB, str(n)) for n, count in enumerate(mib)]

    assert [len(lot) for lot in lots(receipts)] == found
    assert [each for lot in lots(receipts) for each in lot] == receipts


def test_a_large_file_is_fetched_in_slices() -> None:
    store = MemoryStore()
    held = Held(list(stage(job(store, file_size=100 * MIB).carried(), 0, rows(900_000))))
    receipts, _ = receipts_in(held.rows)

    send(job(store), receipts, held)

    assert len(receipts) == 1
    assert held.asked == [(1, 0, 64 * MIB // PART_BYTES), (1, 64 * MIB // PART_BYTES, 128 * MIB // PART_BYTES)]


@pytest.mark.parametrize("damage", ["lost", "other"])
def test_a_file_that_is_not_as_its_receipt_says_is_no_file(damage: str) -> None:
    store = MemoryStore()
    held = Held(list(stage(job(store).carried(), 0, rows(1000))))
    (told,), _ = receipts_in(held.rows)
    name = told.staged, 0
    if damage == "lost":
        del held.given[name]
    else:
        held.given[name] = bytes(len(held.given[name]))

    with pytest.raises(PartsLost) as lost:
        send(job(store), [told], held)

    found = f"{told.bytes - PART_BYTES:,} of {told.bytes:,} bytes" if damage == "lost" else "other bytes"
    assert str(lost.value) == (
        f"Executors made the file {told.staged}, and {found} of it are there for the driver. Nothing of its range is"
        " published. See that nobody else changes the handover folder, and publish again."
    )


class Reluctant(MemoryStore):
    """Takes files only after so many refusals."""

    def __init__(self, refusals: int) -> None:
        super().__init__()
        self.refusals, self.names = refusals, []  # type: ignore[var-annotated]

    def open_write(self, path: str) -> BinaryIO:
        self.names.append(path)
        if len(self.names) <= self.refusals:
            raise StoreUnavailable("write", path, "the service is busy")
        return super().open_write(path)


def test_a_file_that_was_not_taken_is_begun_again_under_another_name() -> None:
    store = Reluctant(refusals=1)
    held = Held(list(stage(job(store).carried(), 0, rows(1000))))

    (sent,) = send(job(store), receipts_in(held.rows)[0], held)

    assert len(set(store.names)) == 2
    assert store.names[1].endswith(sent.staged)
    assert hashlib.sha256(content(store)[0]).hexdigest() == sent.sha256


def test_a_file_that_is_refused_again_and_again_fails_the_staging() -> None:
    store = Reluctant(refusals=9)
    held = Held(list(stage(job(store).carried(), 0, rows(1000))))

    with pytest.raises(StoreUnavailable):
        send(job(store), receipts_in(held.rows)[0], held)


class Result:
    def __init__(self, said: str) -> None:
        self._said = said

    def toLocalIterator(self) -> None:
        raise RuntimeError(self._said)


def test_a_result_that_is_too_large_asks_for_a_handover() -> None:
    said = "Job aborted: Total size of serialized results of 9 tasks is bigger than spark.driver.maxResultSize 1 GiB"
    with pytest.raises(ResultTooLarge) as refused, InResult().keep(Result(said), job(MemoryStore())):  # type: ignore[arg-type]
        pass
    assert str(refused.value) == (
        "The files of one publication are more than Spark gives as the result of a query (spark.driver.maxResultSize)."
        " Nothing of it is published. Set `handover` to a volume, /Volumes/catalog/schema/volume, and publish again."
    )


def test_other_failures_of_the_query_are_passed_on() -> None:
    with (
        pytest.raises(RuntimeError, match="no such table"),
        InResult().keep(Result("no such table"), job(MemoryStore())),
    ):  # type: ignore[arg-type]
        pass
