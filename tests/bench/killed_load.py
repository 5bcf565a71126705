"""`python -m tests.bench.killed_load`: a first load in ten parts, killed inside each part and after each part.

Each run is a process of its own. It first changes the source. It ends with SIGKILL when it has begun the first staged
file of a part, or when it has created the record of a part. At the end, plain Spark compares the data files in the
landing zone with the source. The exit code is 1 if they differ."""

from __future__ import annotations

import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from mirrorfeed.landing.names import data_number
from mirrorfeed.landing.schema import MARKER
from mirrorfeed.publish.change_sources.delta_feed import DeltaFeed
from mirrorfeed.publish.table_publisher import publish
from mirrorfeed.runtime.spark_session import get_session
from mirrorfeed.source.identifier import Source
from mirrorfeed.source.versions import newest_version
from mirrorfeed.storage import Writer
from mirrorfeed.storage.local_folder import FolderStore
from tests.bench import tables
from tests.support.entries import FOLDER, entry

MOMENTS = ("inside a part", "after a part", "")
_RECORD = re.compile(r"/_mirrorfeed/[^/]+/[0-9]{20}\.json")
_CHANGED_ROWS = 1000


@dataclass(frozen=True)
class KilledStore(FolderStore):
    """A store that kills its process at a moment. Spark does not write to it, so files are uploaded."""

    moment: str = ""

    def address(self, path: str) -> str:
        return f"apart://{self.root}/{path}"

    def open_write(self, path: str) -> Writer:
        writer = super().open_write(path)
        if self.moment == MOMENTS[0]:
            os.kill(os.getpid(), signal.SIGKILL)
        return writer

    def create(self, path: str, data: bytes) -> str | None:
        etag = super().create(path, data)
        if self.moment == MOMENTS[1] and _RECORD.search(path):
            os.kill(os.getpid(), signal.SIGKILL)
        return etag


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.killed_load")
    parser.add_argument("--rows", type=int, default=20_000_000)
    parser.add_argument("--parts", type=int, default=10)
    parser.add_argument("--run", choices=("create", "compare", *MOMENTS), help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.folder:
        sys.exit(_run(given.run, given.folder, given.rows, given.parts))
    folder, started = Path(tempfile.mkdtemp(prefix="mirrorfeed-bench-")), time.monotonic()
    try:
        for step in _steps(given.parts):
            options = f"--run={step}", f"--folder={folder}", f"--rows={given.rows}", f"--parts={given.parts}"
            command = [sys.executable, "-m", "tests.bench.killed_load", *options]
            code = subprocess.run(command, check=False).returncode
            print(f"{time.monotonic() - started:6.0f} s  {step or 'to the end'}: exit code {code}", flush=True)
            if code != (-signal.SIGKILL if step in MOMENTS[:2] else 0):
                sys.exit(1)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _steps(parts: int) -> Iterator[str]:
    yield "create"
    for _ in range(parts):
        yield from MOMENTS[:2]
    yield from (MOMENTS[2], "compare")


def _run(step: str, folder: Path, rows: int, parts: int) -> int:
    spark, source = get_session({"spark.driver.memory": "6g"}), Source(path=str(folder / "source"))
    size = folder / "size"
    if step == "create":
        tables.create(spark, source, rows, files=4 * parts)
        size.write_text(str(sum(file.stat().st_size for file in (folder / "source").glob("*.parquet"))))
        return 0
    if step == "compare":
        return _compare(spark, source, folder / "zone" / FOLDER)
    begun = any((folder / "zone" / FOLDER).glob("_mirrorfeed/*/*.json"))
    # A load that has begun keeps its parts, whatever the size is then.
    plan = entry(source, load_part_size=2**40 if begun else -(-int(size.read_text()) // parts))
    tables.merge(spark, source, newest_version(spark, source), min(rows, _CHANGED_ROWS), rows)
    zone = KilledStore(str(folder / "zone"), step)
    result = publish(DeltaFeed(spark, source, str(folder / "staging")), zone, plan)
    print(f"          {result.in_words}")
    return 0


def _compare(spark: SparkSession, source: Source, zone: Path) -> int:
    """Compare the landing zone with the source, without code of the publisher. Return 1 if they differ, otherwise 0."""
    numbers = sorted(
        (number, file) for file in zone.glob("*.parquet") if (number := data_number(file.name)) is not None
    )
    assert [number for number, _ in numbers] == list(range(1, len(numbers) + 1)), "a file number is missing"
    frames = [spark.read.parquet(str(file)).withColumn("file", F.lit(number)) for number, file in numbers]
    loads, changes = ([each for each in frames if (MARKER in each.columns) is marked] for marked in (False, True))
    loaded = _hashes(_union(loads)).groupBy("id").agg(F.count("*").alias("times"), F.first("hash").alias("hash"))
    later = _hashes(_union(changes)).groupBy("id").agg(F.max_by("hash", "file").alias("later"))
    mirror = loaded.join(later, "id", "full_outer").select("id", F.coalesce("later", "hash").alias("mirror"), "times")
    both = mirror.join(_hashes(spark.read.table(source.sql)), "id", "full_outer")
    rows, different, twice = both.agg(
        F.count("*"), F.count_if(~F.col("mirror").eqNullSafe(F.col("hash"))), F.count_if(F.col("times") > 1)
    ).collect()[0]
    print(f"          {rows:,} rows in {len(loads)} files of the load and {len(changes)} files of changes:")
    print(f"          {different:,} differ from the source, {twice:,} are loaded twice")
    return int(bool(different or twice or not rows))


def _union(frames: list[DataFrame]) -> DataFrame:
    together, *rest = frames
    for each in rest:
        together = together.unionByName(each)
    return together


def _hashes(rows: DataFrame) -> DataFrame:
    values = sorted(set(rows.columns) - {"id", "file", MARKER})
    kept = [name for name in ("id", "file") if name in rows.columns]
    return rows.select(*kept, F.xxhash64(*values).alias("hash"))


if __name__ == "__main__":
    main()
