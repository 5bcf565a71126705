"""What executors do: write rows into staged files, in bounded memory, and hand back a receipt for each.

Files go to the landing zone; or, with `Parts` in its place, they leave as rows before their receipts, for the driver
to send on. Nothing here knows Spark beyond batches of Arrow; `stage` runs as well in a plain process.
"""

from __future__ import annotations

import hashlib
import json
import reprlib
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import islice
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.compute as pc

from mirrorfeed.landing.arrow import arrow_schema, told
from mirrorfeed.landing.delimited import UnwritableValue
from mirrorfeed.landing.names import staged_name
from mirrorfeed.landing.output import AS_PARQUET, Output
from mirrorfeed.landing.rows import Marker, Problem
from mirrorfeed.landing.schema import MARKER, Column
from mirrorfeed.publish import unique
from mirrorfeed.publish.forms import Form, ParquetForm, TextForm
from mirrorfeed.publish.parts import Parts
from mirrorfeed.stores.anew import NewFile, Sink
from mirrorfeed.stores.process import retries

_ROW_GROUP_BYTES = 32 * 2**20
_GATHERED, _GATHERED_BYTES = 20, 2**22
"""Batches that are looked at together, at most; and in bytes of memory, from when on no more are added."""
_LEAST_CUT = 2**10
"""In bytes of memory: batches are not cut into smaller pieces."""
_NEARLY_FULL = 0.9
"""A file ends once it has this share of the target size, for the rest would make a small row group."""
_PROBLEMS_SHOWN = 5
_PARTS_GIVEN = 1000
"""At a time."""

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
        ("hashes", pa.binary()),
    ]
)
RECEIPT_DDL = (
    "partition int, place int, staged string, rows string, bytes long, sha256 string, retries int, problem int,"
    " key string, hashes binary"
)
CARRIED = pa.schema([*RECEIPT, ("part", pa.int32()), ("data", pa.binary())])
CARRIED_DDL = f"{RECEIPT_DDL}, part int, data binary"
"""Receipts, and between them the parts of their files, which have a number."""


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

    problem: Problem
    key: str


@dataclass(frozen=True, slots=True)
class StagingJob:
    """Where and how files are written; travels to executors by pickling."""

    store: Sink
    folder: str
    """The folder of the table's log."""
    record_number: int
    batch: str
    columns: tuple[Column, ...]
    keys: tuple[str, ...]
    with_marker: bool
    compression: str
    file_size: int
    output: Output = AS_PARQUET

    def carried(self) -> StagingJob:
        """The same without a place of its own, and so without a word of who may write there."""
        return replace(self, store=Parts())

    def open(self, partition: int, place: int) -> NewFile:
        """A file under a staged name that nobody has used: neither a task that is tried again nor a creation that takes
        effect late meets a file of another try."""

        def new_path() -> str:
            part = f"{partition:05d}-{uuid.uuid4().hex[:12]}-{place:05d}"
            name = staged_name(self.record_number, self.batch, part, self.output.suffix(self.compression))
            return f"{self.folder}/{name}"

        return NewFile(self.store, new_path)


def stage(
    job: StagingJob,
    partition: int,
    batches: Iterable[pa.RecordBatch],
    problem: str | None = None,
    key_hash: str | None = None,
) -> Iterator[pa.RecordBatch]:
    """Writes batches of landing rows, rolling at the target size. With the name of a problem column, rows whose
    problem is not NULL are reported instead, and the column is not written. Neither is one of hashes of keys, which
    are handed back."""
    files, schema = _Files(job, partition), CARRIED if isinstance(job.store, Parts) else RECEIPT
    bad: list[BadRow] = []
    try:
        for batch in _gathered(batches, min(_GATHERED_BYTES, job.file_size)):
            if problem is not None:
                bad += bad_rows(batch, problem, job.keys)[: _PROBLEMS_SHOWN - len(bad)]
                batch = batch.drop_columns([problem])
            if key_hash is not None:
                hashes = unique.packed(batch.column(key_hash))
                yield pa.RecordBatch.from_pylist([{"partition": partition, "hashes": hashes}], schema)
                batch = batch.drop_columns([key_hash])
            for piece in _pieces(batch):
                if bad:  # nothing of this batch id will be published
                    break
                files.write(piece)
                yield from _parts(job)
        if not bad:
            files.close()
            yield from _parts(job)
        else:
            files.abandon()
    except _UnwritableRow as error:
        bad.append(error.row)
        files.abandon()
    except BaseException:
        files.abandon()
        raise
    rows = [asdict(receipt) | {"rows": json.dumps(receipt.rows)} for receipt in files.receipts]
    rows += [{"partition": partition, **asdict(row)} for row in bad]
    yield pa.RecordBatch.from_pylist(rows, schema)


def _gathered(batches: Iterable[pa.RecordBatch], most: int) -> Iterator[pa.RecordBatch]:
    """Small ones together, up to so many bytes: what is done with each takes as long for a few rows as for many."""
    some: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        some.append(batch)
        size += batch.nbytes
        if size >= most or len(some) == _GATHERED:
            yield from _one_of(some)
            some, size = [], 0
    if some:
        yield from _one_of(some)


def _one_of(batches: Sequence[pa.RecordBatch]) -> Sequence[pa.RecordBatch]:
    return batches if len(batches) == 1 else pa.Table.from_batches(batches).combine_chunks().to_batches()


def _pieces(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Of about the size of a row group, so that what is made of a batch at a time is bounded."""
    rows = max(1, _ROW_GROUP_BYTES * batch.num_rows // max(1, batch.nbytes))
    for start in range(0, max(1, batch.num_rows), rows):
        yield batch.slice(start, rows)


def _parts(job: StagingJob) -> Iterator[pa.RecordBatch]:
    if isinstance(job.store, Parts):
        parts = job.store.take()
        while some := [
            {"staged": name, "part": part, "data": data} for name, part, data in islice(parts, _PARTS_GIVEN)
        ]:
            yield pa.RecordBatch.from_pylist(some, CARRIED)


def stage_empty(job: StagingJob) -> Receipt:
    """One file with a schema and no rows, written from here."""
    files = _Files(job, partition=0)
    files.open()
    files.close()
    return files.receipts[0]


def receipts_in(rows: Iterable[dict[str, Any]]) -> tuple[list[Receipt], list[BadRow]]:
    """The receipts in the order of their rows, and the first bad rows."""
    receipts, bad = [], []
    for row in rows:
        if row["problem"] is not None:
            bad.append(BadRow(Problem(row["problem"]), row["key"]))
        elif row["hashes"] is None:
            facts = {name: row[name] for name in Receipt.__slots__}
            receipts.append(Receipt(**facts | {"rows": json.loads(row["rows"])}))
    receipts.sort(key=lambda receipt: (receipt.partition, receipt.place))
    return receipts, bad[:_PROBLEMS_SHOWN]


def bad_rows(rows: pa.RecordBatch | pa.Table, problem: str, keys: Sequence[str]) -> list[BadRow]:
    """The first rows whose problem is not NULL."""
    found = rows.column(problem)
    if found.null_count == len(found):
        return []
    bad = rows.filter(pc.is_valid(found)).slice(0, _PROBLEMS_SHOWN)
    problems = bad.column(problem).to_pylist()
    return [BadRow(Problem(each), told(bad.select(keys), at)) for at, each in enumerate(problems)]


class _UnwritableRow(Exception):
    def __init__(self, row: BadRow) -> None:
        super().__init__(row)
        self.row = row


class _Files:
    """The files of one partition: one open at a time, batches cut and gathered into groups that fill it."""

    def __init__(self, job: StagingJob, partition: int) -> None:
        self._job, self._partition = job, partition
        self._schema = arrow_schema(job.columns, with_marker=job.with_marker)
        self._gathered: list[pa.RecordBatch] = []
        self._gathered_bytes = 0
        self._file: NewFile | None = None
        self._sink: Counting | None = None
        self._form: Form | None = None
        self._marked = job.with_marker
        self._taken, self._shrinks = 0, 1.0
        """Bytes in memory that went into the open file, and how many of them make one byte of a file."""
        self._rows: dict[str, int] = {}
        self.receipts: list[Receipt] = []

    def write(self, batch: pa.RecordBatch) -> None:
        """Or `_UnwritableRow`."""
        batch = batch.cast(self._schema) if batch.num_rows else batch
        while batch.num_rows:
            room = self._room()
            rows = -(-max(_LEAST_CUT, room) * batch.num_rows // max(1, batch.nbytes))
            piece = batch.slice(0, max(1, rows))
            batch = batch.slice(piece.num_rows)
            self._gathered.append(piece)
            self._gathered_bytes += piece.nbytes
            if piece.nbytes >= room:
                self._write_group()

    def open(self) -> None:
        output, compression = self._job.output, self._job.compression
        self._retries_before = retries().value
        self._file = self._job.open(self._partition, len(self.receipts))
        self._sink = Counting(self._file)
        schema = arrow_schema(self._job.columns, with_marker=self._marked)
        if output.delimited is None:
            self._form = ParquetForm(self._sink, schema, compression)
        else:
            self._form = TextForm(self._sink, schema, compression, output.delimited)
        self._taken, self._rows = 0, {}

    def close(self) -> None:
        """Or `_UnwritableRow`."""
        self._write_group()
        self._close_file()

    def abandon(self) -> None:
        """After a failure: what is open is closed without a receipt."""
        if self._file is not None:
            self._file.abandon()

    def _room(self) -> int:
        """How many bytes in memory the next group still takes, so that the file comes near its target size."""
        left = self._job.file_size - (self._sink.bytes if self._sink else 0)
        return max(1, min(_ROW_GROUP_BYTES, int(left * self._shrinks)) - self._gathered_bytes)

    def _write_group(self) -> None:
        if not self._gathered:
            return
        group = pa.Table.from_batches(self._gathered, self._schema)
        marked = self._needs_marker(group)
        if marked and not self._marked:
            self._close_file()
        if self._form is None:
            self._marked = marked
            self.open()
        assert self._form is not None
        assert self._sink is not None
        if self._job.with_marker and not self._marked:
            group = group.drop_columns([MARKER])
        try:
            self._form.write(group)
        except UnwritableValue as error:
            raise _UnwritableRow(self._bad_row(group, error)) from error
        for name, count in self._by_marker(group).items():
            self._rows[name] = self._rows.get(name, 0) + count
        self._taken += self._gathered_bytes
        self._shrinks = self._taken / max(1, self._sink.bytes)
        self._gathered, self._gathered_bytes = [], 0
        if self._sink.bytes >= self._job.file_size * _NEARLY_FULL:
            self._close_file()

    def _needs_marker(self, group: pa.Table) -> bool:
        """Where rows without a marker are upserts, a file of upserts alone leaves it out."""
        if not (self._job.with_marker and self._job.output.upserts_by_default):
            return self._job.with_marker
        return not pc.all(pc.equal(group.column(MARKER), Marker.UPSERT.value)).as_py()

    def _by_marker(self, rows: pa.Table) -> dict[str, int]:
        if MARKER not in rows.column_names:
            return {"upsert" if self._job.output.upserts_by_default else "insert": rows.num_rows}
        counted = pc.value_counts(rows.column(MARKER)).to_pylist()
        return {Marker(entry["values"]).name.lower(): entry["counts"] for entry in counted}

    def _bad_row(self, group: pa.Table, error: UnwritableValue) -> BadRow:
        key = told(group.select(self._job.keys), error.row)
        where = f"{key}, column {error.column!r}" if key else f"column {error.column!r}"
        return BadRow(error.reason, f"{where}: {reprlib.repr(error.shown)}")

    def _close_file(self) -> None:
        if self._form is None or self._sink is None or self._file is None:
            return
        self._form.close()
        self._sink.close()
        place, digest = len(self.receipts), self._sink.hash.hexdigest()
        repeated = retries().value - self._retries_before
        self.receipts.append(
            Receipt(self._partition, place, self._file.name, self._rows, self._sink.bytes, digest, repeated)
        )
        self._form = self._sink = self._file = None


class Counting:
    """A sink that counts and hashes what goes through it."""

    closed = False

    def __init__(self, sink: BinaryIO | NewFile) -> None:
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


def executor_task(job: StagingJob, problem: str, key_hash: str | None = None) -> Callable[[Batches], Batches]:
    """The function for `mapInArrow`."""

    def task(batches: Batches) -> Batches:
        from pyspark import TaskContext

        context = TaskContext.get()
        return stage(job, context.partitionId() if context else 0, batches, problem, key_hash)

    return task
