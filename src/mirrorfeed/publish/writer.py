"""What executors do: write rows into staged files, in bounded memory, and hand back a receipt for each.

Nothing here knows Spark beyond batches of Arrow; `stage` runs as well in a plain process.
"""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from mirrorfeed.landing.names import staged_name
from mirrorfeed.landing.schema import MARKER, Column, arrow_schema
from mirrorfeed.stores import Store
from mirrorfeed.stores.process import retries

_ROW_GROUP_BYTES = 32 * 2**20
_PROBLEMS_SHOWN = 5
_MARKERS = {0: "insert", 1: "update", 2: "delete", 4: "upsert"}

RECEIPT = pa.schema(
    [
        ("partition", pa.int32()),
        ("place", pa.int32()),
        ("staged", pa.string()),
        ("rows", pa.string()),
        ("bytes", pa.int64()),
        ("sha256", pa.string()),
        ("retries", pa.int32()),
        ("problem", pa.int32()),
        ("key", pa.string()),
    ]
)
RECEIPT_DDL = (
    "partition int, place int, staged string, rows string, bytes long, sha256 string, retries int, problem int,"
    " key string"
)


@dataclass(frozen=True, slots=True)
class Receipt:
    """One staged file: its place among the files of its partition, and what is in it."""

    partition: int
    place: int
    staged: str
    rows: dict[str, int]
    bytes: int
    sha256: str
    retries: int = 0
    """How often calls to the store were repeated for it."""


@dataclass(frozen=True, slots=True)
class BadRow:
    """A row that cannot be published, by its key."""

    problem: int
    key: str


@dataclass(frozen=True, slots=True)
class StagingJob:
    """Where and how executors write; travels to them by pickling."""

    store: Store
    folder: str
    """The folder of the table's log."""
    record_number: int
    batch: str
    columns: tuple[Column, ...]
    keys: tuple[str, ...]
    with_marker: bool
    compression: str
    file_size: int


def stage(
    job: StagingJob, partition: int, batches: Iterable[pa.RecordBatch], problem: str | None = None
) -> Iterator[pa.RecordBatch]:
    """Writes batches of landing rows, rolling at the target size. With the name of a problem column, rows whose
    problem is not NULL are reported instead, and the column is not written."""
    files = _Files(job, partition)
    bad: list[BadRow] = []
    try:
        for batch in batches:
            if problem is not None:
                bad += bad_rows(batch, problem, job.keys)[: _PROBLEMS_SHOWN - len(bad)]
                batch = batch.drop_columns([problem])
            if not bad:  # nothing of this batch id will be published
                files.write(batch)
        files.close()
    except BaseException:
        files.abandon()
        raise
    rows = [asdict(receipt) | {"rows": json.dumps(receipt.rows)} for receipt in files.receipts]
    yield pa.RecordBatch.from_pylist(rows + [{"partition": partition, **asdict(row)} for row in bad], RECEIPT)


def stage_empty(job: StagingJob) -> Receipt:
    """One file with a schema and no rows."""
    files = _Files(job, partition=0)
    files.open()
    files.close()
    return files.receipts[0]


def receipts_in(rows: Iterable[dict[str, Any]]) -> tuple[list[Receipt], list[BadRow]]:
    """The receipts in the order of their rows, and the first bad rows."""
    receipts, bad = [], []
    for row in rows:
        if row["problem"] is not None:
            bad.append(BadRow(row["problem"], row["key"]))
        else:
            del row["problem"], row["key"]
            receipts.append(Receipt(**row | {"rows": json.loads(row["rows"])}))
    receipts.sort(key=lambda receipt: (receipt.partition, receipt.place))
    return receipts, bad[:_PROBLEMS_SHOWN]


def bad_rows(rows: pa.RecordBatch | pa.Table, problem: str, keys: Sequence[str]) -> list[BadRow]:
    """The first rows whose problem is not NULL."""
    found = rows.column(problem)
    if found.null_count == len(found):
        return []
    shown = rows.filter(pc.is_valid(found)).slice(0, _PROBLEMS_SHOWN).select([*keys, problem]).to_pylist()
    return [BadRow(row.pop(problem), _spell(row)) for row in shown]


def _spell(key: dict[str, Any]) -> str:
    return ", ".join(f"{name} = {'NULL' if value is None else repr(value)}" for name, value in key.items())


class _Files:
    """The files of one partition: one open at a time, batches gathered into row groups."""

    def __init__(self, job: StagingJob, partition: int) -> None:
        self._job, self._partition = job, partition
        self._schema = arrow_schema(job.columns, with_marker=job.with_marker)
        self._attempt = uuid.uuid4().hex[:12]  # a task that is tried again must not write into its first try's files
        self._gathered: list[pa.RecordBatch] = []
        self._gathered_bytes = 0
        self._sink: _Counting | None = None
        self._writer: pq.ParquetWriter | None = None
        self._rows: dict[str, int] = {}
        self.receipts: list[Receipt] = []

    def write(self, batch: pa.RecordBatch) -> None:
        if batch.num_rows == 0:
            return
        batch = batch.cast(self._schema)
        self._gathered.append(batch)
        self._gathered_bytes += batch.nbytes
        if self._gathered_bytes >= min(_ROW_GROUP_BYTES, self._job.file_size):
            self._write_group()

    def open(self) -> None:
        part = f"{self._partition:05d}-{self._attempt}-{len(self.receipts):05d}"
        self._name = staged_name(self._job.record_number, self._job.batch, part)
        self._retries_before = retries().value
        self._sink = _Counting(self._job.store.open_write(f"{self._job.folder}/{self._name}"))
        self._writer = pq.ParquetWriter(self._sink, self._schema, compression=self._job.compression)
        self._rows = {}

    def close(self) -> None:
        self._write_group()
        self._close_file()

    def abandon(self) -> None:
        """After a failure: what is open is closed without a receipt."""
        if self._sink is not None:
            self._sink.close()

    def _write_group(self) -> None:
        if not self._gathered:
            return
        if self._writer is None:
            self.open()
        assert self._writer is not None
        assert self._sink is not None
        group = pa.Table.from_batches(self._gathered, self._schema)
        self._writer.write_table(group, row_group_size=max(1, group.num_rows))
        for name, count in _by_marker(group).items():
            self._rows[name] = self._rows.get(name, 0) + count
        self._gathered, self._gathered_bytes = [], 0
        if self._sink.bytes >= self._job.file_size:
            self._close_file()

    def _close_file(self) -> None:
        if self._writer is None or self._sink is None:
            return
        self._writer.close()
        self._sink.close()
        place, digest = len(self.receipts), self._sink.hash.hexdigest()
        repeated = retries().value - self._retries_before
        self.receipts.append(
            Receipt(self._partition, place, self._name, self._rows, self._sink.bytes, digest, repeated)
        )
        self._writer = self._sink = None


def _by_marker(rows: pa.Table) -> dict[str, int]:
    if MARKER not in rows.column_names:
        return {"insert": rows.num_rows}
    counted = pc.value_counts(rows.column(MARKER)).to_pylist()
    return {_MARKERS[entry["values"]]: entry["counts"] for entry in counted}


class _Counting:
    """A sink that counts and hashes what goes through it."""

    closed = False

    def __init__(self, sink: BinaryIO) -> None:
        self._sink, self.bytes, self.hash = sink, 0, hashlib.sha256()

    def write(self, data: Any) -> int:
        view = memoryview(data)
        self._sink.write(view)
        self.hash.update(view)
        self.bytes += view.nbytes
        return view.nbytes

    def tell(self) -> int:
        return self.bytes

    def flush(self) -> None:
        self._sink.flush()

    def writable(self) -> bool:
        return True

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self._sink.close()


Batches = Iterator[pa.RecordBatch]


def executor_task(job: StagingJob, problem: str) -> Callable[[Batches], Batches]:
    """The function for `mapInArrow`."""

    def task(batches: Batches) -> Batches:
        from pyspark import TaskContext

        context = TaskContext.get()
        return stage(job, context.partitionId() if context else 0, batches, problem)

    return task
