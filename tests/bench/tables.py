"""Source tables of any size, with the same rows in every run."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from mirrorfeed.config.model import Config, Table
from mirrorfeed.orchestration.publish_run import publish_tables
from mirrorfeed.orchestration.run_context import RunContext
from mirrorfeed.publish.change_sources.delta_feed import DeltaFeed
from mirrorfeed.publish.table_publisher import publish as publish_table
from mirrorfeed.source.identifier import Source
from mirrorfeed.storage.local_folder import FolderStore
from tests.support.entries import entry

MERGES = 5


def create(spark: SparkSession, source: Source, rows: int, files: int | None = None) -> None:
    """Creates the table with as many files, each with a range of the keys; without a number Spark decides."""
    of = f"range({rows})" if files is None else f"range(0, {rows}, 1, {files})"
    spark.sql(f"""
        CREATE TABLE {source.sql} USING DELTA TBLPROPERTIES (delta.enableChangeDataFeed = true)
        AS SELECT {columns("id")} FROM {of}""")


def fleet(spark: SparkSession, folder: Path, count: int, rows: int) -> tuple[list[Source], Config]:
    """Many tables, and a configuration that publishes all of them."""
    sources = [Source(path=str(folder / f"source-{number}")) for number in range(count)]
    for source in sources:
        create(spark, source, rows)
    entries = [
        Table.model_validate({"source": source.path, "target": f"bench.t{number}", "keys": ["id"]})
        for number, source in enumerate(sources)
    ]
    return sources, Config(landing_zone=str(folder / "zone"), tables=tuple(entries))


def publish(spark: SparkSession, config: Config, names: Sequence[str] = ()) -> None:
    """Of such a fleet these, or all; what fails, fails the benchmark."""
    for outcome in publish_tables(RunContext(spark, config), names):
        if outcome.error:
            raise outcome.error


class Followed:
    """A table that was published once, whose changes since are published as often as one likes."""

    def __init__(self, spark: SparkSession, folder: Path, rows: int) -> None:
        self.source = Source(path=str(folder / "source"))
        self._zone = FolderStore(str(folder / "zone"))
        self._plan = entry(self.source, "bench", validate_keys="none")
        self._feed = DeltaFeed(spark, self.source)
        create(spark, self.source, rows)
        self.publish()
        self.as_after_the_snapshot = keeping(folder / "zone")

    def publish(self) -> None:
        publish_table(self._feed, self._zone, self._plan)


def keeping(zone: Path) -> Callable[[], None]:
    """Keeps a landing zone as it is; what is given makes it so again."""
    saved = zone.with_name("kept")
    shutil.copytree(zone, saved)

    def again() -> None:
        shutil.rmtree(zone)
        shutil.copytree(saved, zone)

    return again


def feed(spark: SparkSession, source: Source, first: int, last: int) -> DataFrame:
    """What Spark reads when it is asked for these versions, by nobody's plan but its own."""
    return spark.read.options(readChangeFeed="true", startingVersion=first, endingVersion=last).table(source.sql)


def merge(spark: SparkSession, source: Source, number: int, rows: int, table_rows: int) -> None:
    """Updates a part of the table, which overlaps by half with that of the number before."""
    start = number * rows // 2
    spark.sql(f"""
        MERGE INTO {source.sql} t
        USING (SELECT {columns(f"(id + {start}) % {table_rows}", seed=number + 1)} FROM range({rows})) s
        ON t.id = s.id WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *""")


def merges(spark: SparkSession, source: Source, feed_rows: int, table_rows: int) -> None:
    """As many rows of the feed in `MERGES` commits; every update gives two."""
    for number in range(MERGES):
        merge(spark, source, number, feed_rows // MERGES // 2, table_rows)


def columns(key: str, seed: int = 0) -> str:
    return f"""
        {key} AS id,
        cast((({key}) * 37 + {seed}) % 1000000 / 100 AS decimal(18,2)) AS amount,
        timestamp_micros(1700000000000000 + ({key}) * 1000 + {seed}) AS at,
        date_add(DATE '2020-01-01', cast(({key}) % 2000 AS int)) AS day,
        concat('customer-', ({key}) % 50000, '-', {seed}) AS name,
        cast(({key}) * 1.1 + {seed} AS double) AS score,
        ({key}) % 7 = 0 AS settled"""
