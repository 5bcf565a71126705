"""The common alternative: a notebook that publishes Delta's feed to open mirroring, with a control table of
versions."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from mirrorfeed.source.identifier import Source

_MARKERS = {"insert": 0, "update_postimage": 1, "delete": 2}
FEED_ONLY = ("_change_type", "_commit_version", "_commit_timestamp")


class Notebook:
    """For one table: the whole of it first, then what changed since the version that the control table names."""

    def __init__(self, spark: SparkSession, source: Source, zone: Path, control: Path, keys: tuple[str, ...]) -> None:
        self._spark, self._source, self.zone, self._keys = spark, source, zone, keys
        self._control = f"delta.`{control}`"
        spark.sql(f"CREATE TABLE IF NOT EXISTS {self._control} (source string, version bigint) USING delta")

    def as_after_version(self, version: int) -> None:
        """With nothing landed, and the control table as if all up to there were."""
        shutil.rmtree(self.zone, ignore_errors=True)
        self.zone.mkdir(parents=True)
        self.remember(version)

    def run(self) -> None:
        newest = self._newest()
        known = self._spark.table(self._control).where(F.col("source") == str(self._source)).first()
        if known is None:
            self.zone.mkdir(parents=True, exist_ok=True)
            (self.zone / "_metadata.json").write_text(json.dumps({"keyColumns": list(self._keys)}))
            self.land(self._spark.read.table(self._source.sql))
        elif known["version"] < newest:
            self.land(self._changed(known["version"] + 1, newest))
        else:
            return
        self.remember(newest)

    def land(self, rows: DataFrame) -> None:
        """As one file under the next number."""
        made = self.zone.parent / "_made"
        rows.coalesce(1).write.mode("overwrite").parquet(str(made))
        numbers = [int(path.stem) for path in self.zone.rglob("*.parquet")]
        (written,) = made.glob("part-*.parquet")
        shutil.copyfile(written, self.zone / f"{max(numbers, default=0) + 1:020d}.parquet")
        shutil.rmtree(made)

    def remember(self, version: int) -> None:
        self._spark.sql(f"""
            MERGE INTO {self._control} t USING (SELECT '{self._source}' AS source, {version} AS version) s
            ON t.source = s.source WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *""")

    def _changed(self, first: int, last: int) -> DataFrame:
        feed = self._spark.read.options(readChangeFeed="true", startingVersion=first, endingVersion=last)
        rows = feed.table(self._source.sql).where("_change_type <> 'update_preimage'")
        marker = F.coalesce(*(F.when(F.col("_change_type") == name, number) for name, number in _MARKERS.items()))
        return rows.withColumn("__rowMarker__", marker).drop(*FEED_ONLY).orderBy("__rowMarker__")

    def _newest(self) -> int:
        history = self._spark.sql(f"DESCRIBE HISTORY {self._source.sql}")
        return int(history.agg(F.max("version").alias("newest")).collect()[0]["newest"])
