"""The whole output of the commands that use Spark, except for archives, compared with the files in `expected`."""

from __future__ import annotations

import os
import shutil
import time
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import cache, partial
from pathlib import Path

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from mirrorfeed.monitor import report
from mirrorfeed.orchestration import ledger
from mirrorfeed.orchestration.ledger import (
    ARCHIVE,
    DIFFERENT,
    FAILED,
    PUBLISHED,
    UNVERIFIED,
    VERIFIED,
    WATCHED,
    LedgerRow,
)
from mirrorfeed.publish.table_publisher import publish
from mirrorfeed.source.identifier import Source
from mirrorfeed.storage.local_folder import FolderStore
from tests.golden.expected_output import check
from tests.golden.recorder import COMMANDS, Recorder, recording
from tests.publish.scenarios import two_orders
from tests.support.delta import DeltaTable
from tests.support.entries import entry
from tests.support.tables import TableFeed

OWN = (
    *("adopt", "changes", "check-alerts", "doctor", "enable-cdf", "history", "publish", "rebuild", "repair", "report"),
    *("status", "try", "verify"),
)
COMMANDS_WITH_SPARK = [each for each in COMMANDS if each == "setup check" or each.split()[0] in OWN]

ALL = """landing_zone: zone
ledger: ./ledger
max_parallel_tables: 1
tables:
  - {source: ./orders, target: sales.orders, keys: [id], history: ./history}
  - {source: ./customers, target: sales.customers, keys: [id]}
  - {source: ./prices, target: sales.prices, keys: [id], changes: compare}
  - {source: ./missing, target: sales.missing, keys: [id], delivery: soft_delete}
"""
"""Tables that change, do not change, are published by comparison, and have no source."""
GOOD = ("sales.orders", "sales.customers")
MIRROR = ("--mirror", "mirror")


@pytest.fixture(scope="module")
def recorder(spark: SparkSession) -> Iterator[Recorder]:
    with recording() as recorder:
        Path("mirrorfeed.yml").write_text(ALL, encoding="utf-8")
        orders = DeltaTable(spark, recorder.folder / "orders", feed=False)
        orders.insert(1, 2, 3)
        DeltaTable(spark, recorder.folder / "customers").insert(1)
        _write_prices({1: "a", 2: "b", 3: "c"})
        _publications(recorder, orders)
        _try(recorder)
        _mirrors(recorder, orders)
        _histories(recorder)
        _reports(recorder, spark)
        yield recorder


@pytest.mark.parametrize("command", COMMANDS_WITH_SPARK)
def test_output_is_as_expected(recorder: Recorder, command: str, pytestconfig: pytest.Config) -> None:
    check(recorder, command, pytestconfig)


def test_ledger_has_every_verification(recorder: Recorder) -> None:
    rows = deltalake.DeltaTable(recorder.folder / "ledger").to_pyarrow_table().sort_by("time").to_pylist()
    kinds = (VERIFIED, DIFFERENT, UNVERIFIED)
    found = [tuple(row[name] for name in ("table", "outcome", "to_version", "error")) for row in rows]
    assert [row for row in found if row[1] in kinds] == [
        ("sales.orders", UNVERIFIED, None, "MirrorMissing"),
        ("sales.orders", VERIFIED, 5, None),
        ("sales.prices", VERIFIED, 1, None),
        ("sales.orders", DIFFERENT, 5, None),
        ("sales.prices", DIFFERENT, 1, None),
    ]


def _try(recorder: Recorder) -> None:
    text = "landing_zone: other\ntables: [{source: ./customers, target: customers, keys: [id]}]\n"
    Path("small.yml").write_text(text, encoding="utf-8")
    small = ("try", "--config", "small.yml", "--mirror", "other_mirror")
    recorder.text("One table", *small)
    recorder.json("Nothing is new", *small)
    recorder.case("A source is missing", "try", "sales.missing")


def _publications(recorder: Recorder, orders: DeltaTable) -> None:
    recorder.case("A feed is off, a source is missing", "setup", "check")
    recorder.case("The feed is off", "publish", "sales.orders")
    recorder.text("The feed is off", "publish", "sales.orders", "--dry-run")
    recorder.text("A feed is off, a source is missing", "enable-cdf")
    recorder.case("A feed is on, a source is missing", "enable-cdf", "sales.orders", "sales.missing")

    recorder.case("Nothing is published", "status")
    before = _files()
    recorder.case("Nothing is published", "publish", "--dry-run")
    assert _files() == before
    recorder.text("First loads, and a source that is missing", "publish")
    recorder.json("Nothing is new, and a source is missing", "publish", "sales.orders", "sales.missing")
    recorder.case("All is published", "status", *GOOD)
    recorder.text("Only tables behind", "status", "--behind", *GOOD)
    recorder.text("Nothing is new", "publish", *GOOD)
    _commit(orders, "UPDATE {} SET v = 'new' WHERE id = 1", "DELETE FROM {} WHERE id = 2")
    _write_prices({1: "a", 2: "new", 4: "d"})
    zone = FolderStore(str(recorder.folder / "zone"))
    publish(TableFeed(two_orders()), zone, entry("a", "sales.old"))
    recorder.case("A table is behind, another is not configured", "status")
    recorder.case("Only tables behind", "status", "--behind", *GOOD)
    recorder.case("Two versions, and a comparison", "publish", "--dry-run", "sales.orders", "sales.prices")
    recorder.json("An update and a delete, and a comparison", "publish", "sales.orders", "sales.prices")
    _commit(orders, "INSERT INTO {} VALUES (4, 'v4')")
    recorder.text("An insert", "publish", *GOOD)
    recorder.case("An unknown table", "publish", "sales.nothing")
    recorder.case("--duration without --follow", "publish", "--duration", "3")
    recorder.json("--follow and JSON", "publish", "--follow")

    changes = ("changes", "sales.orders")
    recorder.text("Three versions, without rows", *changes, "--from", "3", "--to", "5", "--rows", "0")
    recorder.text("A delete and an insert", *changes, "--from", "4", "--to", "5")
    recorder.json("A delete and an insert, one row", *changes, "--from", "4", "--to", "5", "--rows", "1")
    recorder.text(
        "From a time, without rows", "changes", "./customers", "--from", "2020-01-01", "--to", "1", "--rows", "0"
    )
    recorder.case("Past the newest version", *changes, "--from", "9")
    recorder.text("Past the newest version is empty", *changes, "--from", "9", "--past-end", "empty")
    recorder.case("Neither a version nor a time", *changes, "--from", "yesterday")


def _files() -> set[Path]:
    return {path for path in Path().rglob("*") if path.is_file()}


def _commit(table: DeltaTable, *statements: str) -> None:
    """Commit times have milliseconds, because they are part of the width of a table."""
    for statement in statements:
        table.sql(statement)
        half = int(time.time()) - 0.5
        os.utime(table.commit_file(table.latest), (half, half))


def _write_prices(rows: dict[int, str]) -> None:
    """Replace the file with a new one."""
    shutil.rmtree("prices", ignore_errors=True)
    Path("prices").mkdir()
    columns = {"id": pa.array(list(rows), pa.int32()), "v": list(rows.values())}
    pq.write_table(pa.table(columns), f"prices/{uuid.uuid4()}.parquet")


def _mirrors(recorder: Recorder, orders: DeltaTable) -> None:
    recorder.case("Nothing is published", "verify", "sales.missing", *MIRROR)
    recorder.text("The place of the mirror is not given", "verify", "sales.orders")
    recorder.text("The mirror is missing", "verify", "sales.orders", *MIRROR)
    recorder.text("All files are applied", "replicate", "zone", "mirror")
    recorder.text("Two tables are equal", "verify", "sales.orders", "sales.prices", *MIRROR)
    recorder.text("How fresh the mirror is", "status", *GOOD, *MIRROR)
    recorder.json("Nothing differs", "repair", "sales.orders", *MIRROR)
    mirror = DeltaTable.at(orders.spark, recorder.folder / "mirror/sales/orders")
    mirror.sql("UPDATE {} SET v = 'other' WHERE id = 1")
    recorder.json("A row differs", "verify", "sales.orders", *MIRROR)
    recorder.text("A row differs", "repair", "sales.orders", *MIRROR)
    recorder.case("No condition is given", "repair", "sales.orders", "--source-only")
    recorder.case("There is no feed", "repair", "sales.prices", *MIRROR)
    _write_prices({1: "other", 2: "new"})
    recorder.text("Two rows differ", "verify", "sales.prices", *MIRROR)

    recorder.case("A source is missing", "doctor", "sales.orders", "sales.missing")
    recorder.text("Nothing is wrong", "doctor", "sales.customers", "sales.prices")
    recorder.text("A problem is new", "check-alerts", *MIRROR)
    recorder.json("The problem is known", "check-alerts", *MIRROR)

    recorder.case("mirrorfeed publishes the table", "adopt", "sales.customers", "--published", "1")
    shutil.rmtree("zone/sales.schema/customers/_mirrorfeed")
    recorder.text("The mirror has another version", "adopt", "sales.customers", "--published", "0", *MIRROR)
    recorder.json("The mirror is equal", "adopt", "sales.customers", "--published", "1", *MIRROR)

    recorder.text("It is not confirmed", "rebuild", "sales.orders", answer="n\n")
    recorder.text("A table is published again", "rebuild", "sales.orders", "--yes")
    recorder.case("The source is missing", "rebuild", "sales.missing", "--yes")


def _histories(recorder: Recorder) -> None:
    recorder.text("Nothing is kept", "history", "status")
    recorder.text("A table is kept", "history", "append")
    recorder.json("Nothing is new", "history", "append")
    recorder.case("All is kept", "history", "status")
    recorder.case("A table without a history", "history", "status", "sales.customers")
    recorder.case("A table without a history", "history", "append", "sales.customers")
    replay = ("history", "replay", "sales.orders", "--into", "./then")
    recorder.text("A version is rebuilt", *replay, "--to-version", "5")
    recorder.json("It was rebuilt before", *replay, "--to-version", "5")
    recorder.case("A version that is not kept", *replay, "--to-version", "1")
    recorder.case("Neither a version nor a time", *replay)


def _reports(recorder: Recorder, spark: SparkSession) -> None:
    names = {"orders": "", "customers": "", "missing": ", delivery: soft_delete"}
    tables = "".join(
        f"  - {{source: ./{name}, target: sales.{name}, keys: [id]{more}}}\n" for name, more in names.items()
    )
    Path("no-ledger.yml").write_text(f"landing_zone: zone\ntables:\n{tables}", encoding="utf-8")
    recorder.case("There is no ledger", "report", "--config", "no-ledger.yml")
    recorder.text("A page is written without a ledger", "report", "--html", "page.html", "--config", "no-ledger.yml")
    config = "landing_zone: zone\ntables: [{source: a, target: b}]\n"
    now = datetime.now(UTC) - timedelta(minutes=2)
    rows = [
        LedgerRow(now, "sales.orders", PUBLISHED, None, 4, inserts=20, files=1, bytes=2**20, lag_versions=1,
            lag_seconds=60.0, stage_seconds=2.5, record_seconds=0.5, rename_seconds=0.5),
        LedgerRow(now, "sales.orders", PUBLISHED, 4, 5, upserts=7, deletes=2, files=1, bytes=2**20, lag_versions=0,
            lag_seconds=60.0, stage_seconds=1.0, record_seconds=0.5, rename_seconds=0.5, retries=2,
            delivery="soft_delete"),
        LedgerRow(now, "sales.orders", VERIFIED, to_version=5, message="equal at version 5, 18 rows"),
        LedgerRow(now, "sales.lines", DIFFERENT, to_version=4, message="DIFFERENT at version 4: 3 rows."),
        LedgerRow(now, "sales.lines", FAILED, from_version=4, error="StorageUnavailable", message="No answer."),
        LedgerRow(now, "sales.orders", WATCHED, committed_at=now, published_at=now, published_lag_seconds=0.0,
            freshness_target_minutes=15.0),
        LedgerRow(now, "main.sales.orders", ARCHIVE, archived_share=0.25, archived_files=4, archived_bytes=2**30,
            hot_bytes=3 * 2**30, restored_bytes=0),
    ]  # fmt: skip
    ledger.append(spark, Source(path=str(recorder.folder / "figures")), rows)
    Path("report.yml").write_text(f"{config}ledger: ./figures\n", encoding="utf-8")
    # The queries of a report take seconds, so text, JSON and page show the same report.
    read = cache(partial(report.read_report, now=datetime.now(UTC)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(report, "read_report", lambda spark, ledger, _: read(spark, ledger))
        recorder.case("Two tables and an archive", "report", "--config", "report.yml")
        recorder.text("A page is written", "report", "--html", "report.html", "--config", "report.yml")
