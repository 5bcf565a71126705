"""The operations that are measured, one after the other, on small tables.

Spark reads the sources, as on Databricks. The landing zone is in the simulated OneLake.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest
import yaml
from pyspark.sql import SparkSession

from fixtures.onelake import DATABASE, OneLake
from mirrorfeed.api.feed import Feed, load
from mirrorfeed.api.results import Result
from mirrorfeed.publish.change_sources import delta_feed
from mirrorfeed.publish.change_sources.full_compare import FullCompare, RowHashTable
from mirrorfeed.publish.files import row_staging
from mirrorfeed.publish.table_publisher import publish
from mirrorfeed.runtime.spark_session import Kind
from mirrorfeed.source import table_info
from mirrorfeed.source.identifier import Source
from tests.performance.meter import Counters, Meter
from tests.support.commits import commit, write_checksum
from tests.support.entries import entry
from tests.support.fleets import fleet

_ROWS = 4_000
_CHANGED = 2_000
"""Number of keys that the commits of a range change, each key in two commits."""
_FLEET = 100
"""Number of tables in local folders, which need no Spark."""


def measure_operations(
    spark: SparkSession, onelake: OneLake, folder: Path, patch: pytest.MonkeyPatch
) -> Mapping[str, Counters]:
    """Run all operations, and return the counters of each."""
    (folder / "events").mkdir()
    operations = _Operations(spark, onelake, folder, Meter(spark, onelake, folder / "events", patch))
    patch.setattr(table_info, "kind", lambda: Kind.REMOTE)  # otherwise delta-rs reads local tables
    operations.publish_small_table()
    operations.compare()
    with patch.context() as limits:  # so that Spark writes the files
        limits.setattr(row_staging, "SMALL_BATCH_ROWS", 100)
        limits.setattr(delta_feed, "_SMALL_BYTES", 0)
        operations.publish_large_table()
    patch.setattr(table_info, "kind", lambda: Kind.LOCAL)
    operations.check_many_tables()
    return operations.meter.found


class _Operations:
    def __init__(self, spark: SparkSession, onelake: OneLake, folder: Path, meter: Meter) -> None:
        self._spark, self._onelake, self._folder, self.meter = spark, onelake, folder, meter

    def publish_large_table(self) -> None:
        source, feed = self._create("orders", _ROWS), self._load("orders")
        with self.meter.measure("first load", source, published_rows=_ROWS):
            _check(feed.publish())
        part = _CHANGED // 4
        for start in (*range(0, _CHANGED, part), 0):
            _commit(source, f"UPDATE {{}} SET v = 'new' WHERE id >= {start} AND id < {start + 2 * part}")
        _commit(source, "DELETE FROM {} WHERE id < 9")
        with self.meter.measure("range", source, published_rows=_CHANGED):
            _check(feed.publish())

    def publish_small_table(self) -> None:
        source = self._create("lines", 100)
        feed, mirror = self._load("lines", history="./history"), str(self._folder / "mirror")
        _check(feed.publish())
        _check(feed.history.append())
        _commit(source, "UPDATE {} SET v = 'new' WHERE id < 10")
        with self.meter.measure("dry run", source):
            _check(feed.dry_run())
        with self.meter.measure("status behind", source):
            _check(feed.status())
        with self.meter.measure("small change", source, published_rows=10):
            _check(feed.publish())
        with self.meter.measure("idle", source):
            _check(feed.publish())
        with self.meter.measure("history append", source, published_rows=10):
            _check(feed.history.append())
        _check(feed.replicate(mirror))
        with self.meter.measure("verify", source):
            _check(feed.verify(mirror=mirror))
        self._onelake.fabric.databases[DATABASE].status = "Running"
        feed = self._load("lines", ledger="./ledger")
        _check(feed.publish())  # adds the publications to the new ledger
        with self.meter.measure("check-alerts twice", source):
            feed.check_alerts().check()
            feed.check_alerts().check()
        with self.meter.measure("doctor", source):
            feed.doctor().check()
        with self.meter.measure("report", source):
            assert feed.report().sections

    def compare(self) -> None:
        source = self._create("prices", 100)
        table, hashes = Source(path=str(source)), Source(path=str(self._folder / "hashes"))
        compare = FullCompare(self._spark, table, RowHashTable(self._spark, hashes, str(table)))
        configured = entry(table, "sales.prices", changes="compare")
        publish(compare, self._onelake.store(), configured)
        _commit(source, "UPDATE {} SET v = 'new' WHERE id < 10")
        with self.meter.measure("full compare", source, published_rows=10):
            assert publish(compare, self._onelake.store(), configured).records

    def check_many_tables(self) -> None:
        """Tables in local folders, which Spark does not read."""
        zone = fleet(self._folder / "fleet", _FLEET, rows=2).parent / "zone"
        for file in filter(Path.is_file, zone.rglob("*")):
            path = f"{DATABASE}/Files/LandingZone/{file.relative_to(zone)}"
            self._onelake.files.put_blob(path, file.read_bytes(), if_absent=True)
        feed = self._load(*(f"fleet/t{number}" for number in range(_FLEET)))
        with self.meter.measure("hundred idle"):
            _check(feed.publish())
        with self.meter.measure("hundred status"):
            _check(feed.status())
        with self.meter.measure("hundred doctor"):
            assert {each.name for each in feed.doctor()} == {"OrphanedTables"}  # the tables of the other operations
        with self.meter.measure("hundred alerts"):
            assert {each.name for each in feed.check_alerts()} == {"OrphanedTables"}

    def _create(self, name: str, rows: int) -> Path:
        """Create a table of rows with a key `id` and a random text `v`."""
        random_text, path = random.Random(name), self._folder / name
        texts = [random_text.randbytes(10).hex() for _ in range(rows)]
        columns = {"id": pa.array(range(rows), pa.int64()), "v": pa.array(texts, pa.string())}
        deltalake.write_deltalake(path, pa.table(columns), configuration={"delta.enableChangeDataFeed": "true"})
        write_checksum(path / "_delta_log" / f"{0:020d}.json")
        return path

    def _load(self, *folders: str, ledger: str | None = None, **options: str) -> Feed:
        entries = [(f"./{each}", f"sales.{Path(each).name}") for each in folders]
        tables = [{"source": source, "target": target, "keys": ["id"], **options} for source, target in entries]
        settings: dict[str, Any] = {"tables": tables} | ({"ledger": ledger} if ledger else {})
        config = self._folder / "mirrorfeed.yml"
        config.write_text(self._onelake.configuration() + yaml.safe_dump(settings), encoding="utf-8")
        return load(config, self._spark)


def _commit(path: Path, statement: str) -> None:
    assert commit(path, statement)


def _check(result: Result[Any]) -> None:
    result.check()
    assert result.rows
