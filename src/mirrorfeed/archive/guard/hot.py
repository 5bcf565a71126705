"""The hot part of a table as a table of its own, for open source Delta: a shallow clone without the archived files.

A clone has a log and no data, so this reads and writes none. It is made in a folder of this machine, for Spark on this
machine; on Databricks the engine itself leaves archived files out where it may.
"""

from __future__ import annotations

import atexit
import json
import shutil
import tempfile
from collections.abc import Collection
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from mirrorfeed.archive.interval.intervals import any_property
from mirrorfeed.archive.log.entry import uri_of
from mirrorfeed.errors import Terminal
from mirrorfeed.feed.source import Source


def without(spark: SparkSession, source: Source, table_id: str, version: int, left_out: Collection[str]) -> DataFrame:
    """The rows of a table at a version that are not in these files."""
    if not (spark.conf.get("spark.master", "") or "").startswith("local"):
        raise OnlyOnOneMachine(str(source))
    cut = _cut_out(spark, source, table_id, version, frozenset(left_out))
    return spark.read.option("versionAsOf", 1).table(cut.sql)


@lru_cache(maxsize=64)
def _cut_out(spark: SparkSession, source: Source, table_id: str, version: int, left_out: frozenset[str]) -> Source:
    """Made once for those who ask again. The folder lives as long as this process."""
    folder = Path(tempfile.mkdtemp(prefix="mirrorfeed-hot-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    clone = Source(path=str(folder / "table"))
    with any_property(spark):
        spark.sql(f"CREATE TABLE {clone.sql} SHALLOW CLONE {source.sql} VERSION AS OF {version}")
    log = folder / "table/_delta_log"
    time = int(datetime.now(UTC).timestamp() * 1000)
    lines = [{"commitInfo": {"timestamp": time, "inCommitTimestamp": time, "operation": "DELETE"}}]
    for line in (log / f"{0:020d}.json").read_text(encoding="utf-8").splitlines():
        if (added := json.loads(line).get("add")) and uri_of(str(folder), added["path"]) in left_out:
            kept = {name: added[name] for name in ("path", "deletionVector", "size") if name in added}
            lines.append({"remove": {**kept, "deletionTimestamp": time, "dataChange": True}})
    (log / f"{1:020d}.json").write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    return clone


class OnlyOnOneMachine(Terminal):
    """The part of a table that is not archived can be read by itself only where mirrorfeed sees its files."""

    code = "MF5012"

    def __init__(self, table: str) -> None:
        self.table = table

    def what(self) -> str:
        return f"The hot part of {self.table} cannot be cut out here: that takes Databricks, or Spark on one machine."

    def next(self) -> str:
        return "Write a predicate that needs no archived file, for example on a partition column."
