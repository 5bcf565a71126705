"""The driver's side where executors do not reach the landing zone: it sends on the parts of the files that they made.

The parts are kept where they can be asked for again until all is sent: in the handover, a folder that Spark writes and
reads, or without one in a temporary folder, into which the query's result goes. Either way only what tasks gave that
succeeded is there, and every file is held against its receipt before it counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby, islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Protocol

from pyspark.sql import DataFrame, Row

from mirrorfeed.errors import Terminal, Transient
from mirrorfeed.publish.parts import PART_BYTES
from mirrorfeed.publish.writer import Counting, Receipt, StagingJob
from mirrorfeed.stores import StoreUnavailable
from mirrorfeed.stores.process import keep

_AT_ONCE = 2
"""How many lots a process fetches and sends at a time, whatever the number of tables. The client of Spark Connect holds
about five copies of what it was given last, and a landing zone two parts of 8 MiB."""
LOT_BYTES = 16 * 2**20
"""As much is held of what is fetched at once."""
_LOT_PARTS, _LOT_FILES = LOT_BYTES // PART_BYTES, 8
_SLICE_PARTS = 64 * 2**20 // PART_BYTES
"""How many of a large file's parts are asked for at a time; they pass through Spark's driver, and count as a result."""
_WRITTEN_PARTS = 2**20 // PART_BYTES
"""How many go into the landing zone's file at once."""
_TRIES = 2
"""How often a file is begun under another name, where the landing zone did not take it."""


class Kept(Protocol):
    """What the tasks of a staging gave."""

    @property
    def rows(self) -> Sequence[dict[str, Any]]:
        """Receipts and bad rows."""
        ...

    def parts(self, names: Sequence[str], first: int, end: int) -> Iterator[tuple[str, bytes]]:
        """Each with the name of its file: those from number `first` up to, but not with, `end` of each of these files,
        and of each in their order."""
        ...


class Carrier(Protocol):
    def keep(self, encoded: DataFrame, job: StagingJob) -> AbstractContextManager[Kept]:
        """Has Spark encode the files, and keeps their parts until the context ends."""
        ...


def send(job: StagingJob, receipts: Sequence[Receipt], kept: Kept) -> list[Receipt]:
    """Brings the files into the landing zone, each under a staged name of its own, which its receipt then has."""
    # One pool for the process: what a thread once took of memory it keeps for its next lot.
    pool = keep("carrying", lambda: ThreadPoolExecutor(_AT_ONCE))
    sent = [pool.submit(_send_lot, job, lot, kept) for lot in lots(receipts)]
    try:
        return [receipt for lot in sent for receipt in lot.result()]
    finally:
        wait([lot for lot in sent if not lot.cancel()])


def lots(receipts: Sequence[Receipt]) -> list[tuple[Receipt, ...]]:
    """Neighbours that are fetched together: a few small files, or a single one."""
    found: list[tuple[Receipt, ...]] = []
    room = 0
    for receipt in receipts:
        parts = _count(receipt)
        if not found or parts > room or len(found[-1]) == _LOT_FILES:
            found.append(())
            room = _LOT_PARTS
        found[-1] += (receipt,)
        room -= parts
    return found


def _send_lot(job: StagingJob, lot: Sequence[Receipt], kept: Kept) -> list[Receipt]:
    if len(lot) == 1:
        return [_send(job, lot[0], lambda: _in_slices(lot[0], kept))]
    at_hand: dict[str, list[bytes]] = {receipt.staged: [] for receipt in lot}
    for name, part in kept.parts(list(at_hand), 0, _LOT_PARTS):
        at_hand[name].append(part)
    return [_send(job, receipt, partial(iter, at_hand[receipt.staged])) for receipt in lot]


def _in_slices(receipt: Receipt, kept: Kept) -> Iterator[bytes]:
    for first in range(0, _count(receipt), _SLICE_PARTS):
        for _, part in kept.parts([receipt.staged], first, first + _SLICE_PARTS):
            yield part


def _count(receipt: Receipt) -> int:
    return -(-receipt.bytes // PART_BYTES)


def _send(job: StagingJob, receipt: Receipt, parts: Callable[[], Iterator[bytes]]) -> Receipt:
    for left in reversed(range(_TRIES)):
        try:
            with job.open(receipt.partition, receipt.place) as sink:
                sent, coming = Counting(sink), parts()
                while some := b"".join(islice(coming, _WRITTEN_PARTS)):
                    sent.write(some)
                if (sent.bytes, sent.hash.hexdigest()) != (receipt.bytes, receipt.sha256):
                    raise PartsLost(receipt.staged, receipt.bytes, sent.bytes)
            return replace(receipt, staged=sink.name)
        except StoreUnavailable:
            if not left:
                raise
    raise AssertionError("unreachable")


class PartsLost(Transient):
    def __init__(self, staged: str, expected: int, found: int) -> None:
        self.staged, self.expected, self.found = staged, expected, found

    def what(self) -> str:
        counts = f"{self.found:,} of {self.expected:,} bytes" if self.found != self.expected else "other bytes"
        return f"Executors made the file {self.staged}, and {counts} of it are there for the driver."

    def next(self) -> str:
        return "Nothing of its range is published. See that nobody else changes the handover folder, and publish again."


_LIMIT = "spark.driver.maxResultSize"
"""The setting that is named where a result is too large; such a failure has no condition of its own."""


class ResultTooLarge(Terminal):
    def what(self) -> str:
        return f"The files of one publication are more than Spark gives as the result of a query ({_LIMIT})."

    def next(self) -> str:
        return (
            "Nothing of it is published. Set `handover` to a volume, /Volumes/catalog/schema/volume, and publish again."
        )


@dataclass(frozen=True)
class InResult:
    """Parts come as the result of the query, one after the other."""

    @contextmanager
    def keep(self, encoded: DataFrame, job: StagingJob) -> Iterator[Kept]:
        with TemporaryDirectory(prefix="mirrorfeed-") as folder:
            kept = _Spooled(Path(folder), [])
            try:
                for (staged, is_part), rows in groupby(encoded.toLocalIterator(), _file_of):
                    if is_part:
                        kept.add(staged, rows)
                    else:
                        kept.rows.extend(row.asDict() for row in rows)
            except Exception as error:
                if _LIMIT in str(error):
                    raise ResultTooLarge() from error
                raise
            yield kept


def _file_of(row: Row) -> tuple[str, bool]:
    return row["staged"], row["part"] is not None


@dataclass(frozen=True)
class _Spooled:
    folder: Path
    rows: list[dict[str, Any]]

    def add(self, staged: str, rows: Iterable[Row]) -> None:
        path = self.folder / staged
        with path.open("r+b" if path.exists() else "wb") as file:
            for row in rows:
                file.seek(row["part"] * PART_BYTES)
                file.write(row["data"])

    def parts(self, names: Sequence[str], first: int, end: int) -> Iterator[tuple[str, bytes]]:
        for name in names:
            with (self.folder / name).open("rb") as file:
                file.seek(first * PART_BYTES)
                for _ in range(first, end):
                    if data := file.read(PART_BYTES):
                        yield name, data
