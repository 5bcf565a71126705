"""`python -m tests.bench.upload_rate`: upload rate to OneLake of one driver core, with the simulator in another
process.

The rate is compared with the limit of Fabric, 1 TB of changes a day."""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from fixtures.onelake import SECRET, OneLake
from mirrorfeed.landing.schema import Column
from mirrorfeed.publish.files.file_sizes import Piece
from mirrorfeed.publish.files.spark_files import upload_pieces
from mirrorfeed.publish.files.staging_area import StagingArea
from mirrorfeed.publish.files.staging_job import StagingJob
from mirrorfeed.storage.onelake import OneLakeStore
from mirrorfeed.storage.request_retries import RetryLimits

_DAY = 24 * 3600
_LIMIT = 10**12
"""Bytes a day."""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.upload_rate")
    parser.add_argument("--mib", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as place, simulator(Path(place, "certificates")) as store:
        columns = (Column("id", "long"), Column("noise", "double"))
        job = StagingJob(store, "t/_mirrorfeed/x", 1, "b", columns, ("id",), False)
        file = Path(place, "part-00000.parquet")
        _write(file, given.mib)
        size, found = file.stat().st_size, list[tuple[float, float]]()
        for _ in range(given.rounds + 1):
            cpu, started = time.process_time(), time.perf_counter()
            (receipt,), _, _, differed, *_ = upload_pieces(job, StagingArea(place), [Piece(str(file))])
            found.append((time.perf_counter() - started, time.process_time() - cpu))
            assert (receipt.bytes, differed) == (size, "")
    seconds, busy = (statistics.median(each) for each in zip(*found[1:], strict=True))
    print(f"{size / 2**20:.0f} MiB: {seconds:.2f} s, {busy:.2f} s of a core of this process; {given.rounds} rounds")
    print(f"a core sends {size / busy / 2**20:.0f} MiB a second, {size / busy * _DAY / 10**12:.0f} TB a day")
    print(f"{_LIMIT / 10**12:.0f} TB a day takes {busy * _LIMIT / size / _DAY:.1%} of a core")


def _write(file: Path, mib: int) -> None:
    """Bytes that do not compress."""
    rows, chance = mib * 2**20 // 16, np.random.default_rng(0)
    table = pa.table({"id": chance.integers(2**63, size=rows), "noise": chance.random(rows)})
    pq.write_table(table, file, use_dictionary=False, compression="zstd", row_group_size=2**20)


@contextmanager
def simulator(folder: Path) -> Iterator[OneLakeStore]:
    receiver, sender = get_context("spawn").Pipe()
    process = get_context("spawn").Process(target=_simulate, args=(folder, sender))
    process.start()
    try:
        store, os.environ[SECRET] = receiver.recv()
        yield store
    finally:
        receiver.send(None)
        process.join()


def _simulate(folder: Path, connection: Connection) -> None:
    with OneLake(folder) as onelake:
        connection.send((onelake.store_elsewhere(retry_limits=RetryLimits()), onelake.authority.secret))
        connection.recv()


if __name__ == "__main__":
    main()
