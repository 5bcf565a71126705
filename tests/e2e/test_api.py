"""A notebook that uses only public names, from a source without a feed to a repaired mirror."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import deltalake
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import mirrorfeed
from mirrorfeed.api.errors import no_archive_named
from mirrorfeed.api.results import FailedRowsError
from mirrorfeed.config.errors import UnknownTableError
from mirrorfeed.errors import ConfigurationError
from mirrorfeed.history.errors import no_history
from mirrorfeed.mirror.errors import mirror_not_named
from mirrorfeed.mirror.local_replica import Replica
from mirrorfeed.runtime.spark_session import ALL_DAYS, setting
from mirrorfeed.storage.local_folder import FolderStore
from tests.raised import raises
from tests.support.delta import DeltaTable

TABLES = """landing_zone: ./zone
tables:
  - {source: ./orders, target: sales.orders, keys: [id]}
  - {source: ./lines, target: sales.lines, keys: [id]}
"""


@pytest.fixture
def feed(spark: SparkSession, tmp_path: Path) -> mirrorfeed.Feed:
    """A feed of two tables with two rows each. The second table has no change data feed yet."""
    for name, on in (("orders", True), ("lines", False)):
        DeltaTable(spark, tmp_path / name, feed=on).insert(1, 2)
    (tmp_path / "mirrorfeed.yml").write_text(TABLES)
    return mirrorfeed.load(tmp_path / "mirrorfeed.yml", spark)


@pytest.mark.slow  # `tests/golden` runs every command, and a command calls the method of the same name
def test_public_api_covers_all_steps_from_first_publish_to_repair(
    spark: SparkSession, tmp_path: Path, feed: mirrorfeed.Feed
) -> None:
    assert feed.tables == ("sales.orders", "sales.lines")
    assert "<td>sales.orders</td>" in feed._repr_html_()
    assert [(row.table, row.next, row.ok) for row in feed.dry_run()] == [
        ("sales.orders", "snapshot at version 1", True),
        ("sales.lines", "blocked", False),
    ]
    published = feed.publish()
    assert [(row.inserts, row.published_version, row.ok) for row in published] == [(2, 1, True), (0, None, False)]
    with pytest.raises(FailedRowsError, match=r"sales\.lines: "):
        published.check()
    assert [finding.code for finding in feed.doctor() if not finding.ok] == ["MF2101"]

    assert [row.feed for row in feed.enable_cdf()] == ["on already", "switched on"]
    DeltaTable.at(spark, tmp_path / "orders").sql("DELETE FROM {} WHERE id = 1")
    assert [row.lag_versions for row in feed.status()] == [1, None]
    found = feed.publish()
    found.check()
    assert [(row.what, row.deletes, row.inserts) for row in found] == [("2", 1, 0), ("snapshot to 2", 0, 2)]
    assert [row.what for row in feed.publish("sales.orders")] == ["nothing new at 2"]
    assert [(row.what, row.ok) for row in feed.log("sales.orders")] == [
        ("version 2", True),
        ("snapshot at version 1", True),
    ]
    assert feed.lint().ok

    with raises(mirror_not_named):
        feed.verify()
    mirror = str(tmp_path / "mirror")
    Replica(FolderStore(str(tmp_path / "zone")), mirror).run_pass()
    DeltaTable.at(spark, tmp_path / "mirror/sales/orders").sql("UPDATE {} SET v = 'lost'")
    verified = {row.table: row for row in feed.verify(mirror=mirror)}
    assert verified["sales.lines"].equal
    different = verified["sales.orders"]
    assert (different.equal, different.differing, different.differences[0].column) == (False, 1, "v")
    (mended,) = feed.repair("sales.orders", mirror)
    assert (mended.ok, mended.upserts, mended.deletes) == (True, 1, 0)

    changes = feed.changes("sales.orders")
    assert [row.to_dict() for row in changes.counts()] == [
        {"version": 1, "inserts": 2, "updates": 0, "deletes": 0},
        {"version": 2, "inserts": 0, "updates": 0, "deletes": 1},
    ]
    assert changes.chart()._repr_html_().count("<svg") == 1
    assert [(row.what, row.inserts) for row in feed.rebuild("sales.orders")] == [("snapshot to 2", 1)]


def test_changes_are_shown_exactly_in_a_session_with_other_settings(spark: SparkSession, tmp_path: Path) -> None:
    columns, on = "(id INT, day DATE, code CHAR(4))", "delta.enableChangeDataFeed = true"
    spark.sql(f"CREATE TABLE delta.`{tmp_path}/t` {columns} USING delta TBLPROPERTIES ({on})")
    day = date(1582, 10, 10)
    rows = pa.table({"id": pa.array([1], pa.int32()), "day": pa.array([day]), "code": ["ab"]})  # without padding
    deltalake.write_deltalake(tmp_path / "t", rows, mode="append")
    (tmp_path / "mirrorfeed.yml").write_text("landing_zone: ./zone\ntables: [{source: ./t, target: t}]\n")
    with setting(spark, ALL_DAYS, "false"), setting(spark, "spark.sql.readSideCharPadding", "false"):
        changes = mirrorfeed.load(tmp_path / "mirrorfeed.yml", spark).changes("t")
        (shown,) = changes.first()
        assert [shown.values[name] for name in ("day", "code")] == ["1582-10-10", "ab  "]
        assert [row.code for row in changes.rows.collect()] == ["ab  "]


def test_unknown_table_name_is_refused(feed: mirrorfeed.Feed) -> None:
    for ask in (
        feed.publish,
        feed.status,
        feed.dry_run,
        feed.rebuild,
        feed.repair,
        feed.doctor,
        feed.enable_cdf,
        feed.log,
    ):
        with pytest.raises(UnknownTableError if ask != feed.repair else ConfigurationError):
            ask("sales.nothing")
    with raises(no_history):
        feed.history.status()
    with raises(no_archive_named):
        feed.archive.table()


@pytest.mark.slow  # `tests/history` and `tests/golden` cover it
def test_histories_are_appended_and_read(spark: SparkSession, tmp_path: Path) -> None:
    DeltaTable(spark, tmp_path / "orders").insert(1, 2)
    line = "  - {source: ./orders, target: orders, keys: [id], history: ./kept}\n"
    (tmp_path / "mirrorfeed.yml").write_text(f"landing_zone: ./zone\ntables:\n{line}")
    feed = mirrorfeed.load(tmp_path / "mirrorfeed.yml", spark)
    assert [(row.newest_version, row.rows, row.ok) for row in feed.history.append()] == [(1, 2, True)]
    assert [(row.versions, row.lag_versions, row.error) for row in feed.history.status()] == [(((1, 1),), 0, None)]
