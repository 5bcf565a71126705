"""`python -m tests.bench.file_sizes`: sizes of the data files of a first load, of ranges and of comparisons.

Each size is a share of the target size. A range is also measured with 200 shuffle partitions that Spark does not
combine."""

from __future__ import annotations

import argparse
import shutil
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

from mirrorfeed.landing.names import data_number
from mirrorfeed.publish.change_sources import ChangeSource
from mirrorfeed.publish.change_sources.delta_feed import DeltaFeed
from mirrorfeed.publish.change_sources.full_compare import FullCompare, RowHashTable
from mirrorfeed.publish.table_publisher import publish
from mirrorfeed.runtime import spark_session
from mirrorfeed.source.identifier import Source
from mirrorfeed.storage.local_folder import FolderStore
from tests.bench import tables
from tests.support.entries import entry

LIMITS = (0.25, 0.7, 1.3)
"""Limits of the classes of a histogram, as shares of the target size. The third class is the wanted one."""
_ADAPTIVE = "spark.sql.adaptive.enabled"


def histogram(sizes: Iterable[int], target: int) -> str:
    """Return the number of files by size, as one line."""
    shares = sorted(size / target for size in sizes)
    classes = (*(f"to {limit:g}" for limit in LIMITS), "above")
    counts = [0] * len(classes)
    for share in shares:
        counts[sum(share > limit for limit in LIMITS)] += 1
    shown = ", ".join(f"{name}: {count}" for name, count in zip(classes, counts, strict=True))
    return f"{len(shares)} files, by share of the target size: {shown}"


def sizes_in(zone: Path) -> dict[Path, int]:
    """Return the size of each data file in a landing zone."""
    return {path: path.stat().st_size for path in zone.rglob("*.parquet") if data_number(path.name) is not None}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.file_sizes")
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--mib", type=int, default=4, help="target size of a file")
    given = parser.parse_args()
    target = given.mib * 2**20
    spark = spark_session.get_session({"spark.driver.memory": "4g", "spark.sql.shuffle.partitions": "200"})
    folder = Path(tempfile.mkdtemp(prefix="mirrorfeed-bench-"))
    zone, source = FolderStore(str(folder / "zone")), Source(path=str(folder / "source"))
    feed = DeltaFeed(spark, source)
    compare = FullCompare(spark, source, RowHashTable(spark, Source(path=str(folder / "hashes")), str(source)))

    def measure(name: str, change_source: ChangeSource, target_table: str, **options: str) -> None:
        table = entry(source, target_table, target_file_size=target, **options)
        sizes: Sequence[int] = [file.bytes for file in publish(change_source, zone, table).records[-1].files]
        print(f"{name}: {histogram(sizes, target)}; {min(sizes) / target:.2f} to {max(sizes) / target:.2f}", flush=True)

    try:
        tables.create(spark, source, given.rows)
        measure("first load", feed, "bench")
        measure("first comparison", compare, "compared", changes="compare")
        tables.merges(spark, source, given.rows, given.rows)
        measure("range", feed, "bench")
        measure("comparison", compare, "compared", changes="compare")
        for seed in (10, 11):
            tables.merge(spark, source, seed, given.rows // 2, given.rows)
        with spark_session.setting(spark, _ADAPTIVE, "false"):
            spark_session._WANTED.pop(_ADAPTIVE)
            measure("range, 200 shuffle partitions", feed, "bench")
    finally:
        spark.stop()
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
